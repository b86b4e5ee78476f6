# SPDX-License-Identifier: Apache-2.0
"""A cache that explains its misses: POST /v1/cache/explain, `pagewise explain`, and the log line about a place where
prompts keep missing.

tests/explain/*.json holds pairs of requests, {"route", "before", "after", "kind"}: `before` is sent, `after` is
explained, and the cause must be `kind` (null: nothing to fix).
"""

import json
import subprocess

import pytest

from conftest import PROGRAM, ROOT, serving

PAIRS = sorted((ROOT / "tests/explain").glob("*.json"))
KINDS = {"time_stamp", "date", "id", "counter", "tool_order", "key_order", "white_space", "bos", "template", "model",
         "moved"}
MANUAL = "Guests are led to the table by the window. The kitchen closes at the end of the shift. " * 6


@pytest.fixture(scope="module")
def inn():
    with serving("--kv-memory", "128MiB", "--alias", "claude-*,gpt-*") as running:
        yield running


def explain(server, body, **headers):
    return server.ok("/v1/cache/explain", body, **headers)


def send(server, route, body):
    return server.ok(route, body)


def untouched(server):
    """What explaining must leave alone: everything that counts what the cache does."""
    metrics = server.metrics()
    return {name: value for name, value in metrics.items()
            if name.startswith(("pagewise_", "vllm:")) and "http" not in name}


def test_there_are_pairs_of_every_kind():
    kinds = [json.loads(path.read_text())["kind"] for path in PAIRS]
    assert {kind for kind in kinds if kind} == KINDS
    assert len([kind for kind in kinds if kind]) >= 24 and None in kinds


@pytest.mark.parametrize("path", PAIRS, ids=[path.stem for path in PAIRS])
def test_the_cause_of_a_miss_is_named(inn, path):
    pair = json.loads(path.read_text())
    own = {"anthropic-workspace-id": path.stem}  # each pair in a cache of its own

    def post(route, body):
        response = inn.http.post(route, json=body, headers=own)
        assert response.status_code == 200, response.text
        return response

    answer = post(pair["route"], pair["before"]).json()
    seen = post("/v1/cache/explain", {**pair["after"], "route": pair["route"]}).json()
    assert seen["cause"] == pair["kind"], seen
    assert seen["nearest"]["id"] == answer["id"]
    assert 0 <= seen["cached_tokens"] < seen["prompt_tokens"]
    divergence, gain = seen["divergence"], seen["gain"]
    if pair["kind"] in (None, "model"):
        assert gain == {"tokens": 0, "ms": 0}
    else:
        assert divergence["token"] == seen["nearest"]["shared_tokens"] < seen["prompt_tokens"]
        assert divergence["cached_text"] != divergence["request_text"]
        assert gain["tokens"] <= seen["prompt_tokens"] - seen["cached_tokens"]
        if pair["kind"] != "template":
            assert gain["tokens"] >= 15 and gain["ms"] > 0, "something stands behind the difference"
    # What is said to be cached is what is then read.
    assert int(post(pair["route"], pair["after"]).headers["x-cached-tokens"]) == seen["cached_tokens"]


