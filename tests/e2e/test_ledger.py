# SPDX-License-Identifier: Apache-2.0
"""The ledger: it equals the sum of what the answers reported, prices are data, and the server's last words are its."""

import json
import re
import signal
import subprocess

import pytest

from conftest import MODEL, PROGRAM, ROOT, serving

PRICES = {"currency": "USD", "models": [
    {"model": "claude-*", "input": 3, "output": 15, "write_5m": 1.25, "write_1h": 2, "read": 0.1},
    {"model": "gpt-*", "input": 2, "output": 10, "write_5m": 1.25, "write_1h": 1.25, "read": 0.5}]}
KEYS = "sk-one tenant=acme name=one\nsk-two tenant=acme\nsk-alone name=alone\nsk-root admin\n"
WORDS = "Rule {}: count every token once, write it down and keep the book where everyone can read it. "
MARK = {"cache_control": {"type": "ephemeral"}}
LONG = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}


def rules(count, nonce):
    return f"{nonce} " + "".join(WORDS.format(i) for i in range(count))


def text(words, **more):
    return {"type": "text", "text": words, **more}


@pytest.fixture(scope="module")
def priced(tmp_path_factory):
    folder = tmp_path_factory.mktemp("priced")
    (folder / "prices.json").write_text(json.dumps(PRICES))
    (folder / "keys").write_text(KEYS)
    with serving("--kv-memory", "64MiB", "--block-tokens", "16", "--alias", "*", "--price-table",
                 folder / "prices.json", "--api-key-file", folder / "keys") as running:
        yield running


def bearer(key):
    return {"authorization": f"Bearer {key}"}


def ledgers(server):
    stats = server.http.get("/v1/cache/stats", headers=bearer("sk-root")).json()
    return {entry["namespace"]: entry["ledger"] for entry in stats["namespaces"]}, stats["ledger"]


class Sum:
    """What answers reported, added up by the client."""

    def __init__(self):
        self.requests = 0
        self.tokens = dict.fromkeys(("input", "created_5m", "created_1h", "read", "output"), 0)
        self.physical = {"computed": 0, "reused": 0}
        self.cost = self.uncached = self.physical_cost = 0.0

    def add(self, price, prompt, physical, **tokens):
        self.requests += 1
        for name, count in tokens.items():
            self.tokens[name] += count
        assert prompt == sum(tokens.values()) - tokens["output"]
        self.physical["reused"] += physical
        self.physical["computed"] += prompt - physical
        output = price["output"] * tokens["output"]
        self.uncached += (price["input"] * prompt + output) / 1e6
        self.physical_cost += (price["input"] * (prompt - physical + price["read"] * physical) + output) / 1e6
        self.cost += (price["input"] * (tokens["input"] + price["write_5m"] * tokens["created_5m"] +
                                        price["write_1h"] * tokens["created_1h"] + price["read"] * tokens["read"]) +
                      output) / 1e6

    def message(self, server, key, system, question, stream=False):
        body = {"model": "claude-x", "max_tokens": 3, "system": system, "stream": stream,
                "messages": [{"role": "user", "content": question}]}
        answer = server.http.post("/v1/messages", json=body, headers=bearer(key))
        assert answer.status_code == 200, answer.text
        if stream:
            events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
            usage = next(e["message"]["usage"] for e in events if e["type"] == "message_start")
            usage["output_tokens"] = next(e["usage"]["output_tokens"] for e in events if e["type"] == "message_delta")
        else:
            usage = answer.json()["usage"]
        by_ttl = usage["cache_creation"]
        prompt = usage["input_tokens"] + usage["cache_read_input_tokens"] + usage["cache_creation_input_tokens"]
        self.add(PRICES["models"][0], prompt, int(answer.headers["x-cached-tokens"]), input=usage["input_tokens"],
                 created_5m=by_ttl["ephemeral_5m_input_tokens"], created_1h=by_ttl["ephemeral_1h_input_tokens"],
                 read=usage["cache_read_input_tokens"], output=usage["output_tokens"])

    def openai(self, server, key, path, body):
        answer = server.http.post(path, json={"model": "gpt-x", "max_tokens": 3, **body}, headers=bearer(key))
        assert answer.status_code == 200, answer.text
        usage = answer.json()["usage"]
        details = usage["prompt_tokens_details"]
        written = details["cache_write_tokens"]
        assert details["cached_tokens"] + written <= usage["prompt_tokens"], "what was reused was not written"
        self.add(PRICES["models"][1], usage["prompt_tokens"], details["cached_tokens"],
                 input=usage["prompt_tokens"] - details["cached_tokens"] - written, created_5m=written, created_1h=0,
                 read=details["cached_tokens"], output=usage["completion_tokens"])


