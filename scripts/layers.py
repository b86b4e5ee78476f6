#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the folders of src/ include only what the architecture allows (ARCHITECTURE.md, "Who
may include whom"), that third-party libraries stay in their folders, and that every header compiles
alone. What is only promised decays, so this runs with every `./dev test`.

Before it looks at the tree it plants each kind of violation in a scratch tree and stops when one
goes unnoticed: a broken checker must not look like a clean tree.

usage: scripts/layers.py [ROOT] [--no-headers]
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

# What each folder may include of ours: a folder, or single headers of one. `base` and the folder
# itself are always allowed. A key that names a file stands for its .h and .cc: a seam that others
# include without the rest of its folder, so the folder itself is not allowed there.
ALLOWED = {
    "base": [],
    "gguf": [],
    "workload": [],
    "stores": ["gguf"],
    "kv": [],
    "kv/tiers": ["kv"],
    "sampling": [],
    "grammar": [],
    "kernels": [],
    "text": ["gguf"],
    "model": ["kernels", "kv", "gguf", "model/adaptors"],
    "model/executor": ["kv/geometry.h"],
    "model/spec": ["gguf", "kv/geometry.h", "model/adaptors"],
    "model/forward_memory": ["model/spec.h", "kernels/attention/attention.h", "kernels/linear/activations.h"],
    "model/adaptors": ["gguf", "kv/geometry.h", "model/spec.h"],
    "engine": ["kv", "sampling", "grammar", "text", "model/executor.h"],
    "telemetry": [],
    "planner": ["workload", "engine", "kv", "kv/tiers", "gguf", "model/spec.h",
                "model/forward_memory.h"],
    "simulate": ["workload", "engine", "kv", "text", "model/executor.h"],
    # sampling/params.h and kv/geometry.h are part of the engine's own interface.
    "server": ["engine", "text", "telemetry", "grammar", "sampling/params.h", "kv/geometry.h",
               "model/spec.h"],
    "cli": ["workload", "gguf", "stores", "kv", "kv/tiers", "sampling", "grammar", "kernels", "text", "model", "engine", "telemetry",
            "planner", "simulate", "server"],
}

# Tests may also use the working fakes that stand beside an interface, and what they prepare with.
ALLOWED_IN_TESTS = {
    "engine": ["model/fake_executor.h"],
    "planner": ["model/fake_executor.h"],
    "server": ["model/fake_executor.h", "model/executor.h", "gguf", "kv"],
}

# Third-party headers, by the folders (or files) that may name them. Not listed: anywhere.
THIRD_PARTY = [
    (r"boost/(asio|beast)", ["server"]),
    (r"boost/json", ["base"]),  # the others go through base/json.h
    (r"pcre2", ["text"]),
    (r"hwy/", ["kernels"]),
    (r"ggml", ["kernels"]),
    (r"prometheus/", ["telemetry"]),
    (r"openssl/rand", ["cli"]),  # randomness enters the program where it is wired together
    (r"openssl/", ["base"]),
    (r"xxhash", ["base"]),
    (r"CLI/", ["cli"]),
    (r"histedit", ["cli"]),
]
TEST_ONLY = re.compile(r"gtest/|gmock/|rapidcheck")

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')


def is_test(path):
    """Test sources, and headers that only they share (their name says so)."""
    stem = path.stem
    return stem.endswith("_test") or stem.startswith("test_") or stem.endswith(("_for_tests", "_testing"))


def folder_of(relative):
    """The folder of src/ that a path belongs to; a sub-folder with rules is one of its own."""
    parts = pathlib.PurePosixPath(relative).parts
    return "/".join(parts[:2]) if len(parts) > 2 and "/".join(parts[:2]) in ALLOWED else parts[0]


def seam_of(relative):
    """The key of the file's own rules, or None when its folder's rules hold for it."""
    key = str(pathlib.PurePosixPath(relative).with_suffix(""))
    return key if key in ALLOWED else None


def may_include(path, included):
    """path: of the file, relative to src/. included: as written between the quotes."""
    own, seam, target = folder_of(path), seam_of(path), folder_of(included)
    rules = ALLOWED[seam or own]
    if is_test(pathlib.PurePosixPath(path)):
        rules = rules + ALLOWED_IN_TESTS.get(own, [])
    if target == "base" or included in rules or target in rules:
        return True
    return target == own and (seam is None or seam == seam_of(included))


def sources(src):
    return sorted(p for p in src.rglob("*") if p.suffix in (".h", ".cc"))


def check_includes(src):
    """Yields one line for each forbidden include under src."""
    for path in sources(src):
        relative = path.relative_to(src).as_posix()
        folder = folder_of(relative)
        if folder not in ALLOWED:
            yield f"src/{relative}:1: folder '{folder}' is not in scripts/layers.py: name its edges"
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            ours, theirs = match.groups()
            where = f"src/{relative}:{number}"
            if ours and (src / ours).exists() and not may_include(relative, ours):
                yield (f"{where}: {folder} may not include {ours} "
                       f"(allowed: {allowed_text(relative)})")
            name = theirs or ours
            if TEST_ONLY.match(name) and not is_test(path):
                yield f"{where}: {name} belongs into tests only"
            owners = next((folders for pattern, folders in THIRD_PARTY
                           if theirs and re.match(pattern, theirs)), None)
            if owners and folder not in owners:
                yield f"{where}: {theirs} may be named only in {', '.join(owners)}"


