#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How many conversations 1 GiB of KV holds at once: a mix that uses 300, 1,200 and 80 tokens of at most 4,096.

Each client asks for as many tokens as the maximum leaves and goes away when its conversation has the length that it
really uses, so the server cannot know the length beforehand. A conversation is held from its first token until its
client goes. All arrive together, long ones first; the figure is the largest number held at one moment, and the run
counts only when none was put back to wait or refused.

llama.cpp is measured as it reserves (slots of 4,096 cells each) and with one cache for all slots (--kv-unified).

usage: bench/serve/capacity.py [--llama-server PATH] (`./dev bench capacity`)
Writes bench/results/capacity-<commit>-<time>.{md,json}.
"""

import asyncio
import json
import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))

import figures
import limits
import result_file
import servers
from client import Request, body_of
from prompts import Prompts

MODEL = ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
POOL_BYTES, CONTEXT, HELD_MUST = 2**30, 4096, 80
# Tokens used, and how many of them are the answer. Long conversations arrive first and answer longest, so that all are
# there when the last one is.
MIX = [(300, 100), (1200, 160), (80, 40)]
LATE_SECONDS = 300


def conversations(count):
    """`count` of the mix in equal parts, long ones first: [(prompt tokens, answer tokens)]"""
    kinds = sorted((MIX[i % len(MIX)] for i in range(count)), reverse=True)
    return [(used - answer, answer) for used, answer in kinds]


def most_that_fit(token_bytes, block_tokens=32):
    """The largest number of conversations of the mix whose blocks fit the pool."""
    count = 0
    while blocks_of(conversations(count + 1), block_tokens) <= POOL_BYTES // (block_tokens * token_bytes):
        count += 1
    return count


def blocks_of(mix, block_tokens):
    return sum(-(-(prompt + answer) // block_tokens) for prompt, answer in mix)


class Crowd:
    """Clients of one server. `held` counts conversations between their first token and their end."""

    def __init__(self, port, prompts, mix):
        self.port, self.mix = port, mix
        self.bodies = [body_of(Request(prompts.of(prompt, f"conversation {i}"), CONTEXT - prompt), servers.NAME)
                       for i, (prompt, _) in enumerate(mix)]
        self.held = self.held_most = self.answered = 0
        self.refused = []

    async def talk(self, index):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        body = json.dumps(self.bodies[index]).encode()
        writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                     b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        pieces = 0
        status = await reader.readline()
        try:
            if b" 200 " not in status:
                self.refused.append((await reader.read()).decode(errors="replace")[-200:])
                return
            while line := await reader.readline():
                if b'"error"' in line:
                    self.refused.append(line.decode(errors="replace")[:200])
                    return
                if line.startswith(b'data: {') and (choices := json.loads(line[6:]).get("choices")) and choices[0].get("text"):
                    pieces += 1
                    if pieces == 1:
                        self.held += 1
                        self.held_most = max(self.held_most, self.held)
                    if pieces == self.mix[index][1]:
                        self.answered += 1
                        return
        finally:
            self.held -= pieces > 0
            writer.close()

    async def run(self):
        tasks = []
        for index in range(len(self.mix)):
            tasks.append(asyncio.create_task(self.talk(index)))
            await asyncio.sleep(0.002)  # they arrive in order
        _, late = await asyncio.wait(tasks, timeout=LATE_SECONDS)
        for task in late:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return len(late)


def held_by(engine, prompts, count):
    """What one engine did with `count` conversations at once."""
    crowd = Crowd(engine.port, prompts, conversations(count))
    begin = time.perf_counter()
    late = asyncio.run(crowd.run())
    found = {"asked": count, "held": crowd.held_most, "answered": crowd.answered, "refused": crowd.refused[:3], "late": late,
             "seconds": time.perf_counter() - begin, "kv_bytes": engine.kv_bytes(), "command": engine.command_line()}
    if isinstance(engine, servers.Pagewise):
        found["put_back"] = engine.metric("vllm:num_preemptions_total")
        found["pool_bytes"] = engine.metric("pagewise_kv_pool_bytes")
    print(f"  {engine.name}: {found['held']} held at once, {found['answered']} of {count} answered", flush=True)
    return found


def measure(args):
    found = {}
    model = limits.Model.of_file(args.pagewise, MODEL)
    fit = most_that_fit(model.kv_token_bytes)
    asked = args.conversations or fit
    with servers.Pagewise(args.pagewise, MODEL, args.threads, "--kv-memory", "1GiB", "--max-context", CONTEXT, "--max-seqs",
                          256) as engine:
        prompts = Prompts(engine.tokenize, 1)
        found["pagewise"] = held_by(engine, prompts, asked)
    cells = POOL_BYTES // model.kv_token_bytes
    if args.llama_server != "none":
        program = args.llama_server or servers.find_llama_server()
        slots = cells // CONTEXT
        for name, flags in (("llama.cpp, slots reserved", ["-c", slots * CONTEXT, "-np", slots, "--no-kv-unified"]),
                            ("llama.cpp, one cache", ["-c", cells // 256 * 256, "-np", asked, "--kv-unified"])):
            try:
                with servers.LlamaCpp(program, MODEL, args.threads, *flags) as engine:
                    found[name] = held_by(engine, prompts, asked)
            except servers.CannotServe as why:
                found[name] = {"asked": asked, "held": 0, "answered": 0, "refused": [str(why)], "late": 0}
    return {"fit": fit, "engines": found}


def table(found):
    body = []
    for name, side in found["engines"].items():
        notes = [f"{side['put_back']:.0f} put back to wait"] if side.get("put_back") else []
        notes += [f"{side['late']} not answered in {LATE_SECONDS} s"] if side["late"] else []
        notes += [f"refused: {side['refused'][0].strip()}"] if side["refused"] else []
        served = not side.get("put_back") and side["answered"] == side["asked"]
        verdict = ("met" if served and side["held"] >= HELD_MUST else "missed") if name == "pagewise" else ""
        body.append([name, side["asked"], side["held"], side["answered"], verdict, "; ".join(notes) or "-"])
    return figures.table(["engine", "conversations", "held at once", "answered", f"must >= {HELD_MUST}", "notes"], body)


def main():
    parser = result_file.arguments(__doc__.splitlines()[0])
    parser.add_argument("--llama-server", help="path of a llama-server program; `none` leaves llama.cpp out")
    parser.add_argument("--conversations", type=int, help="how many; default as many as fit")
    args = result_file.parsed(parser)
    result = result_file.Result("capacity", "Conversations held at once in 1 GiB of KV")
    found = measure(args)
    result.facts.update(threads=args.threads, mix=MIX, context=CONTEXT, pool_bytes=POOL_BYTES, figures=found)
    used = ", ".join(f"{tokens:,}" for tokens, _ in MIX)
    result.lines = [f"SmolLM2-135M, KV f16; equal parts that use {used} tokens of at most {CONTEXT:,}; in blocks of 32, "
                    f"{found['fit']} fit.", "", *table(found),
                    *(f"    {side['command']}" for side in found["engines"].values() if "command" in side)]
    result.write(args.results)


if __name__ == "__main__":
    main()
