#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""House rules that neither the compiler nor clang-format knows: banned calls, each with what to use
instead, and the form of every file. Also runs clang-format-14 in check mode when it is installed
(`./dev check` installs it). Runs with every `./dev test`.

Before it looks at the tree it plants one violation of each rule and stops when one goes unnoticed.

usage: scripts/tidy.py [ROOT]
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import typing

PYTHON_LINE_MAX = 120  # C++ is clang-format's affair
CLANG_FORMAT = "clang-format-14"  # pinned: other versions break lines elsewhere

# Folders whose results must be a function of their inputs: they run in simulation, and promise the
# same bits whatever the machine does.
DETERMINISTIC = ("src/kv/", "src/engine/", "src/sampling/", "src/workload/", "src/simulate/")
ANYWHERE = ("",)

class Ban(typing.NamedTuple):
    pattern: str  # in code without comments and literals
    folders: tuple  # where, as beginnings of paths
    instead: str
    canary: str  # what it must catch
    in_tests: bool = True


BANNED = [
    Ban(r"\b(?:std::)?s?rand\s*\(", ANYWHERE, "use base/prng.h: seeded, counter-based",
        "int x = rand();"),
    Ban(r"\brandom_device\b", ANYWHERE, "take a seed from the caller; base/prng.h",
        "std::random_device d;", in_tests=False),
    Ban(r"\bstd::(?:mt19937\w*|default_random_engine|shuffle)\b", DETERMINISTIC,
        "use base/prng.h: the standard's distributions differ between libraries",
        "std::mt19937 g;"),
    Ban(r"(?:(?<![\w.>:])|\bstd::)time\s*\(", ANYWHERE, "use Clock& from base/clock.h",
        "auto t = time(nullptr);"),
    Ban(r"\b(?:steady|system|high_resolution)_clock\b|\bclock_gettime\b|\bgettimeofday\b",
        DETERMINISTIC, "use Clock& from base/clock.h, handed in by constructor",
        "auto t = std::chrono::steady_clock::now();"),
    Ban(r"\bsleep_(?:for|until)\b", DETERMINISTIC, "wait on a queue or a condition, never on time",
        "std::this_thread::sleep_for(d);"),
    Ban(r"\bstd::hash\b", DETERMINISTIC, "use base/hash.h: std::hash may differ between builds",
        "std::hash<int> h;"),
    Ban(r"\b(?:std::)?(?:shared_ptr|make_shared|weak_ptr)\b", ("src/kv/",),
        "who shares a block is domain state: it lives in the pool, by id",
        "std::shared_ptr<int> p;"),
    Ban(r"\b(?:std::)?(?:mutex|lock_guard|unique_lock|scoped_lock|atomic)\b", ("src/kv/",),
        "kv belongs to the engine thread; no locks here", "std::mutex m;"),
    Ban(r"\busing\s+namespace\s+std\b", ANYWHERE, "name what you use", "using namespace std;"),
    Ban(r"\b(?:strcpy|strcat|sprintf|vsprintf|gets|strtok|atoi|atol|atof)\s*\(", ANYWHERE,
        "use std::string, fmt or std::from_chars: bounds and errors are then checked",
        "int n = atoi(s);"),
    Ban(r"(?<!\w)assert\s*\(", ANYWHERE, "use PW_CHECK: it is alive in release", "assert(x);"),
    # A unique_ptr on the same line owns it: make_unique cannot reach a private constructor.
    Ban(r"^(?!.*unique_ptr<).*\bnew\s+\w+[\w:<>]*\s*[({\[]", ("src/",),
        "use std::make_unique or a container",
        "auto* p = new Thing();"),
    Ban(r"\bstd::(?:cout|cerr)\b",
        ("src/base/", "src/gguf/", "src/kv/", "src/kernels/", "src/text/", "src/sampling/",
         "src/model/", "src/engine/", "src/planner/", "src/workload/", "src/simulate/"),
        "return a Status, or log through telemetry/line_log.h; only cli prints", "std::cout << 1;"),
    Ban(r"-ffast-math|-Ofast|__attribute__\s*\(\(\s*optimize", ANYWHERE,
        "rule 6 of the arithmetic contract: no fast-math", "__attribute__((optimize(3)))"),
]

