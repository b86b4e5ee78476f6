#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kernels, sampling, tokenizer and prefix look-up beside the limits of this machine, measured in the same run.

Runs the programs of build/release/bench, collects what they measured (one JSON object a line), and writes
bench/results/kernels-<commit>-<time>.{md,json}. docs/benchmarks.md says how to read the tables.

usage: bench/kernels.py [--isa AVX2] [--threads 1,2] [--quick] [--only limits,linear,..] (`./dev bench`)
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

from figures import number, table
from result_file import ROOT, Result, refuse_debug_build

PARTS = ["limits", "linear", "attention", "forward", "sampling", "tokenizer", "look-up"]
ROWS = [1, 2, 4, 8, 32, 512]
MODELS = ["models/SmolLM2-135M-Instruct.Q4_1.gguf", "models/gemma-3-270m-q4_k_m.gguf"]


def measured(program, *arguments):
    """The rows that a program printed, each as it appears."""
    command = [str(program), "--json", *map(str, arguments)]
    rows = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            rows.append(json.loads(line))
            print("  " + " ".join(f"{key} {value}" for key, value in rows[-1].items()), file=sys.stderr, flush=True)
    if process.returncode != 0:
        sys.exit(f"{program} ended with status {process.returncode}")
    return rows


def machine_limits(programs, threads, seconds=0.5, isa=None):
    """{threads: row} of read bandwidth, FMA and integer dot products."""
    chosen = ["--isa", isa] if isa else []
    rows = measured(programs / "pagewise_bench_kernels", "--only", "limits", "--threads",
                    ",".join(map(str, threads)), "--seconds", seconds, *chosen)
    return {row["threads"]: row for row in rows}


def of_table(rows, name):
    return [row for row in rows if row["table"] == name]


def limits_lines(rows):
    return ["## The machine", "", *table(
        ["threads", "instructions", "read, GB/s", "f32 FMA, GFLOP/s", "integer dot, GOP/s"],
        [[r["threads"], r["isa"], *(f"{number(r[k])} ({number(r[k + '_min'])} to {number(r[k + '_max'])})"
                                    for k in ("read_gb_per_s", "fma_gflop_per_s", "dot_gop_per_s"))] for r in rows])]


def linear_lines(rows):
    """A table a thread count: one line a type, one column a number of rows."""
    lines = []
    for threads in sorted({row["threads"] for row in rows}):
        mine = [row for row in rows if row["threads"] == threads]
        lines += [f"## Linear layers, {threads} thread(s)", "",
                  "Milliseconds of all layers (share of the nearer limit: r read bandwidth, d integer dot, f FMA).", ""]
        body = []
        for kind in dict.fromkeys(row["type"] for row in mine):
            of_kind = {row["rows"]: row for row in mine if row["type"] == kind}
            body.append([kind, next(iter(of_kind.values()))["layers"], *(nearer(of_kind.get(rows)) for rows in ROWS)])
        lines += table(["type", "layers", *(f"{rows} row{'s' if rows > 1 else ''}" for rows in ROWS)], body)
    return lines


def nearer(row):
    """The time, and how near the nearer of the two limits is."""
    if row is None:
        return "-"
    read, compute = row["percent_of_read"], row["percent_of_compute"]
    mark = f"{read:.0f} % r" if read >= compute else f"{compute:.0f} % {'d' if row.get('compute') == 'integer dot' else 'f'}"
    return f"{number(row['ms'])} ({mark})"


def attention_lines(rows):
    return ["## Attention", "", *table(
        ["work", "threads", "sequences x rows", "context", "of it shared", "ms", "GFLOP/s", "nearer limit"],
        [[r["kind"], r["threads"], f"{r['sequences']} x {r['rows']}", f"{r['context']:,}", f"{r['shared']:,}",
          f"{number(r['ms'])} ({number(r['ms_min'])} to {number(r['ms_max'])})", r["gflop_per_s"] * 1.0,
          nearer(r).split("(")[1].rstrip(")")] for r in rows])]


