# SPDX-License-Identifier: Apache-2.0
"""`pagewise bench MODEL --calibrate FILE`: a file that the simulator takes, and mistakes in one line. No time is asserted."""

import hashlib
import json
import pathlib
import re
import subprocess

import pytest

from conftest import GEMMA, MODEL, PROGRAM

TRACE = pathlib.Path(__file__).resolve().parents[1] / "data/traces/conversation_head.jsonl"
NUMBERS = ["step_ns", "weights_ns", "prompt_token_ns", "prompt_position_ns", "row_ns", "row_position_ns"]


def bench(*words):
    return subprocess.run([PROGRAM, "bench", *map(str, words)], capture_output=True, text=True, timeout=280, check=False)


def simulate(*words):
    done = subprocess.run([PROGRAM, "simulate", TRACE, "--scale-lengths", "16", "--json", *map(str, words)],
                          capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_what_is_measured_is_written_printed_and_simulated(tmp_path):
    path = tmp_path / "here.json"
    path.write_text("old")
    done = bench(MODEL, "--quick", "--threads", 1, "--kv-type", "q8_0", "--calibrate", path)
    assert done.returncode == 0, done.stderr
    found = json.loads(path.read_text())
    assert [p.name for p in tmp_path.iterdir()] == ["here.json"]
    assert found["version"] == 2 and found["kv_bytes_per_token"] == 30 * 3 * 2 * 68 and "window" not in found
    assert all(found[name] >= 0 for name in NUMBERS) and sum(found[name] for name in NUMBERS) > 0
    measured = found["measured"]
    assert measured["model"] == MODEL.name
    assert measured["sha256"] == hashlib.sha256(MODEL.read_bytes()).hexdigest()
    assert (measured["threads"], measured["kv_type"], measured["block_tokens"]) == (1, "q8_0", 32)
    assert measured["cpu"] and measured["isa"] and re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d", measured["time"])
    steps = measured["steps"]
    assert {step["rows"] for step in steps} >= {0, 1, 8} and {step["prompt_tokens"] for step in steps} >= {0, 32, 96}
    assert all(step["samples"] >= 1 and 0 < step["low_ns"] <= step["median_ns"] <= step["high_ns"] for step in steps)
    lines = [line for line in done.stdout.splitlines() if re.search(r" ms +[\d.]+ % +[\d.]+ ms +[+-][\d.]+ %$", line)]
    assert len(lines) == len(steps) and f"wrote {path}" in done.stdout
    told = simulate("--calibration", path, "--kv-memory", "1GiB", "--speed-up", 0.01)
    assert told["machine"]["kv_bytes_per_token"] == found["kv_bytes_per_token"]
    assert told["result"]["served"] == 100


def test_a_model_with_windows_has_numbers_for_them(tmp_path):
    path = tmp_path / "gemma.json"
    done = bench(GEMMA, "--quick", "--max-context", 700, "--calibrate", path)
    assert done.returncode == 0, done.stderr
    found = json.loads(path.read_text())
    assert found["window"] == 512 and found["prompt_window_position_ns"] >= 0 and found["row_window_position_ns"] >= 0
    assert simulate("--calibration", path, "--kv-memory", "1GiB", "--speed-up", 0.01)["result"]["served"] == 100


@pytest.mark.parametrize("words, message", [
    (["no/such/model.gguf"], "no/such/model.gguf"),
    ([MODEL.parent], ""),
    ([MODEL, "--calibrate", "no/such/folder/f.json"], "no/such/folder/f.json: cannot be written: No such file"),
    ([MODEL, "--calibrate", MODEL.parent], "a directory; give a file to write"),
    ([MODEL, "--calibrate", "/dev/full"], "/dev/full: no file; give a file to write"),
    ([MODEL, "--max-context", "16"], "a context of 16 tokens is too short to measure"),
    ([MODEL, "--threads", "-1"], "--threads"),
    ([MODEL, "--kv-type", "q4_0"], "--kv-type"),
    ([TRACE], "not a GGUF file"),
    ([], "MODEL"),
])
def test_mistakes_are_one_line(words, message):
    done = bench(*words)
    assert done.returncode == 2 and done.stdout == ""
    assert message in done.stderr and done.stderr.count("\n") == 1
