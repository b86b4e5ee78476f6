# SPDX-License-Identifier: Apache-2.0
"""Operating a server: what a key may do and how much at once, what the cache holds and for whom, clearing it, and a
pool that becomes larger and smaller while it serves."""

import concurrent.futures
import json
import pathlib
import subprocess
import threading

import anthropic
import httpx2
import openai
import pytest

from conftest import MODEL, NAME, PROGRAM, eventually, serving
from test_errors import check_anthropic, check_openai

MIB = 1 << 20
BLOCK = 16 * 22.5 * 1024  # bytes of a block of 16 tokens of SmolLM2
KEYS = """\
# two of one team, one of its own, one that is held short, one for the operator
sk-one tenant=acme name=one
sk-two tenant=acme
sk-alone name=alone
sk-short name=short max-requests=1 max-tokens=300
sk-root admin name=root
"""


def ids(count, first=100):
    """A prompt of so many tokens that nothing else begins with."""
    return [first + i % 1000 for i in range(count)]


def ask(prompt, tokens=4, **more):
    return {"model": "m", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, **more}


def words(answer):
    return answer["choices"][0]["text"]


def cached(answer):
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


@pytest.fixture(scope="module")
def keyed(tmp_path_factory):
    """A server with a key file."""
    path = tmp_path_factory.mktemp("keys") / "team.keys"
    path.write_text(KEYS)
    with serving("--kv-memory", "64MiB", "--block-tokens", "16", "--alias", "*", "--api-key-file", path) as running:
        running.http.headers["authorization"] = "Bearer sk-root"
        yield running


@pytest.fixture
def small():
    """A server whose pool of 64 blocks holds 1,024 tokens."""
    with serving("--kv-memory", int(64 * BLOCK), "--block-tokens", "16", "--max-context", "4096",
                 "--alias", "*") as running:
        assert running.blocks()["pool"] == 64
        yield running


class Stream:
    """A streamed completion in the background."""

    def __init__(self, server, body, **headers):
        self.pieces, self.error, self._closing = [], None, False
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._read, args=(server.base, {**body, "stream": True}, headers))
        self._thread.start()
        assert self._begun.wait(60)

    def _read(self, base, body, headers):
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        with httpx2.Client(timeout=120) as client, \
                client.stream("POST", f"{base}/v1/completions", json=body, headers=headers) as response:
            self.status = response.status_code
            for line in response.iter_lines():
                if line.startswith("data: {"):
                    event = json.loads(line[6:])
                    self.pieces.append(event)
                    self._begun.set()
                if self._closing:
                    return
        self._begun.set()

    def leave(self):
        self._closing = True
        self._thread.join(60)

    def text(self):
        self._thread.join(120)
        assert not self._thread.is_alive()
        return "".join(piece["choices"][0]["text"] for piece in self.pieces if piece.get("choices"))

    def finish_reason(self):
        self._thread.join(120)
        return [piece["choices"][0]["finish_reason"] for piece in self.pieces if piece.get("choices")][-1]


# The key file

@pytest.mark.parametrize("text,line", [
    ("sk-a\nsk-b max-request=2\n", ":2: unknown attribute 'max-request='; known are name=, tenant=, public, "
                                   "max-requests=, max-tokens=, floor=, ceiling= and admin"),
    ("sk-a\n# x\nsk-a admin\n", ":3: the same key as on line 1: remove one"),
    ("sk-a max-tokens=many\n", ":1: max-tokens= takes a whole number from 1 to 9007199254740992"),
    ("sk-a floor=many\n", ":1: floor= takes a whole number from 1 to 1000000000"),
    ("sk-a sk-b\n", ":1: what follows the key is no attribute"),
])
def test_a_key_file_that_is_not_understood_stops_the_start_with_file_and_line(tmp_path, text, line):
    path = tmp_path / "team.keys"
    path.write_text(text)
    done = subprocess.run([PROGRAM, "serve", MODEL, "--port", "0", "--api-key-file", path], capture_output=True,
                          text=True, timeout=60)
    assert done.returncode in (1, 2) and done.stderr.count("\n") == 1
    assert f"{path}{line}" in done.stderr and "sk-" not in done.stderr


def test_c09_keys_of_a_tenant_share_a_cache_and_others_do_not(keyed):
    body = ask(ids(200), 2)
    answers = [keyed.ok("/v1/completions", body, authorization=f"Bearer {key}")
               for key in ("sk-one", "sk-two", "sk-alone", "sk-alone", "sk-root")]
    hits = [cached(answer) for answer in answers]
    assert hits[0] == 0 and hits[1] == 199 and hits[2] == 0 and hits[3] == 199 and hits[4] == 0
    assert len({words(answer) for answer in answers}) == 1


