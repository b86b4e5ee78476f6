# SPDX-License-Identifier: Apache-2.0
"""Completions that repeat their prompt, with the log-probabilities of its tokens (C20): every run of one prompt
must give the same bits, whatever the cache holds and however the prompt is cut into steps."""

import concurrent.futures
import math

import openai
import pytest

from conftest import serving

MODEL = "gpt-x"
LISTS = ("tokens", "token_logprobs", "top_logprobs", "text_offset")


def repeat(server, prompt, **more):
    """A completion that begins with its prompt, by the official client."""
    return server.openai().completions.create(**{
        "model": MODEL, "prompt": prompt, "echo": True, "logprobs": 2, "max_tokens": 1, "temperature": 0, **more})


def lists(choice):
    return {name: getattr(choice.logprobs, name) for name in LISTS}


def bits(answer):
    return [(choice.text, lists(choice), choice.finish_reason) for choice in answer.choices]


def cached(answer):
    return answer.usage.prompt_tokens_details.cached_tokens


def streamed(server, prompt, **more):
    """The same as bits() of a stream, and the usage of its last chunk."""
    texts, parts, reasons, usage = {}, {}, {}, None
    for chunk in repeat(server, prompt, stream=True, stream_options={"include_usage": True}, **more):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            texts[choice.index] = texts.get(choice.index, "") + choice.text
            joined = parts.setdefault(choice.index, {name: [] for name in LISTS})
            if choice.logprobs:
                for name in LISTS:
                    joined[name] += getattr(choice.logprobs, name)
            reasons[choice.index] = choice.finish_reason or reasons.get(choice.index)
    return [(texts[i], parts[i], reasons[i]) for i in sorted(texts)], usage


def words_of(server, nonce, tokens):
    """A text of exactly so many tokens that nobody has sent before."""
    text = nonce
    while len(server.tokens(text)) < tokens:
        text += " the"
    assert len(server.tokens(text)) == tokens
    return text


