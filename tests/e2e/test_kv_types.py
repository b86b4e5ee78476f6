# SPDX-License-Identifier: Apache-2.0
"""The types in which keys and values are kept: what they take, and that nothing else shows in an answer."""

import json
import subprocess

import pytest

from conftest import MODEL, PROGRAM, serving
from gguf_writer import TinyModel

RULES = "".join(f"Rule {i}: keep your desk clean and greet the guests of room {i * 7}. " for i in range(20))


def run(*flags, model=MODEL):
    return subprocess.run([PROGRAM, "run", model, "--json", "-p", "The three primary colours are", "-n", "10",
                           "--logprobs", "4", *flags], capture_output=True, text=True, timeout=120)


def answer(*flags):
    done = run(*flags)
    assert done.returncode == 0, done.stderr
    return {key: value for key, value in json.loads(done.stdout).items() if key in ("tokens", "text", "logprobs")}


@pytest.mark.parametrize("types", [["--kv-type", "q8_0"], ["--kv-type-k", "q8_0"],
                                   ["--kv-type", "q8_0", "--kv-type-v", "bf16"]])
def test_a_cache_type_changes_the_answer_and_blocks_threads_and_recomputing_do_not(types):
    plain = answer(*types)
    assert plain != answer(), "the type must show in some digit of a log-probability"
    for flags in (["--threads", "1"], ["--block-tokens", "128"], ["--recompute"]):
        assert answer(*types, *flags) == plain


def plan(*flags):
    done = subprocess.run([PROGRAM, "plan", MODEL, "--json", "--tokens", "32", *flags], capture_output=True, text=True,
                          check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("types, words", [
    (["--kv-type", "q8_0"], "(q8_0)"),
    (["--kv-type-k", "q8_0", "--kv-type-v", "f32"], "(K q8_0, V f32)"),
])
def test_a_server_takes_what_the_plan_says_and_a_hit_has_the_bits_of_the_request_alone(types, words, nonce):
    with serving("--kv-memory", "48MiB", "--alias", "*", *types) as server:
        assert words in server.log()
        row = plan(*types)  # of one block; blocks stand on whole pages
        assert server.metrics()['pagewise_kv_group_block_bytes{group="0",window="0"}'] == row.get(
            "paged_bytes", row["kv_bytes"])

        def ask(question, **more):
            body = {"model": "m", "prompt": nonce + RULES + question, "max_tokens": 12, "temperature": 0, "logprobs": 3,
                    "seed": 1, **more}
            response = server.http.post("/v1/completions", json=body)
            assert response.status_code == 200, response.text
            choice = response.json()["choices"][0]
            return int(response.headers["x-cached-tokens"]), choice["text"], choice["logprobs"]

        for question in ("Which rule comes first?", "Which rule is the strangest, and why?"):
            alone = ask(question, cache_prompt=False)
            computed = ask(question)
            read = ask(question)
            assert alone[0] == 0 and read[0] > 300
            assert computed[1:] == alone[1:] and read[1:] == alone[1:]


@pytest.mark.parametrize("flags", [["--kv-type", "q8_0"], ["--kv-type-v", "q8_0"]])
def test_heads_that_scales_do_not_divide_are_refused_with_that_reason(tmp_path, flags):
    path = tmp_path / "tiny.gguf"
    path.write_bytes(TinyModel().bytes())
    for command in ("run", "serve", "chat"):
        more = {"run": ["-p", "x", "-n", "1"], "serve": ["--port", "0"], "chat": []}[command]
        done = subprocess.run([PROGRAM, command, path, *more, *flags], capture_output=True, text=True, timeout=60,
                              stdin=subprocess.DEVNULL)
        if command == "chat" and "no chat template" in done.stderr:
            continue  # refused before its cache is looked at
        assert done.returncode != 0 and done.stderr.splitlines()[-1].endswith(
            "KV type q8_0 needs a head dimension that is a multiple of 32, and this model's is 16"), done.stderr