def test_a_key_is_held_to_its_requests_at_once_with_the_official_clients(keyed):
    running = Stream(keyed, ask(ids(20), 200), authorization="Bearer sk-short")
    gpt = openai.OpenAI(base_url=f"{keyed.base}/v1", api_key="sk-short", max_retries=0)
    with pytest.raises(openai.RateLimitError) as refused:
        gpt.completions.create(model="m", prompt="hi", max_tokens=1)
    assert refused.value.code == "rate_limit_exceeded" and refused.value.type == "requests"
    assert refused.value.response.headers["retry-after"] == "1" and "1 request" in refused.value.message
    claude = anthropic.Anthropic(base_url=keyed.base, api_key="sk-short", max_retries=0)
    with pytest.raises(anthropic.RateLimitError) as refused:
        claude.messages.create(model="m", max_tokens=1, messages=[{"role": "user", "content": "hi"}])
    assert refused.value.body["error"]["type"] == "rate_limit_error"
    assert refused.value.response.headers["retry-after"] == "1"
    # A stream is refused before it begins, and nobody else's key is in the way.
    check_openai(keyed.post("/v1/completions", ask("hi", stream=True), authorization="Bearer sk-short"), 429,
                 "rate_limit_exceeded", kind="requests")
    assert keyed.post("/v1/completions", ask("hi"), authorization="Bearer sk-alone").status_code == 200
    # What a client that leaves took is there again, and after an end in good order as well.
    running.leave()
    eventually(lambda: keyed.post("/v1/completions", ask("hi"), authorization="Bearer sk-short").status_code == 200)
    for _ in range(3):
        assert gpt.completions.create(model="m", prompt="hi", max_tokens=1).usage.completion_tokens == 1
    metrics = keyed.metrics()
    assert metrics['pagewise_key_refusals_total{limit="max-requests"}'] >= 3


def test_a_key_is_held_to_the_tokens_that_its_requests_may_come_to(keyed):
    def post(body):
        return keyed.post("/v1/completions", body, authorization="Bearer sk-short")
    answer = post(ask(ids(200), 4000)).json()
    assert answer["usage"]["completion_tokens"] == 100, "max_tokens is a cap: lowered to what the key may have"
    refused = post(ask(ids(301), 4))
    message = check_openai(refused, 400)["message"]
    assert "302 tokens" in message and "300" in message
    claude = {"model": "m", "max_tokens": 3, "messages": [{"role": "user", "content": "word " * 400}]}
    check_anthropic(keyed.post("/v1/messages", claude, x_api_key="sk-short"), 400)


def test_the_log_names_the_key_and_never_shows_it(keyed):
    answer = keyed.post("/v1/completions", ask("hi"), authorization="Bearer sk-alone")
    refused = keyed.post("/v1/completions", {}, authorization="Bearer sk-alone")
    for response, end in ((answer, "key=alone"), (refused, "key=alone")):
        line = eventually(lambda: [line for line in keyed.log().splitlines()
                                   if response.headers["x-request-id"] in line])[0]
        assert line.endswith(end), line
    assert "sk-" not in keyed.log()


# Who may operate

@pytest.mark.parametrize("method,path", [("GET", "/v1/admin/kv"), ("POST", "/v1/admin/kv"), ("POST", "/v1/cache/clear"),
                                         ("GET", "/v1/cache/curve")])
def test_operating_needs_an_admin_key(keyed, method, path):
    def go(**headers):
        return httpx2.request(method, keyed.base + path, headers={k.replace("_", "-"): v for k, v in headers.items()},
                              **({"json": {"memory": "64MiB"} if "kv" in path else {}} if method == "POST" else {}))
    check_openai(go(), 401)
    check_openai(go(authorization="Bearer sk-wrong"), 401, "invalid_api_key")
    check_openai(go(authorization="Bearer sk-one"), 403)
    check_anthropic(go(x_api_key="sk-one", anthropic_version="2023-06-01"), 403, "permission_error")
    check_anthropic(go(anthropic_version="2023-06-01"), 401, "authentication_error")
    assert go(x_api_key="sk-root").status_code == 200


