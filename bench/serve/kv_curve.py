#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the KV cache is worth: milliseconds a token with it, and with every token computing all before it again.

Each point is the median of several runs of `pagewise run` that generate a few tokens behind a prompt of the wanted
length, once as it is and once with --recompute, in turns. Both give the same text, which is checked.

usage: bench/serve/kv_curve.py [--lengths 64,..,1024] [--rounds 3] [--picture docs/kv-cache.svg] (`./dev bench kv`)
Writes bench/results/kv-<commit>-<time>.{md,json}, and the picture.
"""

import json
import pathlib
import random
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))

import figures
import result_file
from line_picture import line_picture
from prompts import WORDS

MODEL = ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
LENGTHS = [64, 128, 192, 256, 384, 512, 640, 768, 896, 1024]
NEW = 9  # tokens of a run: the first comes with the prompt, the other eight are timed


def prompt_of(tokens, label):
    """Frequent words, one token each in this vocabulary."""
    draw = random.Random(f"{label} {tokens}")
    return " ".join(draw.choice(WORDS) for _ in range(tokens))


def run(args, prompt, *flags):
    command = [args.pagewise, "run", MODEL, "--prompt", prompt, "--tokens", str(NEW), "--temp", "0", "--ignore-eos", "--json",
               "--threads", str(args.threads), *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"pagewise run: {done.stderr.strip()}")
    return json.loads(done.stdout)


def point(args, length):
    """Figures of one length: {"tokens", "cached", "recomputed"} in milliseconds a token."""
    times, tokens = {"cached": [], "recomputed": []}, None
    for number in range(args.rounds):
        prompt = prompt_of(length, number)
        cached, recomputed = run(args, prompt), run(args, prompt, "--recompute")
        if cached["tokens"] != recomputed["tokens"]:
            sys.exit(f"with and without the cache, other tokens came behind the prompt {prompt!r}")
        tokens = cached["prompt_tokens"] + NEW // 2
        for name, result in (("cached", cached), ("recomputed", recomputed)):
            times[name].append(result["decode_ms"] / (NEW - 1))
    found = {"tokens": tokens, **{name: figures.summary(values) for name, values in times.items()}}
    print(f"  {tokens} tokens: {found['cached']['median']:.2f} ms with the cache, "
          f"{found['recomputed']['median']:.2f} ms without", flush=True)
    return found


def picture(points, source):
    """The SVG: linear against quadratic shows only on linear axes."""
    series = {words: [(p["tokens"], p[key]["median"]) for p in points]
              for key, words in (("recomputed", "computing all again"), ("cached", "with the KV cache"))}
    return line_picture("What one more token costs", "tokens before it", "ms", series, source, linear=True)


def main():
    parser = result_file.arguments(__doc__.splitlines()[0], 3)
    parser.add_argument("--lengths", default=",".join(map(str, LENGTHS)), help="tokens before the measured ones")
    parser.add_argument("--picture", type=pathlib.Path, help="also draw this SVG file")
    args = result_file.parsed(parser)
    result = result_file.Result("kv", "A token with the KV cache and without")
    points = [point(args, int(length)) for length in args.lengths.split(",")]
    result.facts.update(threads=args.threads, rounds=args.rounds, model=MODEL.name, points=points)
    result.lines = [f"{MODEL.name}, {args.threads} threads, {args.rounds} rounds in turns; milliseconds a token, median "
                    "(smallest to largest). The text is the same.", "",
                    *figures.table(["tokens before it", "with the cache", "computing all again", "times"],
                                   [[f"{p['tokens']:,}", figures.spread(p["cached"]), figures.spread(p["recomputed"]),
                                     p["recomputed"]["median"] / p["cached"]["median"]] for p in points])]
    path = result.write(args.results)
    if args.picture:
        args.picture.write_text(picture(points, f"{path.name}, {result.facts['cpu']}"), encoding="utf-8")
        print(f"wrote {args.picture}")


if __name__ == "__main__":
    main()
