# SPDX-License-Identifier: Apache-2.0
"""Tools on both APIs through the official clients, on the real model. It is too small to call tools by itself, so calls
are asked for (`required`, a named tool): what it may then write is held to the tools and their schemas. Its template
knows no tools: they are described in the system text (docs/tools.md). Field cases C04, C05 and C10 with tools."""

import json
import os

import anthropic
import openai
import pytest

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # nothing is fetched
import litellm  # noqa: E402

from conftest import serving  # noqa: E402
from own_server import nothing_leased, server  # noqa: E402, F401

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")

MARK = {"cache_control": {"type": "ephemeral"}}
RULE = "The guests of this house close the door behind them. "
UNITS = ["C", "F"]
WEATHER = {"type": "object", "properties": {"unit": {"type": "string", "enum": UNITS},
                                            "days": {"type": "integer", "enum": [1, 2, 3]},
                                            "windy": {"type": "boolean"}},
           "required": ["unit", "days", "windy"], "additionalProperties": False}
TIME = {"type": "object", "properties": {"zone": {"type": "string", "enum": ["UTC", "CET"]}}, "required": ["zone"],
        "additionalProperties": False}
CLAUDE_TOOLS = [{"name": "get_weather", "description": "The weather.", "input_schema": WEATHER, "strict": True},
                {"name": "get_time", "description": "The time.", "input_schema": TIME}]
QUESTION = "How warm is it, and how late?"


def functions(tools):
    return [{"type": "function", "function": {"name": tool["name"], "description": tool.get("description", ""),
                                              "parameters": tool["input_schema"], "strict": tool.get("strict", False)}}
            for tool in tools]


GPT_TOOLS = functions(CLAUDE_TOOLS)


def check_arguments(name, arguments):
    if name == "get_time":
        assert list(arguments) == ["zone"] and arguments["zone"] in ("UTC", "CET")
        return
    assert name == "get_weather"
    assert list(arguments) == ["unit", "days", "windy"]
    assert arguments["unit"] in UNITS and arguments["days"] in (1, 2, 3) and isinstance(arguments["windy"], bool)


def total(server, **body):
    return server.anthropic().messages.count_tokens(model="claude-x", **body).input_tokens


def usage_sum(usage):
    return usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens


# ---- Calls

CHAT_CHOICES = {"any": "required", "named": {"type": "function", "function": {"name": "get_time"}}}
CLAUDE_CHOICES = {"any": {"type": "any"}, "named": {"type": "tool", "name": "get_time"}}


def chat(server, nonce, **more):
    return server.openai().chat.completions.create(
        model="gpt-x", max_tokens=160, temperature=0, tools=GPT_TOOLS,
        messages=[{"role": "user", "content": f"{nonce} {QUESTION}"}], **more)


def claude(server, nonce, tokens=160, **more):
    return server.anthropic().messages.create(
        model="claude-x", max_tokens=tokens, tools=CLAUDE_TOOLS, extra_body={"temperature": 0},
        messages=[{"role": "user", "content": f"{nonce} {QUESTION}"}], **more)


def check_chat_calls(answer, choice):
    message = answer.message
    assert message.content is None and message.tool_calls
    assert len({call.id for call in message.tool_calls}) == len(message.tool_calls)
    # The model may go on calling until the limit cuts a call.
    whole = message.tool_calls[:-1] if answer.finish_reason == "length" else message.tool_calls
    for call in whole:
        assert call.id.startswith("call_") and call.type == "function"
        check_arguments(call.function.name, json.loads(call.function.arguments))
        assert choice != "named" or call.function.name == "get_time"


def chat_calls(message):
    return [(call.function.name, call.function.arguments) for call in message.tool_calls]


def streamed_chat(stream):
    """What a client makes of the chunks: [(name, arguments)], content, finish reason."""
    calls, content, finish = [], "", None
    for chunk in stream:
        for choice in chunk.choices:
            content += choice.delta.content or ""
            finish = choice.finish_reason or finish
            for piece in choice.delta.tool_calls or []:
                if piece.id:
                    assert piece.index == len(calls) and piece.type == "function"
                    calls.append([piece.function.name, ""])
                calls[piece.index][1] += piece.function.arguments
    return [tuple(call) for call in calls], content, finish


