#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Breaks one rule of the code at a time and shows that tests turn red.

A mutation is data: tests/mutate/GROUP.toml names a rule, says in a sentence what it promises, and
gives the exact text that breaks it. Each is applied to a copy of the tree under build/mutate, never
to the checkout; only what it touches is built again; the group's test programs run in order and
stop at the first red. A mutation that survives means that a test is missing. One that does not
apply or does not compile proves nothing and is an error, too.

Before it looks at the tree it judges mutations of a program of one line whose fate is known, and
stops when one is judged otherwise: a harness that calls everything red must not look like a proof.

usage: scripts/mutate.py [--list] [--jobs N] [--with PROGRAM] [--scratch FOLDER] [GROUP or RULE..]
"""

import argparse
import hashlib
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import typing

ROOT = pathlib.Path(__file__).resolve().parent.parent
MUTATIONS = ROOT / "tests/mutate"
COPIED = ("CMakeLists.txt", "cmake", "src", "tests")


class Scratch(typing.NamedTuple):
    tree: pathlib.Path  # a copy of the sources
    build: pathlib.Path


class Edit(typing.NamedTuple):
    file: str
    find: str
    replace: str


class Rule(typing.NamedTuple):
    group: str
    name: str
    promise: str  # what holds in the unbroken code
    edits: list


class Program(typing.NamedTuple):
    target: str  # of ninja
    command: list  # relative to the build folder
    seconds_max: int  # of computing


class Group(typing.NamedTuple):
    name: str
    about: str
    programs: list
    rules: list


def load_groups(folder):
    groups = {}
    for path in sorted(folder.glob("*.toml")):
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        programs = [Program(p["target"], p["command"].split(), p["seconds_max"])
                    for p in data["program"]]
        rules = []
        for rule in data["rule"]:
            edits = [Edit(e["file"], e["find"], e["replace"]) for e in rule.get("edit", [rule])]
            rules.append(Rule(path.stem, rule["name"], rule["promise"], edits))
        groups[path.stem] = Group(path.stem, data["about"], programs, rules)
    return groups


def chosen(groups, words):
    """The rules that the words name, by group or by name; all without words."""
    every = [rule for group in groups.values() for rule in group.rules]
    names = [rule.name for rule in every]
    doubled = {name for name in names if names.count(name) > 1 or name in groups}
    if doubled:
        sys.exit(f"mutate: more than one rule or group is called {', '.join(sorted(doubled))}")
    unknown = [w for w in words if w not in names and w not in groups]
    if unknown:
        sys.exit(f"mutate: no rule or group '{unknown[0]}'; groups: {', '.join(groups)}; "
                 "rules: ./dev mutate --list")
    return [rule for rule in every if not words or rule.name in words or rule.group in words]


def mutated(rule, root):
    """{file: its text with the rule broken}. Exits when an edit does not apply exactly once."""
    texts = {}
    for edit in rule.edits:
        text = texts.get(edit.file)
        if text is None:
            path = root / edit.file
            if not path.is_file():
                sys.exit(f"mutate: {rule.group}/{rule.name}: there is no {edit.file}")
            text = path.read_text(encoding="utf-8")
        times = text.count(edit.find)
        if times != 1 or edit.find == edit.replace:
            sys.exit(f"mutate: {rule.group}/{rule.name}: its text stands {times} times in {edit.file}, "
                     "not once: bring tests/mutate up to date with the code")
        texts[edit.file] = text.replace(edit.find, edit.replace)
    return texts


def write_if_other(path, data):
    """Writes only what differs, so that ninja builds only what changed."""
    if path.is_file() and path.read_bytes() == data:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def copy_tree(tree):
    done = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard", "--", *COPIED],
                          capture_output=True, text=True, check=True)
    wanted = {name for name in done.stdout.splitlines() if (ROOT / name).is_file()}
    if tree.exists():
        for path in list(tree.rglob("*")):
            if path.is_file() and path.relative_to(tree).as_posix() not in wanted:
                path.unlink()
    for name in wanted:
        write_if_other(tree / name, (ROOT / name).read_bytes())


def configure(scratch):
    if (scratch.build / "build.ninja").exists():
        return
    # Compiling takes longer than testing: -O1 is the quickest of both together.
    command = ["cmake", "-G", "Ninja", "-S", str(scratch.tree), "-B", str(scratch.build), "-DCMAKE_BUILD_TYPE=None",
               "-DCMAKE_CXX_FLAGS=-O1", "-DPAGEWISE_BENCH=OFF"]
    ggml = ROOT / ".venv/ggml/lib64/cmake/ggml"
    command += [f"-Dggml_DIR={ggml}"] if ggml.is_dir() else ["-DPAGEWISE_GGML=OFF"]
    if shutil.which("ccache"):
        command.append("-DCMAKE_CXX_COMPILER_LAUNCHER=ccache")
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def build(scratch, target, jobs):
    """'' when it was built, else the compiler's first complaint."""
    done = subprocess.run(["ninja", "-C", str(scratch.build), "-j", str(jobs), target],
                          capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return ""
    lines = [l for l in done.stdout.splitlines() if "error" in l]
    return (lines or done.stdout.splitlines()[-1:] or ["ninja failed without a word"])[0]


SEED = re.compile(r"^seed (\d+)(?: fails|:| did not)", re.MULTILINE)


def name_red(output):
    """Which test failed, out of what the program printed."""
    failed = re.findall(r"^\[  FAILED  \] ([\w/]+\.[\w/]+)", output, re.MULTILINE)
    if failed:
        return failed[0]
    seed = SEED.search(output)
    if seed:
        return f"simulation, seed {seed.group(1)}"
    runs = re.findall(r"^\[ RUN      \] (\S+)", output, re.MULTILINE)
    return runs[-1] if runs else "before its first test"


def run(scratch, program):
    """(seconds, '' or what turned red)."""
    begin = time.monotonic()
    command = [str(scratch.build / program.command[0]), *program.command[1:]]
    limit = program.seconds_max

    def limit_computing():  # of the program and of each that it starts, however busy the machine is
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))

    # A group of its own, so that a hanging program goes with all that it started.
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", cwd=scratch.build, start_new_session=True,
                          preexec_fn=limit_computing) as process:
        try:
            output, _ = process.communicate(timeout=10 * limit)
            red = "" if process.returncode == 0 else name_red(output)
            if process.returncode in (-signal.SIGKILL, -signal.SIGXCPU):
                red += f" (hung: stopped after {limit} s of computing)"
            elif process.returncode < 0 or (red and "check failed" in output.lower()):
                red += " (stopped by a check)"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            output, _ = process.communicate()
            red = f"{name_red(output)} (hung: stopped after {10 * limit} s)"
    return time.monotonic() - begin, red


