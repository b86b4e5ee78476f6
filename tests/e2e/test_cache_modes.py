# SPDX-License-Identifier: Apache-2.0
"""What the bill says: --cache-mode (a prefix that was joined while another computed it) and --cache-min-tokens (what
is too short to be cached)."""

import concurrent.futures

import anthropic
import pytest

from conftest import serving
from test_caching import MARK, counters, rules, send, text, user
from test_errors import HI, check_anthropic

TOGETHER = 6


@pytest.fixture(scope="module", params=["native", "strict"])
def moded(request):
    with serving("--kv-memory", "128MiB", "--cache-mode", request.param, "--alias", "*") as running:
        running.mode = request.param
        yield running


def test_requests_that_come_together_share_one_computation_and_the_mode_names_it(moded, uncached, nonce):  # B11
    system = [text(rules(60, nonce), **MARK)]
    client = moded.anthropic()

    def ask(number):
        answer = client.messages.with_raw_response.create(
            model="claude-x", max_tokens=4, system=system,
            messages=[{"role": "user", "content": f"Question {number}?"}], extra_body={"temperature": 0})
        return answer.parse(), int(answer.headers["x-cached-tokens"])

    before = moded.computed()
    with concurrent.futures.ThreadPoolExecutor(TOGETHER) as pool:
        answers = list(pool.map(ask, range(TOGETHER)))
    moded.wait_idle()
    usages = [message.usage for message, _ in answers]
    marked = max(usage.cache_creation_input_tokens for usage in usages)
    assert marked > 1000
    creators = [usage for usage in usages if usage.cache_creation_input_tokens == marked]
    readers = [usage for usage in usages if usage.cache_read_input_tokens == marked]
    if moded.mode == "strict":
        assert len(creators) == TOGETHER and not readers, "everybody wrote it"
    else:
        assert len(creators) == 1 and len(readers) == TOGETHER - 1, "one wrote, the others read"
    for usage in usages:
        total = usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens
        assert total == marked + usage.input_tokens
    # What happened is the same: one computed the prefix, the others waited for it.
    physical = sorted(cached for _, cached in answers)
    assert physical[0] < 64 and all(cached >= marked for cached in physical[1:])
    assert moded.computed() - before < marked + 64 * TOGETHER
    for number, (message, _) in enumerate(answers):
        alone = uncached.ok("/v1/messages", {"model": "m", "max_tokens": 4, "system": system, "temperature": 0,
                                             "messages": [{"role": "user", "content": f"Question {number}?"}]})
        assert message.content[0].text == alone["content"][0]["text"]
    # And who comes later reads, in both.
    later = send(moded, system, user(text("Question 99?")))
    assert counters(later)[:2] == (marked, 0)


def test_a_joined_chat_reports_what_was_physically_cached_in_both_modes(moded, nonce):  # C7
    client = moded.openai()

    def ask(number):
        return client.chat.completions.create(model="gpt-x", max_tokens=1, messages=[
            {"role": "system", "content": [text(rules(60, nonce), **MARK)]},
            {"role": "user", "content": f"Question {number}?"}]).usage.prompt_tokens_details

    with concurrent.futures.ThreadPoolExecutor(TOGETHER) as pool:
        details = list(pool.map(ask, range(TOGETHER)))
    written = max(detail.cache_write_tokens for detail in details)
    assert written > 1000
    assert sum(detail.cached_tokens >= written for detail in details) == TOGETHER - 1
    # What was reused was not written, whatever the mode calls it on the Messages API: the two never exceed the prompt.
    assert sum(detail.cache_write_tokens == written for detail in details) == 1
    assert sum(detail.cache_write_tokens for detail in details) == written


def test_a_prefix_is_created_once_when_requests_come_one_after_another(moded, nonce):
    system = [text(rules(12, nonce), **MARK)]
    first = send(moded, system, user(text("one?")))
    assert first["cache_creation_input_tokens"] > 200
    for question in ("one?", "two?"):
        again = send(moded, system, user(text(question)))
        assert counters(again)[:2] == (first["cache_creation_input_tokens"], 0)


@pytest.mark.parametrize("kind", ["thinking", "redacted_thinking"])
def test_a_marker_on_a_thought_is_ignored_or_refused_by_mode(moded, kind):  # row 45
    thought = {"type": kind, **({"thinking": "t", "signature": "s"} if kind == "thinking" else {"data": "d"})}

    def body(block):
        return {"model": "claude-x", "messages": [*HI, {"role": "assistant", "content": [block, text("a")]}, *HI]}

    before = moded.metrics()["vllm:prompt_tokens_total"]
    routes = {"/v1/messages": {"max_tokens": 1}, "/v1/messages/count_tokens": {}, "/v1/cache/explain": {}}
    for route, more in routes.items():
        answer = moded.post(route, {**body({**thought, **MARK}), **more}, anthropic_version="2023-06-01")
        if moded.mode == "native":
            assert answer.status_code == 200, answer.text
        else:
            error = check_anthropic(answer, 400)
            assert error["message"] == f"messages.1.content.0.{kind}.cache_control: Extra inputs are not permitted"
            assert moded.metrics()["vllm:prompt_tokens_total"] == before
        none = moded.post(route, {**body({**thought, "cache_control": None}), **more}, anthropic_version="2023-06-01")
        assert none.status_code == 200, "null is no marker"
        before = moded.metrics()["vllm:prompt_tokens_total"]


def test_strict_is_about_caching_alone(moded):  # rows 24, 25: the same in both
    body = {"model": "claude-x", "max_tokens": 1, "temperature": 1, "never_heard_of": 1, "messages": [
        {"role": "user", "content": [text("x", cache_control={"type": "ephemeral", "scope": "global"})]}]}
    assert moded.post("/v1/messages", body, anthropic_version="2026-10-21").status_code == 200


def test_a_family_names_its_minimum(nonce):  # B6
    def marked(server, count):
        system = [text(rules(count, nonce), **MARK)]
        usages = [send(server, system, user(text("q"))) for _ in range(2)]
        assert usages[1]["physical"] > 200, "memory is shared below the minimum, too"
        return [counters(usage)[:2] for usage in usages], sum(counters(usages[0]))

    with serving("--kv-memory", "128MiB", "--cache-min-tokens", "sonnet-4.5", "--alias", "*") as server:
        below, total = marked(server, 40)
        assert 600 < total < 1024 and below == [(0, 0), (0, 0)]
        assert server.metrics()["pagewise_kv_leased_blocks"] == 0, "and nothing is leased"
        above, total = marked(server, 80)
        assert total > 1100 and above[0][1] >= 1024 and above[1] == (above[0][1], 0)
        with pytest.raises(anthropic.BadRequestError):  # what is refused is so below the minimum, too
            server.anthropic().messages.create(model="m", max_tokens=1, messages=[
                {"role": "user", "content": [text(f"t{i}", **MARK) for i in range(5)]}])


def test_the_default_minimum_is_one_block(server, nonce):  # B6
    def created(words):
        return send(server, "s", user(text(words, **MARK), text("q")))["cache_creation_input_tokens"]

    short = nonce[:9]
    assert created(short) == 0
    assert created(nonce + " and so on" * 12) >= 32
