#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whole-system rows beside llama.cpp's server and OpenVINO GenAI: same file, same threads, in turns.

All engines of a group of rows run at once and only one is asked at a time (A-B-C, then C-B-A), so that a machine that
gets warmer or busier slows all. A figure is the median of the rounds with the smallest and the largest; a ratio is the
median of the rounds' own ratios to the better peer. Every prompt is new text. docs/benchmarks.md describes the rows.

usage: bench/serve/peers.py [--rows decode,shared-32] [--rounds 5] [--llama-server PATH] (`./dev bench --peers`)
Writes bench/results/peers-<commit>-<time>.{md,json}.
"""

import contextlib
import functools
import os
import pathlib
import signal
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))

import figures
import limits
import result_file
import rows as row_table
import kernels
import servers
import synthetic_model
import work
from client import Request
from prompts import Prompts

SMOLLM2 = ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
GEMMA = ROOT / "models/gemma-3-270m-q4_k_m.gguf"
PEERS = ["llama.cpp", "OpenVINO", "vLLM"]
# KV cells for 32 sequences of 4,096 + 48 tokens, none shared: what llama.cpp needs for the shared-prefix run.
MANY_CELLS = 140_000
MANY_GIB = 4


def model_of(group):
    return {"gemma": GEMMA, "llama-1b": synthetic_model.PATH}.get(group, SMOLLM2)


def engines_of(group, args):
    """{name: function that starts it} for a group of rows, at each engine's best settings."""
    model, many = model_of(group), group == "many"
    start = {"pagewise": functools.partial(servers.Pagewise, args.pagewise, model, args.threads, "--max-context", 8192,
                                           "--kv-memory", f"{MANY_GIB if many else 1}GiB")}
    if args.llama_server:
        flags = ["-c", MANY_CELLS, "-np", row_table.CLIENTS, "--kv-unified"] if many else ["-c", 8192, "-np", 1]
        start["llama.cpp"] = functools.partial(servers.LlamaCpp, args.llama_server, model, args.threads, *flags)
    if args.openvino_python:
        start["OpenVINO"] = functools.partial(servers.OpenVino, args.openvino_python, model, args.threads,
                                              OPENVINO_STEP_TOKENS, MANY_GIB if many else 1, args.openvino_precision)
    if args.vllm_python and model == SMOLLM2:
        start["vLLM"] = functools.partial(servers.Vllm, args.vllm_python, args.vllm_model, args.threads)
    return start


# More than its default of 256: the matrices of a long prompt are then multiplied with more rows at a time.
OPENVINO_STEP_TOKENS = 2048


def measure_group(group, args, wanted):
    """{"values": {row: {engine: figures of the rounds, or why there are none}}, and what the engines are}"""
    values = {key: {} for key in wanted}
    found = {"values": values, "commands": {}, "versions": {}, "cannot": {}, "idle_cpu": {}}
    with contextlib.ExitStack() as stack:
        engines = []
        for name, start in engines_of(group, args).items():
            try:
                engine = stack.enter_context(start())
            except servers.CannotServe as why:
                if name == "pagewise":
                    sys.exit(f"pagewise: {why}")
                print(f"{name} cannot serve this: {why}", flush=True)
                found["cannot"][name] = str(why)
                continue
            engines.append(engine)
            found["commands"][name] = engine.command_line()
            print(engine.command_line(), flush=True)
        prompts = Prompts(engines[0].tokenize, args.seed)
        for engine in engines:  # code and memory are warm
            engine.generate([Request(prompts.of(64, f"warm-up {i}"), 8) for i in range(2)], work.LATE_SECONDS)
        found["idle_cpu"] = idle_cpu(engines)
        for number in range(args.rounds):
            for engine in list(engines) if number % 2 == 0 else engines[::-1]:
                take_round(group, engine, prompts, number, wanted, values)
        for engine in engines:
            found["versions"][engine.name] = engine.version()
    return found


