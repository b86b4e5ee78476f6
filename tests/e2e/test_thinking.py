# SPDX-License-Identifier: Apache-2.0
"""Models that think before they answer: where their thoughts go on both APIs, streamed or not, and how they come back.

The model is a scripted one (gguf_writer.py): it says the same words behind every prompt that ends with a newline, by
the same computation as any other model.
"""

import json

import pytest

from conftest import ROOT, serving
from gguf_writer import ScriptedModel

FAMILIES = ROOT / "tests/templates/families"
THOUGHT, ANSWER = "Hm so", "Yet."
WORDS = ["<think>", *THOUGHT, "</think>", *ANSWER]
TOKENS = len(THOUGHT) + 2  # with the marks
ASKED = [{"role": "user", "content": "Why?"}]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    # What a client writes spells no added token: its "<think>" ends with the token ">".
    for name, words, start in (("thinks", WORDS, "\n"), ("begun", WORDS[1:], "\n"), ("prefilled", WORDS[1:], ">")):
        (folder / f"{name}.gguf").write_bytes(ScriptedModel(words, start).bytes())
    return folder


@pytest.fixture(scope="module")
def thinker(models):
    with serving("--kv-memory", "64MiB", "--alias", "*", "--chat-template", FAMILIES / "qwen3.jinja",
                 model=models / "thinks.gguf") as running:
        yield running


def chat(server, **more):
    return server.ok("/v1/chat/completions", {"model": "m", "messages": ASKED, **more})


def claude(server, **more):
    return server.ok("/v1/messages", {"model": "m", "max_tokens": 100, "messages": ASKED, **more})


def chunks(server, **more):
    body = {"model": "m", "messages": ASKED, "stream": True, **more}
    with server.http.stream("POST", "/v1/chat/completions", json=body) as response:
        lines = [line[6:] for line in response.iter_lines() if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def joined(deltas, name):
    return "".join(delta.get(name) or "" for delta in deltas)


def test_a_thought_stands_beside_the_answer_in_a_chat(thinker):
    answer = chat(thinker)
    message = answer["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == (THOUGHT, ANSWER)
    assert answer["choices"][0]["finish_reason"] == "stop"
    usage = answer["usage"]
    assert usage["completion_tokens_details"]["reasoning_tokens"] == TOKENS
    assert usage["completion_tokens"] == TOKENS + len(ANSWER) + 1
    with_sdk = thinker.openai().chat.completions.create(model="m", messages=ASKED).choices[0].message
    assert with_sdk.content == ANSWER and with_sdk.reasoning_content == THOUGHT


def test_a_streamed_chat_says_the_thought_first(thinker):
    said = chunks(thinker, stream_options={"include_usage": True})
    deltas = [chunk["choices"][0]["delta"] for chunk in said if chunk["choices"]]
    assert joined(deltas, "reasoning_content") == THOUGHT and joined(deltas, "content") == ANSWER
    kinds = ["thought" if "reasoning_content" in delta else "text" for delta in deltas if any(
        delta.get(name) for name in ("reasoning_content", "content"))]
    assert kinds == sorted(kinds, reverse=True) and len(kinds) > 4, "piece by piece, in order"
    assert said[-1]["usage"]["completion_tokens_details"]["reasoning_tokens"] == TOKENS


def test_a_thought_is_a_block_of_a_message(thinker):
    message = thinker.anthropic().messages.create(model="m", max_tokens=100, messages=ASKED)
    assert [block.type for block in message.content] == ["thinking", "text"]
    assert message.content[0].thinking == THOUGHT and message.content[0].signature
    assert message.content[1].text == ANSWER and message.stop_reason == "end_turn"
    assert message.usage.output_tokens_details.thinking_tokens == TOKENS
    with thinker.anthropic().messages.stream(model="m", max_tokens=100, messages=ASKED) as stream:
        events = [(event.type, getattr(event, "index", None)) for event in stream]
        final = stream.get_final_message()
    assert final.content[0].thinking == THOUGHT and final.content[0].signature == final.id
    assert final.content[1].text == ANSWER and final.usage == message.usage
    starts = [index for kind, index in events if kind == "content_block_start"]
    stops = [index for kind, index in events if kind == "content_block_stop"]
    assert starts == stops == [0, 1]
    assert events.index(("content_block_stop", 0)) < events.index(("content_block_start", 1))


def test_a_signature_comes_once_before_its_block_ends(thinker):
    body = {"model": "m", "max_tokens": 100, "messages": ASKED, "stream": True}
    with thinker.http.stream("POST", "/v1/messages", json=body) as response:
        events = [json.loads(line[6:]) for line in response.iter_lines() if line.startswith("data: ")]
    kinds = [event.get("delta", {}).get("type") or event["type"] for event in events if event["type"] != "ping"]
    assert kinds.count("signature_delta") == 1
    at = kinds.index("signature_delta")
    assert kinds[at - 1] == "thinking_delta" and kinds[at + 1] == "content_block_stop"
    assert events[1 if events[1]["type"] != "ping" else 2]["content_block"] == {
        "type": "thinking", "thinking": "", "signature": ""}


def test_thoughts_come_back_in_the_history_on_both_routes(thinker):
    first = thinker.anthropic().messages.create(model="m", max_tokens=100, messages=ASKED)
    more = [*ASKED, {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in first.content]},
            {"role": "user", "content": "And?"}]
    assert thinker.anthropic().messages.create(model="m", max_tokens=100, messages=more).content[1].text == ANSWER
    redacted = [ASKED[0], {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"},
                                                            {"type": "text", "text": ANSWER}]}, more[2]]
    assert claude(thinker, messages=redacted)["content"][1]["text"] == ANSWER
    message = chat(thinker)["choices"][0]["message"]
    assert chat(thinker, messages=[*ASKED, message, more[2]])["choices"][0]["message"]["content"] == ANSWER


