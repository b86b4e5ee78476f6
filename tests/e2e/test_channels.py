# SPDX-License-Identifier: Apache-2.0
"""Answers in channels (gpt-oss): thoughts, words and calls, on both APIs, streamed or not, and what holds such a model
to a form. What is said word by word comes from a scripted model; what control tokens do, from a tiny gpt-oss with
random weights, which writes whatever the grammar lets through."""

import json
import subprocess

import pytest

from conftest import PROGRAM, ROOT, serving
from gguf_writer import ChannelModel

TEMPLATE = ROOT / "tests/templates/families/gpt_oss.jinja"
TINY = ROOT / "tests/golden/architectures/gpt-oss-mxfp4.gguf"
THOUGHT, ANSWER, ARGUMENTS = "Hm so", "Duck.", "{}"
ASKED = [{"role": "user", "content": "Why?"}]
ZONE = {"type": "object", "properties": {"zone": {"type": "string", "enum": ["UTC", "CET"]}}, "required": ["zone"],
        "additionalProperties": False}


def tools(name="get_time", schema=ZONE):
    return {"tools": [{"type": "function", "function": {"name": name, "description": "The time.",
                                                        "parameters": schema}}]}


def claude_tools(name="get_time", schema=ZONE):
    return {"tools": [{"name": name, "description": "The time.", "input_schema": schema}]}


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for name, words in (("speaks", [ChannelModel.THINK, *THOUGHT, ChannelModel.SPEAK, *ANSWER]),
                        ("calls", [ChannelModel.THINK, *THOUGHT, ChannelModel.CALL, *ARGUMENTS])):
        (folder / f"{name}.gguf").write_bytes(ChannelModel(words).bytes())
    return folder


@pytest.fixture(scope="module")
def speaker(scripts):
    with serving("--kv-memory", "64MiB", "--alias", "*", "--chat-template", TEMPLATE,
                 model=scripts / "speaks.gguf") as running:
        yield running


@pytest.fixture(scope="module")
def caller(scripts):
    with serving("--kv-memory", "64MiB", "--alias", "*", "--chat-template", TEMPLATE,
                 model=scripts / "calls.gguf") as running:
        yield running


@pytest.fixture(scope="module")
def tiny():
    with serving("--kv-memory", "64MiB", "--alias", "*", "--chat-template", TEMPLATE, model=TINY) as running:
        yield running


def chat(server, **more):
    return server.ok("/v1/chat/completions", {"model": "m", "messages": ASKED, **more})


def claude(server, **more):
    return server.ok("/v1/messages", {"model": "m", "max_tokens": 100, "messages": ASKED, **more})


def streamed(server, **more):
    """Thought, content and arguments of a chat, put together from its chunks."""
    body = {"model": "m", "messages": ASKED, "stream": True, **more}
    with server.http.stream("POST", "/v1/chat/completions", json=body) as response:
        lines = [json.loads(line[6:]) for line in response.iter_lines() if line.startswith("data: {")]
    deltas = [chunk["choices"][0]["delta"] for chunk in lines]
    return ("".join(delta.get("reasoning_content") or "" for delta in deltas),
            "".join(delta.get("content") or "" for delta in deltas),
            "".join(call["function"]["arguments"] for delta in deltas for call in delta.get("tool_calls", [])))


