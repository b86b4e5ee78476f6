# SPDX-License-Identifier: Apache-2.0
"""The Anthropic routes with the official client, as an application uses them."""

import json

import anthropic
import pytest

from conftest import NAME

CAPITAL = [{"role": "user", "content": "What is the capital of France?"}]
GREEDY = {"temperature": 0}


def ask(server, **options):
    body = {"model": "claude-sonnet-5", "max_tokens": 12, "messages": CAPITAL, "extra_body": GREEDY, **options}
    return server.anthropic().messages.create(**body)


def test_a_message_is_answered_with_all_four_counters(server):
    message = ask(server)
    assert message.type == "message" and message.role == "assistant" and message.model == "claude-sonnet-5"
    assert message.id.startswith("msg_") and message._request_id.startswith("req_")
    assert message.content[0].text
    assert message.stop_reason in ("end_turn", "max_tokens")
    usage = message.usage
    assert usage.input_tokens > 0 and usage.output_tokens > 0
    assert usage.cache_creation_input_tokens == 0 and usage.cache_read_input_tokens == 0
    assert usage.cache_creation.ephemeral_5m_input_tokens == 0


def test_a_stream_adds_up_to_the_whole_message(server):
    whole = ask(server)
    with server.anthropic().messages.stream(model="claude-x", max_tokens=12, messages=CAPITAL,
                                            extra_body=GREEDY) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == final.content[0].text == whole.content[0].text
    assert final.stop_reason == whole.stop_reason
    assert final.usage.output_tokens == whole.usage.output_tokens
    assert final.usage.input_tokens == whole.usage.input_tokens


def test_a_stream_has_the_events_in_their_order(server):
    body = {"model": "claude-x", "max_tokens": 4, "messages": CAPITAL, "stream": True, **GREEDY}
    with server.http.stream("POST", "/v1/messages", json=body) as response:
        lines = list(response.iter_lines())
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    names = [line[7:] for line in lines if line.startswith("event: ")]
    data = [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
    assert [d["type"] for d in data] == names
    assert names[0] == "message_start" and names[-1] == "message_stop"
    order = [n for n in names if n != "ping"]
    assert order[1] == "content_block_start" and order[-3:-1] == ["content_block_stop", "message_delta"]
    assert set(order[2:-3]) == {"content_block_delta"}
    usage = data[names.index("message_delta")]["usage"]
    assert {"input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens"} <= set(usage)


def test_count_tokens_is_what_the_message_then_costs(server):
    system = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    counted = server.anthropic().messages.count_tokens(model="claude-x", messages=CAPITAL, system=system)
    usage = ask(server, system=system, max_tokens=1).usage
    assert counted.input_tokens == (usage.input_tokens + usage.cache_creation_input_tokens +
                                    usage.cache_read_input_tokens)


def test_a_stop_sequence_is_named_and_not_returned(server):
    message = ask(server, messages=[{"role": "user", "content": "x"}, {"role": "assistant", "content": "1, 2, 3, 4,"}],
                  stop_sequences=["zzz", " 7"], max_tokens=30)
    assert message.stop_reason == "stop_sequence" and message.stop_sequence == " 7"
    assert "7" not in message.content[0].text


def test_the_answer_continues_a_prefilled_assistant_turn(server):
    message = ask(server, messages=[*CAPITAL, {"role": "assistant", "content": "The capital of France is"}],
                  max_tokens=3)
    assert message.content[0].text.strip().startswith("Paris"), "only the new text comes back"


def test_a_system_message_inside_the_conversation_is_rendered_in_place(server):
    body = {"model": "claude-x", "max_tokens": 1, "messages": [
        {"role": "user", "content": "Hi"}, {"role": "system", "content": "Answer in French."}]}
    server.ok("/v1/messages", body)
    rendered = server.ok("/detokenize", {"tokens": server.ok("/tokenize", {"messages": body["messages"]})["tokens"]})
    assert "user\nHi<|im_end|>\n<|im_start|>system\nAnswer in French." in rendered["content"]


def test_max_tokens_zero_fills_the_cache_and_says_nothing(server, nonce):
    body = {"model": "claude-x", "system": [{"type": "text", "text": nonce + " Know this. " * 40,
                                             "cache_control": {"type": "ephemeral"}}], "messages": CAPITAL}
    warm = server.ok("/v1/messages", {**body, "max_tokens": 0})
    assert warm["content"] == [] and warm["stop_reason"] == "max_tokens"
    assert warm["usage"]["output_tokens"] == 0 and warm["usage"]["cache_creation_input_tokens"] > 64
    then = server.ok("/v1/messages", {**body, "max_tokens": 1})
    assert then["usage"]["cache_read_input_tokens"] == warm["usage"]["cache_creation_input_tokens"]


def test_fields_of_an_agent_that_mean_nothing_here_are_ignored(server):
    message = server.anthropic().beta.messages.create(
        model="claude-x", max_tokens=2048, messages=CAPITAL, betas=["claude-code-20250219", "made-up-2030-01-01"],
        thinking={"type": "adaptive"}, output_config={"effort": "low"}, metadata={"user_id": "u"},
        stop_sequences=["."], extra_body={"context_management": {"edits": []}, "never_heard_of": 1})
    assert message.stop_reason in ("stop_sequence", "end_turn", "max_tokens")


def test_models_satisfy_this_client_too(server):
    client = server.anthropic()
    listed = list(client.models.list())
    assert [m.id for m in listed] == [NAME, "local-chat"]
    assert listed[0].max_input_tokens > 1000 and listed[0].type == "model"
    assert client.models.retrieve("claude-sonnet-5").id == "claude-sonnet-5"
    with pytest.raises(anthropic.NotFoundError):
        client.models.retrieve("nobody")


def test_claude_code_can_probe_and_post_with_its_query(server):
    assert server.http.head("/api/hello").status_code == 200
    assert server.ok("/v1/messages?beta=true", {"model": "claude-x", "max_tokens": 1, "messages": CAPITAL})["id"]


def test_diagnostics_name_the_first_change(server, nonce):
    def send(system, question, previous):
        body = {"model": "claude-x", "max_tokens": 1, "system": f"{nonce} {system}",
                "messages": [{"role": "user", "content": question}],
                "diagnostics": {"previous_message_id": previous}}
        answer = server.ok("/v1/messages", body)
        return answer["id"], answer["diagnostics"]

    first, none = send("A", "q", None)
    assert none is None
    assert send("A", "q", first)[1] is None
    assert send("B", "q", first)[1]["cache_miss_reason"]["type"] == "system_changed"
    assert send("A", "r", first)[1]["cache_miss_reason"]["type"] == "messages_changed"
    assert send("A", "q", "msg_unknown")[1]["cache_miss_reason"]["type"] == "previous_message_not_found"
    assert "diagnostics" not in server.ok("/v1/messages", {"model": "claude-x", "max_tokens": 1, "messages": CAPITAL})