@pytest.mark.parametrize("parallel", [True, False])
@pytest.mark.parametrize("choice", CHAT_CHOICES)
def test_chat_calls_tools_that_are_asked_for(server, uncached, nonce, choice, parallel):
    asked = {"tool_choice": CHAT_CHOICES[choice], "parallel_tool_calls": parallel}
    answer = chat(server, nonce, **asked).choices[0]
    check_chat_calls(answer, choice)
    if not parallel:
        assert len(answer.message.tool_calls) == 1 and answer.finish_reason == "tool_calls"
    # Streamed, from the cache, and without one: the same bytes.
    calls, content, finish = streamed_chat(chat(server, nonce, stream=True, **asked))
    assert (calls, content, finish) == (chat_calls(answer.message), "", answer.finish_reason)
    assert chat_calls(chat(uncached, nonce, **asked).choices[0].message) == calls


@pytest.mark.parametrize("choice", CLAUDE_CHOICES)
def test_messages_call_tools_that_are_asked_for(server, uncached, nonce, choice):
    asked = {"tool_choice": {**CLAUDE_CHOICES[choice], "disable_parallel_tool_use": True}}
    answer = claude(server, nonce, **asked)
    assert answer.stop_reason == "tool_use" and [block.type for block in answer.content] == ["tool_use"]
    call = answer.content[0]
    assert call.id.startswith("toolu_")
    check_arguments(call.name, call.input)
    assert choice != "named" or call.name == "get_time"
    with server.anthropic().messages.stream(
            model="claude-x", max_tokens=160, tools=CLAUDE_TOOLS, extra_body={"temperature": 0}, **asked,
            messages=[{"role": "user", "content": f"{nonce} {QUESTION}"}]) as stream:
        events = list(stream)
        final = stream.get_final_message()
    assert [(block.name, block.input) for block in final.content] == [(call.name, call.input)]
    assert final.stop_reason == "tool_use" and final.usage.output_tokens == answer.usage.output_tokens
    kinds = [event.type for event in events if event.type.startswith("content_block")]
    assert kinds[0] == "content_block_start" and kinds[-1] == "content_block_stop"
    again = claude(uncached, nonce, **asked)
    assert [(block.name, block.input) for block in again.content] == [(call.name, call.input)]


def test_a_call_is_streamed_while_it_is_written(server, nonce):
    stream = chat(server, nonce, stream=True, tool_choice=CHAT_CHOICES["any"], parallel_tool_calls=False)
    pieces = [call for chunk in stream for choice in chunk.choices for call in choice.delta.tool_calls or []]
    assert pieces[0].function.name and pieces[0].function.arguments == ""
    assert len(pieces) > 3 and all(piece.function.name is None for piece in pieces[1:])


def test_a_call_that_the_limit_cuts_says_so(server, nonce):
    answer = claude(server, nonce, tokens=24, tool_choice={"type": "tool", "name": "get_weather"})
    assert answer.stop_reason == "max_tokens" and answer.usage.output_tokens == 24
    assert all(block.type == "tool_use" and isinstance(block.input, dict) for block in answer.content)
    with server.anthropic().messages.stream(
            model="claude-x", max_tokens=24, tools=CLAUDE_TOOLS, extra_body={"temperature": 0},
            tool_choice={"type": "tool", "name": "get_weather"},
            messages=[{"role": "user", "content": f"{nonce} {QUESTION}"}]) as stream:
        final = stream.get_final_message()
    assert [block.input for block in final.content] == [block.input for block in answer.content]


def test_no_call_where_none_may_be(server, nonce):
    answer = chat(server, nonce, tool_choice="none").choices[0]
    assert answer.message.content and not answer.message.tool_calls and answer.finish_reason in ("stop", "length")
    message = claude(server, nonce, tokens=8, tool_choice={"type": "none"})
    assert [block.type for block in message.content] == ["text"]