@pytest.mark.parametrize("stream", [False, True])
def test_who_does_not_want_thoughts_gets_none_or_all_in_the_text(thinker, stream):
    def said(**more):
        if stream:
            deltas = [chunk["choices"][0]["delta"] for chunk in chunks(thinker, **more)]
            return joined(deltas, "reasoning_content"), joined(deltas, "content")
        message = chat(thinker, **more)["choices"][0]["message"]
        return message.get("reasoning_content", ""), message["content"]

    assert said() == said(reasoning_format="auto") == said(reasoning_format="deepseek") == (THOUGHT, ANSWER)
    assert said(include_reasoning=False) == ("", ANSWER)
    assert said(reasoning_format="none") == ("", "<think>Hm so</think>Yet.")
    refused = thinker.post("/v1/chat/completions", {"model": "m", "messages": ASKED, "reasoning_format": "odd"})
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "reasoning_format"


def test_a_hidden_thought_leaves_an_empty_block(thinker):
    hidden = {"thinking": {"type": "adaptive", "display": "omitted"}}
    whole = claude(thinker, **hidden)
    assert [block["type"] for block in whole["content"]] == ["thinking", "text"]
    assert whole["content"][0]["thinking"] == "" and whole["content"][0]["signature"]
    assert whole["usage"]["output_tokens_details"]["thinking_tokens"] == TOKENS
    with thinker.anthropic().messages.stream(model="m", max_tokens=100, messages=ASKED, **hidden) as stream:
        final = stream.get_final_message()
    assert [block.type for block in final.content] == ["thinking", "text"] and final.content[0].thinking == ""
    refused = thinker.post("/v1/messages", {"model": "m", "max_tokens": 9, "messages": ASKED,
                                            "thinking": {"type": "adaptive", "display": "loud"}})
    assert refused.status_code == 400 and "thinking.display" in refused.json()["error"]["message"]


def test_a_limit_inside_the_thought_ends_there(thinker):
    message = claude(thinker, max_tokens=4)
    assert message["stop_reason"] == "max_tokens" and [b["type"] for b in message["content"]] == ["thinking"]
    assert message["content"][0]["thinking"] == "Hm"  # the space behind it is nobody's
    assert message["usage"]["output_tokens_details"]["thinking_tokens"] == 4
    choice = chat(thinker, max_tokens=4)["choices"][0]
    assert choice["finish_reason"] == "length" and choice["message"]["content"] == ""
    assert choice["message"]["reasoning_content"] == "Hm"
    with thinker.anthropic().messages.stream(model="m", max_tokens=4, messages=ASKED) as stream:
        assert stream.get_final_message().content[0].thinking == "Hm"


def test_log_probabilities_are_those_of_the_answer(thinker):
    content = chat(thinker, logprobs=True, top_logprobs=2)["choices"][0]["logprobs"]["content"]
    assert "".join(entry["token"] for entry in content if not entry["token"].startswith("<|")) == ANSWER


def test_every_choice_has_its_own_thought(thinker):
    choices = chat(thinker, n=3)["choices"]
    assert [(c["message"]["reasoning_content"], c["message"]["content"]) for c in choices] == [(THOUGHT, ANSWER)] * 3
    said = chunks(thinker, n=2)
    for index in range(2):
        deltas = [chunk["choices"][0]["delta"] for chunk in said if chunk["choices"][0]["index"] == index]
        assert joined(deltas, "reasoning_content") == THOUGHT and joined(deltas, "content") == ANSWER


def test_a_prompt_that_opens_the_thought_itself(models):
    with serving("--kv-memory", "64MiB", "--alias", "*", "--chat-template", ROOT / "tests/templates/thinking.jinja",
                 model=models / "begun.gguf") as server:
        message = chat(server)["choices"][0]["message"]
        assert (message["reasoning_content"], message["content"]) == (THOUGHT, ANSWER)
        assert [block["type"] for block in claude(server)["content"]] == ["thinking", "text"]
        # A mark in somebody else's words opens nothing.
        typed = [{"role": "user", "content": "What is <think>?"}]
        assert chat(server, messages=typed)["choices"][0]["message"]["reasoning_content"] == THOUGHT


def test_an_answer_whose_beginning_is_given(models):
    with serving("--kv-memory", "64MiB", "--alias", "*", "--chat-template", FAMILIES / "qwen3.jinja",
                 model=models / "prefilled.gguf") as server:
        begun = [*ASKED, {"role": "assistant", "content": "<think>"}]
        message = claude(server, messages=begun)
        assert [block["type"] for block in message["content"]] == ["thinking", "text"]
        assert message["content"][0]["thinking"] == THOUGHT and message["content"][1]["text"] == ANSWER


def test_a_model_without_the_form_keeps_its_text(models):
    with serving("--kv-memory", "64MiB", "--alias", "*", "--chat-template", ROOT / "tests/templates/chatml.jinja",
                 model=models / "thinks.gguf") as server:
        message = chat(server)["choices"][0]["message"]
        assert message["content"] == "<think>Hm so</think>Yet." and "reasoning_content" not in message
        assert [block["type"] for block in claude(server)["content"]] == ["text"]
    with serving("--kv-memory", "64MiB", "--alias", "*", "--chat-template", FAMILIES / "qwen3.jinja",
                 model=models / "thinks.gguf") as server:
        raw = server.ok("/v1/completions", {"model": "m", "prompt": "x\n", "max_tokens": 50})
        assert raw["choices"][0]["text"] == "<think>Hm so</think>Yet.", "a raw completion is not taken apart"