@pytest.mark.parametrize("tokens", [117, 512])
def test_c20_cold_warm_shared_and_parallel_runs_agree(server, uncached, nonce, tokens):
    prompt = words_of(server, nonce, tokens)
    truth = repeat(uncached, prompt)
    cold = repeat(server, prompt)
    warm = repeat(server, prompt)
    ids = server.tokens(prompt)
    server.openai().completions.create(model=MODEL, prompt=[*ids[:tokens // 2], 500, 501, 502], max_tokens=9)
    behind_half = repeat(server, prompt)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        together = list(pool.map(lambda _: repeat(server, prompt), range(2)))
    for answer in (cold, warm, behind_half, *together):
        assert bits(answer) == bits(truth)
        assert cached(answer) == 0, "what is cached has no logits: everything is computed"
        assert answer.usage.prompt_tokens == tokens
    numbers = truth.choices[0].logprobs
    assert len(numbers.token_logprobs) == tokens + 1
    assert numbers.token_logprobs[0] is None and numbers.top_logprobs[0] is None
    assert all(logprob <= 0 for logprob in numbers.token_logprobs[1:])
    # C01's question: whoever comes next is answered like the first, and reads what was computed here.
    plain = {"model": MODEL, "prompt": prompt, "max_tokens": 16, "temperature": 0, "logprobs": 2}
    for _ in range(2):
        answer = server.openai().completions.create(**plain)
        assert bits(answer) == bits(uncached.openai().completions.create(**plain))
        assert cached(answer) == tokens - 1


def test_a_prompts_logprobs_are_those_with_which_its_tokens_are_sampled(server):
    """The definition: the log-probability of a token behind the tokens before it, which a forced answer tells too."""
    ids = server.tokens("Paris is the capital of France, and Rome")
    answer = repeat(server, ids, max_tokens=0)
    for at in (1, 2, len(ids) // 2, len(ids) - 1):
        forced = server.openai().completions.create(
            model=MODEL, prompt=ids[:at], max_tokens=1, temperature=0, logprobs=2, logit_bias={str(ids[at]): 100})
        assert forced.choices[0].logprobs.token_logprobs == [answer.choices[0].logprobs.token_logprobs[at]]
        assert forced.choices[0].logprobs.top_logprobs == [answer.choices[0].logprobs.top_logprobs[at]]


def test_text_and_offsets_are_those_of_prompt_and_answer_together(server):
    prompt = "Grüße, 世界 🦊! <|im_end|> A b c"
    answer = repeat(server, prompt, max_tokens=4, extra_body={"ignore_eos": True})
    plain = server.openai().completions.create(model=MODEL, prompt=prompt, max_tokens=4, temperature=0, logprobs=2,
                                               extra_body={"ignore_eos": True})
    choice = answer.choices[0]
    assert choice.text == prompt + plain.choices[0].text
    tokens, offsets = choice.logprobs.tokens, choice.logprobs.text_offset
    assert len(tokens) == answer.usage.prompt_tokens + answer.usage.completion_tokens
    ids = server.tokens(prompt)
    # The bytes behind each token, so also of tokens that are no whole character.
    pieces = server.ok("/tokenize", {"content": prompt, "with_pieces": True})["tokens"]
    assert [piece["id"] for piece in pieces] == ids
    before = b""
    for piece, offset in zip(pieces, offsets):
        assert offset == len(before.decode("utf-8", "ignore"))
        before += bytes(piece["piece"]) if isinstance(piece["piece"], list) else piece["piece"].encode()
    assert before.decode() == prompt
    assert offsets[len(ids)] == len(prompt), "the answer begins where the prompt ends"
    assert choice.logprobs.token_logprobs[len(ids):] == plain.choices[0].logprobs.token_logprobs
    assert [o - len(prompt) for o in offsets[len(ids):]] == plain.choices[0].logprobs.text_offset


@pytest.mark.parametrize("more", [{}, {"n": 3, "temperature": 1, "seed": 5, "max_tokens": 6}, {"max_tokens": 0},
                                  {"logprobs": 0}, {"logprobs": None}, {"stop": [" "], "max_tokens": 8},
                                  {"logprobs": None, "max_tokens": 0, "n": 2}],
                         ids=lambda more: ",".join(more) or "plain")
def test_a_stream_adds_up_to_the_whole_answer(server, more):
    prompt = "The first letters of the alphabet are a, b, c, d, " * 8
    whole = repeat(server, prompt, **more)
    pieces, usage = streamed(server, prompt, **more)
    if more.get("logprobs", 2) is None:
        assert [choice.logprobs for choice in whole.choices] == [None] * len(whole.choices)
        pieces = [(text, reason) for text, _, reason in pieces]
        assert pieces == [(choice.text, choice.finish_reason) for choice in whole.choices]
    else:
        assert pieces == bits(whole)
        assert usage == whole.usage
    assert all(text.startswith(prompt) for text, *_ in pieces)
    assert len(pieces) == more.get("n", 1)


def test_no_answer_is_only_the_prompt(server):
    answer = repeat(server, "One two three", max_tokens=0)
    choice = answer.choices[0]
    assert choice.text == "One two three" and choice.finish_reason == "length"
    assert answer.usage.completion_tokens == 0
    assert len(choice.logprobs.tokens) == answer.usage.prompt_tokens
    # Without log-probabilities nothing stands in the way of the cache.
    again = repeat(server, "One two three", max_tokens=0, logprobs=None)
    assert again.choices[0].text == "One two three" and cached(again) == again.usage.prompt_tokens - 1


def test_an_empty_prompt_is_one_token_without_text(server):
    answer = repeat(server, "", max_tokens=2, extra_body={"ignore_eos": True})
    numbers = answer.choices[0].logprobs
    assert answer.usage.prompt_tokens == 1 and len(numbers.tokens) == 3
    assert numbers.token_logprobs[0] is None and numbers.token_logprobs[1] < 0
    assert numbers.text_offset[:2] == [0, 0]
    assert repeat(server, "", max_tokens=0).choices[0].text == ""


def test_token_ids_that_cut_a_character_leave_it_to_the_answer(server):
    whole = "ab 🦊"
    ids = server.tokens(whole)
    cut = ids[:-1]
    shown = server.ok("/detokenize", {"tokens": cut})["content"].rstrip("�")
    assert shown != whole
    assert repeat(server, cut, max_tokens=0).choices[0].text == shown
    completed = {"max_tokens": 1, "logit_bias": {str(ids[-1]): 100}}
    answer = repeat(server, cut, **completed)
    assert answer.choices[0].text == whole
    assert streamed(server, cut, **completed)[0] == bits(answer)
    numbers = answer.choices[0].logprobs
    assert len(numbers.tokens) == len(ids) and numbers.text_offset[-1] == len(shown)
    # The ids of a text give the same answer as the text.
    assert bits(repeat(server, server.tokens("One <|im_end|> two"))) == bits(repeat(server, "One <|im_end|> two"))


def test_runners_up_contain_the_token_itself(server):
    for best in (0, 1, 5):
        numbers = repeat(server, "The of xylophone and", logprobs=best, max_tokens=2).choices[0].logprobs
        for token, logprob, top in list(zip(numbers.tokens, numbers.token_logprobs, numbers.top_logprobs))[1:]:
            assert top[token] == logprob
            assert best <= len(top) <= best + 1
            assert sum(math.exp(value) for value in top.values()) <= 1 + 1e-6


def test_steps_and_blocks_of_any_size_give_the_same_bits(server, nonce):
    prompt = words_of(server, nonce, 117)
    truth = bits(repeat(server, prompt, max_tokens=3))
    for flags in (["--step-tokens", 5], ["--step-tokens", 33, "--block-tokens", 16], ["--block-tokens", 128]):
        with serving("--kv-memory", "64MiB", "--alias", "*", *flags) as other:
            for _ in range(2):
                assert bits(repeat(other, prompt, max_tokens=3)) == truth, flags


def test_more_runners_up_than_are_offered_are_refused(server):
    for more, param in (({"logprobs": 6}, "logprobs"), ({"logprobs": -1}, "logprobs"), ({"echo": "yes"}, "echo"),
                        ({"extra_body": {"prompt_logprobs": 1}}, "prompt_logprobs")):
        with pytest.raises(openai.BadRequestError) as refused:
            repeat(server, "x", **more)
        assert refused.value.param == param