def test_words_are_free_where_the_model_chooses(server, uncached, nonce):
    """With `auto` the answer is what it would be without anything that watches for calls."""
    answer = chat(server, nonce, tool_choice="auto").choices[0]
    if not answer.message.tool_calls:
        assert answer.message.content == chat(server, nonce, tool_choice="none").choices[0].message.content
    for call in answer.message.tool_calls or []:
        check_arguments(call.function.name, json.loads(call.function.arguments))
    again = chat(uncached, nonce).choices[0].message
    assert again.content == answer.message.content


def test_every_one_of_many_sampled_answers_is_a_valid_call(server, nonce):
    answer = server.openai().chat.completions.create(
        model="gpt-x", max_tokens=160, temperature=1.2, seed=7, n=8, tools=GPT_TOOLS, tool_choice="required",
        parallel_tool_calls=False, messages=[{"role": "user", "content": f"{nonce} {QUESTION}"}])
    assert len(answer.choices) == 8
    for choice in answer.choices:
        check_chat_calls(choice, "any")
        assert choice.finish_reason == "tool_calls" and len(choice.message.tool_calls) == 1
    assert len({json.dumps(chat_calls(choice.message)) for choice in answer.choices}) > 1


def test_a_strict_schema_with_an_unknown_keyword_is_refused_by_its_name(server):
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(?=x)y$"}}}
    tool = {"name": "f", "input_schema": schema, "strict": True}
    with pytest.raises(anthropic.BadRequestError, match=r"tools\.0\.input_schema.*pattern"):
        server.anthropic().messages.create(model="claude-x", max_tokens=5, tools=[tool],
                                           messages=[{"role": "user", "content": "x"}])
    with pytest.raises(openai.BadRequestError, match=r"tools\[0\]\.function\.parameters.*pattern"):
        server.openai().chat.completions.create(model="gpt-x", max_tokens=5, tools=functions([tool]),
                                                messages=[{"role": "user", "content": "x"}])
    # Without the promise the tool is offered all the same.
    assert server.anthropic().messages.create(model="claude-x", max_tokens=5, tools=[{**tool, "strict": False}],
                                              messages=[{"role": "user", "content": "x"}]).content


# ---- Conversations

def test_a_second_turn_with_the_result_reads_the_first_on_the_messages_api(server, uncached, nonce):
    tools = [CLAUDE_TOOLS[0], {**CLAUDE_TOOLS[1], **MARK}]
    first = [{"role": "user", "content": [{"type": "text", "text": f"{nonce} {RULE * 40} {QUESTION}", **MARK}]}]
    one = {"type": "tool", "name": "get_time", "disable_parallel_tool_use": True}
    answer = server.anthropic().messages.create(model="claude-x", max_tokens=160, tools=tools, messages=first,
                                                tool_choice=one, extra_body={"temperature": 0})
    assert answer.usage.cache_creation_input_tokens > 300 and answer.usage.cache_read_input_tokens == 0
    assert usage_sum(answer.usage) == total(server, tools=tools, messages=first)
    call = answer.content[0]
    second = [*first, {"role": "assistant", "content": [block.model_dump() for block in answer.content]},
              {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "23:15", **MARK}]}]
    for kept in (server, uncached):
        told = kept.anthropic().messages.create(model="claude-x", max_tokens=12, tools=tools, messages=second,
                                                extra_body={"temperature": 0})
        assert usage_sum(told.usage) == total(server, tools=tools, messages=second)
        if kept is server:
            assert told.usage.cache_read_input_tokens == answer.usage.cache_creation_input_tokens
            assert told.usage.cache_creation_input_tokens > 10
            words = told.content
    assert [block.model_dump(exclude={"id"}) for block in told.content] == [
        block.model_dump(exclude={"id"}) for block in words]


