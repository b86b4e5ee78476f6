#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the fuzz targets of tests/fuzz one after another, and says what they found.

They run at idle priority, because they are in no hurry and others are; on a busy machine that is
next to nothing, and --foreground runs them like any program. The line of a target says how much
processor time it really had.

Inputs come from tests/fuzz/{seeds,corpus,finds}/TARGET and from earlier runs, which are kept in
build/fuzz/work/TARGET. First of all the canary, a bug on purpose, must be found: a broken fuzzer
must not look like clean code. A target ends at its first find; the others still run.

usage: ./dev fuzz [TARGET..] [--minutes N] [--foreground] [--merge] [--results FOLDER]
Ends with status 1 on a find. A run of ten minutes or more over all targets writes
bench/results/fuzz-<commit>-<time>.{md,json}.
"""

import argparse
import datetime
import json
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import time

from provenance import commit, cpu_name

ROOT = pathlib.Path(__file__).resolve().parent.parent
FUZZ = ROOT / "tests/fuzz"
BUILD = ROOT / "build/fuzz"
# Name: further folders of inputs, and the largest input that libFuzzer makes by itself.
TARGETS = {
    "gguf": ([], 4096),
    "model": ([], 96),
    "template": (["tests/templates"], 6000),
    "request": ([], 4096),
    "tokenizer": ([], 1024),
    "output": ([], 512),
    "grammar": ([], 1024),
    "kernels": ([], 96),
}
CANARY_SECONDS_MAX = 120
# A committed corpus shows each place of the code once; more is found again within minutes.
CORPUS_FILES_MAX = 250
CORPUS_FILE_BYTES_MAX = 2048
FULL_RUN_MINUTES = 10


def shown(path):
    path = pathlib.Path(path)
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)


def lowly(command):
    """The command at a priority that takes only time nobody else wants."""
    if shutil.which("chrt"):
        return ["chrt", "--idle", "0", *command]
    return ["nice", "-n", "19", *command]


def program(name):
    return BUILD / f"tests/fuzz/fuzz_{name}"


def inputs_of(name):
    """Folders with committed inputs of a target."""
    folders = [FUZZ / kind / name for kind in ("seeds", "corpus", "finds")]
    folders += [ROOT / more for more in TARGETS.get(name, ([], 0))[0]]
    return [str(folder) for folder in folders if folder.is_dir()]


class Run:
    """One target's run under libFuzzer."""

    def __init__(self, name, seconds, length_max, folders, lead=lowly):
        work = BUILD / "work" / name
        self.name, self.finds = name, work / "finds"
        self.log = work / "log"
        for folder in (work / "corpus", self.finds):
            folder.mkdir(parents=True, exist_ok=True)
        before = set(self.finds.iterdir())
        command = [str(program(name)), str(work / "corpus"), *folders,
                   f"-artifact_prefix={self.finds}/", f"-max_total_time={max(1, round(seconds))}",
                   f"-max_len={length_max}", "-print_final_stats=1", "-entropic_scale_per_exec_time=1",
                   "-timeout=300", "-report_slow_units=10000", "-rss_limit_mb=3000"]
        words = FUZZ / f"dictionaries/{name}.dict"
        if words.exists():
            command.append(f"-dict={words}")
        used, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        with self.log.open("w", encoding="utf-8") as log:
            self.status = subprocess.run(lead(command), stdout=log, stderr=subprocess.STDOUT,
                                         check=False).returncode
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.wall = time.monotonic() - started
        self.cpu = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
        self.new = sorted(set(self.finds.iterdir()) - before)
        text = self.log.read_text(encoding="utf-8", errors="replace")
        def last(pattern):
            found = re.findall(pattern, text)
            return int(found[-1]) if found else 0
        self.executions = last(r"stat::number_of_executed_units:\s*(\d+)") or last(r"#(\d+)\s")
        self.coverage, self.features = last(r" cov: (\d+)"), last(r" ft: (\d+)")
        self.corpus = last(r" corp: (\d+)")

    def found(self):
        return self.status != 0

    def line(self):
        verdict = "clean" if not self.found() else "FOUND SOMETHING"
        return (f"{self.name:10} {self.executions:>10,} executions in {self.cpu:,.0f} s of processor "
                f"time ({self.wall:,.0f} s), coverage {self.coverage:,} edges, {self.features:,} "
                f"features, corpus {self.corpus:,}: {verdict}")

    def advice(self):
        if not self.new:
            return (f"{self.name}: ended with status {self.status} and left no input behind; its "
                    f"words are in {shown(self.log)}")
        path = shown(self.new[0])
        return (f"{self.name}: {path}\n  why:    tail {shown(self.log)}\n"
                f"  replay: {shown(program(self.name))} {path}\n"
                f"  keep:   fix it, name it, put it into tests/fuzz/finds/{self.name}/, write its test")


def check_canary():
    work = BUILD / "work/canary"
    shutil.rmtree(work, ignore_errors=True)
    run = Run("canary", CANARY_SECONDS_MAX, 32, [], lead=list)  # a second of work
    if not run.found() or "the canary sings" not in run.log.read_text(errors="replace"):
        sys.exit(f"fuzz: the canary was not found within {CANARY_SECONDS_MAX} s, so this fuzzer finds "
                 f"nothing; see {shown(run.log)}")
    print(f"canary found after {run.executions:,} executions", flush=True)