def test_the_ledger_is_the_sum_of_what_the_answers_reported(priced, nonce):
    acme, alone = Sum(), Sum()
    system = [text(rules(6, nonce), **LONG), text(rules(3, "then"), **MARK)]
    for key in ("sk-one", "sk-one", "sk-two"):
        acme.message(priced, key, system, "What is the first rule?")
    acme.message(priced, "sk-two", system, "And the last one?", stream=True)
    acme.message(priced, "sk-one", rules(6, nonce), "No marker at all?")
    chat = [{"role": "system", "content": [text(rules(6, nonce), **MARK)]}, {"role": "user", "content": "Which one?"}]
    for messages in (chat, chat, chat[:1] + [{"role": "user", "content": [text(rules(4, "part"), **MARK)]}]):
        acme.openai(priced, "sk-two", "/v1/chat/completions", {"messages": messages, "n": 2})
    alone.message(priced, "sk-alone", system, "What is the first rule?")
    for _ in range(2):
        alone.openai(priced, "sk-alone", "/v1/completions", {"prompt": rules(5, nonce), "best_of": 3, "n": 1})

    pages, whole = ledgers(priced)
    for name, expected in (("tenant:acme", acme), (next(n for n in pages if n.startswith("key:")), alone)):
        page = pages[name]
        assert page["requests"] == expected.requests
        assert page["contractual"] == expected.tokens
        assert page["physical"] == expected.physical
        assert page["cost"]["contractual"] == pytest.approx(expected.cost, abs=1e-8)
        assert page["cost"]["uncached"] == pytest.approx(expected.uncached, abs=1e-8)
        assert page["cost"]["physical"] == pytest.approx(expected.physical_cost, abs=1e-8)
        assert page["cost"]["currency"] == "USD" and page["cost"]["requests_unpriced"] == 0
    assert acme.tokens["created_1h"] > 0 and acme.tokens["created_5m"] > 0 and acme.tokens["read"] > 0
    assert whole["requests"] == sum(page["requests"] for page in pages.values())
    assert whole["contractual"]["read"] == sum(page["contractual"]["read"] for page in pages.values())
    assert pages["tenant:acme"]["prefill_seconds_saved"] > 0
    saved = priced.http.get("/metrics", headers=bearer("sk-root")).text
    saved = float(re.search(r"^pagewise_prefill_saved_seconds_total\S* (\S+)", saved, re.MULTILINE).group(1))
    assert saved == pytest.approx(whole["prefill_seconds_saved"], abs=2e-3)


def test_a_key_sees_its_own_ledger_and_nobody_elses(priced, nonce):
    Sum().message(priced, "sk-one", [text(rules(5, nonce), **MARK)], "q")
    own = priced.http.get("/v1/cache/stats", headers=bearer("sk-one")).json()
    pages, _ = ledgers(priced)
    assert own["ledger"]["contractual"] == pages["tenant:acme"]["contractual"]
    other = priced.http.get("/v1/cache/stats", headers=bearer("sk-alone")).json()
    assert other["ledger"]["contractual"] != own["ledger"]["contractual"] and "namespaces" not in other


def test_a_model_without_a_price_is_counted_and_costs_nothing(priced):
    before = ledgers(priced)[1]["cost"]
    priced.http.post("/v1/completions", json={"model": "llama", "prompt": "1, 2,", "max_tokens": 1},
                     headers=bearer("sk-one"))
    after = ledgers(priced)[1]["cost"]
    assert after == {**before, "requests_unpriced": before["requests_unpriced"] + 1}


