# SPDX-License-Identifier: Apache-2.0
"""Several prompts in one call to /v1/completions, and the best of several answers."""

import openai
import pytest

from conftest import serving

PROMPTS = ["My favourite animal is", "1, 2, 3, 4,", "", "The capital of France is"]


def complete(server, prompt, **more):
    return server.openai().completions.create(**{
        "model": "gpt-x", "prompt": prompt, "max_tokens": 8, "temperature": 1, "seed": 5, "logprobs": 1,
        "extra_body": {"ignore_eos": True}, **more})


def shown(choices):
    return [(choice.text, choice.logprobs.token_logprobs, choice.finish_reason) for choice in choices]


def test_each_prompt_is_answered_as_alone(server, uncached):
    for n in (1, 3):
        answer = complete(server, PROMPTS, n=n)
        assert [choice.index for choice in answer.choices] == list(range(len(PROMPTS) * n))
        alone = [complete(uncached, prompt, n=n) for prompt in PROMPTS]
        for i, one in enumerate(alone):
            assert shown(answer.choices[i * n:(i + 1) * n]) == shown(one.choices), PROMPTS[i]
        assert answer.usage.prompt_tokens == sum(one.usage.prompt_tokens for one in alone)
        assert answer.usage.completion_tokens == 8 * n * len(PROMPTS)
        assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_prompts_of_token_ids_are_prompts_too(server):
    ids = [server.tokens(prompt) for prompt in PROMPTS if prompt]
    assert shown(complete(server, ids).choices) == shown(complete(server, [p for p in PROMPTS if p]).choices)