def digest(scratch, program):
    return hashlib.sha256((scratch.build / program.command[0]).read_bytes()).hexdigest()


def judge(scratch, rule, programs, unbroken, jobs):
    """(what turned red or '' or 'error: ..', seconds). unbroken: digests of the programs."""
    begin = time.monotonic()
    broken = mutated(rule, scratch.tree)
    originals = {name: (scratch.tree / name).read_bytes() for name in broken}
    try:
        for name, text in broken.items():
            (scratch.tree / name).write_text(text, encoding="utf-8")
        for program in programs:
            complaint = build(scratch, program.target, jobs)
            if complaint:
                return f"error: does not compile: {complaint}", time.monotonic() - begin
            if digest(scratch, program) == unbroken[program.target]:
                continue  # built to the same bytes: nothing of the mutation is in it
            _, red = run(scratch, program)
            if red:
                return red, time.monotonic() - begin
    finally:
        for name, data in originals.items():
            (scratch.tree / name).write_bytes(data)
    return "", time.monotonic() - begin


def prove_unbroken(scratch, programs, jobs):
    """What is red without a mutation cannot turn red by one. Returns {target: digest}."""
    digests = {}
    for program in programs:
        complaint = build(scratch, program.target, jobs)
        if complaint:
            sys.exit(f"mutate: the tree itself does not compile: {complaint}")
        seconds, red = run(scratch, program)
        if red:
            sys.exit(f"mutate: without any mutation {program.target} is red: {red}")
        print(f"unbroken: {' '.join(program.command)} is green in {seconds:.0f} s", flush=True)
        digests[program.target] = digest(scratch, program)
    return digests