def take_round(group, engine, prompts, number, wanted, values):
    late = {key for key in wanted if isinstance(values[key].get(engine.name), str)}  # once is enough
    if not wanted - late:
        return
    found = work.ROUNDS[group](engine, prompts, number, wanted - late)
    if any(isinstance(value, work.Bounded) for value in found.values()):
        wait_until_idle(engine)  # what was given up is still being computed
    for key, value in found.items():
        if key not in wanted:
            continue
        if isinstance(value, work.Bounded):
            values[key][engine.name] = str(value)
        elif value is not None and (key != "kv-shared" or number == 0):  # later rounds add their own prefixes
            values[key].setdefault(engine.name, []).append(value)
        print(f"  round {number} {engine.name} {key}: {value if isinstance(value, work.Bounded) else figures.number(value)}",
              flush=True)


def wait_until_idle(engine, seconds=60):
    end, before = time.perf_counter() + seconds, None
    while (now := cpu_ticks(engine.process.pid)) != before and time.perf_counter() < end:
        before = now
        time.sleep(0.5)


def idle_cpu(engines):
    """Processor seconds a second of each engine while nobody asks it: what it takes from the one that is asked."""
    time.sleep(1)
    ticks = {engine.name: cpu_ticks(engine.process.pid) for engine in engines}
    time.sleep(1)
    return {engine.name: (cpu_ticks(engine.process.pid) - ticks[engine.name]) / os.sysconf("SC_CLK_TCK")
            for engine in engines}


