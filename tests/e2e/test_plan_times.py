# SPDX-License-Identifier: Apache-2.0
"""`pagewise plan --calibration`: times of prompts and answers, and what a prompt cache saves in seconds. The figures are
held against `pagewise simulate`, which runs the server's own scheduler with the same calibration."""

import html.parser
import json
import os
import pathlib
import subprocess
import xml.etree.ElementTree

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGEWISE = (os.environ.get("PAGEWISE_BIN") or os.environ.get("PAGEWISE") or
            str(ROOT / "build/release/pagewise"))
MODEL = ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
# 32 layers of 8 KV heads of 128, f16.
SHAPE = "--layers 32 --kv-heads 8 --head-dim 128".split()
MACHINE = {"name": "a machine", "kv_bytes_per_token": 131072, "step_ns": 6e6, "prompt_token_ns": 32500,
           "prompt_position_ns": 1.5, "row_ns": 10000, "row_position_ns": 48.9}


def run(command, *arguments):
    return subprocess.run([PAGEWISE, command, *map(str, arguments)], capture_output=True, text=True, timeout=60,
                          check=False)


def found(command, *arguments):
    done = run(command, *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def refused(*arguments):
    """The one line of a wrong command line, in text and with --json."""
    for extra in [], ["--json"]:
        done = run("plan", *arguments, *extra)
        assert done.returncode == 2 and done.stdout == "", done
        assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


@pytest.fixture(name="machine")
def machine_file(tmp_path):
    path = tmp_path / "machine.json"
    path.write_text(json.dumps(MACHINE))
    return path


def chunk_ns(position, tokens):
    if tokens == 1:
        return MACHINE["step_ns"] + MACHINE["row_ns"] + position * MACHINE["row_position_ns"]
    return (MACHINE["step_ns"] + tokens * MACHINE["prompt_token_ns"] +
            (tokens * position + tokens * (tokens + 1) / 2) * MACHINE["prompt_position_ns"])


def prefill_ns(tokens, cached=0, step=512):
    return sum(chunk_ns(at, min(step, tokens - at)) for at in range(cached, tokens, step))


def test_each_length_with_each_batch_has_its_times(machine):
    words = [*SHAPE, "--calibration", machine, "--tokens", "1000,8000", "--batch", "1,32", "--prefix-tokens", "4000"]
    times = found("plan", *words)["times"]
    assert times["calibration"] == "a machine" and times["step_tokens"] == 512
    assert [(row["tokens"], row["batch"]) for row in times["rows"]] == [(1000, 1), (1000, 32), (8000, 1), (8000, 32)]
    for row in times["rows"]:
        assert row["cached_tokens"] == min(4000, row["tokens"] - 1)
        assert row["first_token_ns"] == pytest.approx(prefill_ns(row["tokens"]), abs=100)
        assert row["first_token_cached_ns"] == pytest.approx(prefill_ns(row["tokens"], row["cached_tokens"]), abs=100)
        step = MACHINE["step_ns"] + row["batch"] * (MACHINE["row_ns"] + row["tokens"] * MACHINE["row_position_ns"])
        assert row["decode_token_ns"] == pytest.approx(step, abs=1)
        assert row["tokens_per_s"] == pytest.approx(1e9 / step, rel=1e-5)
        assert row["tokens_per_s_sum"] == pytest.approx(row["batch"] * 1e9 / step, rel=1e-5)
    text = run("plan", *words).stdout
    assert "Times on a machine, in steps of 512 tokens" in text
    assert f"{prefill_ns(8000) / 1e6:.0f} ms" in text and "4,000 cached" in text
    small = found("plan", *words, "--step-tokens", "64")["times"]
    assert small["rows"][0]["first_token_ns"] == pytest.approx(prefill_ns(1000, step=64), abs=100)
    alone = found("plan", *SHAPE, "--calibration", machine, "--tokens", "1000")["times"]["rows"][0]
    assert "cached_tokens" not in alone and "first_token_cached_ns" not in alone


def test_times_are_those_of_the_servers_own_scheduler(machine, tmp_path):
    """One request after the other, and eight at once, through `pagewise simulate`."""
    def simulated(requests):
        path = tmp_path / "trace.jsonl"
        path.write_text("".join(json.dumps(request) + "\n" for request in requests))
        return found("simulate", path, "--calibration", machine, "--kv-memory", "64GiB")["result"]

    def planned(tokens, *more):
        return found("plan", *SHAPE, "--calibration", machine, "--tokens", tokens, *more)["times"]["rows"][0]

    for tokens in (1, 511, 512, 513, 1024, 5000):
        alone = simulated([{"timestamp": 0, "input_length": tokens, "output_length": 1}])
        assert alone["first_token_ms"]["max"] == pytest.approx(planned(tokens)["first_token_ns"] / 1e6, rel=1e-5)
    ids = list(range(1, 11))
    twice = [{"timestamp": 0, "input_length": 5120, "output_length": 1, "hash_ids": ids},
             {"timestamp": 60_000, "input_length": 5500, "output_length": 1, "hash_ids": [*ids, 99]}]
    warm = simulated(twice)
    row = planned(5500, "--prefix-tokens", 5120)
    assert warm["cached_tokens"] == 5120
    assert warm["first_token_ms"]["p50"] == pytest.approx(row["first_token_cached_ns"] / 1e6, rel=0.02)
    crowd = simulated([{"timestamp": 0, "input_length": 1000, "output_length": 21} for _ in range(8)])
    assert crowd["gap_ms"]["p50"] == pytest.approx(planned(1010, "--batch", 8)["decode_token_ns"] / 1e6, rel=0.02)


def test_what_a_prompt_cache_saves_in_seconds(machine):
    words = ["--prefix-tokens", 5000, "--calls", 100, "--write-price", "1.25", "--calibration", machine]
    once = prefill_ns(5000)
    bill = found("plan", *words)
    assert bill["billed_tokens"] == 55750
    assert bill["cached_prefill_ns"] == pytest.approx(once, abs=100)
    assert bill["uncached_prefill_ns"] == 100 * bill["cached_prefill_ns"]
    assert "even_prefill_ns" not in bill and "times" not in bill
    text = run("plan", *words).stdout
    assert f"computing it takes {once / 1e6:.3g} ms" in text and f"{99 * once / 1e9:.3g} s saved" in text
    late = found("plan", *words, "--every", "10m", "--ttl", "5m")["timed"]
    assert late["even_prefill_ns"] == bill["uncached_prefill_ns"]
    expected = (1 + 99 * (1 - late["random_hit_share"])) * bill["cached_prefill_ns"]
    assert late["random_prefill_ns"] == pytest.approx(expected, rel=1e-9)
    assert "no time saved" in run("plan", *words[:3], 1, *words[4:]).stdout


def test_a_file_has_its_usual_lengths_and_its_own_calibration(tmp_path):
    path = tmp_path / "smollm2.json"
    path.write_text(json.dumps({**MACHINE, "kv_bytes_per_token": 23040}))
    plan = found("plan", MODEL, "--calibration", path)
    assert [row["tokens"] for row in plan["times"]["rows"]] == [row["tokens"] for row in plan["rows"]]
    line = refused(MODEL, "--calibration", path, "--kv-type", "q8_0")
    assert "a token has 23,040 bytes of KV, here it has 12,240" in line and "another model or --kv-type" in line


def test_the_measured_calibration_that_is_here_belongs_to_the_model_that_comes_with_it():
    plan = found("plan", MODEL, "--calibration", ROOT / "examples/calibration_smollm2.json", "--tokens", "512,4096")
    short, long = plan["times"]["rows"]
    assert 0 < short["first_token_ns"] < long["first_token_ns"]
    assert 0 < short["decode_token_ns"] < long["decode_token_ns"]
    line = refused(*SHAPE, "--calibration", ROOT / "examples/calibration_smollm2.json", "--tokens", "512")
    assert "23,040 bytes of KV (SmolLM2-135M-Instruct.Q4_1.gguf, f16), here it has 131,072" in line


class Marks(html.parser.HTMLParser):
    """(key, value) of each chart, of which a page has several."""

    def __init__(self, text):
        super().__init__()
        self.charts, self.cells = [], {}
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found_ = dict(attrs)
        if tag == "svg":
            self.charts.append({})
        if "data-key" in found_:
            (self.cells if tag == "td" else self.charts[-1])[found_["data-key"]] = found_["data-value"]


def test_the_page_draws_cold_against_cached_with_the_numbers_of_the_json(machine, tmp_path):
    page = tmp_path / "plan.html"
    plan = found("plan", *SHAPE, "--calibration", machine, "--tokens", "5000,1000,20000", "--batch", "1,8",
                 "--prefix-tokens", "4000", "--calls", "9", "--every", "1m", "--html", page)
    marks = Marks(page.read_text(encoding="utf-8"))
    rows = plan["times"]["rows"]
    # The first token does not depend on the batch: each length once.
    expected = {f"times.rows.{i}.{key}": rows[i][key] for i in (0, 2, 4)
                for key in ("first_token_ns", "first_token_cached_ns")}
    drawn = [chart for chart in marks.charts if any(key.startswith("times.") for key in chart)]
    assert len(drawn) == 1
    assert {key: int(value) for key, value in drawn[0].items()} == expected
    assert float(marks.cells["times.rows.3.tokens_per_s_sum"]) == rows[3]["tokens_per_s_sum"]
    assert int(marks.cells["timed.even_prefill_ns"]) == plan["timed"]["even_prefill_ns"]


def test_charts_are_well_formed_and_follow_dark_and_light(machine, tmp_path):
    path = tmp_path / "plan.svg"
    found("plan", *SHAPE, "--calibration", machine, "--tokens", "1024,8192", "--batch", "1,2,3", "--svg", path)
    root = xml.etree.ElementTree.parse(path).getroot()
    space = "{http://www.w3.org/2000/svg}"
    assert "prefers-color-scheme:dark" in root.find(f"{space}style").text
    # Names of lines stand at least a line of text apart.
    names = sorted(float(text.get("y")) for text in root.iter(f"{space}text") if "at once" in text.text)
    assert len(names) == 3 and all(b - a >= 15.9 for a, b in zip(names, names[1:]))


@pytest.mark.parametrize("words, message", [
    ("--tokens 5 --calibration /nonexistent.json", "/nonexistent.json: No such file or directory"),
    ("--tokens 5 --calibration .", ".: a directory; give a calibration"),
    ("--tokens 5 --calibration {model}", "not valid JSON"),
    ("--tokens 5 --kv-type q8_0 --calibration {machine}", "a token has 131,072 bytes of KV, here it has 69,632"),
    ("--lengths 5 --calibration {machine}", "--calibration needs --tokens or --calls"),
    ("--tokens 5 --step-tokens 5", "--step-tokens needs --calibration"),
    ("--tokens 5 --step-tokens 0 --calibration {machine}", "--step-tokens: 0 is not in 1 to 65536"),
    ("--tokens 5 --step-tokens 65537 --calibration {machine}", "--step-tokens: 65537 is not in 1 to 65536"),
    ("--tokens 5 --step-tokens many --calibration {machine}", "--step-tokens: 'many' is not a whole number"),
    ("--tokens 1073741824 --step-tokens 1 --calibration {machine}", "more than 16,777,216 steps of 1 tokens"),
    ("--tokens 5 --prefix-tokens 3", "--prefix-tokens needs --calls"),
])
def test_wrong_questions_about_time_are_one_line(machine, words, message):
    line = refused(*SHAPE, *words.format(machine=machine, model=MODEL).split())
    assert message in line


def test_a_machine_slower_than_anything_is_one_line(tmp_path):
    path = tmp_path / "slow.json"
    path.write_text(json.dumps({**MACHINE, "step_ns": 1e12, "prompt_token_ns": 1e10, "prompt_position_ns": 1e6}))
    assert "longer than a century" in refused(*SHAPE, "--calibration", path, "--tokens", "1073741824")
    assert "longer than a century" in refused("--calibration", path, "--prefix-tokens", "9", "--calls", "10000000")