def test_a_thought_and_an_answer_come_in_their_places(speaker):
    answer = chat(speaker)
    message = answer["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == (THOUGHT, ANSWER)
    assert answer["usage"]["completion_tokens_details"]["reasoning_tokens"] == len(THOUGHT) + 2
    assert answer["usage"]["completion_tokens"] == len(THOUGHT) + len(ANSWER) + 3
    assert streamed(speaker) == (THOUGHT, ANSWER, "")
    blocks = claude(speaker)["content"]
    assert [block["type"] for block in blocks] == ["thinking", "text"]
    assert (blocks[0]["thinking"], blocks[1]["text"]) == (THOUGHT, ANSWER)
    assert "reasoning_content" not in chat(speaker, include_reasoning=False)["choices"][0]["message"]
    as_written = chat(speaker, reasoning_format="none")["choices"][0]["message"]
    assert as_written["content"] == ChannelModel.THINK + THOUGHT + ChannelModel.SPEAK + ANSWER


def test_a_conversation_goes_on_with_the_answer_alone(speaker):
    first = chat(speaker)["choices"][0]["message"]
    second = chat(speaker, messages=[*ASKED, first, {"role": "user", "content": "And?"}])
    assert second["choices"][0]["message"]["content"] == ANSWER
    # Begun by the client, the answer is words; the script begins anew behind the same letter.
    begun = chat(speaker, messages=[*ASKED, {"role": "assistant", "content": "It"}], continue_final_message=True)
    assert begun["choices"][0]["message"]["content"] == ANSWER


def test_a_call_is_a_call_behind_its_thought(caller):
    schema = {"type": "object", "properties": {"z": {"type": "integer"}}}
    answer = chat(caller, **tools("f", schema))["choices"][0]
    message = answer["message"]
    assert (message["reasoning_content"], message["content"]) == (THOUGHT, None)
    call = message["tool_calls"][0]["function"]
    assert (call["name"], call["arguments"]) == ("f", ARGUMENTS)
    assert answer["finish_reason"] == "tool_calls"
    assert streamed(caller, **tools("f", schema)) == (THOUGHT, "", ARGUMENTS)
    answer = claude(caller, **claude_tools("f", schema))
    assert [block["type"] for block in answer["content"]] == ["thinking", "tool_use"]
    assert answer["content"][1]["name"] == "f" and answer["content"][1]["input"] == {}
    assert answer["stop_reason"] == "tool_use"
    # Back in the history, with its result.
    result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "R"}
    assert chat(caller, messages=[*ASKED, message, result], **tools("f", schema))["choices"][0]["message"]["tool_calls"]


def test_at_the_terminal_thoughts_stand_in_front_of_the_answer(scripts):
    done = subprocess.run([PROGRAM, "chat", scripts / "speaks.gguf", "--chat-template", TEMPLATE], input="Why?\nAnd?\n",
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(f"{THOUGHT}\n\n{ANSWER}") == 2 and "<|" not in done.stdout


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_time"}}])
def test_a_forced_call_comes_at_once(tiny, choice):
    for seed in range(3):
        answer = chat(tiny, seed=seed, temperature=1, max_tokens=120, tool_choice=choice, **tools())["choices"][0]
        assert answer["finish_reason"] == "tool_calls", answer
        assert answer["message"]["content"] is None and "reasoning_content" not in answer["message"]
        call = answer["message"]["tool_calls"][0]["function"]
        assert call["name"] == "get_time" and json.loads(call["arguments"])["zone"] in ("UTC", "CET")
    answer = claude(tiny, max_tokens=120, tool_choice={"type": "any"}, **claude_tools())
    assert [block["type"] for block in answer["content"]] == ["tool_use"] and answer["stop_reason"] == "tool_use"


def test_a_model_that_may_choose_writes_messages_and_no_mark_is_ever_said(tiny):
    thoughts, words = 0, 0
    for seed in range(6):
        asked = {"seed": seed, "temperature": 1, "max_tokens": 80, **tools()}
        message = chat(tiny, **asked)["choices"][0]["message"]
        thought, content = message.get("reasoning_content", ""), message["content"] or ""
        calls = "".join(call["function"]["arguments"] for call in message.get("tool_calls", []))
        assert streamed(tiny, **asked) == (thought, content, calls)
        assert "<|" not in thought + content
        thoughts, words = thoughts + bool(thought), words + bool(content or calls)
    assert thoughts and words


def test_an_answer_of_a_form_is_that_form(tiny):
    form = {"type": "json_schema", "json_schema": {"name": "zone", "schema": ZONE, "strict": True}}
    answer = chat(tiny, seed=1, temperature=1, max_tokens=100, response_format=form)
    free = chat(tiny, seed=1, temperature=1, max_tokens=1)
    message = answer["choices"][0]["message"]
    assert json.loads(message["content"])["zone"] in ("UTC", "CET") and "reasoning_content" not in message
    assert answer["usage"]["prompt_tokens"] > free["usage"]["prompt_tokens"], "the message's head is the prompt's"