def test_a_second_turn_with_the_result_reads_the_first_on_chat(server, uncached, nonce):
    messages = [{"role": "user", "content": f"{nonce} {RULE * 40} {QUESTION}"}]

    def ask(kept, messages, **more):
        return kept.openai().chat.completions.create(model="gpt-x", max_tokens=160, temperature=0, tools=GPT_TOOLS,
                                                     messages=messages, **more)

    answer = ask(server, messages, tool_choice=CHAT_CHOICES["any"], parallel_tool_calls=False)
    call = answer.choices[0].message.tool_calls[0]
    messages += [answer.choices[0].message.model_dump(exclude_none=True),
                 {"role": "tool", "tool_call_id": call.id, "content": "It is 23:15."}]
    told = ask(server, messages, tool_choice="none")
    # The first prompt, and the call as it was written.
    assert told.usage.prompt_tokens_details.cached_tokens >= answer.usage.prompt_tokens + 10
    plain = ask(uncached, messages, tool_choice="none")
    assert plain.choices[0].message.content == told.choices[0].message.content
    assert plain.usage.prompt_tokens == told.usage.prompt_tokens


@pytest.mark.parametrize("route", ["anthropic", "openai"])
def test_litellm_calls_a_tool_and_brings_its_result(server, nonce, route):
    base = server.base + ("/v1" if route == "openai" else "")
    messages = [{"role": "user", "content": f"{nonce} {QUESTION}"}]

    def ask(messages, **more):
        return litellm.completion(model=f"{route}/claude-x", api_base=base, api_key="key", max_tokens=160,
                                  temperature=0, tools=GPT_TOOLS, messages=messages, **more)

    message = ask(messages, tool_choice=CHAT_CHOICES["named"], parallel_tool_calls=False).choices[0].message
    call = message.tool_calls[0]
    assert call.function.name == "get_time"
    check_arguments("get_time", json.loads(call.function.arguments))
    messages += [message.model_dump(), {"role": "tool", "tool_call_id": call.id, "content": "It is 23:15."}]
    assert ask(messages).choices[0].message is not None
    chunks = list(ask(messages[:1], tool_choice=CHAT_CHOICES["named"], parallel_tool_calls=False, stream=True))
    whole = litellm.stream_chunk_builder(chunks).choices[0].message.tool_calls
    assert [(c.function.name, json.loads(c.function.arguments)) for c in whole] == [
        (call.function.name, json.loads(call.function.arguments))]


# ---- Field cases

def many_tools(count):
    return [{"name": f"tool_{i}", "description": f"Does the {i}th thing. {RULE * 3}",
             "input_schema": {"type": "object", "properties": {
                 "zeta": {"type": "string"}, "alpha": {"type": "integer"}, "mid": {"enum": ["z", "a", "m"]},
                 "nested": {"type": "object", "properties": {"y": {"type": "number"}, "b": {"type": "boolean"}}},
                 "list": {"type": "array", "items": {"type": "string"}}, "beta": {"type": "string"}},
                 "required": ["zeta", "alpha"]}} for i in range(count)]


def test_c04_a_billing_line_in_front_of_ten_tools_does_not_spoil_the_cache(server, uncached, nonce):
    tools = [{"name": f"tool_{i}", "description": RULE, "input_schema": {
        "type": "object", "properties": {"zeta": {"type": "string"}}}} for i in range(10)]
    fixed = {"type": "text", "text": f"{nonce} {RULE * 130}"}
    user = [{"role": "user", "content": "Why?"}]

    def system(cch):
        return [{"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.1; cch={cch};"}, fixed]

    def ask(kept, cch):
        return kept.post("/v1/messages", {"model": "claude-x", "max_tokens": 8, "temperature": 0, "tools": tools,
                                          "system": system(cch), "messages": user})

    answers = [ask(server, os.urandom(4).hex()) for _ in range(3)]
    tokens = total(server, tools=tools, system=[fixed], messages=user)
    assert tokens > 1500
    for answer in answers[1:]:
        assert int(answer.headers["x-cached-tokens"]) >= 0.95 * tokens
    texts = [answer.json()["content"] for answer in [*answers, ask(uncached, "00")]]
    assert all(text == texts[0] for text in texts)
    assert total(server, tools=tools, system=system("aa"), messages=user) == tokens
    # Only as a whole first system block: elsewhere the same words are words.
    line = system("aa")[0]["text"]
    said = total(server, tools=tools, system=[fixed], messages=[{"role": "user", "content": line}])
    assert said - tokens == len(server.tokens(line)) - len(server.tokens("Why?"))
    for words in ({"messages": [*user, {"role": "assistant", "content": line}, *user]},
                  {"messages": user, "system": [fixed, system("aa")[0]]},
                  {"messages": user, "system": [{"type": "text", "text": "A " + line}, fixed]}):
        assert total(server, **{"tools": tools, "system": [fixed], **words}) > tokens + 10