def test_without_keys_only_this_machine_may_operate_and_no_proxy_on_it(server):
    assert server.http.get("/v1/admin/kv").status_code == 200
    for header in ("x-forwarded-for", "forwarded", "via", "x-real-ip"):
        refused = server.http.get("/v1/admin/kv", headers={header: "127.0.0.1"})
        assert header in check_openai(refused, 403)["message"]
    check_openai(server.http.get("/v1/admin/kv", headers={"origin": "https://example.org"}), 403)
    check_openai(server.http.get("/v1/admin/kv", headers={"host": "rebound.example"}), 403)


# The cache

def test_the_statistics_show_a_key_its_own_and_the_operator_everyone(keyed):
    def stats(key):
        response = keyed.http.get("/v1/cache/stats", headers={"authorization": f"Bearer {key}"})
        assert response.status_code == 200, response.text
        return response.json()
    assert keyed.http.post("/v1/cache/clear", json={}).status_code == 200
    before = stats("sk-one")
    prompt = [{"type": "text", "text": "The rules of the house are long. " * 30,
               "cache_control": {"type": "ephemeral", "ttl": "1h"}}]
    claude = anthropic.Anthropic(base_url=keyed.base, api_key="sk-one", max_retries=0)
    usage = [claude.messages.create(model="m", max_tokens=1, system=prompt,
                                    messages=[{"role": "user", "content": "?"}]).usage for _ in range(2)]
    created = usage[0].cache_creation_input_tokens
    assert created > 100 and usage[1].cache_read_input_tokens == created
    own = stats("sk-two")
    assert own["namespace"] == "tenant:acme" and "namespaces" not in own
    moved = {name: own["tokens"][name] - before["tokens"][name] for name in own["tokens"]}
    total = created + usage[0].input_tokens
    assert moved == {"computed": total + 1, "reused": total - 1, "created": created, "read": created}
    assert own["blocks"]["live"] == 0 and own["blocks"]["cached"] == -(-total // 16)
    assert own["blocks"]["leased"] == -(-created // 16)
    assert own["leases_total"] == 1 and own["leases"][0]["tokens"] == created
    assert own["leases"][0]["ttl"] == "1h" and 3000 < own["leases"][0]["seconds_left"] <= 3600
    assert stats("sk-alone")["blocks"]["cached"] == 0
    keyed.ok("/v1/completions", ask(ids(100, 700)), authorization="Bearer sk-alone")
    whole = stats("sk-root")
    assert {entry["namespace"].split(":")[0] for entry in whole["namespaces"]} == {"tenant", "key"}
    acme = next(entry for entry in whole["namespaces"] if entry["namespace"] == "tenant:acme")
    assert acme["keys"] == ["one"] and acme["blocks"] == own["blocks"]
    assert whole["blocks"]["pool"] == keyed.blocks()["pool"]
    # The operator clears one namespace, leases and all; the others keep theirs.
    cleared = keyed.ok("/v1/cache/clear", {"namespace": "tenant:acme"})
    assert cleared == {"object": "cache.clear", "blocks_cleared": own["blocks"]["cached"], "leases_dropped": 1,
                       "blocks_live": 0}
    assert stats("sk-one")["blocks"]["cached"] == 0 and stats("sk-alone")["blocks"]["cached"] > 0
    assert keyed.metrics()["pagewise_leases_broken_total"] == 0


def test_clearing_leaves_running_requests_alone(small, uncached):
    expected = words(uncached.ok("/v1/completions", ask(ids(50), 120)))
    small.ok("/v1/completions", ask(ids(300, 500)))
    running = Stream(small, ask(ids(50), 120))
    cleared = small.ok("/v1/cache/clear", {})
    assert cleared["blocks_cleared"] >= 19 and cleared["blocks_live"] >= 4
    assert running.text() == expected
    assert small.wait_idle()["cached"] == 0
    assert cached(small.ok("/v1/completions", ask(ids(300, 500)))) == 0


# The size of the pool

def context(server):
    return server.http.get("/v1/models").json()["data"][0]["max_model_len"]


def resize(server, memory):
    return server.post("/v1/admin/kv", {"memory": memory})


def test_the_pool_grows_and_shrinks_while_it_serves(small, uncached):
    expected = words(uncached.ok("/v1/completions", ask(ids(40), 400)))
    running = Stream(small, ask(ids(40), 400))
    grown = resize(small, "90MiB").json()
    assert grown["blocks"]["pool"] == 256 and grown["memory"] == 256 * BLOCK and grown["context_max"] == 4096
    assert context(small) == 4096 and small.blocks()["pool"] == 256
    # A prompt that the pool did not hold before.
    long_prompt = ask(ids(2000), 4)
    assert small.ok("/v1/completions", long_prompt)["usage"]["prompt_tokens"] == 2000
    assert running.text() == expected
    small.wait_idle()
    info = next(line for line in small.http.get("/metrics").text.splitlines()
                if line.startswith("vllm:cache_config_info"))
    assert 'num_gpu_blocks="256"' in info and 'max_model_len="4096"' in info
    # And smaller: what is cached beyond it goes, and its memory goes back to the system.
    held = resident(small)
    shrunk = resize(small, int(32 * BLOCK)).json()
    assert shrunk["blocks"]["pool"] == 32 and shrunk["context_max"] == 512 == context(small)
    assert shrunk["memory_committed"] <= 32 * BLOCK
    assert resident(small) < held - 20 * MIB, "of the 43 MiB that 2,000 tokens took"
    refused = check_openai(small.post("/v1/completions", long_prompt), 400, "context_length_exceeded", "prompt")
    assert "512" in refused["message"]
    metrics = small.metrics()
    assert metrics["pagewise_kv_pool_resizes_total"] == 2 and metrics["pagewise_context_max_tokens"] == 512
    assert metrics["pagewise_kv_pool_bytes"] == 32 * BLOCK
    assert metrics["pagewise_kv_committed_bytes"] <= 32 * BLOCK
    assert words(small.ok("/v1/completions", ask(ids(40), 400))) == expected


def resident(server):
    return int(pathlib.Path(f"/proc/{server.process.pid}/statm").read_text().split()[1]) * 4096


def test_shrinking_below_what_is_in_use_or_promised_is_a_conflict_with_the_numbers(small, uncached):
    expected = words(uncached.ok("/v1/completions", ask(ids(300), 300)))
    running = Stream(small, ask(ids(300), 300))
    live = small.blocks()["live"]
    assert live >= 19
    message = check_openai(resize(small, int(10 * BLOCK)), 409, "conflict")["message"]
    assert "KV blocks are in use" in message and "10" in message and "64" in message
    message = check_openai(resize(small, int(30 * BLOCK)), 409, "conflict")["message"]
    assert "600 tokens" in message and "480" in message
    error = check_anthropic(small.post("/v1/admin/kv", {"memory": int(10 * BLOCK)}, anthropic_version="2023-06-01"),
                            409, "conflict_error")
    assert "in use" in error["message"]
    assert small.blocks()["pool"] == 64
    assert resize(small, int(38 * BLOCK)).status_code == 200, "600 tokens fit into 38 blocks"
    assert running.text() == expected
    small.wait_idle()
    assert resize(small, int(10 * BLOCK)).status_code == 200


def test_an_answer_that_may_fill_the_context_ends_with_the_smaller_one(small):
    running = Stream(small, ask(ids(100), 10**6))
    assert resize(small, int(16 * BLOCK)).status_code == 200
    assert running.finish_reason() == "length"
    small.wait_idle()
    assert len(small.tokens(running.text())) <= 256


def test_sizes_that_mean_nothing_and_memory_that_is_not_there_are_refused_with_the_numbers(small):
    for body in ({}, {"memory": None}, {"memory": 0}, {"memory": "lots"}, {"memory": "1GB"}, {"memory": -1},
                 {"memory": 1.5}, {"blocks": 5}, {"memory": "64MiB", "blocks": 5}, {"memory": "4KiB"}):
        assert small.post("/v1/admin/kv", body).status_code == 400, body
    message = check_openai(resize(small, "900TiB"), 400)["message"]
    assert "900.0 TiB" in message and "are free" in message and "that leaves" in message
    assert small.blocks()["pool"] == 64


def test_c08_pools_from_one_request_upwards_serve_everyone_as_if_alone(small, uncached):
    """Every request needs 600 tokens or fewer; pools hold 1.0, 1.5 and 2.5 times that."""
    bodies = [ask(ids(560, 100 + 40 * i), 40) for i in range(3)] + [ask(ids(30 * i + 20, 3000 + i), 24)
                                                                   for i in range(4)]
    expected = [words(uncached.ok("/v1/completions", body)) for body in bodies]
    for blocks in (38, 57, 95):
        assert resize(small, int(blocks * BLOCK)).status_code == 200
        small.ok("/v1/cache/clear", {})
        with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
            answers = list(pool.map(lambda body: small.ok("/v1/completions", body), bodies))
        assert [words(answer) for answer in answers] == expected, f"{blocks} blocks"
        assert small.wait_idle()["pool"] == blocks
