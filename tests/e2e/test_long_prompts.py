# SPDX-License-Identifier: Apache-2.0
"""One long prompt does not freeze the others (C21). A step computes at most 512 tokens of a prompt, and in each one
whoever is decoding gets a token: so the other stream's tokens can be counted while a prompt is computed. How long
a step takes depends on the machine and is measured elsewhere (bench/serve)."""

import json
import queue
import random
import threading

import pytest

STEP_TOKENS, STEP_TOKENS_MIN = 512, 32  # of a prompt, in one step beside others
PATIENCE_S = 900
SPAN = 1000  # token ids that prompts are drawn from


def cold_prompt(seed, tokens):
    draw = random.Random(seed)
    return [3000 + draw.randrange(SPAN) for _ in range(tokens)]


def body(prompt, max_tokens, **more):
    return {"model": "gpt-x", "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "logprobs": 1,
            "ignore_eos": True, **more}


class Stream:
    """A streamed answer that is read in the background; `tokens` grows as they come."""

    def __init__(self, server, request):
        self.tokens, self.logprobs, self.error = [], [], None
        self.moved = queue.Queue()
        self._thread = threading.Thread(target=self._read, args=(server, request))
        self._thread.start()

    def _read(self, server, request):
        try:
            with server.http.stream("POST", "/v1/completions", json={**request, "stream": True}) as response:
                for line in response.iter_lines():
                    if not line.startswith("data: {"):
                        continue
                    numbers = json.loads(line[6:])["choices"][0]["logprobs"]
                    if numbers:
                        self.tokens += numbers["tokens"]
                        self.logprobs += numbers["token_logprobs"]
                        self.moved.put(len(self.tokens))
        except Exception as error:  # noqa: BLE001 - told by finish()
            self.error = error
        finally:
            self.moved.put(None)

    def wait_for(self, count):
        while len(self.tokens) < count:
            assert self.moved.get(timeout=PATIENCE_S) is not None, "the stream ended early"

    def finish(self):
        self._thread.join(PATIENCE_S)
        assert self.error is None and not self._thread.is_alive()
        return self.tokens, self.logprobs


def alone(server, request):
    """Streamed, too: a stream is told every 10 s that it is being worked on, however slow the machine."""
    return Stream(server, {**request, "cache_prompt": False}).finish()


def long_enough(prompt_tokens):
    """Tokens of an answer that is still running when so many prompt tokens beside it are computed."""
    return 150 + prompt_tokens // STEP_TOKENS_MIN


@pytest.mark.parametrize("length", [1000, 2000, 8000])
def test_c21_tokens_come_while_a_long_prompt_is_computed(server, length):
    seed = random.randrange(2**32)
    print("seed", seed)
    server.wait_idle()
    short = body(cold_prompt(seed, 20), long_enough(length))
    long = body(cold_prompt(seed + 1, length), 4)
    a = Stream(server, short)
    a.wait_for(20)
    before = len(a.tokens)
    b = Stream(server, long)
    b.wait_for(1)
    during = len(a.tokens) - before
    assert not a.error and len(a.tokens) < short["max_tokens"], "A is still at it when B has its first token"
    # At least one step for each 512 tokens of B's prompt, each with a token for A. The last two may still be on their
    # way to us when B's first arrives.
    assert during >= length // STEP_TOKENS - 2, f"{during} tokens of A while {length} tokens of B were computed"
    assert during > 0
    a_bits, b_bits = a.finish(), b.finish()
    assert len(a_bits[0]) == short["max_tokens"] and len(b_bits[0]) == 4
    assert a_bits == alone(server, short)
    assert b_bits == alone(server, long)


def test_c21_one_long_prompt_after_another_leaves_a_stream_its_tokens(server):
    seed = random.randrange(2**32)
    print("seed", seed)
    server.wait_idle()
    prompts = [cold_prompt(seed + 1 + i, 1500) for i in range(3)]
    short = body(cold_prompt(seed, 20), long_enough(3 * 1500))
    a = Stream(server, short)
    a.wait_for(20)
    counts, answers = [], []
    for prompt in prompts:
        before = len(a.tokens)
        answers.append(Stream(server, body(prompt, 1)).finish())
        counts.append(len(a.tokens) - before)
    assert all(count >= max(1, 1500 // STEP_TOKENS - 2) for count in counts), counts
    assert a.finish() == alone(server, short)
    assert answers == [alone(server, body(prompt, 1)) for prompt in prompts]
