# SPDX-License-Identifier: Apache-2.0
"""The OpenAI routes with the official client, as an application uses them."""

import math

import openai
import pytest

from conftest import NAME

CAPITAL = [{"role": "user", "content": "What is the capital of France?"}]


def chat(server, **options):
    return server.openai().chat.completions.create(**{
        "model": "gpt-4o", "messages": CAPITAL, "max_tokens": 12, "temperature": 0, **options})


def test_a_chat_is_answered_under_the_name_that_was_asked(server):
    answer = chat(server)
    assert answer.object == "chat.completion" and answer.model == "gpt-4o"
    assert answer.id.startswith("chatcmpl-")
    choice = answer.choices[0]
    assert choice.message.content and choice.message.role == "assistant"
    assert choice.finish_reason in ("stop", "length")
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_a_streamed_chat_says_the_same_as_a_whole_one(server):
    whole = chat(server)
    chunks = list(chat(server, stream=True))
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(c.choices[0].delta.content or "" for c in chunks)
    assert text == whole.choices[0].message.content
    assert [c.choices[0].finish_reason for c in chunks if c.choices[0].finish_reason] == [
        whole.choices[0].finish_reason]
    assert len({c.id for c in chunks}) == 1 and len({c.created for c in chunks}) == 1


def test_headers_tell_the_real_model_the_cached_tokens_and_the_times(server):
    for stream in (False, True):
        body = {"model": "gpt-x", "messages": CAPITAL, "max_tokens": 2, "stream": stream}
        with server.http.stream("POST", "/v1/chat/completions", json=body) as response:
            response.read()
        assert response.headers["x-model"] == NAME
        assert int(response.headers["x-cached-tokens"]) >= 0
        assert response.headers["x-request-id"] == response.headers["request-id"]
        names = [part.split(";")[0].strip() for part in response.headers["server-timing"].split(",")]
        assert names[:3] == ["queue", "tokenize", "lookup"]
        assert ("first" in names) == (not stream)
        if stream:
            assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
            assert response.headers["cache-control"] == "no-cache"
            assert response.headers["x-accel-buffering"] == "no"


def test_logprobs_come_with_bytes_that_join_to_the_text(server):
    answer = chat(server, logprobs=True, top_logprobs=3)
    entries = answer.choices[0].logprobs.content
    assert len(entries) >= answer.usage.completion_tokens - 1
    joined = b"".join(bytes(entry.bytes) for entry in entries)
    assert joined.decode() == answer.choices[0].message.content
    for entry in entries:
        assert len(entry.top_logprobs) == 3
        assert entry.top_logprobs[0].token == entry.token, "greedy takes the likeliest"
        assert entry.logprob == entry.top_logprobs[0].logprob <= 0
        assert entry.logprob >= entry.top_logprobs[1].logprob >= entry.top_logprobs[2].logprob
        assert sum(math.exp(top.logprob) for top in entry.top_logprobs) <= 1 + 1e-6


def test_streamed_logprobs_are_those_of_the_whole_answer(server):
    whole = [e.logprob for e in chat(server, logprobs=True).choices[0].logprobs.content]
    streamed = []
    for chunk in chat(server, logprobs=True, stream=True):
        if chunk.choices[0].logprobs:
            streamed += [entry.logprob for entry in chunk.choices[0].logprobs.content]
    assert streamed == whole


def test_a_seed_repeats_an_answer_and_another_one_changes_it(server):
    def ask(seed):
        return chat(server, temperature=1.5, seed=seed, max_tokens=16).choices[0].message.content

    assert ask(5) == ask(5)
    assert len({ask(seed) for seed in (5, 6, 7)}) > 1
    assert len({ask(None) for _ in range(3)}) > 1, "without a seed every call draws anew"


def test_cuts_of_sampling_reduce_to_greedy(server):
    greedy = chat(server).choices[0].message.content
    for cut in ({"top_p": 0.0}, {"extra_body": {"top_k": 1}}, {"extra_body": {"min_p": 1.0}}):
        assert chat(server, temperature=2, **cut).choices[0].message.content == greedy, cut


