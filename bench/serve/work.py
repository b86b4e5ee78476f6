# SPDX-License-Identifier: Apache-2.0
"""The work of the rows: what is sent to an engine, and how a figure comes from the timings.

Each function does one round of its rows with one engine and returns {row: figure}. A figure that could not be had
within LATE_SECONDS is a Bounded, which says how far the engine came.
"""

import sys

from client import Request
from rows import CLIENTS, NEW, OWN, PREFIX

LATE_SECONDS = 60


class Bounded(Exception):
    """A row that would take longer than LATE_SECONDS."""


def one(engine, prompt, tokens):
    """The timing of one request alone; ends the run when the engine did something else than was asked."""
    timing = engine.generate([Request(prompt, tokens)], LATE_SECONDS)[0]
    if not timing.complete:
        raise Bounded(f"> {LATE_SECONDS} s")
    # A model with a begin-of-sequence token may have it added.
    if timing.tokens != tokens or not 0 <= timing.prompt_tokens - len(prompt) <= 1:
        sys.exit(f"{engine.name}: asked for {len(prompt)} + {tokens} tokens, got {timing.prompt_tokens} + {timing.tokens}")
    return timing


def bounded(keys, task):
    """{row: figure} of `task`, which gives one figure or a dictionary of them; or why `keys` have none."""
    try:
        figures = task()
    except Bounded as late:
        return dict.fromkeys(keys, late)
    return figures if isinstance(figures, dict) else dict.fromkeys(keys, figures)


def decode_short(engine, prompts, label, tokens=128):
    return one(engine, prompts.of(16, f"decode {label}"), tokens).decode_per_s


def prefill(engine, prompts, label, tokens):
    """Prompt tokens a second, by the time to the first of two tokens."""
    timing = one(engine, prompts.of(tokens, f"prefill {label}"), 2)
    if timing.cached > 32:
        sys.exit(f"{engine.name}: {timing.cached} tokens of a cold prompt of {tokens} came from a cache")
    return tokens / timing.first_s


def long_context(engine, prompts, label):
    """A cold prompt of 4,112 tokens, the same again, and its first 4,096 with 16 others, decoded for a while."""
    text = prompts.of(PREFIX + OWN, f"long {label}")
    cold = one(engine, text, 2)
    again = one(engine, text, 2)
    other = one(engine, text[:PREFIX] + prompts.of(OWN, f"other end {label}"), 64)
    return {"cold-4112": cold.first_s, "again-4112": 1e3 * again.first_s, "cached-4096": 1e3 * other.first_s,
            "decode-4096": other.decode_per_s}


LONG = {"cold-4112", "again-4112", "cached-4096", "decode-4096"}


def single_round(engine, prompts, label, wanted):
    found = {}
    if "decode-short" in wanted:
        found |= bounded(["decode-short"], lambda: decode_short(engine, prompts, label))
    if "prefill-512" in wanted:
        found |= bounded(["prefill-512"], lambda: prefill(engine, prompts, label, 512))
    if wanted & LONG:
        found |= bounded(LONG, lambda: long_context(engine, prompts, label))
    return found


def shared_prefix(engine, prompts, label):
    """Tokens a second of 32 clients on the wall, behind a prefix that one request has made warm."""
    prefix = prompts.of(PREFIX, f"shared {label}")
    one(engine, prefix + prompts.of(OWN, f"warm {label}"), 2)
    requests = [Request(prefix + prompts.of(OWN, f"own {label} {client}"), NEW) for client in range(CLIENTS)]
    return CLIENTS * NEW / wall(engine, requests)[0]


def batch(engine, prompts, label):
    """Tokens a second after the last sequence has its first token: all prompts are then computed."""
    requests = [Request(prompts.of(128, f"batch {label} {client}"), NEW) for client in range(CLIENTS)]
    _, timings = wall(engine, requests)
    begin = max(timing.stamps[0] for timing in timings)
    end = max(timing.stamps[-1] for timing in timings)
    # A piece may hold more than one token where text was held back; on the whole they are even.
    decoded = sum(timing.tokens * sum(at > begin for at in timing.stamps) / len(timing.stamps) for timing in timings)
    return decoded / (end - begin)


def wall(engine, requests):
    """(seconds from the first request to the last token, timings)"""
    timings = engine.generate(requests, LATE_SECONDS)
    done = sum(timing.tokens for timing in timings)
    if not all(timing.complete for timing in timings):
        raise Bounded(f"> {LATE_SECONDS} s ({done} of {sum(r.tokens for r in requests)} tokens by then)")
    return max(t.stamps[-1] for t in timings) - min(t.sent for t in timings), timings


def many_round(engine, prompts, label, wanted):
    found = {}
    tasks = {"shared-32": shared_prefix, "batch-32": batch}
    for key, task in tasks.items():
        if key in wanted or (key == "shared-32" and "kv-shared" in wanted):
            found |= bounded([key], lambda task=task: task(engine, prompts, label))
            if key == "shared-32":
                found["kv-shared"] = (engine.kv_bytes() or 0) / 1e6 or None
    return found


def model_round(prefix, prefill_tokens, decode_tokens):
    def run(engine, prompts, label, wanted):
        found = {}
        if (key := f"{prefix}-decode") in wanted:
            found |= bounded([key], lambda: decode_short(engine, prompts, label, decode_tokens))
        if (key := f"{prefix}-prefill-{prefill_tokens}") in wanted:
            found |= bounded([key], lambda: prefill(engine, prompts, label, prefill_tokens))
        return found
    return run


ROUNDS = {"single": single_round, "many": many_round, "gemma": model_round("gemma", 512, 128),
          "llama-1b": model_round("llama-1b", 256, 64)}