def other_lines(rows):
    lines = []
    if forward := of_table(rows, "forward"):
        lines += ["## Forward pass", "", *table(
            ["model", "work", "tok/s", "smallest", "largest"],
            [[r["model"], r["work"], *(r[k] * 1.0 for k in ("tok_per_s", "tok_per_s_min", "tok_per_s_max"))]
             for r in forward])]
    if sampling := of_table(rows, "sampling"):
        lines += ["## Sampling", "", *table(
            ["asked", "vocabulary", "us", "tenth", "ninetieth"],
            [[r["asked"], f"{r['vocabulary']:,}", *(r[k] * 1.0 for k in ("us", "us_tenth", "us_ninetieth"))]
             for r in sampling])]
    if tokenizer := of_table(rows, "tokenizer"):
        lines += ["## Tokenizer, one thread", "", *table(
            ["text", "MB/s", "smallest", "largest", "bytes a token"],
            [[r["text"], *(r[k] * 1.0 for k in ("mb_per_s", "mb_per_s_min", "mb_per_s_max", "token_bytes"))]
             for r in tokenizer])]
    if look_up := of_table(rows, "kv"):
        lines += ["## Prefix look-up and blocks", "", *table(
            ["work", "sliding group", "ns", "smallest", "largest", "unit"],
            [[r["work"], f"window {r['window']}" if r["window"] else "-",
              *(r[k] * 1.0 for k in ("ns", "ns_min", "ns_max")), r["unit"]] for r in look_up])]
    return lines


def markdown(rows):
    lines = limits_lines(of_table(rows, "limits"))
    if linear := of_table(rows, "linear"):
        lines += linear_lines(linear)
    if attention := of_table(rows, "attention"):
        lines += attention_lines(attention)
    return lines + other_lines(rows)


def measure(args):
    isa = ["--isa", args.isa] if args.isa else []
    kernels = [part for part in args.only if part in ("linear", "attention")] or ["limits"]
    rows = measured(args.programs / "pagewise_bench_kernels", "--only", ",".join(kernels), "--threads", args.threads,
                    "--seconds", 0.02 if args.quick else 0.25, *(["--types", args.types] if args.types else []), *isa)
    if "forward" in args.only:
        for model in MODELS:
            if not (ROOT / model).exists():
                continue
            found = measured(args.programs / "pagewise_bench_forward", ROOT / model, "--threads",
                             args.threads.split(",")[-1], "--repeats", 1 if args.quick else 5, *isa)
            rows += [{**row, "model": pathlib.Path(model).name} for row in found]
    if "sampling" in args.only:
        rows += measured(args.programs / "pagewise_bench_sampling", "--rounds", 20 if args.quick else 2000)
    if "tokenizer" in args.only:
        rows += measured(args.programs / "pagewise_bench_tokenizer", "--seconds", 0.01 if args.quick else 2)
    if "look-up" in args.only:
        rows += measured(args.programs / "pagewise_bench_kv", "--only", "costs")
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--isa", help="instruction set: AVX2, AVX3, AVX3_DL, EMU128")
    parser.add_argument("--threads", default=",".join(map(str, sorted({1, os.cpu_count()}))), help="counts, as 1,2")
    parser.add_argument("--types", help="tensor types of the linear layers, as Q4_1,Q6_K")
    parser.add_argument("--only", default=",".join(PARTS), help=f"parts: {','.join(PARTS)}")
    parser.add_argument("--quick", action="store_true", help="seconds instead of minutes; figures mean nothing")
    parser.add_argument("--results", type=pathlib.Path, help="folder of the result files")
    parser.add_argument("--programs", type=pathlib.Path, default=ROOT / "build/release/bench")
    args = parser.parse_args()
    args.only = args.only.split(",")
    if unknown := set(args.only) - set(PARTS):
        sys.exit(f"--only {','.join(sorted(unknown))}: no such part; there are {', '.join(PARTS)}")
    refuse_debug_build(args.programs)
    result = Result("kernels", "Kernels beside the limits of the machine")
    rows = measure(args)
    result.facts.update(isa=rows[0]["isa"], quick=args.quick, rows=rows)
    result.lines = (["Taken in quick mode: these figures mean nothing.", ""] if args.quick else []) + markdown(rows)
    result.write(args.results)


if __name__ == "__main__":
    main()
