#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long a prompt of 500 to 8,000 tokens waits for its first token: cold, and when all but its last 16 tokens are cached.

In every round and for every length a new prompt is sent (cold: nothing begins like it), and then the same with other
last tokens (warm). What was read from the cache is checked on each answer, because a cold prompt that hits or a warm
one that misses would be no measurement. A figure is the median of the rounds with smallest and largest.

usage: bench/serve/warm_cold.py [--rounds 5] [--lengths 500,1000,2000,4000,8000] [--picture FILE.svg]
Writes bench/results/warm-cold-<commit>-<time>.{json,md}, and with --picture the SVG of it.
"""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "bench/serve")]

from client import Request
from figures import ratio, spread, summary, table
from line_picture import line_picture
from prompts import random_ids
from result_file import Result, arguments, parsed
from servers import Pagewise

MODEL = ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
NEW = 16  # tokens at the end of a warm prompt


def one_round(server, lengths, number_of_round):
    """{length: (cold ms, warm ms)}"""
    times = {}
    for length in lengths:
        prompt = random_ids(length, f"warm-cold {length} {number_of_round}")
        (cold,) = server.generate([Request(prompt, 2)])
        if cold.cached > NEW:
            sys.exit(f"a cold prompt of {length} tokens read {cold.cached} from the cache")
        (warm,) = server.generate([Request(prompt[:-NEW] + random_ids(NEW, f"end {length} {number_of_round}"), 2)])
        if not length - NEW <= warm.cached < length:
            sys.exit(f"a warm prompt of {length} tokens read {warm.cached} from the cache, not {length - NEW}")
        times[length] = (1e3 * cold.first_s, 1e3 * warm.first_s)
    return times


def picture(facts):
    """The SVG of a result."""
    series = {name: [(row["tokens"], row[name]["median"]) for row in facts["rows"]] for name in ("cold", "warm")}
    return line_picture(title="Time to first token", x_label="prompt tokens", y_label="ms",
                        series={"cold": series["cold"], f"all but {NEW} tokens cached": series["warm"]},
                        note=f"{facts['model']}, {facts['cpu']}; medians of {facts['rounds']}; commit {facts['commit']}")


def main():
    parser = arguments(__doc__.splitlines()[0], 5)
    parser.add_argument("--lengths", default="500,1000,2000,4000,8000")
    parser.add_argument("--picture", type=pathlib.Path, help="write the SVG here")
    args = parsed(parser)
    lengths = [int(length) for length in args.lengths.split(",")]
    result = Result("warm-cold", "Warm and cold time to first token")
    with Pagewise(args.pagewise, MODEL, args.threads, "--kv-memory", "384MiB", "--max-context", 8192) as server:
        one_round(server, lengths[:1], "warm-up")
        rounds = []
        for i in range(args.rounds):
            rounds.append(one_round(server, lengths, i))
            print(f"round {i + 1}: " + ", ".join(f"{n}: {c:.0f} / {w:.1f} ms" for n, (c, w) in rounds[-1].items()),
                  flush=True)
    rows = []
    for length in lengths:
        cold, warm = (summary([r[length][side] for r in rounds]) for side in (0, 1))
        rows.append({"tokens": length, "cached": length - NEW, "cold": cold, "warm": warm,
                     "cold_to_warm": ratio(cold, warm)})
    result.facts |= {"model": MODEL.stem, "rounds": args.rounds, "unit": "ms", "rows": rows}
    result.lines = table(["prompt tokens", "cold, ms", f"warm ({NEW} new tokens), ms", "cold / warm"],
                         [[f"{row['tokens']:,}", spread(row["cold"]), spread(row["warm"]), spread(row["cold_to_warm"])]
                          for row in rows])
    result.write(args.results)
    if args.picture:
        args.picture.write_text(picture(result.facts), encoding="utf-8")
        print(f"wrote {args.picture}")


if __name__ == "__main__":
    main()