def test_explaining_computes_and_changes_nothing(inn, nonce):
    marked = [{"type": "text", "text": f"{nonce} {MANUAL}", "cache_control": {"type": "ephemeral"}}]
    body = {"model": "claude-x", "max_tokens": 1, "system": marked, "messages": [{"role": "user", "content": "Hi"}]}
    first = send(inn, "/v1/messages", body)["usage"]["cache_creation_input_tokens"]
    before = untouched(inn)
    seen = explain(inn, body)
    for _ in range(5):
        later = explain(inn, body)
    assert seen["lease"]["ttl"] == "5m" and seen["lease"]["tokens"] == first
    assert 0 < later["lease"]["expires_in_s"] <= seen["lease"]["expires_in_s"] <= 300, "not refreshed"
    assert seen["cached_tokens"] == seen["prompt_tokens"] - 1 and seen["divergence"] is None
    assert seen["blocks"] == -(-seen["cached_tokens"] // 32)
    explain(inn, {**body, "system": f"never sent {nonce} {MANUAL}"})
    assert untouched(inn) == before
    again = explain(inn, {**body, "system": f"never sent {nonce} {MANUAL}"})
    assert again["cached_tokens"] < 32, "asking is not sending"


def test_the_place_is_named_with_the_text_on_both_sides(inn, nonce):
    def body(name):
        return {"model": "claude-x", "max_tokens": 1, "system": [
            {"type": "text", "text": f"{nonce} Grüße an"}, {"type": "text", "text": f"Frau {name}. {MANUAL}"}],
            "messages": [{"role": "user", "content": "Hi"}]}

    answer = send(inn, "/v1/messages", body("Müller"))
    seen = explain(inn, body("Möhring"))
    place = seen["divergence"]
    assert place["message"] is None and place["block"] == 1 and place["path"] == "system.1"
    assert (place["context"] + place["cached_text"]).count("Grüße an\nFrau Müller. Guests") == 1
    assert (place["context"] + place["request_text"]).count("Grüße an\nFrau Möhring. Guests") == 1
    assert place["cached_text"].strip().startswith("Mü") and place["request_text"].strip().startswith("Mö")
    assert len(place["cached_text"].encode()) <= 200 and seen["nearest"]["id"] == answer["id"]
    chat = {"model": "gpt-x", "max_tokens": 1, "messages": [
        {"role": "system", "content": nonce}, {"role": "user", "content": "One"},
        {"role": "assistant", "content": "Two"}, {"role": "user", "content": [{"type": "text", "text": "Three"},
                                                                             {"type": "text", "text": "Four"}]}]}
    send(inn, "/v1/chat/completions", chat)
    chat["messages"][3]["content"][1]["text"] = "Five"
    place = explain(inn, chat)["divergence"]
    assert (place["message"], place["block"], place["path"]) == (3, 1, "messages[3].content[1]")


def test_an_answer_sent_back_changed_is_compared_with_what_was_generated(inn, nonce):
    turns = [{"role": "user", "content": f"{nonce} Tell me about the sea."}]
    body = {"model": "gpt-x", "max_tokens": 24, "temperature": 0, "messages": turns}
    said = send(inn, "/v1/chat/completions", body)["choices"][0]["message"]["content"]
    edited = said.replace(" ", "  ", 1)
    assert edited != said
    later = [*turns, {"role": "assistant", "content": edited}, {"role": "user", "content": "And the wind?"}]
    seen = explain(inn, {**body, "messages": later})
    assert seen["cause"] == "white_space" and seen["divergence"]["message"] == 1
    later[1] = {"role": "assistant", "content": said}
    assert explain(inn, {**body, "messages": later})["cause"] is None


def test_an_evicted_prompt_is_known_and_said_to_be_gone(nonce):
    with serving("--kv-memory", "6MiB", "--max-context", "256", "--alias", "*") as small:
        body = {"model": "m", "max_tokens": 1, "system": f"{nonce} {MANUAL}"[:600],
                "messages": [{"role": "user", "content": "Hi"}]}
        send(small, "/v1/messages", body)
        for i in range(12):
            send(small, "/v1/messages", {**body, "system": f"other {i} {MANUAL[i:]}"[:600]})
        seen = explain(small, body)
        assert seen["nearest"]["shared_tokens"] == seen["prompt_tokens"] > seen["cached_tokens"] + 32
        assert seen["cause"] is None and "given up" in seen["note"]


def test_nothing_of_another_namespace_is_told(tmp_path, nonce):
    keys = tmp_path / "keys"
    keys.write_text("one\ntwo\n")
    with serving("--kv-memory", "64MiB", "--alias", "*", "--api-key-file", keys) as guarded:
        body = {"model": "m", "max_tokens": 1, "system": f"{nonce} secret {MANUAL}",
                "messages": [{"role": "user", "content": "Hi"}]}
        assert guarded.post("/v1/messages", body, x_api_key="one").status_code == 200
        mine = guarded.post("/v1/cache/explain", body, x_api_key="one").json()
        assert mine["cached_tokens"] > 50
        theirs = guarded.post("/v1/cache/explain", body, x_api_key="two").json()
        assert theirs["cached_tokens"] == 0 and theirs["nearest"] is None and theirs["divergence"] is None
        narrower = guarded.post("/v1/cache/explain", {**body, "cache_salt": "s"}, x_api_key="one").json()
        assert narrower["cached_tokens"] == 0 and narrower["nearest"] is None
        assert guarded.post("/v1/cache/explain", body).status_code == 401


def test_clearing_one_namespace_forgets_its_earlier_prompts_and_no_others(tmp_path, nonce):
    keys = tmp_path / "keys"
    keys.write_text("one tenant=a\ntwo tenant=b\nroot admin\n")
    with serving("--kv-memory", "64MiB", "--alias", "*", "--api-key-file", keys) as guarded:
        body = {"model": "m", "max_tokens": 1, "system": f"{nonce} {MANUAL}",
                "messages": [{"role": "user", "content": "Hi"}]}

        def nearest(key):
            return guarded.post("/v1/cache/explain", body, x_api_key=key).json()["nearest"]
        for key in ("one", "two"):
            assert guarded.post("/v1/messages", body, x_api_key=key).status_code == 200
        assert nearest("one")["id"] and nearest("two")["id"]
        assert guarded.post("/v1/cache/clear", {"namespace": "tenant:a"}, x_api_key="root").status_code == 200
        assert nearest("one") is None and nearest("two")["id"]
        assert guarded.post("/v1/cache/clear", {}, x_api_key="root").status_code == 200
        assert nearest("two") is None


def test_the_route_refuses_what_the_requests_own_route_refuses(inn):
    good = {"model": "claude-x", "messages": [{"role": "user", "content": "Hi"}]}
    assert explain(inn, good)["prompt_tokens"] > 0, "max_tokens is not needed"
    for body, status in (({**good, "model": "nobody"}, 404), ({"model": "claude-x"}, 400),
                         ({**good, "messages": [{"role": "foo", "content": "x"}]}, 400),
                         ({**good, "messages": [{"role": "user", "content": "word " * 20000}]}, 400)):
        assert inn.post("/v1/cache/explain", body).status_code == status, body
    assert inn.http.post("/v1/cache/explain", content=b"{").status_code == 400
    assert inn.http.get("/v1/cache/explain").status_code == 405
    spoken = inn.post("/v1/cache/explain", {**good, "model": "nobody", "system": "s"}).json()
    assert spoken["type"] == "error", "the shape of the API that the body speaks"


def test_prompts_that_keep_missing_at_one_place_are_named_once_in_the_log(nonce):
    with serving("--kv-memory", "64MiB", "--alias", "*") as noted:
        for minute in range(5):
            body = {"model": "m", "max_tokens": 1, "system": f"It is 14:0{minute}. {nonce} {MANUAL}",
                    "messages": [{"role": "user", "content": "Hi"}]}
            send(noted, "/v1/messages", body)
        for question in ("Who?", "Where?", "Why not?", "Since when?"):
            send(noted, "/v1/messages", {**body, "messages": [{"role": "user", "content": question}]})
        lines = [line for line in noted.log().splitlines() if "keep missing" in line]
        assert len(lines) == 1 and "system.0" in lines[0] and "time_stamp" in lines[0], lines
        assert nonce not in noted.log() and "14:0" not in lines[0], "no text of prompts in the log"


def run(*arguments, **options):
    return subprocess.run([PROGRAM, "explain", *map(str, arguments)], capture_output=True, text=True, timeout=60,
                          **options)


def test_the_command_shows_a_person_what_differs(inn, tmp_path, nonce):
    body = {"model": "claude-x", "max_tokens": 1, "system": f"{nonce} It is 14:03. {MANUAL}",
            "messages": [{"role": "user", "content": "Hi"}]}
    send(inn, "/v1/messages", body)
    request = tmp_path / "request.json"
    request.write_text(json.dumps({**body, "system": f"{nonce} It is 14:05. {MANUAL}"}))
    shown = run("--url", inn.base, request)
    assert shown.returncode == 0, shown.stderr
    for words in ("cached", "14:0", "system.0", "time stamp", "tokens", "ms"):
        assert words in shown.stdout, shown.stdout
    told = run("--url", inn.base, "--json", request)
    assert json.loads(told.stdout)["cause"] == "time_stamp"
    piped = run("--url", inn.base, "--json", "-", input=request.read_text())
    assert json.loads(piped.stdout)["cause"] == "time_stamp"


def test_the_command_shows_control_characters_and_blanks_and_obeys_none(inn, tmp_path, nonce):
    def body(ending):
        return {"model": "claude-x", "max_tokens": 1, "system": f"{nonce} {MANUAL} so:{ending}",
                "messages": [{"role": "user", "content": "Hi"}]}
    send(inn, "/v1/messages", body("\x1b[2J and \x9b2J"))
    request = tmp_path / "request.json"
    request.write_text(json.dumps(body("\xa0\u200b\x9b31m")))
    shown = run("--url", inn.base, request)
    assert shown.returncode == 0, shown.stderr
    assert not [c for c in shown.stdout if (ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160], shown.stdout
    assert "\\u00a0" in shown.stdout and "\u241b" in shown.stdout


def test_the_command_says_in_one_line_what_went_wrong(inn, tmp_path):
    request = tmp_path / "request.json"
    request.write_text(json.dumps({"model": "nobody", "messages": [{"role": "user", "content": "Hi"}]}))
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    for arguments, status, words in (
            (("--url", inn.base, request), 1, "nobody"),
            (("--url", "http://127.0.0.1:1", request), 1, "127.0.0.1:1"),
            (("--url", "https://example.org", request), 2, "https"),
            (("--url", inn.base, tmp_path / "none.json"), 2, "none.json"),
            (("--url", inn.base, broken), 2, "broken.json"),
            (("--url", inn.base, tmp_path), 2, "a directory; give a file with one request"),
            (("--url", inn.base, "/proc/self/mem"), 2, "/proc/self/mem: Input/output error"),
            (("--url", inn.base), 2, "REQUEST")):
        shown = run(*arguments)
        assert shown.returncode == status, (arguments, shown)
        assert words in shown.stderr and len(shown.stderr.strip().splitlines()) == 1, shown.stderr