def allowed_text(relative):
    return ", ".join(["base"] + ALLOWED[seam_of(relative) or folder_of(relative)])


# ---------------------------------------------------------------- headers alone


def compile_command(root):
    compiler = os.environ.get("CXX", "g++")
    command = [compiler, "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra",
               "-Wno-missing-field-initializers", "-I", str(root / "src"), "-x", "c++", "-",
               '-DPAGEWISE_VERSION="0"']
    ggml = root / ".venv/ggml/include"
    if ggml.is_dir():
        command[1:1] = ["-isystem", str(ggml)]
    return command


def content_key(header, src, command):
    """A digest of everything of ours that the header can see, and of how it is compiled."""
    digest = hashlib.sha256(" ".join(command).encode())
    todo, seen = [header], set()
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        text = path.read_text(encoding="utf-8")
        digest.update(text.encode())
        for line in text.splitlines():
            match = INCLUDE.match(line)
            if match and match.group(1):
                todo += [p for p in (src / match.group(1), path.parent / match.group(1))
                         if p.exists()][:1]
    return digest.hexdigest()


def compile_alone(header, src, command):
    """The compiler's first complaint, or '' when the header compiles as the only include."""
    text = f'#include "{header.relative_to(src).as_posix()}"\n'
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode == 0 and "warning:" not in done.stderr:
        return ""
    lines = [l for l in done.stderr.splitlines() if "error:" in l or "warning:" in l]
    return (lines or done.stderr.splitlines() or ["the compiler failed without a word"])[0]


def check_headers(root, cache_file=None):
    """Yields one line for each header that does not compile alone. Passes are remembered."""
    src = root / "src"
    command = compile_command(root)
    try:
        good = set(json.loads(cache_file.read_text())) if cache_file else set()
    except (OSError, ValueError):
        good = set()
    # *-inl.h files are compiled once per instruction set by Highway and never stand alone.
    headers = [h for h in sources(src) if h.suffix == ".h" and not h.name.endswith("-inl.h")]
    keys = {h: content_key(h, src, command) for h in headers}
    todo = [h for h in headers if keys[h] not in good]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda h: compile_alone(h, src, command), todo))
    broken = {h: r for h, r in zip(todo, results) if r}
    if cache_file:
        cache_file.parent.mkdir(exist_ok=True)
        cache_file.write_text(json.dumps(sorted(keys[h] for h in headers if h not in broken)))
    for header, reason in broken.items():
        yield f"{header.relative_to(root).as_posix()}:1: does not compile alone: {reason}"


# ---------------------------------------------------------------- canary

CANARY = {
    "kernels/a.cc": '#include "kv/b.h"\n',
    "kv/b.h": '#pragma once\n#include "engine/c.h"\n',
    "kv/d.cc": "#include <boost/beast/core.hpp>\n",
    "engine/c.h": "#pragma once\n",
    "engine/e.cc": '#include "model/kv_arena.h"\n',
    "engine/f.cc": "#include <gtest/gtest.h>\n",
    "model/kv_arena.h": "#pragma once\n#include <hwy/highway.h>\n",
    "model/spec.h": '#pragma once\n#include "model/kv_arena.h"\n',
    "sampling/g.cc": "#include <boost/json.hpp>\n",
    "novel/h.cc": "\n",
}
CANARY_HEADER = "#pragma once\ninline std::string name() { return {}; }\n"


def plant_and_catch():
    """Each file of the canary holds one violation; all must be reported, once. engine/c.h is clean
    for the first check and cannot compile alone for the second."""
    with tempfile.TemporaryDirectory() as scratch:
        root = pathlib.Path(scratch)
        for name, text in CANARY.items():
            (root / "src" / name).parent.mkdir(parents=True, exist_ok=True)
            (root / "src" / name).write_text(text)
        caught = sorted({line.split(":")[0] for line in check_includes(root / "src")})
        wanted = sorted(f"src/{name}" for name in CANARY if name != "engine/c.h")
        if caught != wanted:
            sys.exit(f"layers.py is broken: planted {wanted}, caught {caught}")
        alone = root / "alone"
        (alone / "src/base").mkdir(parents=True)
        (alone / "src/base/x.h").write_text(CANARY_HEADER)
        if len(list(check_headers(alone))) != 1:
            sys.exit("layers.py is broken: a header that cannot compile alone went unnoticed")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", nargs="?", default=pathlib.Path(__file__).parent.parent,
                        type=pathlib.Path)
    parser.add_argument("--no-headers", action="store_true", help="include edges only")
    args = parser.parse_args()
    plant_and_catch()
    root = args.root.resolve()
    problems = list(check_includes(root / "src"))
    if not args.no_headers:
        problems += check_headers(root, root / ".dev/headers.json")
    for line in problems:
        print(line)
    print(f"layers: {len(problems)} problem(s) in {len(sources(root / 'src'))} files")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