def cpu_ticks(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


# ---------------------------------------------------------------- report


def row_report(row, sides, limit):
    """What the table says of a row. `sides`: {engine: figures, or why there are none}."""
    values = {name: figures.summary(side) for name, side in sides.items() if side and not isinstance(side, str)}
    ours = values.get("pagewise")
    report = {"key": row.key, "title": row.title, "limit": limit, "must": row.must, "aim": row.aim,
              "more_is_better": row.more_is_better, "figures": values,
              "notes": {name: side for name, side in sides.items() if isinstance(side, str)}}
    if not ours:
        return report
    share = figures.share_of_limit(ours["median"], limit, row.more_is_better)
    if row.key == "kv-shared":
        value, report["ratio"] = ours["median"] / limit, None
        report["must_verdict"], report["aim_verdict"] = figures.verdict(value, row.must, False), ""
    else:
        best = figures.better({name: side for name, side in values.items() if name != "pagewise"}, row.more_is_better)
        report["ratio"] = figures.ratio(ours, values[best]) if best else None
        value = report["ratio"]["median"] if best else None
        report["better_peer"] = best
        report["must_verdict"] = figures.verdict(value, row.must, row.more_is_better, share)
        report["aim_verdict"] = figures.verdict(value, row.aim, row.more_is_better, share)
    report["share_of_limit"] = share
    return report


def table_lines(reports, peers):
    def cell(report, name):
        return report["notes"].get(name) or figures.spread(report["figures"].get(name))

    def bar(report, which):
        if report[which] is None:
            return ""
        sign = ">=" if report["more_is_better"] else "<="
        verdict = report.get(f"{which}_verdict")
        return f"{sign} {report[which]:g}x" + (f": {verdict}" if verdict else "")

    body = []
    for report in reports:
        ratio = report.get("ratio")
        body.append([report["title"], figures.number(report["limit"]), cell(report, "pagewise"),
                     f"{100 * report['share_of_limit']:.0f} %" if "share_of_limit" in report else "-",
                     *(cell(report, name) for name in peers),
                     f"{figures.spread(ratio)} of {report['better_peer']}" if ratio else "-", bar(report, "must"),
                     bar(report, "aim")])
    return figures.table(["work", "limit", "pagewise", "of the limit", *peers, "ratio to the better peer", "must", "aim"],
                         body)


def markdown(facts):
    machine = facts["machine"]
    peers = [name for name in PEERS if any(name in group["commands"] or name in group["cannot"]
                                           for group in facts["groups"].values())]
    lines = [f"{facts['threads']} threads; KV f16; {facts['rounds']} rounds in turns; median (smallest to largest). Limits "
             f"from what this machine did in the same run: {machine['read_gb_per_s']:.1f} GB/s read, "
             f"{machine['fma_gflop_per_s']:.0f} GFLOP/s f32 FMA, {machine['dot_gop_per_s']:.0f} GOP/s integer dot "
             f"({machine['isa']}). A bar is also met where at least {100 * figures.LIMIT_SHARE:.0f} % of the limit is "
             "reached.", "", *table_lines(facts["rows"], peers)]
    if facts["rounds"] < 3:
        lines[:0] = ["Fewer than three rounds: to try the harness, not to quote.", ""]
    lines += ["Files:", "", *(f"- {name} (SHA-256 {digest[:12]})" for name, digest in facts["models"].items()), ""]
    for name, group in facts["groups"].items():
        lines += [f"Command lines of the rows `{name}`:", "", *(f"    {line}" for line in group["commands"].values()), ""]
        for engine, why in group["cannot"].items():
            lines += [f"{engine} cannot serve this: {why}", ""]
        busy = {engine: share for engine, share in group["idle_cpu"].items() if share > 0.02}
        if busy:
            lines += ["Engines that took processor time while another was measured: "
                      + ", ".join(f"{engine} {share:.2f} of a core" for engine, share in busy.items()) + ".", ""]
    versions = {name: version for group in facts["groups"].values() for name, version in group["versions"].items()}
    return lines + [f"{name}: {version}" for name, version in versions.items() if version]


def arguments():
    parser = result_file.arguments(__doc__.splitlines()[0], 5)
    parser.add_argument("--llama-server", help="path of a llama-server program; `none` leaves llama.cpp out")
    parser.add_argument("--openvino-python", help="Python with openvino-genai; `none` leaves OpenVINO out")
    parser.add_argument("--openvino-precision", choices=["f32", "bf16", "f16"],
                        help="what OpenVINO computes in (default: its own choice for this processor)")
    parser.add_argument("--vllm-python", help="Python with vLLM, measured too")
    parser.add_argument("--vllm-model", help="its model: a folder with a Hugging Face config and weights")
    parser.add_argument("--rows", help="rows or groups by the beginning of their names, as decode,shared-32")
    parser.add_argument("--seed", type=int, default=1)
    args = result_file.parsed(parser)
    if args.vllm_python and not args.vllm_model:
        sys.exit("--vllm-python needs --vllm-model FOLDER: vLLM reads no GGUF file")
    try:
        args.rows = row_table.chosen(args.rows.split(",") if args.rows else [])
    except ValueError as error:
        sys.exit(f"--rows: {error}")
    args.llama_server = None if args.llama_server == "none" else args.llama_server or servers.find_llama_server()
    default = ROOT / ".venv-openvino/bin/python"
    args.openvino_python = None if args.openvino_python == "none" else args.openvino_python or default
    return args


def main():
    args = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("told to stop"))  # so that servers end too
    groups = list(dict.fromkeys(row.group for row in args.rows))
    if "llama-1b" in groups:
        synthetic_model.need(SMOLLM2)
    result = result_file.Result("peers", "Beside llama.cpp and OpenVINO GenAI")
    machine = kernels.machine_limits(args.pagewise.parent / "bench", [args.threads])[args.threads]
    found = {group: measure_group(group, args, {row.key for row in args.rows if row.group == group})
             for group in groups}
    again = kernels.machine_limits(args.pagewise.parent / "bench", [args.threads])[args.threads]
    machine = {key: statistics.mean([machine[key], again[key]]) if isinstance(machine[key], float) else machine[key]
               for key in machine}
    models = {group: limits.Model.of_file(args.pagewise, model_of(group)) for group in groups}
    reports = [row_report(row, found[row.group]["values"][row.key],
                          row.limit(limits.Machine(machine), models[row.group])) for row in args.rows]
    result.facts.update(threads=args.threads, rounds=args.rounds, seed=args.seed, machine=machine, rows=reports,
                        models={model_of(group).name: synthetic_model.sha256(model_of(group)) for group in groups},
                        groups={name: {key: part for key, part in group.items() if key != "values"}
                                for name, group in found.items()})
    result.lines = markdown(result.facts)
    result.write(args.results)


if __name__ == "__main__":
    main()
