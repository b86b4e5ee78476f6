# SPDX-License-Identifier: Apache-2.0
"""The examples and the demo do what they say, as a user would run them: as programs of their own,
with the official client, against the real server. The manual is cut short to keep this quick; the
arithmetic of prompt caching does not depend on its length."""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = pathlib.Path(os.environ.get("PAGEWISE", ROOT / "build/release/pagewise"))
SHORT = 3000  # characters of the manual


def load_demo():
    spec = importlib.util.spec_from_file_location("demo", ROOT / "scripts/demo.py")
    demo = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(demo)
    return demo


def run_script(*command, **environment):
    done = subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True,
                          timeout=300, check=False,
                          env={**os.environ, "PAGEWISE": str(PROGRAM), **environment})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def server():
    demo = load_demo()
    with demo.running_server(PROGRAM, demo.MODEL, ["--kv-memory", "256MiB"]) as base:
        yield {"ANTHROPIC_BASE_URL": base, "ANTHROPIC_API_KEY": "local"}


@pytest.fixture(scope="module")
def short_manual(tmp_path_factory):
    path = tmp_path_factory.mktemp("examples") / "manual.txt"
    text = (ROOT / "examples/policy_manual.txt").read_text(encoding="utf-8")
    path.write_text(text[:SHORT], encoding="utf-8")
    return path


@pytest.mark.parametrize("script, figures", [
    ("kv_size.py", ["1024.0 MiB", "0.5 GiB", "8.0 GiB", "64.0 GiB", "16.0 GiB", "256.0 GiB"]),
    ("paging_waste.py", ["6144 MiB", "790 MiB", "5354 MiB", "87%", "896 MiB"]),
    ("concurrency.py", ["1.0 GiB a request, 40 at once", "4.0 GiB a request, 10 at once"]),
    ("cache_savings.py", ["500,000 -> 54,500", "-89%", "55,750", "5,000 -> 6,250", "+25%"]),
    ("fixes.py", ["4.0 GiB of 30: fits", "48.0 GiB of 30: does not fit"]),
])
def test_capacity_example_agrees_with_the_planner_and_prints_its_figures(script, figures):
    # The scripts themselves compare arithmetic on paper with `pagewise plan`, and fail on any gap.
    printed = run_script(ROOT / "examples" / script)
    for figure in figures:
        assert figure in printed


def test_fixes_example_lists_each_fix_with_effect_and_cost():
    lines = [l for l in run_script(ROOT / "examples/fixes.py").splitlines() if l.startswith("- ")]
    assert len(lines) >= 3
    assert all(len([part for part in l[2:].split(" | ") if part.strip()]) == 3 for l in lines)


def test_prompt_cache_example_writes_once_and_reads_after_that(server, short_manual):
    printed = run_script(ROOT / "examples/prompt_cache.py", short_manual, **server)
    calls = [tuple(map(int, c)) for c in
             re.findall(r"written (\d+), read (\d+), other input (\d+), output (\d+)", printed)]
    assert len(calls) == 2
    (written, read, _, _), (written_again, read_again, other, _) = calls
    assert written > 500 and read == 0
    assert written_again == 0 and read_again == written
    assert 0 < other < 60  # only the question and the template around it


def test_streamed_example_reads_what_an_earlier_run_wrote(server, short_manual):
    manual = short_manual.with_name("other.txt")
    manual.write_text("Edition 2. " + short_manual.read_text(encoding="utf-8"), encoding="utf-8")
    runs = [run_script(ROOT / "examples/summarize_section.py", manual, **server) for _ in range(2)]
    counts = [(int(re.search(r"cache_creation_input_tokens=(\d+)", r).group(1)),
               int(re.search(r"cache_read_input_tokens=(\d+)", r).group(1))) for r in runs]
    assert counts[0][0] > 500 and counts[0][1] == 0
    assert counts[1] == (0, counts[0][0])
    answers = [r.split("\n\nfirst token")[0] for r in runs]
    assert all(answers)


def test_demo_tells_its_story_and_no_counter_contradicts_it():
    printed = run_script(ROOT / "scripts/demo.py", "--program", PROGRAM, "--short")
    assert "the manual is read" in printed
    # The wait is a matter of the machine; every other line is a promise.
    broken = [l for l in printed.splitlines() if l.startswith("  NO ") and "waited" not in l]
    assert not broken, printed
    assert len(re.findall(r"^  (?:yes|NO ) ", printed, re.MULTILINE)) == 7
