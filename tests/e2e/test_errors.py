# SPDX-License-Identifier: Apache-2.0
"""Bad input and its answer: table E of docs/api-reference.md, row by row, in both APIs' shapes, and what HTTP
itself can get wrong."""

import json
import socket
import threading

import anthropic
import openai
import pytest

from conftest import eventually, serving

A, CHAT, TEXT = "/v1/messages", "/v1/chat/completions", "/v1/completions"
IRE = "invalid_request_error"
HI = [{"role": "user", "content": "hi"}]
MARK = {"cache_control": {"type": "ephemeral"}}


def text(words="hi", **more):
    return {"type": "text", "text": words, **more}


def message(*blocks, **more):
    return {"model": "claude-x", "max_tokens": 2, "messages": [{"role": "user", "content": list(blocks)}], **more}


def claude(**more):
    return {"model": "claude-x", "max_tokens": 2, "messages": HI, **more}


def gpt(**more):
    return {"model": "gpt-x", "max_tokens": 2, "messages": HI, **more}


def without(body, name):
    return {k: v for k, v in body.items() if k != name}


def parts(*blocks):
    return gpt(messages=[{"role": "user", "content": list(blocks)}])


def check_anthropic(response, status, kind=IRE):
    assert response.status_code == status, response.text
    body = response.json()
    assert body["type"] == "error" and body["error"]["type"] == kind, body
    assert body["error"]["message"]
    assert body["request_id"] == response.headers["request-id"] and body["request_id"].startswith("req_")
    return body["error"]


def check_openai(response, status, code=None, param=None, kind=IRE):
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == kind and error["code"] == code and error["param"] == param, error
    assert error["message"] and response.headers["x-request-id"].startswith("req_")
    return error


TOOL = {"name": "f", "input_schema": {"type": "object"}}
FUNCTION = {"type": "function", "function": {"name": "f"}}


def function(**more):
    return {"type": "function", "function": {"name": "f", **more}}


ANTHROPIC_ROWS = {
    "9 model missing": (without(claude(), "model"), "model: Field required"),
    "11 messages missing": (without(claude(), "messages"), "messages"),
    "12 no messages": (claude(messages=[]), "messages"),
    "13 messages no array": (claude(messages="hi"), "messages"),
    "14 max_tokens missing": (without(claude(), "max_tokens"), "max_tokens: Field required"),
    "15 max_tokens negative": (claude(max_tokens=-1), "max_tokens"),
    "17 pre-warm with stream": (claude(max_tokens=0, stream=True), "max_tokens"),
    "17 pre-warm with thinking": (claude(max_tokens=0, thinking={"type": "enabled", "budget_tokens": 1024}),
                                  "max_tokens"),
    "17 pre-warm with a format": (claude(max_tokens=0, output_config={"format": {"type": "json_schema",
                                                                                "schema": {}}}), "format"),
    "17 pre-warm with a forced tool": (claude(max_tokens=0, tool_choice={"type": "any"}), "tool_choice"),
    "21 temperature 3": (claude(temperature=3), "temperature"),
    "22 temperature 1.5": (claude(temperature=1.5), "temperature"),
    "23 temperature is text": (claude(temperature="hot"), "temperature"),
    "26 role foo": (claude(messages=[{"role": "foo", "content": "x"}]), "messages.0.role"),
    "27 no content": (claude(messages=[{"role": "user"}]), "messages.0.content"),
    "28 empty text": (message(text("")), "text content blocks must be non-empty"),
    "29 blank text": (message(text(" \n")), "must contain non-whitespace text"),
    "30 unknown block": (message({"type": "hologram"}), "messages.0.content.0"),
    "31 block without type": (message({"text": "x"}), "messages.0.content.0.type"),
    "32 tool_use": (claude(messages=[*HI, {"role": "assistant", "content": [
        {"type": "tool_use", "id": "t1", "name": "f", "input": {}}]}, {"role": "user", "content": "x"}]), "tool_use"),
    "33 tool_result": (message({"type": "tool_result", "tool_use_id": "t9", "content": "x"}), "tool_result"),
    "34 two tools of one name": (claude(tools=[TOOL, TOOL]), "tools.1.name"),
    "35 a name with a space": (claude(tools=[{**TOOL, "name": "a b"}]), "tools.0.name"),
    "36 no schema": (claude(tools=[{"name": "f"}]), "tools.0.input_schema: Field required"),
    "36 a schema of no object": (claude(tools=[{"name": "f", "input_schema": {"type": "array"}}]),
                                 "tools.0.input_schema"),
    "a tool of the vendor's": (claude(tools=[{"type": "web_search_20250305", "name": "web_search"}]),
                               "web_search_20250305"),
    "37 an unknown tool is chosen": (claude(tools=[TOOL], tool_choice={"type": "tool", "name": "g"}), "tool_choice"),
    "17 pre-warm with a tool that is forced": (claude(max_tokens=0, tools=[TOOL], tool_choice={"type": "any"}),
                                               "max_tokens"),
    "38 tool_choice without tools": (claude(tool_choice={"type": "auto"}), "tool_choice"),
    "39 five markers": (message(*[text(f"t{i}", **MARK) for i in range(5)]),
                        "A maximum of 4 blocks with cache_control may be provided. Found 5."),
    "40 four markers and the automatic one": (message(*[text(f"t{i}", **MARK) for i in range(4)], **MARK),
                                              "A maximum of 4"),
    "41 another ttl on the same block": (message(text("t", **MARK), cache_control={"type": "ephemeral", "ttl": "1h"}),
                                         "ttl"),
    "42 1h behind 5m": (message(text("a", **MARK), text("b", cache_control={"type": "ephemeral", "ttl": "1h"})),
                        "messages.0.content.1.cache_control.ttl"),
    "43 ttl 2h": (message(text("a", cache_control={"type": "ephemeral", "ttl": "2h"})), "ttl"),
    "43 type persistent": (message(text("a", cache_control={"type": "persistent"})), "cache_control"),
    "44 marker on empty text": (message(text("", **MARK)), "messages.0.content.0"),
    "46 marker inside": (message({"type": "document", "source": {"type": "content", "content": [
        text("a", **MARK), text("b")]}}), "cache_control"),
    "49 thinking budget small": (claude(thinking={"type": "enabled", "budget_tokens": 10}), "thinking.budget_tokens"),
    "49 thinking budget large": (claude(thinking={"type": "enabled", "budget_tokens": 5000}),
                                 "thinking.budget_tokens"),
    "51 system first": (claude(messages=[{"role": "system", "content": "x"}, *HI]), "messages.0.role"),
    "52 image": (message({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "x"}}),
                 "image"),
    "58 output format": (claude(output_config={"format": {"type": "json_schema", "schema": {"pattern": "x"}}}),
                         "output_config.format.schema.pattern"),
    "container": (claude(container="c"), "container"),
    "mcp_servers": (claude(mcp_servers=[{"type": "url", "name": "x", "url": "x"}]), "mcp_servers"),
}