def test_prefixes_that_never_paid_back_come_first_until_they_have(tmp_path, nonce):
    (tmp_path / "prices.json").write_text(json.dumps(PRICES))
    with serving("--kv-memory", "64MiB", "--alias", "*", "--price-table", tmp_path / "prices.json") as server:
        def page():
            return server.http.get("/v1/cache/stats").json()["namespaces"][0]["ledger"]

        small, large = [text(rules(4, "small " + nonce), **LONG)], [text(rules(12, "large " + nonce), **MARK)]
        for system in (small, large):
            Sum().message(server, "any", system, "q")
        first = page()
        small_tokens, large_tokens = (first["never_paid_back"][i]["tokens"] for i in (0, 1))
        assert [p["loss_tokens"] for p in first["never_paid_back"]] == \
            [small_tokens, pytest.approx(0.25 * large_tokens)], "an hour costs 100 % extra, minutes 25 %"
        assert first["never_paid_back_total"] == 2
        Sum().message(server, "any", large, "q")  # 0.25 is earned back by one read at 0.1
        Sum().message(server, "any", small, "q")  # 1.0 is not
        second = page()
        (left,) = second["never_paid_back"]
        assert (left["tokens"], left["ttl"], left["writes"], left["reads"]) == (small_tokens, "1h", 1, 1)
        assert left["loss_tokens"] == pytest.approx(0.1 * small_tokens)
        Sum().message(server, "any", small, "q")
        assert page()["never_paid_back"] == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_last_words_are_the_ledgers_and_none_of_a_prompts(number, nonce):
    with serving("--kv-memory", "64MiB", "--alias", "*") as server:
        total = Sum()
        for _ in range(2):
            total.message(server, "any", [text(rules(5, nonce), **MARK)], "What?")
        server.process.send_signal(number)
        assert server.process.wait(30) == 0
        said = server.log()
        end = said[said.index("ledger: "):]
        assert end.startswith(f"ledger: 2 requests, {sum(total.physical.values())} prompt tokens: "
                              f"{total.physical['computed']} computed, {total.physical['reused']} reused (")
        assert f"created {total.tokens['created_5m']} (5m) + 0 (1h), read {total.tokens['read']}" in end
        assert end.endswith("stopped\n") and "cost" not in end
        assert nonce not in said and "Rule" not in said


def refused_start(*flags):
    done = subprocess.run([PROGRAM, "serve", str(MODEL), "--port", "0", *map(str, flags)], capture_output=True,
                          text=True, timeout=60, check=False)
    assert done.returncode == 1, done
    assert done.stderr.count("\n") == 1
    return done.stderr


@pytest.mark.parametrize("content,line", [
    ('{"currency": "USD",\n "models": [\n  {"model": "a", "input": 1,]}\n', ":3: not valid JSON"),
    ('{"currency": "USD", "models": [\n  {"model": "a", "input": 1, "output": 1, "write_5m": 1, "write_1h": "2", '
     '"read": 0}]}', ":2: 'write_1h' must be a number"),
    ('{"currency": "USD", "models": [\n\n  {"model": "a", "input": 1, "output": 1, "write_5m": 1, "write_1h": 2}]}',
     ":3: 'read' is missing"),
    ('{"models": [{}]}', ":1: 'currency' is missing"),
])
def test_a_price_table_that_cannot_be_used_stops_the_start_with_file_and_line(tmp_path, content, line):
    path = tmp_path / "prices.json"
    path.write_text(content)
    assert f"{path}{line}" in refused_start("--price-table", path)


def test_a_price_table_that_is_not_there_stops_the_start(tmp_path):
    assert "missing.json: No such file" in refused_start("--price-table", tmp_path / "missing.json")


def test_the_example_price_table_is_taken():
    with serving("--kv-memory", "64MiB", "--alias", "*", "--price-table", ROOT / "examples/prices.json") as server:
        Sum().message(server, "any", "s", "q")
        cost = server.http.get("/v1/cache/stats").json()["ledger"]["cost"]
        assert cost["requests_unpriced"] == 0 and cost["contractual"] > 0
