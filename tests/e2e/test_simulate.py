# SPDX-License-Identifier: Apache-2.0
"""`pagewise simulate` as a user meets it: a public trace and made ones, mistakes in files and flags,
and the three forms of its answer."""

import json
import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGEWISE = (os.environ.get("PAGEWISE_BIN") or os.environ.get("PAGEWISE") or
            str(ROOT / "build/release/pagewise"))
TRACE = ROOT / "tests/data/traces/conversation_head.jsonl"
# A large model on a large accelerator, so that the trace can be served at its own speed.
FAST = {"name": "fast", "kv_bytes_per_token": 131072, "step_ns": 5e6, "prompt_token_ns": 32000,
        "prompt_position_ns": 0.5, "row_ns": 20000, "row_position_ns": 40}


def run(*arguments):
    return subprocess.run([PAGEWISE, "simulate", *map(str, arguments)], capture_output=True,
                          text=True, timeout=120)


def simulate(*arguments):
    done = run(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == "" and done.stdout.count("\n") == 1
    return json.loads(done.stdout)


@pytest.fixture(name="fast")
def fast_machine(tmp_path):
    path = tmp_path / "fast.json"
    path.write_text(json.dumps(FAST))
    return path


def test_a_public_trace_in_text_json_and_html(fast):
    words = [TRACE, "--calibration", fast, "--kv-memory", "64GiB"]
    found = simulate(*words)
    assert found["trace"]["requests"] == found["result"]["offered"] == found["result"]["served"] == 100
    assert found["machine"]["pool_tokens"] == 64 * 2**30 // 131072
    result = found["result"]
    assert 0 < result["hit_rate"] < 1
    assert result["hit_rate"] == pytest.approx(result["cached_tokens"] / result["prompt_tokens"], rel=1e-5)
    assert result["first_token_ms"]["p50"] <= result["first_token_ms"]["p99"] <= result["first_token_ms"]["max"]
    text = run(*words)
    assert f"{100 * result['hit_rate']:.1f} %" in text.stdout and "served" in text.stdout
    assert re.fullmatch(r"[\d.]+ s, \d+ requests a second\n", text.stderr)
    page = run(*words, "--html").stdout
    assert page.startswith("<!doctype html>") and "<svg" in page
    assert f"<td>{result['cached_tokens']}</td>" in page


def test_steps_taken_together_change_nothing(fast):
    for words in [[TRACE, "--calibration", fast, "--kv-memory", "4GiB"],
                  ["--generate", "mix", "--count", 200, "--rate", 0.05, "--kv-memory", "256MiB"]]:
        assert simulate(*words) == simulate(*words, "--step-by-step")


def test_made_traces_depend_on_their_seed_alone():
    words = ["--generate", "chat", "--count", 50, "--rate", 0.02]
    assert simulate(*words) == simulate(*words)
    assert simulate(*words, "--seed", 2)["trace"] != simulate(*words)["trace"]


def test_less_memory_finds_less(fast):
    words = ["--generate", "chat", "--count", 400, "--calibration", fast]
    rates = [simulate(*words, "--pool-tokens", tokens)["result"]["hit_rate"]
             for tokens in (10_000, 40_000, 640_000)]
    assert rates[0] < rates[1] < rates[2]


def test_the_curve_rises_to_what_the_trace_repeats(fast):
    found = simulate(TRACE, "--curve")
    assert "result" not in found and found["curve"]["followed_share"] == 1
    points = found["curve"]["points"]
    assert all(a["tokens"] < b["tokens"] and a["hit_rate"] <= b["hit_rate"]
               for a, b in zip(points, points[1:]))
    whole = simulate(TRACE, "--calibration", fast, "--kv-memory", "512GiB", "--max-queue", 1000)
    assert points[-1]["hit_rate"] == pytest.approx(whole["result"]["hit_rate"], abs=0.02)
    page = run(TRACE, "--curve", "--html").stdout
    assert "<polyline" in page and f"<td>{points[0]['tokens']}</td>" in page


def test_replicas_share_the_work(fast):
    for routing in ["random", "least-loaded", "prefix-aware"]:
        found = simulate(TRACE, "--calibration", fast, "--replicas", 3, "--routing", routing)
        assert len(found["replicas"]) == 3
        assert sum(r["served"] for r in found["replicas"]) == found["result"]["served"] == 100


def test_ranges_scales_and_speeds():
    found = simulate(TRACE, "--requests", "10:30", "--scale-lengths", 16, "--speed-up", 0.1)
    assert found["trace"]["requests"] == 20
    lines = [json.loads(line) for line in TRACE.read_text().splitlines()[10:30]]
    assert found["trace"]["output_tokens"] == sum(-(-l["output_length"] // 16) for l in lines)
    assert found["trace"]["prompt_tokens"] == sum(-(-l["input_length"] // 16) for l in lines)
    span_ms = lines[-1]["timestamp"] - lines[0]["timestamp"]
    assert found["trace"]["span_s"] == pytest.approx(span_ms / 100, rel=1e-5)


def test_broken_traces_are_one_line_with_its_number(tmp_path):
    good = '{"timestamp": 1, "input_length": 10, "output_length": 1}\n'
    for name, text, message in [
            ("a.jsonl", good + '{"timestamp": 2}\n', "line 2: input_length is missing"),
            ("b.jsonl", good + "not json\n", "line 2: not valid JSON"),
            ("c.csv", "timestamp,input_length,output_length\n1,2,x\n", "line 2: output_length: 'x'"),
            ("d.csv", "when,what\n1,2\n", "line 1: no column 'timestamp'"),
            ("e.jsonl", "", "no requests in it")]:
        path = tmp_path / name
        path.write_text(text)
        done = run(path)
        assert done.returncode == 2 and done.stdout == ""
        assert done.stderr.startswith(f"pagewise simulate: {path}: {message}")
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("words, message", [
    ([], "give a trace, or --generate KIND"),
    ([TRACE, "--generate", "chat"], "give a trace, or --generate KIND"),
    (["--generate", "chatter"], "'chatter' is no kind of trace; known: chat, agent"),
    (["no/such/file"], "no/such/file: No such file or directory"),
    ([ROOT], "a directory; give a trace"),
    ([TRACE, "--requests", "5"], "--requests: '5' is not FROM:TO"),
    ([TRACE, "--requests", "7:7"], "--requests: '7:7' is no request at all"),
    ([TRACE, "--requests", "500:"], "there is no request from 500 on: the trace has 100"),
    ([TRACE, "--pool-tokens", "31"], "the pool has 0 blocks of 32 tokens"),
    ([TRACE, "--kv-memory", "1GiB", "--pool-tokens", "64"], "--pool-tokens"),
    ([TRACE, "--speed-up", "nan"], "--speed-up"),
    ([TRACE, "--calibration", TRACE], "not valid JSON"),
    ([TRACE, "--policy", "fifo"], "--policy"),
    ([TRACE, "--json", "--html"], "--html"),
])
def test_mistakes_are_one_line(words, message):
    done = run(*words)
    assert done.returncode == 2 and done.stdout == ""
    assert message in done.stderr and done.stderr.count("\n") == 1
