#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What one other busy process costs: decode with all cores' threads, with a core burnt by someone else and without.

Each round decodes on the quiet machine, then beside a process that counts and does nothing else, at the same priority.
The figure is how many times slower decode became: two threads on two cores with three that want to run can have two
thirds of the machine, and an engine whose threads wait for each other gets less. Must: at most 2.5.

usage: bench/serve/contention.py [--rounds 5] [--llama-server PATH] (`./dev bench contention`)
Writes bench/results/contention-<commit>-<time>.{md,json}.
"""

import contextlib
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))

import figures
import result_file
import servers
import work
from prompts import Prompts

FALL_MAX = 2.5
MODEL = ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"


@contextlib.contextmanager
def burner():
    """One process that keeps a core busy."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        time.sleep(0.2)  # Python has started
        try:
            yield
        finally:
            process.kill()


def measure(engines, prompts, rounds, tokens):
    """{engine: {"quiet", "beside", "fall": figures of the rounds}}"""
    found = {engine.name: {"quiet": [], "beside": [], "fall": []} for engine in engines}
    for engine in engines:
        work.decode_short(engine, prompts, "warm-up", 16)
    for number in range(rounds):
        for engine in engines if number % 2 == 0 else engines[::-1]:
            quiet = work.decode_short(engine, prompts, f"quiet {number}", tokens)
            with burner():
                beside = work.decode_short(engine, prompts, f"beside {number}", tokens)
            for key, value in (("quiet", quiet), ("beside", beside), ("fall", quiet / beside)):
                found[engine.name][key].append(value)
            print(f"  round {number} {engine.name}: {quiet:.1f} tok/s, beside another {beside:.1f}", flush=True)
    return {name: {key: figures.summary(values) for key, values in sides.items()} for name, sides in found.items()}


def table(found):
    return figures.table(
        ["engine", "quiet, tok/s", "beside another process, tok/s", "times slower", f"must <= {FALL_MAX}"],
        [[name, *(figures.spread(sides[key]) for key in ("quiet", "beside", "fall")),
          figures.verdict(sides["fall"]["median"], FALL_MAX, False) if name == "pagewise" else ""]
         for name, sides in found.items()])


def main():
    parser = result_file.arguments(__doc__.splitlines()[0], 5)
    parser.add_argument("--llama-server", help="path of a llama-server program; `none` leaves llama.cpp out")
    parser.add_argument("--tokens", type=int, default=128)
    args = result_file.parsed(parser)
    result = result_file.Result("contention", "Beside a process that burns a core")
    with contextlib.ExitStack() as stack:
        engines = [stack.enter_context(servers.Pagewise(args.pagewise, MODEL, args.threads))]
        if args.llama_server != "none":
            engines.append(stack.enter_context(servers.LlamaCpp(
                args.llama_server or servers.find_llama_server(), MODEL, args.threads, "-c", 8192, "-np", 1)))
        found = measure(engines, Prompts(engines[0].tokenize, 1), args.rounds, args.tokens)
        commands = {engine.name: engine.command_line() for engine in engines}
    result.facts.update(threads=args.threads, rounds=args.rounds, tokens=args.tokens, figures=found, commands=commands)
    result.lines = [f"Decode of {args.tokens} tokens, {args.threads} threads, {args.rounds} rounds; median (smallest to "
                    "largest).", "", *table(found), *(f"    {command}" for command in commands.values())]
    result.write(args.results)


if __name__ == "__main__":
    main()
