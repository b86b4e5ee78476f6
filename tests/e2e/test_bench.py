# SPDX-License-Identifier: Apache-2.0
"""The benchmark harness: its arithmetic, its tables, and that its verbs run. What it measures is asserted nowhere."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ.get("PAGEWISE_BIN", ROOT / "build/release/pagewise")).parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "bench/serve")]

import figures


def run(script, *arguments):
    done = subprocess.run([sys.executable, ROOT / "bench" / script, *map(str, arguments)], capture_output=True, text=True,
                          timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def result_of(folder):
    paths = sorted(pathlib.Path(folder).glob("*.json"))
    assert len(paths) == 1
    return json.loads(paths[0].read_text()), paths[0].with_suffix(".md").read_text()


def test_the_ratio_is_taken_round_by_round_because_rounds_were_taken_in_turns():
    ours, theirs = figures.summary([10, 30, 20]), figures.summary([5, 10, 20])
    assert figures.ratio(ours, theirs)["rounds"] == [2, 3, 1]
    assert figures.ratio(ours, theirs)["median"] == 2


def test_sides_with_unequal_numbers_of_rounds_are_compared_by_their_medians():
    assert figures.ratio(figures.summary([4, 6, 8]), figures.summary([3]))["rounds"] == [2]


@pytest.mark.parametrize("more_is_better, best", [(True, "b"), (False, "a")])
def test_the_better_peer_is_the_one_with_the_better_median_and_one_without_a_figure_is_none(more_is_better, best):
    sides = {"a": figures.summary([1, 2, 3]), "b": figures.summary([2, 3, 1000]), "c": None}
    assert figures.better(sides, more_is_better) == best
    assert figures.better({"c": None}, more_is_better) is None


@pytest.mark.parametrize("value, bar, more, share, said", [
    (1.8, 1.8, True, None, "met"), (1.79, 1.8, True, 0.5, "missed"), (1.79, 1.8, True, 0.85, "met by the limit"),
    (0.6, 0.6, False, None, "met"), (0.61, 0.6, False, 0.2, "missed"), (0.61, 0.6, False, 0.9, "met by the limit"),
    (1.0, None, True, None, ""), (None, 1.8, True, None, "")])
def test_a_bar_is_met_by_the_ratio_or_by_being_near_the_machines_limit(value, bar, more, share, said):
    assert figures.verdict(value, bar, more, share) == said


def test_the_share_of_a_limit_is_one_at_the_limit_for_rates_and_for_times():
    assert figures.share_of_limit(150, 300, True) == 0.5
    assert figures.share_of_limit(20, 10, False) == 0.5


def test_tables_escape_what_would_end_a_cell():
    assert figures.table(["a"], [["x|y"], [1234.5]]) == ["| a |", "| --- |", "| x\\|y |", "| 1,234 |", ""]


def test_kernel_tables_hold_every_row_that_was_measured(tmp_path):
    run("run.py", "--quick", "--threads", 1, "--types", "Q8_0", "--only", "limits,linear,look-up", "--programs",
        BUILD / "bench", "--results", tmp_path)
    facts, text = result_of(tmp_path)
    linear = [row for row in facts["rows"] if row["table"] == "linear"]
    assert [row["rows"] for row in linear] == [1, 2, 4, 8, 32, 512]
    assert {row["type"] for row in linear} == {"Q8_0"}
    assert facts["quick"] and "mean nothing" in text
    assert all(facts[key] for key in ("commit", "cpu", "isa", "command"))
    assert "| Q8_0 | 30 |" in text and "the same prompt again" in text