# (what it matches in any line, what to do instead, canary); every text file of the project.
UNWANTED = [
    (r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b", "finish it, or write it into docs/status.md",
     "// TO" "DO: later"),
    (r"[ \t]+$", "no white space at the end of a line", "int x; "),
    (r"\t", "two spaces instead of a tab", "\tint x;"),
    (r"^(?:<<<<<<<|>>>>>>>) ", "an unresolved merge", "<<<<<<< ours"),
]

CODE = {".cc", ".h"}
SCRIPTS = {".py", ".sh", ""}
PROSE = {".md", ".txt", ".cmake"}


def project_files(root):
    """What git tracks or would track; without git, everything outside build and dot folders."""
    done = subprocess.run(["git", "-C", str(root), "ls-files", "-co", "--exclude-standard"],
                          capture_output=True, text=True, check=False)
    if done.returncode == 0 and done.stdout:
        return sorted({root / line for line in done.stdout.splitlines() if (root / line).is_file()})
    return sorted(p for p in root.rglob("*") if p.is_file() and "build" not in p.parts
                  and not any(part.startswith(".") for part in p.relative_to(root).parts))


COMMENT_OR_STRING = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"([^(\s]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'',
    re.DOTALL)


def code_only(text):
    """C++ with comments and literals blanked; line numbers stay. A digit separator (1'000) is no
    character literal."""

    def blank(match):
        start = match.start()
        if match.group().startswith("'") and start and text[start - 1].isalnum():
            return match.group()
        return "".join(c if c == "\n" else " " for c in match.group())
    return COMMENT_OR_STRING.sub(blank, text)


def check_text(name, text):
    """Yields (line, complaint) for one file. name: relative to the root, with / between."""
    suffix = pathlib.PurePosixPath(name).suffix
    lines = text.splitlines()
    if suffix in CODE:
        if not lines or lines[0] != "// SPDX-License-Identifier: Apache-2.0":
            yield 1, "the first line must be: // SPDX-License-Identifier: Apache-2.0"
        if suffix == ".h" and (len(lines) < 2 or not lines[1].startswith("//")):
            yield 2, "say in a comment what this header is, and why"
        # Highway includes some headers once per instruction set: they guard themselves.
        if suffix == ".h" and "#pragma once" not in lines and "HWY_TARGET_TOGGLE" not in text:
            yield 1, "a header needs #pragma once"
        is_test = (name.endswith(("_test.cc", "_for_tests.h", "_testing.h")) or name.startswith("tests/")
                   or pathlib.PurePosixPath(name).name.startswith("test_"))
        bans = [ban for ban in BANNED
                if name.startswith(ban.folders) and (ban.in_tests or not is_test)]
        for number, line in enumerate(code_only(text).splitlines(), 1):
            for ban in bans:
                match = re.search(ban.pattern, line)
                if match:
                    yield number, f"'{match.group().strip()}' is banned here: {ban.instead}"
    elif suffix in SCRIPTS and not any("SPDX-License-Identifier" in l for l in lines[:3]):
        yield 1, "an SPDX line is missing"
    for number, line in enumerate(lines, 1):
        # A line of test data is easier to read in one piece.
        if len(line) > PYTHON_LINE_MAX and suffix == ".py" and '"' not in line:
            yield number, f"{len(line)} characters; {PYTHON_LINE_MAX} at most"
        for pattern, instead, _ in UNWANTED:
            if re.search(pattern, line):
                yield number, instead


def wanted(name):
    """LICENSE is not ours to format; data and dot files have their own rules."""
    path = pathlib.PurePosixPath(name)
    if name.startswith(("tests/data/", "tests/fuzz/corpus/")) or path.name == "LICENSE":
        return False
    if path.suffix == "" and (path.name.startswith(".") or path.name != "dev"):
        return name.startswith(".ci/")
    return path.suffix in CODE | SCRIPTS | PROSE