CALL = {"type": "tool_use", "id": "toolu_1", "name": "tool_0", "input": {"zeta": "z", "alpha": 1}}


def chat_body(tools, nonce):
    return {"model": "gpt-x", "max_tokens": 8, "temperature": 0, "tools": functions(tools),
            "messages": [{"role": "user", "content": f"{nonce} Why?"}]}


def messages_body(tools, nonce):
    return {"model": "claude-x", "max_tokens": 8, "temperature": 0, "tools": tools,
            "messages": [{"role": "user", "content": f"{nonce} Why?"}]}


ROUTES = {"/v1/chat/completions": chat_body, "/v1/messages": messages_body}


def test_c05_tools_are_never_shuffled(server, nonce):
    tools = many_tools(8)
    answers = {}
    for route, body in ROUTES.items():
        prompt = total(server, tools=tools, messages=messages_body(tools, nonce)["messages"])
        for repeat in range(20):
            response = server.post(route, body(tools, nonce))
            assert response.status_code == 200, response.text
            # Both routes have one prompt, so the second one finds the first one's.
            if repeat > 0 or route == "/v1/messages":
                assert int(response.headers["x-cached-tokens"]) >= 0.95 * prompt
            said = response.json()
            answers.setdefault(route, []).append(
                said["choices"][0]["message"]["content"] if "choices" in said else said["content"][0]["text"])
    assert len(set(answers["/v1/chat/completions"] + answers["/v1/messages"])) == 1
    # The prompt is the body's, whoever renders it and when.
    body = {"tools": functions(tools), "messages": chat_body(tools, nonce)["messages"]}
    tokens = server.ok("/tokenize", body)["tokens"]
    with serving("--kv-memory", "128MiB", "--alias", "*") as restarted:
        assert restarted.ok("/tokenize", body)["tokens"] == tokens
        again = restarted.ok("/v1/chat/completions", chat_body(tools, nonce))
    assert again["choices"][0]["message"]["content"] == answers["/v1/messages"][0]
    text = server.ok("/detokenize", {"tokens": tokens})["content"]
    places = [text.index(f'"name": "tool_{i}"') for i in range(8)]
    keys = [text.index(f'"{key}"', places[0]) for key in ("zeta", "alpha", "mid", "nested", "list", "beta")]
    assert places == sorted(places) and keys == sorted(keys) and '["z", "a", "m"]' in text
    # Another order is another prompt, and the explanation says so.
    turned = messages_body([tools[3], *tools[:3], *tools[4:]], nonce)
    assert server.ok("/v1/cache/explain", {**turned, "route": "/v1/messages"})["cause"] == "tool_order"