def merge(name):
    """The committed corpus anew: the fewest small inputs that together reach what all reach."""
    work = BUILD / "work" / name
    pool, merged = work / "pool", work / "merged"
    for folder in (pool, merged):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    for folder in (work / "corpus", FUZZ / "corpus" / name):
        for path in folder.glob("*") if folder.is_dir() else []:
            if path.stat().st_size <= CORPUS_FILE_BYTES_MAX:
                shutil.copy(path, pool / path.name)
    # Without counters a feature is an edge: an input that only loops more often is not kept.
    command = [str(program(name)), "-set_cover_merge=1", "-use_counters=0", "-timeout=300",
               "-rss_limit_mb=3000", str(merged), str(pool)]
    with (work / "merge.log").open("w", encoding="utf-8") as log:
        if subprocess.run(lowly(command), stdout=log, stderr=subprocess.STDOUT, check=False).returncode:
            sys.exit(f"fuzz: the merge of {name} failed; see {shown(work / 'merge.log')}")
    target = FUZZ / "corpus" / name
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    kept = sorted(merged.iterdir(), key=lambda path: path.stat().st_size)[:CORPUS_FILES_MAX]
    for path in kept:
        shutil.copy(path, target / path.name[:16])
    size = sum(path.stat().st_size for path in kept)
    print(f"{name:10} corpus of {len(kept)} inputs, {size:,} bytes", flush=True)


def markdown(report):
    lines = [f"# Fuzzing, {report['time']}", "",
             f"Commit {report['commit']}; {report['cpu']}; clang-16, AddressSanitizer and "
             f"UndefinedBehaviorSanitizer; {report['minutes']:g} minutes a target, one at a time, beside "
             "whatever else the machine did: the processor time is what counts.", "",
             "| target | executions | processor time, s | edges | features | corpus | finds |",
             "| --- | --- | --- | --- | --- | --- | --- |"]
    for name, row in report["targets"].items():
        lines.append(f"| {name} | {row['executions']:,} | {row['cpu_seconds']:,.0f} | "
                     f"{row['edges']:,} | {row['features']:,} | {row['corpus']:,} | "
                     f"{'none' if row['clean'] else ', '.join(row['finds']) or 'yes'} |")
    return "\n".join([*lines, "", "Command: " + report["command"], ""])


def write_report(runs, minutes, tested, folder):
    now = datetime.datetime.now(datetime.timezone.utc)
    report = {"time": now.strftime("%Y-%m-%d %H:%M UTC"), "commit": tested, "cpu": cpu_name(),
              "minutes": minutes, "command": " ".join(["./dev fuzz", *sys.argv[1:]]),
              "targets": {run.name: {
                  "executions": run.executions, "cpu_seconds": round(run.cpu, 1),
                  "wall_seconds": round(run.wall, 1), "edges": run.coverage,
                  "features": run.features, "corpus": run.corpus, "clean": not run.found(),
                  "finds": [path.name for path in run.new]} for run in runs}}
    folder.mkdir(parents=True, exist_ok=True)
    stem = folder / f"fuzz-{report['commit']}-{now:%Y%m%dT%H%M}"
    for path, text in ((stem.with_suffix(".json"), json.dumps(report, indent=1) + "\n"),
                       (stem.with_suffix(".md"), markdown(report))):
        path.write_text(text, encoding="utf-8")
        print(f"wrote {shown(path)}")


def main():
    parser = argparse.ArgumentParser(prog="./dev fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--minutes", type=float, default=FULL_RUN_MINUTES, help="of each target")
    parser.add_argument("--foreground", action="store_true", help="not at idle priority")
    parser.add_argument("--merge", action="store_true",
                        help="make the committed corpus anew from what runs have found, run nothing")
    parser.add_argument("--results", type=pathlib.Path,
                        help="folder for the report of any run (default: of full runs only)")
    args = parser.parse_args()
    for name in args.targets:
        if name not in TARGETS:
            sys.exit(f"fuzz: no target '{name}'; there are: {' '.join(TARGETS)}")
    if not args.minutes > 0:
        sys.exit("fuzz: --minutes must be more than 0")
    names = args.targets or list(TARGETS)
    if args.merge:
        for name in names:
            merge(name)
        return
    tested = commit()  # of now: the tree may move on before the last target ends
    check_canary()
    runs = []
    for name in names:
        runs.append(Run(name, args.minutes * 60, TARGETS[name][1], inputs_of(name),
                        lead=list if args.foreground else lowly))
        print(runs[-1].line(), flush=True)
    full = args.minutes >= FULL_RUN_MINUTES and not args.targets
    if args.results or full:
        write_report(runs, args.minutes, tested, args.results or ROOT / "bench/results")
    failed = [run for run in runs if run.found()]
    for run in failed:
        print(run.advice())
    if failed:
        sys.exit(1)


if __name__ == "__main__":
    main()
