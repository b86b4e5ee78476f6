# SPDX-License-Identifier: Apache-2.0
"""`pagewise simulate` as a user meets it: a public trace and made ones, mistakes in files and flags,
and the three forms of its answer."""

import json
import os
import pathlib
import re
import subprocess
import xml.etree.ElementTree

import pytest

from conftest import GEMMA, MODEL, serving_gemma

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


def simulate(*arguments, warning=""):
    done = run(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    assert done.stderr.count("\n") == bool(warning) and warning in done.stderr
    return json.loads(done.stdout)


# A calibration of another model: said, because its times look as good as the right ones.
FOREIGN = "a token has 131,072 bytes of KV, here it has "


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


def test_a_models_cache_is_the_one_that_serve_makes_of_it(fast):
    words = ["--kv-memory", "48MiB", "--kv-type", "q8_0", "--block-tokens", 64, "--max-context", 4096]
    with serving_gemma(*map(str, words)) as server:
        groups = simulate(TRACE, "--scale-lengths", 16, "--calibration", fast, "--model", GEMMA, *words,
                          warning=FOREIGN)["machine"]
        assert [g["window"] for g in groups["groups"]] == [512, 0] or [g["window"] for g in groups["groups"]] == [0, 512]
        for number, group in enumerate(groups["groups"]):
            served = sum(server.group_blocks(number, group["window"], state) for state in ("live", "cached", "free"))
            assert group["blocks"] == served
        assert groups["pool_bytes"] == server.metrics()["pagewise_kv_pool_bytes"]


def test_a_models_windows_hold_more_conversations_than_layers_that_keep_all(fast):
    words = ["--generate", "chat", "--count", 300, "--rate", 2, "--calibration", fast, "--max-queue", 1000]
    windows = simulate(*words, "--model", GEMMA, "--kv-memory", "64MiB", warning=FOREIGN)
    plain = simulate(*words, "--pool-tokens", (64 << 20) // windows["machine"]["kv_bytes_per_token"])
    assert windows["result"]["served"] == 300 > plain["result"]["served"], "longer ones fit, too"
    assert windows["machine"]["pool_tokens"] > 2 * plain["machine"]["pool_tokens"]
    text = run(*words, "--model", GEMMA, "--kv-memory", "64MiB").stdout
    assert "behind a window of 512" in text and "that keep all" in text


def test_times_of_another_model_are_told_apart_and_hit_rates_are_not(fast):
    words = ["--generate", "chat", "--count", 20, "--model", MODEL]
    own = simulate(*words)  # the default is this model's
    other = simulate(*words, "--calibration", fast, warning="times are not those of SmolLM2-135M-Instruct.Q4_1: "
                     "--calibration: it was taken where " + FOREIGN + "23,040: another model or --kv-type")
    assert own["machine"]["groups"] == other["machine"]["groups"]
    simulate(*words, "--kv-type", "q8_0", warning="23,040 bytes of KV, here it has 12,240")
    simulate(*words, "--curve", "--calibration", fast)  # it has no times


def test_a_curve_of_a_model_with_windows_is_over_the_memory_that_it_takes():
    points = simulate("--generate", "chat", "--count", 300, "--curve", "--model", GEMMA)["curve"]["points"]
    assert len(points) > 5
    for point in (points[2], points[-1]):
        machine = simulate("--generate", "chat", "--count", 1, "--model", GEMMA, "--kv-memory", point["bytes"],
                           warning="another model")["machine"]
        assert point["tokens"] <= machine["pool_tokens"] < 1.05 * point["tokens"] + 64
    assert point["bytes"] < 0.5 * point["tokens"] * machine["kv_bytes_per_token"], "windows forget"
    assert "memory as serve divides it" in run("--generate", "chat", "--count", 300, "--curve", "--model", GEMMA).stdout


def test_markers_are_billed_and_their_leases_counted(fast):
    words = ["--generate", "agent", "--count", 200, "--calibration", fast, "--kv-memory", "64GiB"]
    assert simulate(*words)["result"]["markers"] == {"read_tokens": 0, "created_tokens": 0, "leases_broken": 0,
                                                     "leases_refused": 0}
    marked = simulate(*words, "--mark", "5m")
    assert marked["machine"]["mark"] == "5m"
    bill = marked["result"]["markers"]
    assert bill["leases_broken"] == bill["leases_refused"] == 0
    # All of a prompt is marked: it is read, or created.
    assert bill["read_tokens"] + bill["created_tokens"] == marked["result"]["prompt_tokens"]
    assert bill["read_tokens"] <= marked["result"]["cached_tokens"] + 200
    none = simulate(*words, "--mark", "1h", "--lease-share", 0)["result"]["markers"]
    assert none["leases_refused"] > 0 and none["read_tokens"] == none["created_tokens"] == 0
    assert "markers" in run(*words, "--mark", "1h").stdout


def test_the_curve_is_a_picture_with_the_numbers_of_the_json(fast, tmp_path):
    path = tmp_path / "curve.svg"
    points = simulate(TRACE, "--curve", "--calibration", fast, "--svg", path)["curve"]["points"]
    root = xml.etree.ElementTree.parse(path).getroot()
    marks = {mark.get("data-key"): float(mark.get("data-value")) for mark in root.iter() if mark.get("data-key")}
    assert marks == {f"curve.points.{i}.hit_rate": point["hit_rate"] for i, point in enumerate(points)}
    page = run(TRACE, "--curve", "--calibration", fast, "--html").stdout
    assert path.read_text() in page
    refused = run(TRACE, "--curve", "--svg", tmp_path / "no" / "curve.svg")
    assert refused.returncode == 1 and refused.stdout == "" and "No such file or directory" in refused.stderr


def test_the_picture_of_the_readme_is_what_its_command_draws(tmp_path):
    text = (ROOT / "README.md").read_text(encoding="utf-8").replace("\\\n", " ")
    command = re.search(r"^    \$ build/release/pagewise simulate (.*--curve.*)$", text, re.MULTILINE).group(1).split()
    assert command[-2:] == ["--svg", "docs/curve.svg"]
    path = tmp_path / "curve.svg"
    done = subprocess.run([PAGEWISE, "simulate", *command[:-1], path], capture_output=True, text=True, timeout=120,
                          cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert path.read_text() == (ROOT / "docs/curve.svg").read_text()


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
            ("e.jsonl", "", "no requests in it"),
            ("f.jsonl", "\n \n", "no requests in it"),
            ("g.csv", "timestamp,input_length,output_length\n", "no requests in it"),
            ("h.jsonl", good + good.replace("1,", "0.5,", 1), "line 2: timestamp: before that of the line above"),
            ("i.jsonl", good.replace("10", "0"), "line 1: input_length: 0 is not in 1 to 16777216 tokens"),
            ("j.jsonl", good.replace("10", "99999999999999999999"), "line 1: input_length: not a whole number"),
            ("k.jsonl", good.replace("10", "16777217"), "line 1: input_length: 16777217 is not in 1 to 16777216"),
            ("l.jsonl", good.replace('h": 1}', 'h": -1}'), "line 1: output_length: not a whole number"),
            ("m.jsonl", good.replace('p": 1', 'p": 1e999'), "line 1: "),
            ("n.jsonl", good[:-3] + "\n", "line 1: not valid JSON"),
            ("o.jsonl", good + '{"timestamp": 2, "input_length": 600, "output_length": 1, "hash_ids": [1, 2, 3]}\n',
             "line 2: hash_ids: 3 of them, but 600 tokens are 2 blocks of 512")]:
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
    ([TRACE, "--pool-tokens", "31"], "the pool has no block of 32 tokens"),
    ([TRACE, "--kv-memory", "1GiB", "--pool-tokens", "64"], "--pool-tokens"),
    ([TRACE, "--speed-up", "nan"], "--speed-up"),
    ([TRACE, "--calibration", TRACE], "not valid JSON"),
    ([TRACE, "--policy", "fifo"], "--policy"),
    ([TRACE, "--json", "--html"], "--html"),
    ([TRACE, "--model", "no/such/file.gguf"], "no/such/file.gguf"),
    ([TRACE, "--model", TRACE], "conversation_head.jsonl"),
    ([TRACE, "--model", GEMMA, "--pool-tokens", 4096], "--pool-tokens"),
    ([TRACE, "--model", GEMMA, "--kv-memory", "100KiB"], "--kv-memory 100.0 KiB holds no block of 32 tokens"),
    ([TRACE, "--model", GEMMA, "--kv-type", "q9"], "--kv-type"),
    ([TRACE, "--kv-type", "q8_0"], "--model"),
    ([TRACE, "--mark", "2h"], "--mark"),
    ([TRACE, "--lease-share", "1.5"], "--lease-share"),
    ([TRACE, "--kv-memory", "900000TiB"], "can be simulated"),
    ([TRACE, "--kv-memory", "-1"], "--kv-memory"),
    ([TRACE, "--pool-tokens", "1099511627776"], "can be simulated"),
    ([TRACE, "--speed-up", "0"], "--speed-up"),
    ([TRACE, "--speed-up", "1e-7"], "--speed-up"),
    ([TRACE, "--scale-lengths", "0"], "--scale-lengths"),
    ([TRACE, "--replicas", "0"], "--replicas"),
    ([TRACE, "--replicas", "-1"], "--replicas"),
    ([TRACE, "--max-context", "1"], "the context is 1 tokens"),
    ([TRACE, "--requests", "a:b"], "--requests: 'a:b' is not FROM:TO"),
    ([TRACE, "--requests", "9:3"], "--requests: '9:3' is no request at all"),
    (["--generate", "chat", "--count", "0"], "--count"),
    (["--generate", "chat", "--rate", "inf"], "--rate"),
    ([TRACE, "--svg", "/nonexistent/x.svg"], "--svg needs --curve"),
])
def test_mistakes_are_one_line(words, message):
    done = run(*words)
    assert done.returncode == 2 and done.stdout == ""
    assert message in done.stderr and done.stderr.count("\n") == 1
