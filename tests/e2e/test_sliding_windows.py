# SPDX-License-Identifier: Apache-2.0
"""C06: prompts that are known already, on a model with sliding windows. Every answer is compared bit for bit with
that of a server whose prefix cache is off, and what was computed is counted."""

import concurrent.futures
import random

import pytest

from conftest import serving_gemma
from test_field_cases import bits, cached, complete

BLOCK, WINDOW = 32, 512
PROMPT = 3000  # about six windows
WORDS = ("river stone lamp winter paper garden copper letter bridge harbour morning silver candle forest "
         "engine violin market shadow thread window").split()


def ids(seed, count):
    """Token ids without any pattern, all ordinary words of the vocabulary."""
    draw = random.Random(seed)
    return [draw.randrange(2000, 200000) for _ in range(count)]


def text(seed, words):
    draw = random.Random(seed)
    return " ".join(draw.choice(WORDS) for _ in range(words))


def chat(server, messages, **more):
    return server.ok("/v1/chat/completions", {"model": "m", "messages": messages, "max_tokens": 6, "temperature": 0,
                                              "ignore_eos": True, "logprobs": True, "top_logprobs": 2, **more})


def chat_bits(answer):
    choice = answer["choices"][0]
    return choice["message"]["content"], choice["logprobs"]


def prompt_tokens(answer):
    return answer["usage"]["prompt_tokens"]


def test_c06_a_repeated_prompt_and_the_next_turn_are_read_from_the_cache(gemma, gemma_uncached):
    seed = random.randrange(2**32)
    print("seed", seed)
    messages = [{"role": "user", "content": f"Remember these words. {text(seed, PROMPT - 20)} Which came first?"}]
    cold = chat(gemma, messages)
    n = prompt_tokens(cold)
    assert n >= PROMPT - 100 and cached(cold) < BLOCK
    truth = chat_bits(chat(gemma_uncached, messages))
    assert chat_bits(cold) == truth

    before = gemma.computed()
    warm = chat(gemma, messages)  # (a)
    assert chat_bits(warm) == truth
    assert cached(warm) == n - 1
    assert gemma.computed() - before == 1, "what is called cached was not computed"

    messages += [{"role": "assistant", "content": truth[0]}, {"role": "user", "content": "And which came last?"}]
    before = gemma.computed()
    turn = chat(gemma, messages)  # (b)
    assert chat_bits(turn) == chat_bits(chat(gemma_uncached, messages))
    assert cached(turn) >= n - 2 * BLOCK
    assert gemma.computed() - before == prompt_tokens(turn) - cached(turn) < 4 * BLOCK


def test_c06_a_prompt_with_another_end_is_read_up_to_where_it_differs(gemma, gemma_uncached):
    seed = random.randrange(2**32)
    print("seed", seed)
    prompt = ids(seed, PROMPT)
    complete(gemma, prompt)
    for changed in (5, 1, BLOCK - 1):  # (c): in the last block before the prompt's end, to the token
        other = prompt[:-changed] + ids(seed + changed, changed)
        before = gemma.computed()
        answer = complete(gemma, other)
        assert bits(answer) == bits(complete(gemma_uncached, other)), changed
        assert cached(answer) == PROMPT - changed
        assert gemma.computed() - before == changed


def test_c06_with_little_memory_a_hit_falls_back_to_a_shorter_one(gemma_uncached):
    """Blocks that the window has passed go first; what is left of a conversation are its turns' ends."""
    seed = random.randrange(2**32)
    print("seed", seed)
    turns = [700, 1300, 1900]  # where the turns of one conversation end
    whole = ids(seed, turns[-1])
    branches = [whole[:at] + ids(seed + at, 40) for at in (690, 1000, 1290, 1600, 1890)]
    with serving_gemma("--kv-memory", "40MiB", "--max-context", "2048", "--step-tokens", "256") as server:
        def branch(at):
            answer = complete(server, branches[at], max_tokens=2)
            assert bits(answer) == bits(complete(gemma_uncached, branches[at], max_tokens=2)), at
            return cached(answer)

        for end in turns:
            complete(server, whole[:end], max_tokens=1)
        fresh = server.metrics()["pagewise_evictions_total"]
        # Others come and take what is passed and what was used longest ago.
        for other in range(3):
            complete(server, ids(seed + 7000 + other, 500), max_tokens=1)
        assert server.metrics()["pagewise_evictions_total"] > fresh, "no pressure, no test"
        found = [branch(at) for at in range(len(branches))]
        print("read", found)
        commons = (690, 1000, 1290, 1600, 1890)
        for common, hit in zip(commons, found):
            assert hit <= common
        assert any(0 < hit < common - BLOCK for common, hit in zip(commons, found)) or 0 in found, \
            "nothing had to be given up: the pool is too large for this test"
        server.wait_idle()


@pytest.mark.parametrize("memory", ["20MiB", "40MiB", "90MiB"])
def test_c06_conversations_over_several_windows_in_pools_of_any_size(gemma_uncached, memory):
    """Two conversations take turns, so that each finds its memory used by the other."""
    seed = random.randrange(2**32)
    print("seed", seed)
    talks = [ids(seed + k, 200) for k in range(2)]
    with serving_gemma("--kv-memory", memory, "--max-context", "2048") as server:
        for turn in range(4):
            for k, talk in enumerate(talks):
                answer = complete(server, talk, max_tokens=4)
                assert bits(answer) == bits(complete(gemma_uncached, talk, max_tokens=4)), (turn, k)
                if memory == "90MiB" and turn > 0:
                    assert cached(answer) >= len(talk) - 200 - 2 * BLOCK, (turn, k)
                # The next turn has the answer in it, as a client would send it, and a longer question.
                talks[k] = talk + server.tokens(answer["choices"][0]["text"]) + ids(seed + 100 * k + turn, 200)
        blocks = server.wait_idle()
        assert blocks["live"] == 0


def test_c06_concurrent_conversations_with_one_long_preamble(gemma, gemma_uncached):
    seed = random.randrange(2**32)
    print("seed", seed)
    preamble = ids(seed, 900)
    prompts = [preamble + ids(seed + k, 30 + k) for k in range(1, 9)]
    before = gemma.computed()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda p: complete(gemma, p, max_tokens=4), prompts))
    assert gemma.computed() - before <= 900 + sum(30 + k for k in range(1, 9)) + 8, "the preamble was computed once"
    for prompt, answer in list(zip(prompts, answers))[::3]:
        assert bits(answer) == bits(complete(gemma_uncached, prompt, max_tokens=4))
