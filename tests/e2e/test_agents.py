# SPDX-License-Identifier: Apache-2.0
"""What coding agents send over the Messages API beside the conversation itself: system turns in its middle, fields and
headers of betas, probes."""

import pytest

from conftest import ROOT, serving

FAMILIES = ROOT / "tests/templates/families"
ASKED = [{"role": "user", "content": "Hi"}]


def counted(server, messages, **more):
    return server.ok("/v1/messages/count_tokens", {"model": "m", "messages": messages, **more})["input_tokens"]


LEAVES_OUT = ("{% for m in messages %}{% if m.role != 'system' %}[{{ m.role }}] {{ m.content }}\n{% endif %}"
              "{% endfor %}[assistant] ")


@pytest.mark.parametrize("template", ["raises", "leaves out"])
def test_a_system_turn_that_the_template_cannot_take_is_the_users(tmp_path, template):
    """Reference A3: rendered in place, or as a user turn when the chat template cannot."""
    path = FAMILIES / "gemma.jinja"
    if template == "leaves out":
        path = tmp_path / "template.jinja"
        path.write_text(LEAVES_OUT)
    system = {"role": "system", "content": "Answer in French."}
    joined = [{"role": "user", "content": [{"type": "text", "text": "Hi"},
                                           {"type": "text", "text": "Answer in French."}]}]
    behind = [{"role": "assistant", "content": "Salut"}, {"role": "user", "content": "Why?"}]
    with serving("--kv-memory", "64MiB", "--alias", "*", "--chat-template", path) as server:
        for more in ([], behind, [*behind, system]):
            expected = [*joined, *more]
            if more and more[-1] is system:
                expected = [*joined, behind[0], {"role": "user", "content": [{"type": "text", "text": "Why?"}, {
                    "type": "text", "text": "Answer in French."}]}]
            sent = [*ASKED, system, *more]
            assert counted(server, sent) == counted(server, expected) > counted(server, [*ASKED, *more[:2]])
            # The same prompt, to the token: its prefix is read back, all but the last token.
            answer = server.ok("/v1/messages", {"model": "m", "max_tokens": 1, "messages": sent})
            assert answer["usage"]["output_tokens"] == 1
            again = server.post("/v1/messages", {"model": "m", "max_tokens": 1, "messages": expected})
            assert int(again.headers["x-cached-tokens"]) == counted(server, expected) - 1
        # Where a template refuses the rest, too, its own words are the answer.
        if template == "raises":
            refused = server.post("/v1/messages", {"model": "m", "max_tokens": 1, "messages": [
                {"role": "assistant", "content": "x"}, *ASKED, system]})
            assert refused.status_code == 400 and "take turns" in refused.json()["error"]["message"]


def test_a_marker_on_such_a_system_turn_is_kept(nonce):
    text = nonce + " Every answer is given in French, and the guests are addressed formally. " * 10
    messages = [*ASKED, {"role": "system", "content": [
        {"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}]}]
    with serving("--kv-memory", "64MiB", "--alias", "*", "--chat-template", FAMILIES / "gemma.jinja") as server:
        first, second = (server.ok("/v1/messages", {"model": "m", "max_tokens": 1, "messages": messages})["usage"]
                         for _ in range(2))
        assert first["cache_creation_input_tokens"] > 100
        assert second["cache_read_input_tokens"] == first["cache_creation_input_tokens"]


def test_context_management_is_answered_with_the_edits_that_were_made(server):
    body = {"model": "claude-x", "max_tokens": 2, "messages": ASKED}
    edits = {"edits": [{"type": "clear_tool_uses_20250919"}, {"type": "clear_thinking_20251015", "keep": "all"}]}
    asked = server.ok("/v1/messages?beta=true", {**body, "context_management": edits},
                      anthropic_beta="context-management-2025-06-27")
    assert asked["context_management"] == {"applied_edits": []}
    assert "context_management" not in server.ok("/v1/messages", body)
    client = server.anthropic()
    message = client.beta.messages.create(model="claude-x", max_tokens=2, messages=ASKED, context_management=edits,
                                          betas=["context-management-2025-06-27"])
    assert message.context_management.applied_edits == []
    with client.beta.messages.stream(model="claude-x", max_tokens=2, messages=ASKED, context_management=edits,
                                     betas=["context-management-2025-06-27"]) as stream:
        assert stream.get_final_message().context_management.applied_edits == []
    refused = server.post("/v1/messages", {**body, "context_management": "all"})
    assert refused.status_code == 400 and "context_management" in refused.json()["error"]["message"]


@pytest.mark.parametrize("version", [None, "2023-06-01", "2026-10-21", "2099-01-01", ""])
def test_every_version_and_beta_is_taken(server, version):
    headers = {"anthropic_beta": "claude-code-20250219,interleaved-thinking-2025-05-14, made-up-2030-01-01"}
    if version is not None:
        headers["anthropic_version"] = version
    body = {"model": "claude-x", "max_tokens": 1, "messages": ASKED, "temperature": 0}
    assert server.ok("/v1/messages?beta=true&x=%zz", body, **headers)["type"] == "message"


def test_probes_are_answered_without_a_body(server):
    for path in ("/api/hello", "/", "/health", "/v1/models"):
        found = server.http.head(path)
        assert found.status_code == 200 and found.content == b"", path


def test_the_billing_line_of_an_agent_is_not_read(server, nonce):
    """Its text changes with every request; the rest of the prompt is the same."""
    system = nonce + " You help with code. " * 30

    def send(line):
        blocks = [{"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.1; cch={line};"},
                  {"type": "text", "text": system, "cache_control": {"type": "ephemeral"}}]
        return server.ok("/v1/messages", {"model": "claude-x", "max_tokens": 1, "system": blocks, "messages": ASKED,
                                          "metadata": {"user_id": line}})["usage"]

    first, second = send("aaaaa"), send("bbbbb")
    assert first["cache_creation_input_tokens"] > 60
    assert second["cache_read_input_tokens"] == first["cache_creation_input_tokens"]
