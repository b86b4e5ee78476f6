# SPDX-License-Identifier: Apache-2.0
"""`pagewise run`: one prompt, one completion, no server."""

import json
import pathlib
import subprocess

import pytest

from conftest import MODEL, PROGRAM

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "smollm2-135m-q4_1.json"


def run(*flags):
    return subprocess.run([PROGRAM, "run", MODEL, *map(str, flags)], capture_output=True, timeout=120)


def run_json(*flags):
    done = run("--json", *flags)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_greedy_text_is_the_published_one():
    for completion in json.loads(GOLDEN.read_text())["completions"][:3]:
        answer = run_json("-p", completion["prompt"], "-n", 8, "--temp", 0)
        assert answer["tokens"] == completion["tokens"][:8]
        assert answer["prompt_tokens"] == len(completion["prompt_ids"])
        assert completion["content"].startswith(answer["text"])
        assert answer["finish"] == "length"
        assert answer["prefill_ms"] > 0 and answer["decode_ms"] > 0 and answer["tok_s"] > 0


def test_without_a_kv_cache_the_bits_are_the_same():
    flags = ["-p", "The key-value cache of a transformer stores", "-n", 12, "--logprobs", 5]
    cached = run_json(*flags)
    recomputed = run_json(*flags, "--recompute")
    assert recomputed["tokens"] == cached["tokens"] and recomputed["text"] == cached["text"]
    # Printed with every digit: equal numbers are equal bits.
    assert recomputed["logprobs"] == cached["logprobs"]


@pytest.mark.parametrize("flags", [["--threads", 1], ["--block-tokens", 16], ["--block-tokens", 128]])
def test_threads_and_block_size_do_not_show(flags):
    common = ["-p", "def fibonacci(n):\n", "-n", 10, "--temp", 0.7, "--seed", 5, "--logprobs", 3]
    plain, other = run_json(*common), run_json(*common, *flags)
    for key in ("tokens", "text", "logprobs"):
        assert plain[key] == other[key]


def test_plain_output_is_the_text_and_a_line_of_figures_on_the_side():
    done = run("-p", "The capital of France is", "-n", 4)
    assert done.returncode == 0
    answer = run_json("-p", "The capital of France is", "-n", 4)
    assert done.stdout.decode() == answer["text"] + "\n"
    assert "5 prompt tokens" in done.stderr.decode() and "tok/s" in done.stderr.decode()


def test_control_tokens_of_the_prompt_are_read_and_an_end_token_ends_the_text():
    prompt = "<|im_start|>user\nSay hi.<|im_end|>\n<|im_start|>assistant\n"
    answer = run_json("-p", prompt, "-n", 200)
    assert answer["finish"] == "stop"
    assert "<|im_end|>" not in answer["text"] and answer["tokens"][-1] == 2
    longer = run_json("-p", prompt, "-n", len(answer["tokens"]) + 3, "--ignore-eos")
    assert longer["tokens"][:len(answer["tokens"])] == answer["tokens"]
    assert longer["finish"] == "length"


@pytest.mark.parametrize("flags, status, words", [
    (["-p", ""], 1, ["prompt is empty"]),
    (["-p", "x", "-n", 9000], 1, ["9000", "8192"]),
    (["-p", "x", "--kv-type", "q3"], 2, ["--kv-type"]),
    (["-p", "x", "--block-tokens", "33"], 2, ["--block-tokens"]),
    (["-p", "x", "-n", "0"], 2, ["--tokens"]),
    ([], 2, ["--prompt"]),
])
def test_a_wrong_call_is_one_line(flags, status, words):
    done = run(*flags)
    line = done.stderr.decode()
    assert done.returncode == status and done.stdout == b"" and line.count("\n") == 1, done
    for word in words:
        assert word in line
