# SPDX-License-Identifier: Apache-2.0
"""Penalties and bias, as a client of the OpenAI routes sees them."""

import collections

import openai
import pytest

CHAT = [{"role": "user", "content": "Say hi."}]
PROMPT = "red blue " * 12 + "red"


def complete(server, **more):
    return server.openai().completions.create(**{
        "model": "gpt-x", "prompt": PROMPT, "max_tokens": 40, "temperature": 0, "logprobs": 5,
        "extra_body": {"ignore_eos": True}, **more})


def extra(**fields):
    return {"extra_body": {"ignore_eos": True, **fields}}


def bits(answer):
    numbers = answer.choices[0].logprobs
    return answer.choices[0].text, numbers.tokens, numbers.token_logprobs


def most(answer):
    """How often the commonest token of an answer comes."""
    return collections.Counter(answer.choices[0].logprobs.tokens).most_common(1)[0][1]


ASKED = {
    "frequency": {"frequency_penalty": 1.5},
    "presence": {"presence_penalty": 2.0},
    "repetition": extra(repetition_penalty=1.5),
    "all": {"frequency_penalty": 0.7, "presence_penalty": 0.5, "logit_bias": {"260": -5}, **extra(repetition_penalty=1.2)},
}


@pytest.mark.parametrize("name", ASKED)
def test_penalties_break_up_repetition_and_the_cache_does_not_show(server, uncached, name):
    truth = complete(uncached, **ASKED[name])
    if name != "presence":  # which is taken off once, and that may be too little
        assert most(truth) < most(complete(server)), "the prompt repeats itself, and so does its plain continuation"
    for _ in range(2):
        assert bits(complete(server, **ASKED[name])) == bits(truth)
    sampled = {**ASKED[name], "temperature": 1, "seed": 3}
    assert bits(complete(server, **sampled)) == bits(complete(uncached, **sampled))


@pytest.mark.parametrize("prompt", [PROMPT, "The cat sat on the mat. The cat sat", "1, 2, 3, 1, 2, 3, 1,"])
@pytest.mark.parametrize("frequency, presence", [(0, 2), (2, 0), (0.5, 0.5), (-1, 1), (0.3, -2)])
def test_greedy_takes_the_best_of_what_the_penalties_leave(server, prompt, frequency, presence):
    """By the formula, from the log-probabilities that are reported, which know of no penalty."""
    answer = complete(server, prompt=prompt, frequency_penalty=frequency, presence_penalty=presence)
    numbers = answer.choices[0].logprobs
    counts = collections.Counter()
    for token, logprob, top in zip(numbers.tokens, numbers.token_logprobs, numbers.top_logprobs):
        def left(other, value):
            return value - counts[other] * frequency - (presence if counts[other] else 0)

        assert left(token, logprob) >= max(left(*other) for other in top.items()) - 1e-4
        counts[token] += 1


def test_openai_penalties_count_the_answer_and_not_the_prompt(server):
    """The first token of the answer has nothing to be penalised for; a repetition penalty has the prompt."""
    first = complete(server, max_tokens=1).choices[0].logprobs.tokens
    for penalty in ({"frequency_penalty": 2}, {"presence_penalty": 2}):
        assert complete(server, max_tokens=1, **penalty).choices[0].logprobs.tokens == first
    assert first == [" blue"]
    assert complete(server, max_tokens=1, **extra(repetition_penalty=100)).choices[0].logprobs.tokens != first


def test_penalties_off_are_no_penalties(server):
    off = {"frequency_penalty": 0, "presence_penalty": 0, "logit_bias": {}, **extra(repetition_penalty=1)}
    assert bits(complete(server, **off)) == bits(complete(server))


def test_logprobs_are_the_models_own_whatever_is_asked_of_the_draw(server):
    plain = complete(server, max_tokens=1).choices[0].logprobs
    token = server.tokens(" elephant")[0]
    forced = complete(server, max_tokens=1, logit_bias={str(token): 100}).choices[0].logprobs
    assert forced.tokens == [" elephant"]
    assert forced.token_logprobs[0] < plain.token_logprobs[0]
    for name, value in plain.top_logprobs[0].items():
        assert forced.top_logprobs[0][name] == value


