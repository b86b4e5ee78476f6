# SPDX-License-Identifier: Apache-2.0
"""Weights of the types that files in the wild have: small models of each, beside the same numbers in f32."""

import json
import subprocess

import pytest

from conftest import PROGRAM, serving
from gguf_writer import (BF16_TENSOR, F16_TENSOR, IQ4_NL_TENSOR, MXFP4_TENSOR, Q4_0_TENSOR, Q5_1_TENSOR,
                         TinyModel)


def tokens_and_logprobs(path, *flags):
    done = subprocess.run([PROGRAM, "run", path, "--json", "-p", "hello", "-n", "12", "--ignore-eos", "--temp", "0.8",
                           "--seed", "3", "--logprobs", "5", *flags], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    return answer["tokens"], answer["logprobs"]


def write(tmp_path, kind):
    own, plain = tmp_path / "own.gguf", tmp_path / "plain.gguf"
    own.write_bytes(TinyModel(kind).bytes())
    plain.write_bytes(TinyModel(kind, as_f32=True).bytes())
    assert own.stat().st_size < 0.6 * plain.stat().st_size
    return own, plain


@pytest.mark.parametrize("kind", [F16_TENSOR, BF16_TENSOR])
def test_16_bit_floats_give_the_bits_of_the_same_numbers_in_f32(tmp_path, kind):
    own, plain = write(tmp_path, kind)
    assert tokens_and_logprobs(own) == tokens_and_logprobs(plain) == tokens_and_logprobs(own, "--threads", "1")


@pytest.mark.parametrize("kind", [Q4_0_TENSOR, Q5_1_TENSOR, IQ4_NL_TENSOR, MXFP4_TENSOR])
def test_quantised_weights_differ_from_their_numbers_by_the_rounding_of_activations(tmp_path, kind):
    own, plain = write(tmp_path, kind)
    tokens, measured = tokens_and_logprobs(own)
    _, exact = tokens_and_logprobs(plain)
    assert (tokens, measured) == tokens_and_logprobs(own, "--threads", "1", "--recompute")
    # The first token: later ones may stand behind other ones.
    def by_token(entry):
        return {candidate["id"]: candidate["logprob"] for candidate in entry["top"]}
    ours, theirs = by_token(measured[0]), by_token(exact[0])
    common = ours.keys() & theirs.keys()
    assert len(common) >= 3 and ours != theirs
    assert all(abs(ours[token] - theirs[token]) < 0.02 for token in common)


def test_a_server_with_iq4_nl_weights_answers_a_hit_with_the_bits_of_the_request_alone(tmp_path):
    path = tmp_path / "tiny.gguf"
    path.write_bytes(TinyModel(IQ4_NL_TENSOR).bytes())
    with serving("--kv-memory", "8MiB", "--alias", "*", model=path) as server:
        def ask(**more):
            response = server.http.post("/v1/completions", json={
                "model": "m", "prompt": "hello " * 20, "max_tokens": 20, "temperature": 0, "logprobs": 4, **more})
            assert response.status_code == 200, response.text
            choice = response.json()["choices"][0]
            return int(response.headers["x-cached-tokens"]), choice["text"], choice["logprobs"]

        alone, computed, read = ask(cache_prompt=False), ask(), ask()
        assert alone[0] == 0 and read[0] > 64
        assert alone[1:] == computed[1:] == read[1:]
