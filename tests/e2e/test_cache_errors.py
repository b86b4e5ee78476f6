# SPDX-License-Identifier: Apache-2.0
"""Bad input about caching and its answer: rows 39 to 48 of table E in docs/api-reference.md and the places of B2, B3,
B5, B12 and C7, on every route that takes them. What is refused is refused before any byte, computes nothing, and
leaves the cache as it was."""

import anthropic
import openai
import pytest

from test_errors import (A, CHAT, HI, IRE, MARK, check_anthropic, check_openai, claude, gpt, message, parts, text)

EXPLAIN = "/v1/cache/explain"
COUNT = "/v1/messages/count_tokens"
HOUR = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
VERSION = {"anthropic_version": "2023-06-01"}


def marked(marker):
    return message(text("a", cache_control=marker))


def document(*inner, **more):
    return {"type": "document", "source": {"type": "content", "content": list(inner)}, **more}


def result(*inner):
    return {"type": "search_result", "title": "t", "source": "s", "content": list(inner)}


FIVE = "A maximum of 4 blocks with cache_control may be provided. Found 5."
LATE = "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block"
ANTHROPIC_ROWS = {
    "39 five markers": (message(*[text(f"t{i}", **MARK) for i in range(5)]), FIVE),
    "39 five in system and messages": (claude(
        system=[text("s", **MARK), text("t", **MARK)],
        messages=[{"role": "user", "content": [text(f"t{i}", **MARK) for i in range(3)]}]), FIVE),
    "39 five over turns": (claude(messages=[
        {"role": role, "content": [text(f"{role} {i}", **MARK)]}
        for i, role in enumerate(["user", "assistant", "user", "assistant", "user"])]), FIVE),
    "40 four and the automatic one": (message(*[text(f"t{i}", **MARK) for i in range(4)], text("q"), **MARK), FIVE),
    "40 four, the last where the automatic one goes": (message(*[text(f"t{i}", **MARK) for i in range(4)], **MARK),
                                                       FIVE),
    "41 automatic with another ttl": (message(text("t", **MARK), **HOUR),
                                      "messages.0.content.0 already has a marker with another ttl"),
    "41 the other way round": (message(text("t", **HOUR), **MARK), "already has a marker with another ttl"),
    "42 an hour behind minutes": (message(text("a", **MARK), text("b", **HOUR)),
                                  f"messages.0.content.1.cache_control.ttl: {LATE}"),
    "42 across system and messages": (claude(system=[text("s", **MARK)],
                                             messages=[{"role": "user", "content": [text("a", **HOUR)]}]),
                                      f"messages.0.content.0.cache_control.ttl: {LATE}"),
    "42 inside system": (claude(system=[text("s", **MARK), text("t", **HOUR)]),
                         f"system.1.cache_control.ttl: {LATE}"),
    "42 absent means five minutes": (message(text("a", cache_control={"type": "ephemeral", "ttl": None}),
                                             text("b", **HOUR)), f"messages.0.content.1.cache_control.ttl: {LATE}"),
    "42 by the automatic one": (message(text("a", **MARK), text("b"), **HOUR), f"cache_control.ttl: {LATE}"),
    "43 ttl 2h": (marked({"type": "ephemeral", "ttl": "2h"}), "messages.0.content.0.cache_control.ttl"),
    "43 ttl of the other API": (marked({"type": "ephemeral", "ttl": "30m"}), "messages.0.content.0.cache_control.ttl"),
    "43 ttl is a number": (marked({"type": "ephemeral", "ttl": 300}), "messages.0.content.0.cache_control.ttl"),
    "43 type persistent": (marked({"type": "persistent"}), "messages.0.content.0.cache_control.type"),
    "43 type forever": (marked({"type": "forever"}), "messages.0.content.0.cache_control.type"),  # C10
    "43 no type": (marked({"ttl": "5m"}), "messages.0.content.0.cache_control.type: Field required"),
    "43 no object": (marked("ephemeral"), "messages.0.content.0.cache_control"),
    "43 a list": (marked([{"type": "ephemeral"}]), "messages.0.content.0.cache_control"),
    "43 in system": (claude(system=[text("s", cache_control={"type": "persistent"})]), "system.0.cache_control.type"),
    "43 automatic": (claude(cache_control={"type": "ephemeral", "ttl": "2h"}), "cache_control.ttl"),
    "43 automatic of another type": (claude(cache_control={"type": "persistent"}), "cache_control.type"),
    "44 marker on an empty text": (message(text("", **MARK), text("x")),
                                   "messages.0.content.0.text: cache_control cannot be set for empty text blocks"),
    "44 in system": (claude(system=[text("", **MARK)]), "cache_control cannot be set for empty text blocks"),
    "44 the same without a marker": (message(text(""), text("x")), "text content blocks must be non-empty"),  # C10
    "46 inside a document, not last": (message(document(text("a", **MARK), text("b")), text("q")),
                                       "messages.0.content.0.source.content.0.cache_control"),
    "46 inside a search result, not last": (message(result(text("a", **MARK), text("b")), text("q")),
                                            "messages.0.content.0.content.0.cache_control"),
    "46 inside a tool result": (message({"type": "tool_result", "tool_use_id": "t", "content": [
        text("a", **MARK), text("b")]}), "messages.0.content.0"),
}
# What only a request for an answer has.
ANSWER_ROWS = {
    "17 pre-warm with stream": (claude(max_tokens=0, stream=True), "max_tokens"),
    "17 pre-warm with thinking": (claude(max_tokens=0, thinking={"type": "enabled", "budget_tokens": 1024}),
                                  "max_tokens"),
    "17 pre-warm with a format": (claude(max_tokens=0, output_config={"format": {"type": "json_schema", "schema": {
        "type": "object"}}}), "format"),
    "17 pre-warm with a forced tool": (claude(max_tokens=0, tool_choice={"type": "any"}), "tool_choice"),
    "29 pre-warm of nothing": (claude(max_tokens=0, messages=[{"role": "user", "content": " "}]), "non-whitespace"),
    "a salt that is no text": (claude(cache_salt=1), "cache_salt"),
    "cache_prompt that is no switch": (claude(cache_prompt="no"), "cache_prompt"),
    "diagnostics of another shape": (claude(diagnostics="msg_1"), "diagnostics"),
    "a previous message that is no id": (claude(diagnostics={"previous_message_id": 1}),
                                         "diagnostics.previous_message_id"),
}


