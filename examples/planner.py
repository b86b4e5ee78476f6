# SPDX-License-Identifier: Apache-2.0
"""What the capacity examples share: asking `pagewise plan` and reading its JSON answer."""

import json
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = os.environ.get("PAGEWISE", str(ROOT / "build/release/pagewise"))

# The 7B-class shape of the worked numbers: 32 layers, 32 KV heads of 128, two bytes an element.
SHAPE = ["--layers", "32", "--kv-heads", "32", "--head-dim", "128", "--kv-type", "f16"]

MIB = 1 << 20
GIB = 1 << 30


def plan(*arguments, shape=True, statuses=(0,)):
    """The planner's answer as a dict. Status 3 means that the plan does not fit: name it when that
    is the expected answer."""
    command = [PROGRAM, "plan", *(SHAPE if shape else []), *map(str, arguments), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in statuses:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def agree(what, by_hand, by_plan):
    """The point of these examples: the arithmetic on paper and the program's answer are one."""
    if by_hand != by_plan:
        raise SystemExit(f"{what}: {by_hand} by hand, {by_plan} by pagewise plan")