def check_format(root, files):
    tool = shutil.which(CLANG_FORMAT)
    if not tool:
        print(f"tidy: no {CLANG_FORMAT} here, so the formatting was not checked (./dev check does)")
        return
    names = [str(f) for f in files if f.suffix in CODE]
    done = subprocess.run([tool, "--dry-run", *names], capture_output=True, text=True, check=False)
    badly = {line.split(":")[0] for line in done.stderr.splitlines() if "clang-format" in line}
    for name in sorted(badly):
        short = pathlib.Path(name).relative_to(root)
        yield f"{short}:1: not formatted: {CLANG_FORMAT} -i {short}"


LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def check_links(root, files):
    """Yields one line for each link of a document that leads to no file."""
    for path in files:
        if path.suffix != ".md":
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            for target in LINK.findall(line):
                if "://" not in target and not (path.parent / target).exists():
                    yield f"{path.relative_to(root)}:{number}: a link to nothing: {target}"


def plant_and_catch():
    """Every rule must find its own canary, and no rule may fire on an innocent file."""
    head = "// SPDX-License-Identifier: Apache-2.0\n// A canary.\n"
    def caught(name, text):
        return [complaint for _, complaint in check_text(name, text)]
    for ban in BANNED:
        name = (ban.folders[0] or "src/kv/") + "canary.cc"
        if not any(ban.instead in c for c in caught(name, head + ban.canary + "\n")):
            sys.exit(f"tidy.py is broken: {ban.pattern} did not catch: {ban.canary}")
        elsewhere = caught("bench/canary.cc", head + ban.canary + "\n")
        if ban.folders != ANYWHERE and any(ban.instead in c for c in elsewhere):
            sys.exit(f"tidy.py is broken: {ban.pattern} fires outside its folders")
    for pattern, instead, canary in UNWANTED:
        if instead not in caught("src/kv/canary.cc", head + canary + "\n"):
            sys.exit(f"tidy.py is broken: {pattern} did not catch: {canary}")
    head_h = head + "#pragma once\n"
    if not caught("scripts/canary.py", head + "x" * (PYTHON_LINE_MAX + 1) + "\n"):
        sys.exit("tidy.py is broken: it let a long line pass")
    for broken in ("int x;\n", head, head_h.replace("// A", "\n// A")):
        if not caught("src/kv/canary.h", broken):
            sys.exit(f"tidy.py is broken: it let pass {broken!r}")
    with tempfile.TemporaryDirectory() as scratch:
        page = pathlib.Path(scratch) / "page.md"
        page.write_text("[a](page.md) [b](https://example.org) [c](page.md#x) [d](gone.md)\n")
        if len(list(check_links(page.parent, [page]))) != 1:
            sys.exit("tidy.py is broken: of four links one leads nowhere")
    innocent = head + ('// rand() and time() are only named here\nint operand = 1\'000; '
                       'auto t = clock.time(); const char* s = "assert(x) using namespace std";\n'
                       "static_assert(sizeof(int) == 4);\n")
    if caught("src/kv/innocent.cc", innocent):
        sys.exit(f"tidy.py is broken: it complains about {caught('src/kv/innocent.cc', innocent)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", nargs="?", default=pathlib.Path(__file__).parent.parent,
                        type=pathlib.Path)
    root = parser.parse_args().root.resolve()
    plant_and_catch()
    files = [f for f in project_files(root) if wanted(f.relative_to(root).as_posix())]
    problems = []
    for path in files:
        name = path.relative_to(root).as_posix()
        problems += [f"{name}:{number}: {complaint}"
                     for number, complaint in check_text(name, path.read_text(encoding="utf-8"))]
    problems += check_links(root, files)
    problems += check_format(root, files)
    for line in problems:
        print(line)
    print(f"tidy: {len(problems)} problem(s) in {len(files)} files")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