@pytest.mark.parametrize("row", ANTHROPIC_ROWS)
def test_messages_refuse(server, row):
    body, words = ANTHROPIC_ROWS[row]
    before = server.metrics()["vllm:prompt_tokens_total"]
    error = check_anthropic(server.post(A, body), 400)
    assert words in error["message"]
    assert server.metrics()["vllm:prompt_tokens_total"] == before, "nothing is computed for a refused request"


OPENAI_ROWS = {
    "9 model missing": (CHAT, without(gpt(), "model"), "missing_required_parameter", "model"),
    "11 messages missing": (CHAT, without(gpt(), "messages"), "missing_required_parameter", "messages"),
    "12 no messages": (CHAT, gpt(messages=[]), "empty_array", "messages"),
    "13 messages no array": (CHAT, gpt(messages={}), "invalid_type", "messages"),
    "15 max_tokens negative": (CHAT, gpt(max_tokens=-1), "integer_below_min_value", "max_tokens"),
    "16 max_tokens 0": (CHAT, gpt(max_tokens=0), "integer_below_min_value", "max_tokens"),
    "16 max_completion_tokens 0": (CHAT, gpt(max_completion_tokens=0), "integer_below_min_value",
                                   "max_completion_tokens"),
    "21 temperature 3": (CHAT, gpt(temperature=3), "decimal_above_max_value", "temperature"),
    "23 temperature is text": (TEXT, {"model": "gpt-x", "prompt": "x", "temperature": "hot"}, "invalid_type",
                               "temperature"),
    "26 role foo": (CHAT, gpt(messages=[{"role": "foo", "content": "x"}]), "invalid_value", "messages[0].role"),
    "27 no content": (CHAT, gpt(messages=[{"role": "user"}]), "missing_required_parameter", "messages[0].content"),
    "30 unknown part": (CHAT, parts({"type": "hologram"}), "invalid_value", "messages[0].content[0].type"),
    "31 part without type": (CHAT, parts({"text": "x"}), "missing_required_parameter", "messages[0].content[0].type"),
    "32 tool calls": (CHAT, gpt(messages=[*HI, {"role": "assistant", "content": None, "tool_calls": [
        {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}]),
                      None, "messages[1]"),
    "32 arguments that are no JSON": (CHAT, gpt(messages=[*HI, {"role": "assistant", "tool_calls": [
        {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{"}}]}]), "invalid_value",
                                      "messages[1].tool_calls[0].function.arguments"),
    "33 tool message": (CHAT, gpt(messages=[{"role": "tool", "tool_call_id": "c", "content": "x"}]), None,
                        "messages[0].role"),
    "34 two tools of one name": (CHAT, gpt(tools=[FUNCTION, FUNCTION]), None, "tools[1].function.name"),
    "35 a name with a space": (CHAT, gpt(tools=[function(name="a b")]), "invalid_value", "tools[0].function.name"),
    "36 a schema of no object": (CHAT, gpt(tools=[function(parameters={"type": "array"})]),
                                 "invalid_function_parameters", "tools[0].function.parameters"),
    "a custom tool": (CHAT, gpt(tools=[{"type": "custom", "custom": {"name": "f"}}]), "unsupported_parameter",
                      "tools[0]"),
    "37 an unknown tool is chosen": (CHAT, gpt(tools=[FUNCTION], tool_choice=function(name="g")), None,
                                     "tool_choice"),
    "38 tool_choice without tools": (CHAT, gpt(tool_choice="required"), None, "tool_choice"),
    "39 five markers": (CHAT, parts(*[text(f"t{i}", **MARK) for i in range(5)]), None, "cache_control"),
    "43 cache ttl": (CHAT, gpt(prompt_cache_options={"ttl": "2h"}), "invalid_value", "prompt_cache_options.ttl"),
    "52 image": (CHAT, parts({"type": "image_url", "image_url": {"url": "data:x"}}), None, "messages[0].content[0]"),
    "54 n 0": (CHAT, gpt(n=0), "integer_below_min_value", "n"),
    "54 n 129": (CHAT, gpt(n=129), "integer_above_max_value", "n"),
    "55 top_logprobs alone": (CHAT, gpt(top_logprobs=2), None, "top_logprobs"),
    "56 stream_options alone": (CHAT, gpt(stream_options={"include_usage": True}), None, "stream_options"),
    "57 logit_bias": (CHAT, gpt(logit_bias={"1": 101}), None, "logit_bias"),
    "57 logit_bias of no token": (CHAT, gpt(logit_bias={"x": 1}), None, "logit_bias"),
    "58 json_schema without a name": (CHAT, gpt(response_format={"type": "json_schema", "json_schema": {"schema": {}}}),
                                      "missing_required_parameter", "response_format.json_schema.name"),
    "58 unsupported schema": (CHAT, gpt(response_format={"type": "json_schema", "json_schema": {
        "name": "x", "schema": {"pattern": "x"}}}), None, "response_format"),
    "penalty": (CHAT, gpt(presence_penalty=2.5), "decimal_above_max_value", "presence_penalty"),
    "penalty in completions": (TEXT, {"model": "gpt-x", "prompt": "x", "frequency_penalty": -2.5},
                               "decimal_below_min_value", "frequency_penalty"),
    "functions": (CHAT, gpt(functions=[{"name": "f"}]), "unsupported_parameter", "functions"),
    "audio": (CHAT, gpt(modalities=["audio"]), "unsupported_parameter", "modalities"),
    "echo": (TEXT, {"model": "gpt-x", "prompt": "x", "echo": 1}, "invalid_type", "echo"),
    "max_tokens 0 without echo": (TEXT, {"model": "gpt-x", "prompt": "x", "max_tokens": 0}, "integer_below_min_value",
                                  "max_tokens"),
    "suffix": (TEXT, {"model": "gpt-x", "prompt": "x", "suffix": "y"}, "unsupported_parameter", "suffix"),
    "best_of": (TEXT, {"model": "gpt-x", "prompt": "x", "n": 3, "best_of": 2}, None, "best_of"),
    "best_of streamed": (TEXT, {"model": "gpt-x", "prompt": "x", "best_of": 2, "stream": True}, None, "best_of"),
    "many prompts": (TEXT, {"model": "gpt-x", "prompt": ["x"] * 129}, "array_above_max_length", "prompt"),
    "no such token": (TEXT, {"model": "gpt-x", "prompt": [10**6]}, "invalid_value", "prompt[0]"),
    "empty stop": (TEXT, {"model": "gpt-x", "prompt": "x", "stop": ""}, "invalid_value", "stop"),
}


@pytest.mark.parametrize("row", OPENAI_ROWS)
def test_openai_routes_refuse(server, row):
    path, body, code, param = OPENAI_ROWS[row]
    before = server.metrics()["vllm:prompt_tokens_total"]
    check_openai(server.post(path, body), 400, code, param)
    assert server.metrics()["vllm:prompt_tokens_total"] == before, "nothing is computed for a refused request"


ACCEPTED = {
    "4 wrong content-type": (CHAT, gpt(), {"content_type": "text/plain"}),
    "7 no anthropic-version": (A, claude(), {}),
    "8 unknown beta": (A, claude(), {"anthropic_beta": "made-up-2030-01-01"}),
    "18 max_tokens beyond the model": (A, claude(max_tokens=128000, stop_sequences=["e", "a", "o", "i"]), {}),
    "20 prompt and max_tokens beyond the window": (CHAT, gpt(max_tokens=10**6, stop=["e", "a", "o", "i"]), {}),
    "22 temperature 1.5": (CHAT, gpt(temperature=1.5), {}),
    "24 temperature under the new version": (A, claude(temperature=1), {"anthropic_version": "2026-10-21"}),
    "25 unknown field": (A, claude(never_heard_of={"x": 1}), {}),
    "25 unknown field of chat": (CHAT, gpt(never_heard_of={"x": 1}), {}),
    "28 empty text": (CHAT, parts(text(""), text("x")), {}),
    "45 marker on thinking": (A, claude(messages=[*HI, {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "t", "signature": "s", **MARK}, text("a")]}, *HI]), {}),
    "47 prefix under the minimum": (A, message(text("x", **MARK)), {}),
    "50 thinking without signature": (A, claude(messages=[*HI, {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "t"}, text("a")]}, *HI]), {}),
    "51 system first": (CHAT, gpt(messages=[*HI, {"role": "system", "content": "x"}]), {}),
    "53 five stops": (CHAT, gpt(stop=["a", "b", "c", "d", "e"]), {}),
}


@pytest.mark.parametrize("row", ACCEPTED)
def test_accepts(server, row):
    path, body, headers = ACCEPTED[row]
    assert server.post(path, body, **headers).status_code == 200, row


def test_a_marker_below_the_minimum_changes_no_counter(server):  # row 47
    usage = server.ok(A, message(text("x", **MARK)))["usage"]
    assert usage["cache_creation_input_tokens"] == usage["cache_read_input_tokens"] == 0


@pytest.mark.parametrize("body", [b"{not json", b"", b"[1]", b"\"text\"", b"{\"a\": \"\xff\"}", b"{" + b"[" * 100000])
def test_bodies_that_are_no_json_object(server, body):  # rows 1-3
    check_anthropic(server.http.post(A, content=body), 400)
    check_openai(server.http.post(CHAT, content=body), 400)
    check_openai(server.http.post(TEXT, content=body), 400)


def test_an_unknown_model_is_not_found(server):  # row 10
    error = check_anthropic(server.post(A, claude(model="llama-9")), 404, "not_found_error")
    assert "llama-9" in error["message"]
    check_openai(server.post(CHAT, gpt(model="llama-9")), 404, "model_not_found", "model")
    check_openai(server.post(TEXT, {"model": "llama-9", "prompt": "x"}), 404, "model_not_found", "model")
    check_anthropic(server.post(A + "/count_tokens", {"model": "llama-9", "messages": HI}), 404, "not_found_error")
    with pytest.raises(openai.NotFoundError):
        server.openai().chat.completions.create(model="llama-9", messages=HI)
    with pytest.raises(anthropic.NotFoundError):
        server.anthropic().messages.create(model="llama-9", messages=HI, max_tokens=1)


def test_unknown_routes_and_wrong_methods(server):  # rows 59, 60
    check_openai(server.http.get("/v1/nothing"), 404, "unknown_url")
    check_openai(server.post("/v1/embeddings", {}), 404, "unknown_url")
    check_anthropic(server.post("/v1/messages/batches", {}), 404, "not_found_error")
    check_anthropic(server.http.get("/v1/files", headers={"anthropic-version": "2023-06-01"}), 404, "not_found_error")
    wrong = server.http.get(CHAT)
    check_openai(wrong, 405, "method_not_supported")
    assert wrong.headers["allow"] == "POST"
    check_anthropic(server.http.delete(A), 405)
    check_openai(server.post("/health", {}), 405, "method_not_supported")


def test_a_body_over_the_limit(server):  # row 61
    body = b" " * 32_000_001
    check_anthropic(server.http.post(A, content=body), 413, "request_too_large")
    check_openai(server.http.post(CHAT, content=body), 413)
    just_fits = json.dumps(gpt(user="u" * 31_000_000)).encode()
    assert server.http.post(CHAT, content=just_fits).status_code == 200


def test_a_compressed_body(server):  # row 62
    response = server.http.post(A, content=b"x", headers={"content-encoding": "gzip"})
    error = check_anthropic(response, 400)
    assert error["details"]["error_code"] == "request_body_encoding_unsupported"


def test_a_full_queue_says_come_back(nonce):  # row 64
    with serving("--kv-memory", "64MiB", "--max-seqs", "1", "--max-queue", "1", "--alias", "*") as server:
        body = {"model": "m", "prompt": nonce, "max_tokens": 2000, "ignore_eos": True, "stream": True}
        open_streams = []

        def hold():
            with server.http.stream("POST", TEXT, json=body) as response:
                open_streams.append(response)
                for _ in response.iter_lines():
                    if done.is_set():
                        return

        done = threading.Event()
        holders = [threading.Thread(target=hold) for _ in range(2)]
        holders[0].start()
        eventually(lambda: server.running() == 1)
        holders[1].start()
        eventually(lambda: server.waiting() == 1)
        refused = server.post(A, claude())
        check_anthropic(refused, 529, "overloaded_error")
        assert int(refused.headers["retry-after"]) >= 1
        refused = server.post(CHAT, gpt(stream=True))
        check_openai(refused, 503, kind="server_error")
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.headers["content-type"] == "application/json"
        with pytest.raises(anthropic.OverloadedError):
            server.anthropic().messages.create(**claude())
        done.set()
        for holder in holders:
            holder.join(60)


def test_keys_are_asked_for_on_every_route_but_health(tmp_path):  # rows 5, 6
    keys = tmp_path / "keys"
    keys.write_text("# the team\nsecret-one\n\nsecret-two  # spare\n")
    with serving("--kv-memory", "64MiB", "--alias", "*", "--api-key-file", keys) as server:
        for path in ("/health", "/healthz", "/ready"):
            assert server.http.get(path).status_code == 200
        for path in ("/", "/version"):
            assert server.http.get(path).status_code == 200 and server.http.head(path).status_code == 200
        for path in ("/v1/models", "/metrics"):
            check_openai(server.http.get(path), 401)
        check_anthropic(server.post(A, claude()), 401, "authentication_error")
        check_openai(server.post(CHAT, gpt()), 401)
        wrong = {"authorization": "Bearer wrong"}
        check_openai(server.http.post(CHAT, json=gpt(), headers=wrong), 401, "invalid_api_key")
        check_anthropic(server.http.post(A, json=claude(), headers=wrong), 401, "authentication_error")
        for header in ({"x-api-key": "secret-one"}, {"authorization": "Bearer secret-two"}):
            assert server.http.post(CHAT, json=gpt(), headers=header).status_code == 200
            assert server.http.post(A, json=claude(), headers=header).status_code == 200
            assert server.http.get("/metrics", headers=header).status_code == 200
        with pytest.raises(anthropic.AuthenticationError):
            server.anthropic().messages.create(**claude())
        with pytest.raises(openai.AuthenticationError):
            server.openai().chat.completions.create(**gpt())


def raw(server, data):
    """Sends bytes, gives the whole answer; the connection is asked to close."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client:
        client.sendall(data)
        pieces = []
        while piece := client.recv(65536):
            pieces.append(piece)
    return b"".join(pieces).decode()


def test_what_is_no_http_gets_a_400(server):
    assert raw(server, b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n").startswith("HTTP/1.1 400 ")
    assert raw(server, b"GET / HTTP/1.1\r\nbroken header\r\n\r\n").startswith("HTTP/1.1 400 ")


def test_expect_100_continue_is_answered_before_the_body(server):
    body = json.dumps(gpt()).encode()
    head = (f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nexpect: 100-continue\r\n"
            f"content-length: {len(body)}\r\n\r\n").encode()
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client:
        client.sendall(head)
        assert client.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(body)
        assert client.recv(15) == b"HTTP/1.1 200 OK"
    refused = head.replace(CHAT.encode(), b"/v1/nothing")
    assert raw(server, refused).startswith("HTTP/1.1 404 ")


def test_a_chunked_body_is_read(server):
    body = json.dumps(gpt(max_tokens=1)).encode()
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(body[i:i + 7]), body[i:i + 7]) for i in range(0, len(body), 7))
    answer = raw(server, f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
                         "transfer-encoding: chunked\r\n\r\n".encode() + chunks + b"0\r\n\r\n")
    assert answer.startswith("HTTP/1.1 200 OK") and "chat.completion" in answer