@pytest.mark.parametrize("stream", [False, True])
def test_a_bias_of_a_hundred_forces_a_token(server, stream):
    token = server.tokens(" kiwi")
    bias = {str(token[0]): 100}
    word = server.ok("/detokenize", {"tokens": token[:1]})["content"]
    for temperature in (0, 1):
        asked = {"max_tokens": 6, "temperature": temperature, "logit_bias": bias}
        if stream:
            text = "".join(chunk.choices[0].text for chunk in complete(server, stream=True, **asked))
            said = "".join(chunk.choices[0].delta.content or "" for chunk in server.openai().chat.completions.create(
                model="gpt-x", messages=CHAT, stream=True, **asked))
        else:
            text = complete(server, **asked).choices[0].text
            said = server.openai().chat.completions.create(model="gpt-x", messages=CHAT, **asked).choices[
                0].message.content
        assert text == said == word * 6


@pytest.mark.parametrize("stream", [False, True])
def test_an_end_that_is_banned_does_not_come(server, stream):
    end = server.tokens("<|im_end|>")
    assert len(end) == 1
    asked = {"model": "gpt-x", "messages": CHAT, "temperature": 0, "max_tokens": 200}
    free = server.openai().chat.completions.create(**asked)
    assert free.choices[0].finish_reason == "stop"
    asked["logit_bias"] = {str(token): -100 for token in (*end, *server.tokens("<|endoftext|>"))}
    if stream:
        chunks = list(server.openai().chat.completions.create(**asked, stream=True))
        reason = [c.choices[0].finish_reason for c in chunks if c.choices[0].finish_reason]
        text = "".join(c.choices[0].delta.content or "" for c in chunks)
    else:
        answer = server.openai().chat.completions.create(**asked)
        assert answer.usage.completion_tokens == 200
        reason, text = [answer.choices[0].finish_reason], answer.choices[0].message.content
    assert reason == ["length"]
    assert text.startswith(free.choices[0].message.content) and len(text) > len(free.choices[0].message.content)


def test_an_end_that_is_forced_comes_at_once(server):
    end = server.tokens("<|im_end|>")[0]
    answer = server.openai().chat.completions.create(model="gpt-x", messages=CHAT, logit_bias={str(end): 100})
    assert answer.choices[0].finish_reason == "stop" and answer.choices[0].message.content == ""


def test_what_is_no_bias_or_penalty_is_refused_by_name(server):
    client = server.openai().chat.completions
    for more, param, words in (
            ({"logit_bias": {"1": 101}}, "logit_bias", "1 "),
            ({"logit_bias": {"1": -100.1}}, "logit_bias", "1 "),
            ({"logit_bias": {"1": "x"}}, "logit_bias", "1 "),
            ({"logit_bias": {"kiwi": 1}}, "logit_bias", "'kiwi'"),
            ({"logit_bias": {"49152": 1}}, "logit_bias", "'49152'"),
            ({"logit_bias": {"-1": 1}}, "logit_bias", "'-1'"),
            ({"logit_bias": {str(i): 1 for i in range(5000)}}, "logit_bias", "5000"),
            ({"frequency_penalty": 2.1}, "frequency_penalty", "2"),
            ({"presence_penalty": -2.1}, "presence_penalty", "-2"),
            ({"extra_body": {"repetition_penalty": 0}}, "repetition_penalty", "0"),
            ({"extra_body": {"repetition_penalty": "much"}}, "repetition_penalty", "number")):
        with pytest.raises(openai.BadRequestError) as refused:
            client.create(model="gpt-x", messages=CHAT, max_tokens=1, **more)
        assert refused.value.param == param, more
        assert words in refused.value.message, refused.value.message