def test_completions_take_text_and_token_ids_alike(server):
    text = "The first three letters of the alphabet are"
    ids = server.tokens(text)
    client = server.openai().completions
    answers = [client.create(model="gpt-x", prompt=prompt, max_tokens=6, temperature=0)
               for prompt in (text, [text], ids, [ids])]
    assert len({a.choices[0].text for a in answers}) == 1
    assert {a.usage.prompt_tokens for a in answers} == {len(ids)}
    assert answers[0].object == "text_completion" and answers[0].id.startswith("cmpl-")


def test_completions_stop_after_16_tokens_unless_told(server):
    answer = server.openai().completions.create(model="gpt-x", prompt="1, 2, 3,", temperature=0,
                                                extra_body={"ignore_eos": True})
    assert answer.usage.completion_tokens == 16 and answer.choices[0].finish_reason == "length"


def test_completion_logprobs_are_parallel_lists(server):
    answer = server.openai().completions.create(model="gpt-x", prompt="1, 2, 3,", max_tokens=5, temperature=0,
                                                logprobs=2)
    lists = answer.choices[0].logprobs
    assert len(lists.tokens) == len(lists.token_logprobs) == len(lists.top_logprobs) == len(lists.text_offset)
    assert "".join(lists.tokens) == answer.choices[0].text
    assert lists.text_offset == [len("".join(lists.tokens[:i])) for i in range(len(lists.tokens))]
    assert all(len(top) == 2 for top in lists.top_logprobs)


def test_an_empty_prompt_begins_a_document(server):
    answer = server.openai().completions.create(model="gpt-x", prompt="", max_tokens=2, temperature=0)
    assert answer.usage.prompt_tokens == 1


def test_routes_answer_without_v1_and_with_query_strings(server):
    for path in ("/chat/completions", "/v1/chat/completions?api-version=1"):
        assert server.ok(path, {"model": "gpt-x", "messages": CAPITAL, "max_tokens": 1})["choices"]
    assert server.ok("/completions", {"model": "gpt-x", "prompt": "x", "max_tokens": 1})["choices"]
    assert server.http.get("/models").status_code == 200


def test_models_are_listed_and_found_by_every_name(server):
    client = server.openai()
    assert [m.id for m in client.models.list()] == [NAME, "local-chat"]
    assert client.models.retrieve("gpt-anything").id == "gpt-anything"
    with pytest.raises(openai.NotFoundError) as refused:
        client.models.retrieve("llama-7b")
    assert refused.value.code == "model_not_found"


def test_a_continued_assistant_message_is_asked_for_by_name(server):
    messages = [*CAPITAL, {"role": "assistant", "content": "The capital of France is"}]
    new_turn = chat(server, messages=messages, max_tokens=1).usage.prompt_tokens
    continued = chat(server, messages=messages, max_tokens=3, extra_body={"continue_final_message": True})
    assert continued.usage.prompt_tokens < new_turn
    assert continued.choices[0].message.content.strip().startswith("Paris")


def test_tokenize_and_detokenize_speak_both_dialects(server):
    text = "Grüße, 世界! <|im_end|>"
    llama = server.ok("/tokenize", {"content": text})
    vllm = server.ok("/tokenize", {"prompt": text})
    assert list(llama) == ["tokens"] and vllm["tokens"] == llama["tokens"]
    assert vllm["count"] == len(vllm["tokens"])
    plain = server.ok("/tokenize", {"content": text, "parse_special": False})["tokens"]
    assert len(plain) > len(llama["tokens"])
    for tokens in (llama["tokens"], plain):
        back = server.ok("/detokenize", {"tokens": tokens})
        assert back == {"content": text, "prompt": text}
    pieces = server.ok("/tokenize", {"content": "ab 🦊", "with_pieces": True})["tokens"]
    joined = b"".join(bytes(p["piece"]) if isinstance(p["piece"], list) else p["piece"].encode() for p in pieces)
    assert joined.decode() == "ab 🦊"
    assert server.post("/detokenize", {"tokens": [10**9]}).status_code == 400


def test_probes_answer(server):
    for path in ("/health", "/healthz", "/ready", "/version", "/", "/metrics", "/api/hello"):
        get, head = server.http.get(path), server.http.head(path)
        assert get.status_code == head.status_code == 200, path
        assert head.content == b"" and get.content
    assert server.http.get("/health").json() == {"status": "ok"}
    assert "version" in server.http.get("/version").json()
