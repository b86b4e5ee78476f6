#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the server costs around the model: threads that do not compute, looking up a known prompt, starting, memory.

  threads   share of the process's CPU time that threads other than `engine` and `compute` take, with 32 streams
  look-up   tokenisation and look-up of a warm prompt of 5,000 tokens of text, from the header Server-Timing
  start     from the start of the program to the first 200 of /ready
  memory    resident memory without committed KV blocks, after the load
  curve     CPU time of the engine thread with --cache-curve on and off (curve_cost.py)

usage: bench/serve/overhead.py [--streams 32] [--tokens 128] [--parts server,curve] (`./dev bench overhead`)
Writes bench/results/overhead-<commit>-<time>.{md,json}.
"""

import pathlib
import random
import re
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))

import curve_cost
import figures
import result_file
import servers
from client import Request
from prompts import Prompts

MANUAL = ROOT / "examples/policy_manual.txt"
MODEL = ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
COMPUTING = {"engine", "compute"}
OTHERS_SHARE_MAX, LOOK_UP_MS_MAX, START_S_MAX = 0.03, 5.0, 1.0
MEMORY_FILE_FACTOR, MEMORY_BESIDE_BYTES = 1.3, 40e6


def thread_seconds(pid):
    """CPU seconds by name of thread."""
    seconds = {}
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        name = (task / "comm").read_text(encoding="utf-8").strip()
        # The scheduler's own count, in nanoseconds: that of `stat` ticks a hundred times a second.
        spent = int((task / "schedstat").read_text(encoding="utf-8").split()[0]) / 1e9
        seconds[name] = seconds.get(name, 0.0) + spent
    return seconds


def share_of_others(before, after):
    """(share of all CPU time between the two that threads beside engine and compute took, seconds by thread)"""
    spent = {name: after[name] - before.get(name, 0.0) for name in after}
    return sum(s for name, s in spent.items() if name not in COMPUTING) / sum(spent.values()), spent


def streams(engine, prompts, count, tokens, label):
    before = thread_seconds(engine.process.pid)
    timings = engine.generate([Request(prompts.of(32, f"{label} {i}"), tokens) for i in range(count)], 600)
    after = thread_seconds(engine.process.pid)
    if not all(timing.complete and timing.tokens == tokens for timing in timings):
        sys.exit(f"not every one of {count} streams got its {tokens} tokens")
    return share_of_others(before, after)


def prose(engine, tokens):
    """About so many tokens of the example manual, its lines in random order: real words, not those of the other rows."""
    draw, lines = random.Random(tokens), MANUAL.read_text(encoding="utf-8").split("\n")
    text = "\n".join(line for _ in range(1 + tokens // 4000) for line in draw.sample(lines, len(lines)))
    return text[:len(text) * tokens // len(engine.tokenize(text))]


def look_ups(engine, tokens, count):
    """(tokens of the prompt, [(tokenize ms, lookup ms)]) of the same prompt of text, which is warm."""
    text = prose(engine, tokens)
    engine.generate([Request(text, 1)], 600)
    found = []
    for _ in range(count):
        timing = engine.generate([Request(text, 1)], 600)[0]
        if timing.cached < timing.prompt_tokens - 64:
            sys.exit(f"only {timing.cached} of {timing.prompt_tokens} tokens of a warm prompt came from the cache")
        parts = dict(re.findall(r"(\w+);dur=([\d.]+)", timing.headers["server-timing"]))
        found.append((float(parts["tokenize"]), float(parts["lookup"])))
    return timing.prompt_tokens, found


def memory(engine):
    """Resident bytes that are no KV block."""
    return engine.resident_bytes() - engine.kv_bytes()


def start_server(args, *flags):
    return servers.Pagewise(args.pagewise, MODEL, args.threads, "--max-context", 8192, "--kv-memory", "1GiB", *flags)


def measure(args):
    def start():
        return start_server(args)
    starts, found = [], {}
    for _ in range(args.starts):
        with start() as engine:
            starts.append(engine.start_s)
    with start() as engine:
        prompts = Prompts(engine.tokenize, 1)
        found["memory_start_bytes"] = memory(engine)
        streams(engine, prompts, args.streams, 8, "warm-up")
        rounds = [streams(engine, prompts, args.streams, args.tokens, number) for number in range(args.rounds)]
        found["prompt_tokens"], pairs = look_ups(engine, args.prompt_tokens, args.look_ups)
        found["memory_load_bytes"] = memory(engine)
        found["command"] = engine.command_line()
    found["start_s"] = figures.summary(starts)
    found["others_share"] = figures.summary([share for share, _ in rounds])
    found["thread_seconds"] = rounds[-1][1]
    found["look_up_ms"] = figures.summary([tokenize + look_up for tokenize, look_up in pairs])
    found["tokenize_ms"] = statistics.median(tokenize for tokenize, _ in pairs)
    found["file_bytes"] = MODEL.stat().st_size
    return found


def rows(found, args):
    memory_max = MEMORY_FILE_FACTOR * found["file_bytes"] + MEMORY_BESIDE_BYTES
    table = [
        (f"CPU time of threads beside engine and compute, {args.streams} streams, %",
         {key: 100 * value for key, value in found["others_share"].items() if key != "rounds"}, 100 * OTHERS_SHARE_MAX),
        (f"tokenisation and look-up of {found['prompt_tokens']:,} warm tokens of text, ms", found["look_up_ms"], LOOK_UP_MS_MAX),
        ("start, s", found["start_s"], START_S_MAX),
        ("resident memory without KV after start, MB", {"median": found["memory_start_bytes"] / 1e6}, memory_max / 1e6),
        ("the same after the load, MB", {"median": found["memory_load_bytes"] / 1e6}, memory_max / 1e6)]
    return [[title, figures.number(side["median"]),
             f"{figures.number(side['min'])} to {figures.number(side['max'])}" if "min" in side else "-",
             f"<= {figures.number(bar)}", figures.verdict(side["median"], bar, False)] for title, side, bar in table]


def main():
    parser = result_file.arguments(__doc__.splitlines()[0], 5)
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=128, help="of each stream")
    parser.add_argument("--prompt-tokens", type=int, default=5000)
    parser.add_argument("--look-ups", type=int, default=50)
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--warm-requests", type=int, default=40, help="of each round of the curve's cost")
    parser.add_argument("--parts", default="server,curve", help="which to measure")
    args = result_file.parsed(parser)
    parts = set(args.parts.split(","))
    if not parts or parts - {"server", "curve"}:
        parser.error(f"--parts: '{args.parts}' is not server, curve, or both with a comma")
    result = result_file.Result("overhead", "What the server costs around the model")
    result.facts.update(threads=args.threads)
    if "server" in parts:
        found = measure(args)
        result.facts.update(figures=found)
        spent = sorted(found["thread_seconds"].items(), key=lambda item: -item[1])
        result.lines = [*figures.table(["what", "median", "smallest to largest", "must", ""], rows(found, args)),
                        "CPU seconds by thread, last round: " + ", ".join(f"{name} {s:.2f}" for name, s in spent) + ".", "",
                        f"    {found['command']}", ""]
    if "curve" in parts:
        found, commands = curve_cost.measure(lambda *flags: start_server(args, *flags),
                                             lambda engine: Prompts(engine.tokenize, 1), thread_seconds, args)
        result.facts.update(curve=found)
        result.lines += [*figures.table(["what", "median (smallest to largest)", "with the curve", "must", ""],
                                        curve_cost.rows(found, args)),
                         *(f"    {command}" for command in commands)]
    result.write(args.results)


if __name__ == "__main__":
    main()
