#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether the simulator tells the truth: a part of a public trace, replayed on a running server and simulated.

Requests 1,000 to 1,399 of Mooncake's conversation trace with all lengths divided by 16, so that the longest (7,737
tokens) fits SmolLM2's context, at a speed at which the simulation is busy 60 % of the time. First `pagewise bench
--calibrate` measures this machine; then the same requests go to `pagewise serve` over HTTP, each at its time, and to
`pagewise simulate` with that calibration and a pool of as many tokens. Equal ids of the trace become equal tokens, and
every answer has the length that the trace says.

Bars: hit rates at most 10 % apart, medians of the time to the first token at most 25 %.

usage: bench/serve/sim_truth.py [--requests 0:400] [--load 0.6] [--calibration FILE] [--quick] (`./dev bench sim-truth`)
Writes bench/results/sim-truth-<commit>-<time>.{md,json}.
"""

import json
import pathlib
import random
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "bench/serve")]

import client
from client import Request
from figures import number, table
from prompts import Prompts
from result_file import Result, arguments, parsed
from servers import Pagewise

MODEL = ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
TRACE = ROOT / "tests/data/traces/conversation_1000_1400.jsonl"
ID_TOKENS, BLOCK_TOKENS = 512, 32
APART_S = 0.02
HIT_BAR, FIRST_BAR = 0.10, 0.25
QUICK = "0:12"


def ceil_div(value, divisor):
    return -(-value // divisor)


class Piece:
    """The tokens of the trace's ids: equal for equal ids, words of one token each otherwise."""

    def __init__(self, ids, divisor):
        self.ids, self.tokens = ids, ceil_div(ID_TOKENS, divisor)

    def of(self, id_, tokens):
        draw = random.Random(f"piece {id_}")
        return [draw.choice(self.ids) for _ in range(self.tokens)][:tokens]


def read_lines(path, part):
    """Lines of the part "A:B" of a trace, as objects."""
    begin, end = (int(word) if word else None for word in part.split(":"))
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()][begin:end]


def arrivals(lines, speed):
    """Seconds after the first, at so many times the trace's speed. Requests of one moment (the trace counts in steps of
    three seconds) are APART_S apart, in its order: a server is done with a short body sooner than with a long one."""
    out = []
    for line in lines:
        at = (line["timestamp"] - lines[0]["timestamp"]) / 1e3 / speed
        out.append(max(at, out[-1] + APART_S) if out else at)
    return out


def prompt_pieces(line, divisor):
    """[(id, tokens)] of a request."""
    left, pieces = line["input_length"], []
    for id_ in line["hash_ids"]:
        here = min(left, ID_TOKENS)
        pieces.append((id_, ceil_div(here, divisor)))
        left -= here
    return pieces


class Simulator:
    """`pagewise simulate` on the lines, each at its time."""

    def __init__(self, args, lines, folder, flags):
        self.args, self.lines, self.flags = args, lines, flags
        self.path = folder / "trace.jsonl"

    def run(self, speed):
        self.path.write_text("".join(
            json.dumps({**line, "timestamp": round(1e3 * at)}) + "\n"
            for line, at in zip(self.lines, arrivals(self.lines, speed))), encoding="utf-8")
        command = [self.args.pagewise, "simulate", self.path, "--scale-lengths", self.args.scale, "--calibration",
                   self.args.calibration, "--json", *self.flags]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(done.stderr.strip())
        return json.loads(done.stdout)["result"]

    def speed_for(self, load):
        """The speed of arrivals at which the simulated server is busy for this share of the time."""
        slow, fast = 1e-3, 10.0
        for _ in range(20):
            middle = (slow * fast) ** 0.5
            if self.run(middle)["busy_share"] < load:
                slow = middle
            else:
                fast = middle
        return slow


def quantiles(seconds):
    ordered = sorted(seconds)

    def at(share):
        return 1e3 * ordered[min(len(ordered) - 1, int(share * len(ordered)))]
    return {"p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "max": 1e3 * ordered[-1]}


def replay(server, lines, at, divisor):
    """What the running server did, in the words of `pagewise simulate --json`."""
    piece = Piece(Prompts(server.tokenize, 1).ids, divisor)
    asked = []
    for line in lines:
        prompt = [token for id_, count in prompt_pieces(line, divisor) for token in piece.of(id_, count)]
        asked.append(Request(prompt, ceil_div(line["output_length"], divisor)))
    steps, preemptions = (server.metric(name) for name in ("pagewise_steps_total", "vllm:num_preemptions_total"))
    timings = client.generate(server.port, asked, server.model, at=at)
    for timing, request in zip(timings, asked):
        if not timing.complete or timing.tokens != request.tokens or timing.prompt_tokens != len(request.prompt):
            sys.exit(f"asked for {len(request.prompt)} + {request.tokens} tokens, got {timing.prompt_tokens} + "
                     f"{timing.tokens}")
    begin, end = min(t.sent for t in timings), max(t.stamps[-1] for t in timings)
    late = [timing.sent - begin - planned for timing, planned in zip(timings, at)]
    outputs = sum(t.tokens for t in timings)
    return {"hit_rate": sum(t.cached for t in timings) / sum(t.prompt_tokens for t in timings),
            "first_token_ms": quantiles([t.first_s for t in timings]),
            "gap_ms": quantiles([b - a for t in timings for a, b in zip(t.stamps, t.stamps[1:])]),
            "elapsed_s": end - begin, "output_tokens_per_s": outputs / (end - begin),
            "steps": server.metric("pagewise_steps_total") - steps,
            "preemptions": server.metric("vllm:num_preemptions_total") - preemptions,
            "latest_start_ms": 1e3 * max(late), "first_tokens_s": [t.first_s for t in timings],
            "cached": [t.cached for t in timings]}


ROWS = [("hit rate, %", lambda r: 100 * r["hit_rate"], HIT_BAR), *(
    (f"{name}, {word}, ms", lambda r, key=key, q=q: r[key][q], FIRST_BAR if (key, q) == ("first_token_ms", "p50") else None)
    for key, name in (("first_token_ms", "time to first token"), ("gap_ms", "gap between tokens"))
    for q, word in (("p50", "half"), ("p90", "90 %"), ("p99", "99 %"), ("max", "longest"))),
    ("answer tokens a second", lambda r: r["output_tokens_per_s"], None), ("from first to last, s", lambda r: r["elapsed_s"], None),
    ("steps", lambda r: r["steps"], None), ("put back to wait", lambda r: r["preemptions"], None)]


def compared(real, simulated):
    """[(row, real, simulated, apart or None, bar, "met" or "missed" or "")]"""
    out = []
    for name, of, bar in ROWS:
        truth, told = of(real), of(simulated)
        apart = told / truth - 1 if truth else (0.0 if told == truth else None)
        verdict = "" if bar is None else "met" if apart is not None and abs(apart) <= bar else "missed"
        out.append((name, truth, told, apart, bar, verdict))
    return out


def measure(args, folder):
    if args.calibration is None:
        args.calibration = folder / "calibration.json"
        print("measuring this machine", flush=True)
        subprocess.run([str(word) for word in (args.pagewise, "bench", MODEL, "--threads", args.threads, "--calibrate",
                                               args.calibration, *(["--quick"] if args.quick else []))],
                       check=True, stdout=subprocess.DEVNULL)
    lines = read_lines(args.trace, args.requests)
    with Pagewise(args.pagewise, MODEL, args.threads, "--kv-memory", args.kv_memory) as server:
        pool = int(server.metric("pagewise_kv_pool_blocks")) * BLOCK_TOKENS
        context = json.loads(server.get("/v1/models")[1])["data"][0]["max_model_len"]
        simulator = Simulator(args, lines, folder, ["--pool-tokens", pool, "--max-context", context])
        speed = simulator.speed_for(args.load)
        simulated = simulator.run(speed)
        if simulated["served"] != len(lines):
            sys.exit(f"the simulated server refuses some: {simulated}")
        print(f"replaying {len(lines)} requests at {speed:.4g} times their speed: about "
              f"{simulated['elapsed_s']:.0f} s", flush=True)
        # Not of the trace: pages, threads and the first connection are warm then.
        server.generate([Request(Prompts(server.tokenize, 2).of(600, "warm-up"), 16)])
        real = replay(server, lines, arrivals(lines, speed), args.scale)
        command = server.command_line()
    return {"speed": speed, "pool_tokens": pool, "requests": len(lines), "server": command,
            "calibration": json.loads(pathlib.Path(args.calibration).read_text(encoding="utf-8")),
            "real": real, "simulated": simulated}


def main():
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--trace", type=pathlib.Path, default=TRACE)
    parser.add_argument("--requests", help=f"only the requests A:B of the trace (default: all; --quick: {QUICK})")
    parser.add_argument("--scale", type=int, default=16, help="divide all lengths by this")
    parser.add_argument("--load", type=float, default=0.6, help="share of the time that the simulation is busy")
    parser.add_argument("--kv-memory", default="4GiB")
    parser.add_argument("--calibration", type=pathlib.Path, help="of this machine, instead of measuring it now")
    parser.add_argument("--quick", action="store_true", help="to try it: few requests, a rough calibration")
    args = parsed(parser)
    args.requests = args.requests or (QUICK if args.quick else ":")
    result = Result("sim-truth", "The simulator beside a running server")
    with tempfile.TemporaryDirectory() as folder:
        found = measure(args, pathlib.Path(folder))
    rows = compared(found["real"], found["simulated"])
    result.facts |= {"model": MODEL.stem, "threads": args.threads, "load": args.load, **found,
                     "met": all(row[5] != "missed" for row in rows), "quick": args.quick,
                     "rows": {row[0]: {"real": row[1], "simulated": row[2], "apart": row[3]} for row in rows}}
    measured = found["calibration"].get("measured", {})
    result.lines = [
        f"{found['requests']} requests of {args.trace.name}, lengths divided by {args.scale}, at {found['speed']:.4g} times "
        f"their speed (simulated load {100 * found['simulated']['busy_share']:.0f} %); a pool of {found['pool_tokens']:,} "
        f"tokens; {args.threads} threads. Calibration: largest deviation {100 * measured.get('deviation', 0):.1f} %, typical "
        f"spread {100 * measured.get('spread', 0):.1f} %.", "",
        *table(["", "server", "simulator", "apart", "bar", ""],
               [[name, number(real), number(told), "-" if apart is None else f"{100 * apart:+.1f} %",
                 "" if bar is None else f"{100 * bar:.0f} %", verdict] for name, real, told, apart, bar, verdict in rows]),
        f"    {found['server']}"]
    if args.quick:
        result.lines += ["", "A quick run: its figures mean nothing."]
    result.write(args.results)


if __name__ == "__main__":
    main()