# ---------------------------------------------------------------- canary

CANARY = """#include <cstdio>
int main() {
  std::puts("[ RUN      ] Canary.Sings");
  std::fflush(stdout);
  return 0;
}
"""
CANARY_NINJA = """rule link
  command = c++ -o $out $in
build canary: link ../tree/canary.cc
"""
CANARY_FATES = {  # what stands for "return 0;", and how it must be judged
    "return 1;": r"^Canary\.Sings$",
    "return 0;  // the same": r"^$",
    "return std::printf(\"lost\") - 4;": r"^$",
    "__builtin_abort();": r"^Canary\.Sings \(stopped by a check\)$",
    "for (volatile int i = 0;; i = i + 1) {}": r"^Canary\.Sings \(hung: ",
    "return nothing;": r"^error: does not compile: .*nothing",
}


def plant_and_catch():
    with tempfile.TemporaryDirectory() as folder:
        scratch = Scratch(pathlib.Path(folder, "tree"), pathlib.Path(folder, "build"))
        for path, text in ((scratch.tree / "canary.cc", CANARY), (scratch.build / "build.ninja", CANARY_NINJA)):
            path.parent.mkdir()
            path.write_text(text, encoding="utf-8")
        program = Program("canary", ["canary"], 1)
        complaint = build(scratch, "canary", 1)
        if complaint:
            sys.exit(f"mutate: the canary does not compile: {complaint}")
        unbroken = {"canary": digest(scratch, program)}
        for replace, fate in CANARY_FATES.items():
            rule = Rule("canary", replace, "", [Edit("canary.cc", "return 0;", replace)])
            red, _ = judge(scratch, rule, [program], unbroken, 1)
            if not re.search(fate, red):
                sys.exit(f"mutate.py is broken: it judged the canary with '{replace}' as '{red}'")
        if (scratch.tree / "canary.cc").read_text(encoding="utf-8") != CANARY:
            sys.exit("mutate.py is broken: it left a mutation behind")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="*", metavar="GROUP or RULE", help="all when none is named")
    parser.add_argument("--list", action="store_true", help="name the rules and what they promise")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="parallel compilers")
    parser.add_argument("--with", dest="only", help="only test programs whose command contains this")
    parser.add_argument("--scratch", type=pathlib.Path, default=ROOT / "build/mutate",
                        help="where the copy is kept and built; another one for two runs at once")
    args = parser.parse_args()
    groups = load_groups(MUTATIONS)
    rules = chosen(groups, args.what)
    for rule in rules:
        mutated(rule, ROOT)  # those that do not apply are found before anything is built
        if args.list:
            print(f"{rule.group:16}{rule.name:40}{rule.promise}")
    if args.list:
        return 0

    plant_and_catch()
    scratch = Scratch(args.scratch.resolve() / "tree", args.scratch.resolve() / "build")
    copy_tree(scratch.tree)
    configure(scratch)
    programs = {name: [p for p in group.programs if not args.only or args.only in " ".join(p.command)]
                for name, group in groups.items()}
    unbroken = {}
    for rule in rules:
        unbroken |= prove_unbroken(scratch, [p for p in programs[rule.group] if p.target not in unbroken],
                                   args.jobs)
    bad = 0
    print(f"\n{'rule':40}{'seconds':>8}  turned red")
    for rule in rules:
        red, seconds = judge(scratch, rule, programs[rule.group], unbroken, args.jobs)
        bad += not red or red.startswith("error: ")
        print(f"{rule.name:40}{seconds:8.0f}  {red or 'NOTHING: ' + rule.promise}", flush=True)
    print(f"\n{len(rules) - bad} of {len(rules)} broken rules turned a test red")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