def test_a_stream_interleaves_all_and_adds_up(server):
    whole = complete(server, PROMPTS, n=2)
    texts, reasons, order, usage = [""] * 8, [None] * 8, [], None
    for chunk in complete(server, PROMPTS, n=2, stream=True, stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            texts[choice.index] += choice.text
            reasons[choice.index] = choice.finish_reason or reasons[choice.index]
            order.append(choice.index)
    assert texts == [choice.text for choice in whole.choices]
    assert reasons == ["length"] * 8
    assert usage.completion_tokens == 64 and usage.prompt_tokens == whole.usage.prompt_tokens
    first = {index: order.index(index) for index in range(8)}
    last = {index: len(order) - 1 - order[::-1].index(index) for index in range(8)}
    assert max(first.values()) < min(last.values()), "all are under way before the first ends"


def test_the_header_tells_what_all_of_them_read_from_the_cache(server, nonce):
    prompts = [f"{nonce} {i} " + "the " * 40 for i in range(3)]
    body = {"model": "gpt-x", "prompt": prompts, "max_tokens": 1}
    complete(server, prompts)
    lengths = [len(server.tokens(prompt)) for prompt in prompts]
    for stream in (False, True):
        answer = server.post("/v1/completions", {**body, "stream": stream})
        assert answer.headers["x-cached-tokens"] == str(sum(lengths) - 3)
    whole = server.ok("/v1/completions", body)
    assert whole["usage"]["prompt_tokens_details"]["cached_tokens"] == sum(lengths) - 3


def test_repeated_prompts_come_with_their_own_text_and_logprobs(server):
    answer = complete(server, PROMPTS, echo=True, max_tokens=0, n=2)
    for i, choice in enumerate(answer.choices):
        assert choice.text == PROMPTS[i // 2]
        assert shown([choice]) == shown(complete(server, PROMPTS[i // 2], echo=True, max_tokens=0).choices)
        assert len(choice.logprobs.tokens) == max(1, len(server.tokens(PROMPTS[i // 2])))


@pytest.mark.parametrize("stream", [False, True])
def test_one_prompt_that_is_too_long_refuses_the_call_before_a_byte(stream):
    with serving("--kv-memory", "64MiB", "--max-context", 64, "--alias", "*") as small:
        before = small.metrics()["vllm:prompt_tokens_total"]
        with pytest.raises(openai.BadRequestError) as refused:
            complete(small, ["fine", "fine", "long " * 100, "fine"], stream=stream)
        assert refused.value.param == "prompt[2]" and refused.value.code == "context_length_exceeded"
        assert "prompt[2]" in refused.value.message and "64" in refused.value.message
        assert refused.value.response.headers["content-type"] == "application/json"
        assert small.metrics()["vllm:prompt_tokens_total"] == before, "nothing was computed"
        assert len(complete(small, ["fine", "fine"]).choices) == 2


def test_wrong_prompts_are_named(server):
    for prompt, param in (([], "prompt"), ([[]], "prompt[0]"), (["a", 1], "prompt[1]"), ([[1], ["a"]], "prompt[1][0]"),
                          ([[1], [10**6]], "prompt[1][0]"), ([None], "prompt[0]"), (["a"] * 129, "prompt"),
                          ({}, "prompt")):
        refused = server.post("/v1/completions", {"model": "gpt-x", "prompt": prompt})
        assert refused.status_code == 400 and refused.json()["error"]["param"] == param, prompt


def test_more_prompts_than_the_server_ever_takes_are_no_reason_to_come_back():
    with serving("--kv-memory", "64MiB", "--max-seqs", 2, "--max-queue", 3, "--alias", "*") as small:
        assert len(complete(small, ["a"] * 5).choices) == 5, "more than may run at once: the rest waits"
        with pytest.raises(openai.BadRequestError) as refused:
            complete(small, ["a"] * 6)
        assert refused.value.param == "prompt" and "5" in refused.value.message


def test_when_the_client_leaves_all_of_them_end(server):
    server.wait_idle()
    body = {"model": "gpt-x", "prompt": PROMPTS, "n": 2, "max_tokens": 3000, "ignore_eos": True, "stream": True}
    with server.http.stream("POST", "/v1/completions", json=body) as response:
        lines = response.iter_lines()
        for _ in range(40):
            next(lines)
        assert server.running() == 4
    server.wait_idle(10)


def test_without_a_seed_equal_prompts_are_drawn_apart(server):
    body = {"model": "gpt-x", "prompt": ["Once upon a time"] * 4, "max_tokens": 12, "temperature": 1.5}
    assert len({choice["text"] for choice in server.ok("/v1/completions", body)["choices"]}) > 1


# best_of

def mean(choice):
    return sum(choice.logprobs.token_logprobs) / len(choice.logprobs.token_logprobs)


def test_the_best_of_several_are_those_with_the_highest_logprob_a_token(server):
    prompts = PROMPTS[:2]
    candidates = complete(server, prompts, n=6)
    best = complete(server, prompts, n=2, extra_body={"ignore_eos": True, "best_of": 6})
    assert [choice.index for choice in best.choices] == [0, 1, 2, 3]
    for i in range(2):
        ranked = sorted(candidates.choices[i * 6:(i + 1) * 6], key=mean, reverse=True)
        assert shown(best.choices[i * 2:i * 2 + 2]) == shown(ranked[:2])
    assert best.usage.completion_tokens == 2 * 6 * 8, "what was generated is what counts"
    unseen = complete(server, prompts, n=2, logprobs=None, extra_body={"ignore_eos": True, "best_of": 6})
    assert [choice.text for choice in unseen.choices] == [choice.text for choice in best.choices]
    assert all(choice.logprobs is None for choice in unseen.choices)


def test_best_of_at_its_edges(server):
    assert len(complete(server, "x", n=2, best_of=2, stream=False).choices) == 2
    assert list(complete(server, "x", n=2, best_of=2, stream=True))
    for more in ({"n": 3, "best_of": 2}, {"best_of": 2, "stream": True}, {"best_of": 0}, {"best_of": 1000}):
        with pytest.raises(openai.BadRequestError) as refused:
            complete(server, "x", **more)
        assert refused.value.param == "best_of", more
