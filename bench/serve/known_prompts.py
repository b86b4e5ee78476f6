#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long a known prompt waits for its first token, on a model with sliding windows and on one without.

Each round sends a new prompt cold, the same again, the next turn (the answer and a new question behind it), and the
same with its last five tokens changed. A figure is the median of the rounds' times to the first token, streamed, with
smallest and largest, beside what was read from the cache and what was computed; the ratio is to the cold one of the
same round. The field's demand (C06) is at most 40 % for the first two.

usage: bench/serve/known_prompts.py [--tokens 3000] [--rounds 5] (`./dev bench known-prompts`)
Writes bench/results/known-prompts-<commit>-<time>.{md,json}.
"""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "bench/serve")]

from client import Request
from figures import ratio, spread, summary, table
from prompts import random_ids
from result_file import Result, arguments, parsed
from servers import Pagewise

MODELS = ["models/gemma-3-270m-q4_k_m.gguf", "models/SmolLM2-135M-Instruct.Q4_1.gguf"]
CASES = ["cold", "the same again", "the next turn", "another end"]
CHANGED, QUESTION, ANSWER = 5, 24, 16  # tokens


def one_round(server, tokens, label):
    """{case: {"ms", "prompt", "cached", "computed"}}"""
    prompt, out = random_ids(tokens, f"prompt {label}"), {}

    def take(case, given):
        (timing,) = server.generate([Request(given, ANSWER)])
        out[case] = {"ms": 1e3 * timing.first_s, "prompt": len(given), "cached": timing.cached,
                     "computed": len(given) - timing.cached}
        return server.tokenize(timing.text)

    answer = take("cold", prompt)
    take("the same again", prompt)
    take("the next turn", prompt + answer + random_ids(QUESTION, f"question {label}"))
    take("another end", prompt[:-CHANGED] + random_ids(CHANGED, f"end {label}"))
    return out


def summaries(rounds):
    """{case: figures of all rounds}"""
    ms = {case: summary([r[case]["ms"] for r in rounds]) for case in CASES}
    return {case: {"ms": ms[case], "ratio": ratio(ms[case], ms["cold"]), "prompt": rounds[0][case]["prompt"],
                   "cached": min(r[case]["cached"] for r in rounds),
                   "computed": max(r[case]["computed"] for r in rounds)} for case in CASES}


def main():
    parser = arguments(__doc__.splitlines()[0], 5)
    parser.add_argument("--tokens", type=int, default=3000)
    args = parsed(parser)
    result = Result("known-prompts", "Known prompts: time to the first token")
    result.facts |= {"threads": args.threads, "rounds": args.rounds, "models": {}}
    result.lines = [f"{args.threads} threads, {args.rounds} rounds, prompts of {args.tokens} tokens; medians (smallest to "
                    "largest).", ""]
    for model in MODELS:
        with Pagewise(args.pagewise, ROOT / model, args.threads, "--kv-memory", "512MiB") as server:
            server.generate([Request(random_ids(600, "warm-up"), ANSWER)])
            rounds = [one_round(server, args.tokens, number) for number in range(args.rounds)]
            command = server.command_line()
        name, found = pathlib.Path(model).name, summaries(rounds)
        result.facts["models"][name] = {"command": command, "summary": found, "rounds": rounds}
        result.lines += [f"## {name}", "", *table(
            ["prompt", "tokens", "read", "computed", "first token, ms", "times cold"],
            [[case, f"{f['prompt']:,}", f"{f['cached']:,}", f"{f['computed']:,}", spread(f["ms"]), spread(f["ratio"])]
             for case, f in found.items()]), f"    {command}", ""]
    result.write(args.results)


if __name__ == "__main__":
    main()
