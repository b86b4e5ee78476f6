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


def with_control_marks(model):
    """The model's thoughts stand between control tokens, which otherwise give no text."""
    model.keys = [(name, kind, (content[0], [3 if t == 4 else t for t in content[1]])
                   if name == "tokenizer.ggml.token_type" else content) for name, kind, content in model.keys]
    return model


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


def test_an_answer_that_is_held_to_a_form_is_no_thought(models):
    schema = {"type": "object", "properties": {"a": {"const": "b"}}, "required": ["a"], "additionalProperties": False}
    form = {"type": "json_schema", "schema": schema}
    held = {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}
    with serving("--kv-memory", "64MiB", "--alias", "*", "--chat-template", ROOT / "tests/templates/thinking.jinja",
                 model=models / "begun.gguf") as server:
        message = chat(server, max_tokens=60, **held)["choices"][0]["message"]
        assert json.loads(message["content"]) == {"a": "b"} and "reasoning_content" not in message
        content = claude(server, output_config={"format": form})["content"]
        assert [block["type"] for block in content] == ["text"] and json.loads(content[0]["text"]) == {"a": "b"}


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


def test_marks_that_are_control_tokens_are_seen(tmp_path):
    path = tmp_path / "control.gguf"
    path.write_bytes(with_control_marks(ScriptedModel(WORDS)).bytes())
    with serving("--kv-memory", "64MiB", "--alias", "*", "--chat-template", FAMILIES / "qwen3.jinja",
                 model=path) as server:
        message = chat(server)["choices"][0]["message"]
        assert (message["reasoning_content"], message["content"]) == (THOUGHT, ANSWER)
        assert [block["type"] for block in claude(server)["content"]] == ["thinking", "text"]
        whole = chat(server, reasoning_format="none")["choices"][0]["message"]
        assert whole["content"] == "<think>Hm so</think>Yet."
        raw = server.ok("/v1/completions", {"model": "m", "prompt": "x\n", "max_tokens": 50})
        assert raw["choices"][0]["text"] == THOUGHT + ANSWER


# ---- Whether to think: one switch under the names of every API and template

END_OF_QWEN3 = "<|im_start|>assistant\n"
# Of each family: what a prompt has when nobody says anything, when thinking is asked for, and when it is not wanted.
SWITCHES = {
    "qwen3": (lambda text: text.endswith(END_OF_QWEN3),
              lambda text: text.endswith(END_OF_QWEN3),
              lambda text: text.endswith(END_OF_QWEN3 + "<think>\n\n</think>\n\n")),
    "smollm3": (lambda text: "Mode: /think\n" in text and text.endswith("assistant\n"),
                lambda text: "Mode: /think\n" in text and text.endswith("assistant\n"),
                lambda text: "Mode: /no_think\n" in text and text.endswith("assistant\n<think>\n\n</think>\n")),
    "granite": (lambda text: "<think>" not in text,
                lambda text: "<think></think>" in text,
                lambda text: "<think>" not in text),
    "cohere2": (lambda text: "START_THINKING" not in text,
                lambda text: text.endswith("<|START_THINKING|>"),
                lambda text: text.endswith("<|START_THINKING|><|END_THINKING|>")),
    "deepseek": (lambda text: text.endswith("<think>\n"),) * 3,  # it has no switch
}
ON = [{"chat_template_kwargs": {"enable_thinking": True}}, {"chat_template_kwargs": {"thinking": True}}]
OFF = [{"chat_template_kwargs": {"enable_thinking": False}}, {"chat_template_kwargs": {"thinking": False}},
       {"reasoning_effort": "none"}]
ON_MESSAGES = [{"thinking": {"type": "enabled", "budget_tokens": 1024}}, {"thinking": {"type": "adaptive"}}, *ON]
OFF_MESSAGES = [{"thinking": {"type": "disabled"}}, *OFF[:2], {"output_config": {"effort": "none"}}]


def prompt_of(server, **more):
    tokens = server.ok("/tokenize", {"messages": ASKED, **more})["tokens"]
    return tokens, server.ok("/detokenize", {"tokens": tokens})["content"]


@pytest.mark.parametrize("family", SWITCHES)
def test_the_switch_of_every_api_reaches_the_families_templates(family):
    by_default, on, off = SWITCHES[family]
    with serving("--kv-memory", "64MiB", "--alias", "*", "--chat-template", FAMILIES / f"{family}.jinja") as server:
        for says, chats, messages in ((by_default, [{}], [{}]), (on, ON, ON_MESSAGES), (off, OFF, OFF_MESSAGES)):
            for more in chats:
                tokens, text = prompt_of(server, **more)
                assert says(text), (more, text)
                assert chat(server, max_tokens=1, **more)["usage"]["prompt_tokens"] == len(tokens)
            for more in messages:  # the same prompt, to the token: all but the last one is read back
                body = {"model": "m", "max_tokens": 1025, "messages": ASKED, **more, "stop_sequences": ["e", "a"]}
                answer = server.post("/v1/messages", body)
                assert answer.status_code == 200, answer.text
                assert int(answer.headers["x-cached-tokens"]) == len(tokens) - 1, more
                counted = server.ok("/v1/messages/count_tokens", {"model": "m", "messages": ASKED, **more})
                assert counted["input_tokens"] == len(tokens), more
        # What a request says to the template by its own name for it is not overruled.
        asked = {"chat_template_kwargs": {"enable_thinking": True}, "reasoning_effort": "none"}
        assert on(prompt_of(server, **asked)[1])


def test_an_effort_reaches_a_template_that_has_levels():
    with serving("--kv-memory", "64MiB", "--alias", "*", "--chat-template", FAMILIES / "gpt_oss.jinja") as server:
        for effort in ("low", "medium", "high"):
            tokens, text = prompt_of(server, reasoning_effort=effort)
            assert f"Reasoning: {effort}\n" in text
            assert prompt_of(server, chat_template_kwargs={"reasoning_effort": effort})[0] == tokens
            assert chat(server, max_tokens=1, reasoning_effort=effort)["usage"]["prompt_tokens"] == len(tokens)
            told = server.post("/v1/messages", {"model": "m", "max_tokens": 1, "messages": ASKED,
                                                "output_config": {"effort": effort}})
            assert int(told.headers["x-cached-tokens"]) == len(tokens) - 1
        assert "Reasoning: medium\n" in prompt_of(server)[1]