def test_c10_markers_on_tools_count_and_are_read(server, uncached, nonce):
    tools = many_tools(3)
    tools[0]["description"] = f"{nonce} {tools[0]['description']}"
    marked = [*tools[:2], {**tools[2], **MARK}]
    user = [{"role": "user", "content": [{"type": "text", "text": f"m{i}", **MARK} for i in range(3)]}]
    computed = server.metrics()["vllm:prompt_tokens_total"]
    with pytest.raises(anthropic.BadRequestError, match="A maximum of 4 blocks.*Found 5") as refused:
        server.anthropic().messages.create(model="claude-x", max_tokens=1, tools=marked, messages=user,
                                           system=[{"type": "text", "text": "s", **MARK}])
    assert "invalid_request_error" in str(refused.value)
    with pytest.raises(anthropic.BadRequestError, match="1h"):
        server.anthropic().messages.create(
            model="claude-x", max_tokens=1, tools=marked, messages=[{"role": "user", "content": "q"}],
            system=[{"type": "text", "text": "s", "cache_control": {"type": "ephemeral", "ttl": "1h"}}])
    for bad, place in (({"tools": [*tools[:2], {**tools[2], "cache_control": {"type": "forever"}}]},
                        "tools.2.cache_control.type"),
                       ({"tools": tools, "messages": [*user, {"role": "assistant", "content": [CALL]}, {
                           "role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": [
                               {"type": "text", "text": "", **MARK}]}]}]}, "messages.2.content.0.content.0")):
        with pytest.raises(anthropic.BadRequestError) as refused:
            server.anthropic().messages.create(**{"model": "claude-x", "max_tokens": 1, "messages": user[:1], **bad})
        assert place in str(refused.value) and "invalid_request_error" in str(refused.value)
    assert server.metrics()["vllm:prompt_tokens_total"] == computed

    def ask(kept, system, **more):
        return kept.anthropic().messages.create(
            model="claude-x", max_tokens=6, tools=marked, system=system, extra_body={"temperature": 0},
            messages=[{"role": "user", "content": "Why?"}], **more)

    # Four are fine; and the tools are read whatever system text stands behind them.
    answer = server.anthropic().messages.create(model="claude-x", max_tokens=1, tools=marked, messages=user,
                                                system="You are brief.")
    created = answer.usage.cache_creation_input_tokens
    assert created > 200 and answer.usage.cache_read_input_tokens == 0
    server.ok("/v1/cache/clear", {})
    first = ask(server, "You are brief.")
    assert first.usage.cache_read_input_tokens == 0 < first.usage.cache_creation_input_tokens < created
    for system in ("You are brief.", "You are a poet and speak in verse."):
        told = ask(server, system)
        assert told.usage.cache_read_input_tokens == first.usage.cache_creation_input_tokens
        assert told.usage.cache_creation_input_tokens == 0
        assert usage_sum(told.usage) == total(server, tools=marked, system=system,
                                              messages=[{"role": "user", "content": "Why?"}])
        assert told.content == ask(uncached, system).content


def test_c10_markers_on_calls_and_results_are_read(server, nonce):
    tools = CLAUDE_TOOLS
    ids = [f"toolu_{i}" for i in range(3)]
    messages = [
        {"role": "user", "content": f"{nonce} {RULE * 30}"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": i, "name": "get_time", "input": {"zone": "UTC"}}
                                          for i in ids]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": i, "content": f"{RULE * 5} {i}"}
                                     for i in ids]}]
    messages[1]["content"][1].update(MARK)
    messages[2]["content"][0]["content"] = [{"type": "text", "text": "late", **MARK}]

    def ask():
        return server.anthropic().messages.create(model="claude-x", max_tokens=1, tools=tools, messages=messages).usage

    first = ask()
    assert first.cache_creation_input_tokens > 300 and first.cache_read_input_tokens == 0
    second = ask()
    assert second.cache_read_input_tokens == first.cache_creation_input_tokens
    # From the last result the first one's entry is found: its place is looked at in any case.
    del messages[1]["content"][1]["cache_control"]
    messages[2]["content"][0]["content"] = "late"
    messages[2]["content"][2].update(MARK)
    assert ask().cache_read_input_tokens == first.cache_creation_input_tokens


def test_tools_are_counted(server, nonce):
    user = [{"role": "user", "content": nonce}]
    bare, with_tools = total(server, messages=user), total(server, messages=user, tools=CLAUDE_TOOLS)
    assert with_tools > bare + 100
    answer = server.anthropic().messages.create(model="claude-x", max_tokens=1, messages=user, tools=CLAUDE_TOOLS)
    assert usage_sum(answer.usage) == with_tools
    chat = server.ok("/tokenize", {"messages": user, "tools": GPT_TOOLS})
    assert chat["count"] == with_tools