def untouched(server):
    """What a refused request must leave as it was."""
    metrics = server.metrics()
    return {name: metrics[name] for name in (
        "vllm:prompt_tokens_total", "vllm:prefix_cache_queries_total", "pagewise_kv_leased_blocks",
        "pagewise_cache_created_tokens_total", "pagewise_cache_read_tokens_total")}, server.blocks()


@pytest.mark.parametrize("route", ["whole", "streamed", "count_tokens", "explain"])
@pytest.mark.parametrize("row", ANTHROPIC_ROWS)
def test_messages_refuse_markers_that_cannot_be(server, row, route):
    body, words = ANTHROPIC_ROWS[row]
    before = untouched(server)
    path = {"count_tokens": COUNT, "explain": EXPLAIN}.get(route, A)
    response = server.post(path, {**body, **({"stream": True} if route == "streamed" else {})}, **VERSION)
    error = check_anthropic(response, 400)
    assert words in error["message"]
    assert response.headers["content-type"].startswith("application/json")
    assert untouched(server) == before, "nothing is computed for a refused request"


@pytest.mark.parametrize("row", ANSWER_ROWS)
def test_messages_refuse_what_an_answer_cannot_be(server, row):
    body, words = ANSWER_ROWS[row]
    before = untouched(server)
    assert words in check_anthropic(server.post(A, body), 400)["message"]
    assert untouched(server) == before


OPENAI_ROWS = {
    "39 five markers": (parts(*[text(f"t{i}", **MARK) for i in range(5)]), None, "cache_control", FIVE),
    "42 an hour behind minutes": (parts(text("a", **MARK), text("b", **HOUR)), None,
                                  "messages[0].content[1].cache_control.ttl", LATE),
    "43 ttl 2h": (parts(text("a", cache_control={"type": "ephemeral", "ttl": "2h"})), "invalid_value",
                  "messages[0].content[0].cache_control.ttl", "5m"),
    "43 type persistent": (parts(text("a", cache_control={"type": "persistent"})), "invalid_value",
                           "messages[0].content[0].cache_control.type", "ephemeral"),
    "43 no type": (parts(text("a", cache_control={"ttl": "5m"})), "missing_required_parameter",
                   "messages[0].content[0].cache_control.type", ""),
    "43 no object": (parts(text("a", cache_control="ephemeral")), "invalid_type",
                     "messages[0].content[0].cache_control", ""),
    "43 options ttl": (gpt(prompt_cache_options={"ttl": "2h"}), "invalid_value", "prompt_cache_options.ttl", "30m"),
    "43 options ttl of the other route": (gpt(prompt_cache_options={"ttl": "12h"}), "invalid_value",
                                          "prompt_cache_options.ttl", "30m"),
    "options mode": (gpt(prompt_cache_options={"mode": "always"}), "invalid_value", "prompt_cache_options.mode",
                     "implicit"),
    "options no object": (gpt(prompt_cache_options="explicit"), "invalid_type", "prompt_cache_options", ""),
    "43 breakpoint ttl": (parts(text("a", prompt_cache_breakpoint={"mode": "explicit", "ttl": "2h"})),
                          "invalid_value", "messages[0].content[0].prompt_cache_breakpoint.ttl", "30m"),
    "breakpoint mode": (parts(text("a", prompt_cache_breakpoint={"mode": "implicit"})), "invalid_value",
                        "messages[0].content[0].prompt_cache_breakpoint.mode", "explicit"),
    "breakpoint no object": (parts(text("a", prompt_cache_breakpoint=True)), "invalid_type",
                             "messages[0].content[0].prompt_cache_breakpoint", ""),
    "a salt that is no text": (gpt(cache_salt=1), "invalid_type", "cache_salt", ""),
    "cache_prompt that is no switch": (gpt(cache_prompt="no"), "invalid_type", "cache_prompt", ""),
}


