# SPDX-License-Identifier: Apache-2.0
"""Where a result comes from: the code and the machine, as every file in bench/results says it."""

import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent


def commit():
    def git(*args):
        return subprocess.run(["git", "-C", str(ROOT), *args], capture_output=True, text=True,
                              check=False).stdout.strip()
    return (git("rev-parse", "--short=12", "HEAD") or "unknown") + ("+changes" if git("diff", "HEAD", "--", "src")
                                                                    else "")


def cpu_model():
    text = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    name, flags = re.search(r"model name\s*: (.*)", text), re.search(r"flags\s*: (.*)", text)
    known = [f for f in ("avx2", "avx_vnni", "avx512f", "avx512_vnni", "amx_int8")
             if flags and f in flags.group(1).split()]
    return f"{name.group(1) if name else 'unknown CPU'} ({' '.join(known)})"


def cpu_name():
    return f"{cpu_model()}, {os.cpu_count()} CPUs"
