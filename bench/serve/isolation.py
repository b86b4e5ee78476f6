#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether time tells what another caller has sent (C09): first tokens of prompts that somebody else's salt has cached,
beside those of prompts that nobody has.

Each round sends a new prompt cold, a prompt that salt X has just sent with salt Y, and with salt X (the control: that
one is fast). The field's demand is medians of 20 within 10 % of each other.

usage: bench/serve/isolation.py [--rounds 20] [--tokens 600]
Writes bench/results/isolation-<commit>-<time>.{json,md}.
"""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "bench/serve")]

from client import Request
from figures import spread, summary, table
from prompts import random_ids
from result_file import Result, arguments, parsed
from servers import Pagewise

MODEL = ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
BAR = 0.10


def main():
    parser = arguments(__doc__.splitlines()[0], 20)
    parser.add_argument("--tokens", type=int, default=600)
    args = parsed(parser)
    result = Result("isolation", "Time to first token of what another caller has cached")
    times = {"cold": [], "cached by another salt": [], "cached by the same salt": []}
    with Pagewise(args.pagewise, MODEL, args.threads, "--kv-memory", "256MiB") as server:
        def send(prompt, salt):
            return server.generate([Request(prompt, 2, {"cache_salt": salt})])[0]

        def take(case, prompt, salt, cached):
            timing = send(prompt, salt)
            if timing.cached != cached:
                sys.exit(f"{case}: {timing.cached} tokens were read from the cache, not {cached}")
            times[case].append(1e3 * timing.first_s)

        send(random_ids(args.tokens, "warm-up"), "X")
        for i in range(args.rounds):
            known = random_ids(args.tokens, f"known {i}")
            send(known, "X")
            # In turns, and the first of the two changes: a machine that drifts slows both.
            takes = [lambda i=i: take("cold", random_ids(args.tokens, f"new {i}"), "Y", 0),
                     lambda known=known: take("cached by another salt", known, "Y", 0)]
            for one in takes if i % 2 == 0 else reversed(takes):
                one()
            take("cached by the same salt", known, "X", args.tokens - 1)
    rows = {case: summary(found) for case, found in times.items()}
    apart = rows["cached by another salt"]["median"] / rows["cold"]["median"] - 1
    result.facts |= {"model": MODEL.stem, "rounds": args.rounds, "tokens": args.tokens, "unit": "ms", "rows": rows,
                     "apart": apart, "bar": BAR, "met": abs(apart) <= BAR}
    result.lines = table(["prompt", "first token, ms"], [[case, spread(row)] for case, row in rows.items()])
    result.lines.append(f"Another's cached prompt is {100 * apart:+.1f} % from cold; the bar is {100 * BAR:.0f} %: "
                        f"{'met' if abs(apart) <= BAR else 'missed'}.")
    result.write(args.results)


if __name__ == "__main__":
    main()