@pytest.mark.parametrize("route", ["whole", "streamed", "explain"])
@pytest.mark.parametrize("row", OPENAI_ROWS)
def test_chats_refuse_markers_that_cannot_be(server, row, route):
    body, code, param, words = OPENAI_ROWS[row]
    before = untouched(server)
    path = EXPLAIN if route == "explain" else CHAT
    response = server.post(path, {**body, **({"stream": True} if route == "streamed" else {})})
    assert words in check_openai(response, 400, code, param)["message"]
    assert response.headers["content-type"].startswith("application/json")
    assert untouched(server) == before, "nothing is computed for a refused request"


# What stands at the edge of a rule, and is fine. Rows 45, 47, 48; C10 (d).
FINE = {
    "four markers": (A, message(*[text(f"t{i}", **MARK) for i in range(4)])),
    "three and the automatic one": (A, message(*[text(f"t{i}", **MARK) for i in range(3)], text("q"), **MARK)),
    "hours before minutes": (A, message(text("a", **HOUR), text("b", **HOUR), text("c", **MARK))),
    "automatic on the same marker": (A, message(text("a"), text("b", **HOUR), **HOUR)),
    "null is none": (A, message(text("a", cache_control=None), cache_control=None)),
    "unknown keys in a marker": (A, marked({"type": "ephemeral", "scope": "global"})),
    "45 on thinking": (A, claude(messages=[*HI, {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "t", "signature": "s", **MARK}, text("a")]}, *HI])),
    "46 inside a document, last": (A, message(document(text("a"), text("b", **MARK)), text("q"))),
    "47 under the minimum": (A, message(text("x", **MARK))),
    "47 under the minimum of a chat": (CHAT, parts(text("x", **MARK))),
    "48 unknown previous message": (A, claude(diagnostics={"previous_message_id": "msg_none"})),
    "five breakpoints": (CHAT, parts(*[text(f"t{i}", prompt_cache_breakpoint={"mode": "explicit"})
                                       for i in range(5)])),
    "options": (CHAT, gpt(prompt_cache_options={"mode": "explicit", "ttl": "30m"})),
    "key and retention": (CHAT, gpt(prompt_cache_key="k", prompt_cache_retention="24h")),
}


@pytest.mark.parametrize("row", FINE)
def test_what_is_just_allowed_is_answered(server, row):
    path, body = FINE[row]
    assert server.post(path, body).status_code == 200


def test_a_prefix_under_the_minimum_writes_nothing_on_either_surface(server):  # row 47
    before = untouched(server)[0]
    for _ in range(2):
        usage = server.ok(A, message(text("x", **MARK)))["usage"]
        assert usage["cache_creation_input_tokens"] == usage["cache_read_input_tokens"] == 0
        assert set(usage["cache_creation"].values()) == {0}
        details = server.ok(CHAT, parts(text("x", **MARK)))["usage"]["prompt_tokens_details"]
        assert details["cache_write_tokens"] == 0
    after = untouched(server)[0]
    for name in ("pagewise_kv_leased_blocks", "pagewise_cache_created_tokens_total",
                 "pagewise_cache_read_tokens_total"):
        assert after[name] == before[name]


def test_an_unknown_previous_message_never_fails_the_request(server):  # row 48
    answer = server.ok(A, claude(diagnostics={"previous_message_id": "msg_none"}))
    assert answer["diagnostics"] == {"cache_miss_reason": {"type": "previous_message_not_found"}}


def test_the_official_clients_raise_their_own_errors(server):
    with pytest.raises(anthropic.BadRequestError) as refused:
        server.anthropic().messages.create(**ANTHROPIC_ROWS["39 five markers"][0])
    assert refused.value.body["error"]["type"] == IRE
    with pytest.raises(openai.BadRequestError) as refused:
        server.openai().chat.completions.create(**OPENAI_ROWS["43 options ttl"][0])
    assert refused.value.param == "prompt_cache_options.ttl"
