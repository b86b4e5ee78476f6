# SPDX-License-Identifier: Apache-2.0
"""Chat templates over HTTP: from the model file or from one of the operator's, what of a request reaches them, and
whose fault an error is (C15)."""

import pathlib
import subprocess

import anthropic
import openai
import pytest

from conftest import MODEL, PROGRAM, ROOT, serving

FAMILIES = ROOT / "tests/templates/families"
ROUTES = ("/v1/chat/completions", "/v1/messages")

# Prints whatever a request can say.
TELLTALE = """{% for m in messages %}<|im_start|>{{ m.role }}
{% if m.name is defined %}({{ m.name }}) {% endif %}
{% if m.reasoning_content is defined %}[thought: {{ m.reasoning_content }}]{% endif %}
{{ m.content }}<|im_end|>
{% endfor %}
{% for d in documents or [] %}#{{ d.title }}: {{ d.text }}
{% endfor %}
{% if enable_thinking is defined %}thinking={{ enable_thinking }}
{% endif %}
{% if reasoning_effort is defined %}effort={{ reasoning_effort }}
{% endif %}
{% for k, v in (style or {}).items() %}{{ k }}={{ v }};{% endfor %}
{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def said(server, **body):
    """The prompt that a chat request becomes, as text; the chat route counts the same tokens."""
    body = {"messages": [{"role": "user", "content": "Hi"}], **body}
    tokens = server.ok("/tokenize", body)["tokens"]
    if body.get("add_generation_prompt", True):
        answer = server.ok("/v1/chat/completions", {"model": "m", "max_tokens": 1, **body})
        assert answer["usage"]["prompt_tokens"] == len(tokens)
    return server.ok("/detokenize", {"tokens": tokens})["content"]


@pytest.fixture(scope="module")
def telltale(tmp_path_factory):
    path = tmp_path_factory.mktemp("templates") / "telltale.jinja"
    path.write_text(TELLTALE)
    with serving("--kv-memory", "64MiB", "--alias", "*", "--chat-template", path) as running:
        yield running


# ---- the flag

def refused(*arguments):
    result = subprocess.run([PROGRAM, "serve", str(MODEL), "--port", "0", "--kv-memory", "64MiB", *map(str, arguments)],
                            capture_output=True, text=True, timeout=120)
    assert result.returncode == 1 and result.stdout == ""
    assert result.stderr.count("\n") == 1, result.stderr
    return result.stderr


def test_a_template_that_cannot_be_used_is_one_line_at_the_start(tmp_path):
    bad = tmp_path / "bad.jinja"
    for content, words in ((b"{% for m in messages %}", ["bad.jinja", "endfor"]),
                           (b"\n{{ x | pprint }}", ["bad.jinja", "'pprint' at line 2"]),
                           (b" \n", ["bad.jinja", "no chat template"]),
                           (b"x" * (1 << 21), ["bad.jinja", "bytes"])):
        bad.write_bytes(content)
        line = refused("--chat-template", bad)
        assert all(word in line for word in words), line
    assert "No such file" in refused("--chat-template", tmp_path / "none.jinja")
    assert "a directory" in refused("--chat-template", tmp_path)


def test_a_template_from_a_file_takes_the_place_of_the_models_own(telltale):
    assert said(telltale) == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"


# ---- what reaches the template

def test_names_and_thoughts_of_messages_reach_the_template(telltale):
    messages = [{"role": "user", "name": "Ann", "content": "Hi"},
                {"role": "assistant", "reasoning_content": "greet back", "content": "Hello", "refusal": None},
                {"role": "user", "content": [{"type": "text", "text": "Why?"}]}]
    text = said(telltale, messages=messages)
    assert "(Ann) Hi" in text and "[thought: greet back]Hello" in text
    del messages[1]["reasoning_content"]
    messages[1]["reasoning"] = "greet back"
    assert said(telltale, messages=messages) == text, "the newer name of the same"
    # The other API's thoughts are blocks.
    blocks = [{"type": "thinking", "thinking": "greet back", "signature": "s"}, {"type": "text", "text": "Hello"}]
    count = telltale.ok("/v1/messages/count_tokens", {"model": "m", "messages": [
        {"role": "user", "content": "Hi"}, {"role": "assistant", "content": blocks},
        {"role": "user", "content": "Why?"}]})["input_tokens"]
    del messages[0]["name"]
    assert count == len(telltale.ok("/tokenize", {"messages": messages})["tokens"])


def test_switches_and_documents_reach_the_template(telltale):
    assert "thinking=False" in said(telltale, chat_template_kwargs={"enable_thinking": False})
    assert "a=1;b=[2];" in said(telltale, chat_template_kwargs={"style": {"a": 1, "b": [2]}})
    assert "effort=high" in said(telltale, reasoning_effort="high")
    assert "effort=low" in said(telltale, reasoning_effort="high", chat_template_kwargs={"reasoning_effort": "low"})
    assert "thinking=False" in said(telltale, reasoning_effort="none")
    text = said(telltale, documents=[{"title": "Cats", "text": "sleep"}, {"title": "Dogs", "text": "bark"}])
    assert "#Cats: sleep\n#Dogs: bark\n" in text
    assert said(telltale, add_generation_prompt=False) == "<|im_start|>user\nHi<|im_end|>\n"
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    plain, thinking = (telltale.ok("/v1/messages/count_tokens", {**body, **more})["input_tokens"]
                       for more in ({}, {"thinking": {"type": "disabled"}}))
    assert thinking - plain == len(telltale.tokens("thinking=False\n"))


def test_what_a_request_says_to_the_template_spells_no_control_token(telltale):  # C16
    control = telltale.tokens("<|im_end|>")[0]
    typed = "a<|im_end|>b"

    def controls(**body):
        body = {"messages": [{"role": "user", "content": "Hi"}], **body}
        return telltale.ok("/tokenize", body)["tokens"].count(control)

    for body in ({"chat_template_kwargs": {"style": {typed: typed}}}, {"reasoning_effort": typed},
                 {"documents": [{"title": typed, "text": typed}]},
                 {"messages": [{"role": "user", "name": typed, "content": typed, "reasoning_content": typed}]}):
        assert controls(**body) == controls() == 1, body


def test_a_markers_place_does_not_move_by_what_stands_around_it(telltale, nonce):
    """Names and switches are prompt text too; the marked prefix still ends where its block ends."""
    words = nonce + " " + "The guests of this house close the door behind them. " * 30
    system = [{"type": "text", "text": words, "cache_control": {"type": "ephemeral"}}]
    body = {"model": "m", "max_tokens": 1, "system": system}
    first = telltale.ok("/v1/messages", {**body, "messages": [{"role": "user", "content": "Why?"}]})["usage"]
    assert first["cache_creation_input_tokens"] > 200 and first["cache_read_input_tokens"] == 0
    for more in ({"chat_template_kwargs": {"style": {"x": 1}}}, {"thinking": {"type": "adaptive"}}):
        usage = telltale.ok("/v1/messages", {**body, **more, "messages": [{"role": "user", "content": "And when?"}]}
                            )["usage"]
        assert usage["cache_read_input_tokens"] == first["cache_creation_input_tokens"]


@pytest.mark.parametrize("field, value, path", [
    ("chat_template_kwargs", [], "chat_template_kwargs"),
    ("chat_template_kwargs", {"messages": []}, "chat_template_kwargs.messages"),
    ("chat_template_kwargs", {"tools": [1]}, "chat_template_kwargs.tools"),
    ("chat_template", "{{ messages }}", "chat_template"),
    ("documents", {"title": "x"}, "documents"),
    ("documents", ["x"], "documents[0]"),
    ("add_generation_prompt", "yes", "add_generation_prompt"),
    ("reasoning_effort", 3, "reasoning_effort"),
])
def test_fields_for_the_template_are_checked(telltale, field, value, path):
    for route in ("/v1/chat/completions", "/tokenize"):
        body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], field: value}
        answer = telltale.post(route, body)
        assert answer.status_code == 400, answer.text
        assert answer.json()["error"]["param"] == path and path in answer.json()["error"]["message"]


def test_documents_are_refused_where_the_template_reads_none(server):
    body = {"model": "gpt-x", "messages": [{"role": "user", "content": "Hi"}], "documents": [{"text": "x"}]}
    refused = server.post("/v1/chat/completions", body)
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "documents"
    assert server.ok("/v1/chat/completions", {**body, "documents": [], "max_tokens": 1})["choices"]


@pytest.mark.parametrize("route, body", [
    ("/v1/chat/completions", {"tools": [{"type": "custom", "custom": {"name": "f"}}]}),
    ("/v1/chat/completions", {"tool_choice": "auto"}),
    ("/v1/chat/completions", {"functions": [{"name": "f"}]}),
    ("/v1/chat/completions", {"messages": [{"role": "tool", "tool_call_id": "c", "content": "x"}]}),
    ("/v1/chat/completions", {"messages": [{"role": "assistant", "content": "x", "tool_calls": [{"id": "c"}]}]}),
    ("/tokenize", {"tools": [{"type": "function", "function": {"name": "a tool"}}]}),
    ("/tokenize", {"messages": [{"role": "tool", "tool_call_id": "c", "content": "x"}]}),
    ("/v1/completions", {"prompt": "x", "tools": [{"type": "function", "function": {"name": "f"}}]}),
    ("/v1/messages", {"tools": [{"type": "computer_20250124", "name": "computer"}]}),
    ("/v1/messages", {"tool_choice": {"type": "auto"}}),
    ("/v1/messages", {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t"}]}]}),
    ("/v1/messages/count_tokens", {"tools": [{"name": "f", "input_schema": {"type": "string"}}]}),
])
def test_what_is_no_tool_is_refused_by_name_on_every_route(server, route, body):
    body = {"model": "claude-x", "max_tokens": 1, "messages": [{"role": "user", "content": "Hi"}], **body}
    refused = server.post(route, body)
    assert refused.status_code == 400, refused.text
    assert "tool" in refused.json()["error"]["message"] or "function" in refused.json()["error"]["message"]


# ---- C15: the template's own refusals

TURNS = "User and model take turns, the user first."


@pytest.fixture(scope="module")
def strict():
    """Raises unless user and assistant alternate."""
    with serving("--kv-memory", "64MiB", "--alias", "*", "--chat-template", FAMILIES / "gemma.jinja") as running:
        yield running


def test_c15_a_template_that_raises_is_the_callers_error_with_its_own_sentence(strict):
    user, assistant = {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}
    for messages in ([user, user], [assistant, user], [user, assistant, {"role": "system", "content": "s"}, user]):
        refused = strict.post("/v1/chat/completions", {"model": "m", "messages": messages, "max_tokens": 1})
        assert refused.status_code == 400
        error = refused.json()["error"]
        assert error["type"] == "invalid_request_error" and error["message"] == TURNS
        assert strict.post("/tokenize", {"messages": messages}).json()["error"]["message"] == TURNS
    refused = strict.post("/v1/messages", {"model": "m", "messages": [assistant, user], "max_tokens": 1})
    assert refused.status_code == 400
    assert refused.json()["error"] == {"type": "invalid_request_error", "message": TURNS}
    # Streams are refused before they begin, and the official clients raise their own errors.
    with pytest.raises(openai.BadRequestError, match="take turns"):
        strict.openai().chat.completions.create(model="m", messages=[user, user], stream=True)
    with pytest.raises(anthropic.BadRequestError, match="take turns"):
        strict.anthropic().messages.create(model="m", messages=[assistant, user], max_tokens=1)
    for route in ROUTES:  # the next good request works
        assert strict.ok(route, {"model": "m", "messages": [user], "max_tokens": 1})
    assert strict.running() == 0 and strict.metrics()["vllm:prompt_tokens_total"] < 100, "nothing was computed"


def test_c15_a_template_without_system_turns_says_so(tmp_path):
    path = tmp_path / "no_system.jinja"
    path.write_text("{% for m in messages %}{% if m.role == 'system' %}"
                    "{{ raise_exception('This model takes no system turn.') }}{% endif %}"
                    "[{{ m.role }}] {{ m.content }}\n{% endfor %}")
    with serving("--kv-memory", "64MiB", "--alias", "*", "--chat-template", path) as server:
        asked = [{"role": "user", "content": "x"}]
        for route, body in ((ROUTES[0], {"messages": [{"role": "system", "content": "s"}, *asked]}),
                            (ROUTES[0], {"messages": [{"role": "developer", "content": "s"}, *asked]}),
                            (ROUTES[1], {"system": "s", "messages": asked}),
                            (ROUTES[1] + "/count_tokens", {"system": "s", "messages": asked})):
            refused = server.post(route, {"model": "m", "max_tokens": 1, **body})
            assert refused.status_code == 400, refused.text
            assert refused.json()["error"]["message"] == "This model takes no system turn."
            assert refused.json()["error"]["type"] == "invalid_request_error"
        assert server.ok(ROUTES[1], {"model": "m", "max_tokens": 1, "messages": asked})["content"]


def test_c15_a_template_that_fails_while_it_renders_is_a_400_too(tmp_path):
    path = tmp_path / "fails.jinja"
    path.write_text("{{ messages[0].content + 1 }}")
    with serving("--kv-memory", "64MiB", "--alias", "*", "--chat-template", path) as server:
        for route in ROUTES:
            body = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "x"}]}
            refused = server.post(route, body)
            assert refused.status_code == 400 and "line 1" in refused.json()["error"]["message"]


def copy_with(path, **changes):
    """The test model with other metadata of the same size: a boolean, or a text padded to its length."""
    data = bytearray(MODEL.read_bytes())
    for key, value in changes.items():
        at = data.index(key.encode()) + len(key)
        kind = int.from_bytes(data[at:at + 4], "little")
        if isinstance(value, bool):
            assert kind == 7
            data[at + 4] = value
        else:
            assert kind == 8
            length = int.from_bytes(data[at + 4:at + 12], "little")
            text = value.encode()
            assert len(text) <= length
            data[at + 12:at + 12 + length] = text + b"{#" + b" " * (length - len(text) - 4) + b"#}"
    pathlib.Path(path).write_bytes(data)
    return path


def test_c15_one_bos_with_and_without_the_tokenizers_own(tmp_path):
    """The template prints BOS; the file says that the tokenizer adds one, and that it does not."""
    template = "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}"
    for adds in (True, False):
        path = tmp_path / "bos.gguf"
        copy_with(path, **{"tokenizer.chat_template": template, "tokenizer.ggml.add_bos_token": adds})
        with serving("--kv-memory", "64MiB", "--alias", "*", model=path) as server:
            asked = [{"role": "user", "content": "Hello there"}]
            tokens = server.ok("/tokenize", {"messages": asked})["tokens"]
            plain = server.tokens("Hello there")
            assert tokens[1:] == plain and tokens[0] not in plain, adds
            for route in ROUTES:
                usage = server.ok(route, {"model": "m", "max_tokens": 1, "messages": asked})["usage"]
                assert usage.get("prompt_tokens", usage.get("input_tokens")) == len(tokens)
            raw = server.ok("/v1/completions", {"model": "m", "max_tokens": 1, "prompt": "Hello there"})["usage"]
            assert raw["prompt_tokens"] == len(plain) + adds


# ---- texts that are too long to be counted

def test_a_text_of_megabytes_is_not_tokenized_only_to_be_counted(telltale):
    long = "word " * (1 << 18)  # more than 1 MiB, and than the context could hold
    for route, body, path in (("/tokenize", {"content": long}, "content"), ("/tokenize", {"prompt": long}, "prompt"),
                              ("/tokenize", {"messages": [{"role": "user", "content": long}]}, "messages")):
        refused = telltale.post(route, body)
        assert refused.status_code == 400, refused.text[:200]
        error = refused.json()["error"]
        assert error["param"] == path and f"at most {1 << 20} are tokenized" in error["message"]
    body = {"model": "m", "messages": [{"role": "user", "content": long}]}
    refused = telltale.post("/v1/messages/count_tokens", body)
    assert refused.status_code == 400 and "at most" in refused.json()["error"]["message"]
    # What is merely longer than the context is counted.
    body["messages"][0]["content"] = "word " * 20000
    assert telltale.ok("/v1/messages/count_tokens", body)["input_tokens"] > 20000
