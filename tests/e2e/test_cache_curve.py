# SPDX-License-Identifier: Apache-2.0
"""The live curve: what half, twice and four times the memory would find, as the server says it while it serves, beside
the simulator's curve of the same requests and beside what the cache really found."""

import json
import os
import random
import subprocess

import pytest

from conftest import PROGRAM, serving
from test_operations import ask, resize

BLOCK = 32  # tokens
BLOCK_BYTES = BLOCK * 22.5 * 1024  # of SmolLM2
POOL = 64  # blocks
LENGTHS_DIVISOR = 512 // BLOCK  # a trace's ids stand for 512 tokens each
FACTORS = {"0.5x": 0.5, "1x": 1, "2x": 2, "4x": 4}


def made_requests(seed, count=160):
    """Ids of the prompts' blocks: one of fourteen documents of 4 to 11 blocks, the first ones more often, and a block
    that nobody else sends. All documents together need twice the pool."""
    draw = random.Random(seed)
    documents = [[1000 + 20 * n + i for i in range(draw.randint(4, 11))] for n in range(14)]
    return [documents[min(int(draw.expovariate(0.18)), 13)] + [5000 + i] for i in range(count)]


def tokens_of(block):
    return [block] + [100 + (7 * block + 13 * i) % 900 for i in range(BLOCK - 1)]


def simulated(requests, path):
    """{tokens of memory: hit rate} by `pagewise simulate --curve`."""
    with path.open("w") as trace:
        for at, blocks in enumerate(requests):
            line = {"timestamp": 1000 * at, "input_length": 512 * len(blocks), "output_length": 1, "hash_ids": blocks}
            print(json.dumps(line), file=trace)
    done = subprocess.run([PROGRAM, "simulate", path, "--curve", "--scale-lengths", str(LENGTHS_DIVISOR), "--json"],
                          capture_output=True, text=True, timeout=60, check=True)
    return {point["tokens"]: point["hit_rate"] for point in json.loads(done.stdout)["curve"]["points"]}


def rate_at(points, tokens):
    return max((rate for size, rate in points.items() if size <= tokens), default=0)


def curve_of(server):
    response = server.http.get("/v1/cache/curve")
    assert response.status_code == 200, response.text
    return response.json()


def predictions(curve):
    return {one["memory"]: one["hit_rate"] for one in curve["predictions"]}


@pytest.fixture(scope="module")
def served():
    """(server that was sent a made trace one by one, its requests, cached tokens of each)"""
    with serving("--kv-memory", int(POOL * BLOCK_BYTES), "--block-tokens", BLOCK, "--alias", "*") as server:
        assert server.blocks()["pool"] == POOL
        seed = int(os.environ.get("CURVE_SEED", "1"))
        print("CURVE_SEED", seed)
        requests, cached = made_requests(seed), []
        for blocks in requests:
            # One token is sampled and none computed behind the prompt: no block is begun for an answer.
            answer = server.ok("/v1/completions", ask(sum(map(tokens_of, blocks), []), 1))
            cached.append(answer["usage"]["prompt_tokens_details"]["cached_tokens"])
        yield server, requests, cached


def test_the_live_curve_is_the_simulators_of_the_same_requests(served, tmp_path):
    server, requests, _ = served
    expected = simulated(requests, tmp_path / "made.jsonl")
    curve = curve_of(server)
    assert curve["enough"] and curve["pool_tokens"] == POOL * BLOCK and curve["pool_bytes"] == POOL * BLOCK_BYTES
    found = predictions(curve)
    assert set(found) == set(FACTORS)
    for memory, factor in FACTORS.items():
        assert found[memory] == pytest.approx(rate_at(expected, factor * POOL * BLOCK), abs=0.02), memory
    assert found["0.5x"] + 0.1 < found["1x"] and found["1x"] + 0.1 < found["2x"], "a trace that tells sizes apart"
    points = {point["tokens"]: point["hit_rate"] for point in curve["points"]}
    for tokens in set(points) & set(expected):
        assert points[tokens] == pytest.approx(expected[tokens], abs=0.02), tokens
    assert len(set(points) & set(expected)) > 5
    for point in curve["points"]:
        assert point["bytes"] == pytest.approx(point["tokens"] * BLOCK_BYTES / BLOCK, rel=1e-6)


def test_at_its_own_size_it_predicts_about_what_the_cache_found(served):
    server, requests, cached = served
    curve = curve_of(server)
    prompt_tokens = BLOCK * sum(map(len, requests))
    assert curve["requests"] == len(requests) and curve["prompt_tokens"] == prompt_tokens
    assert curve["hit_rate"] == pytest.approx(sum(cached) / prompt_tokens, abs=1e-4)
    # The cache protects what was read again, which plain LRU does not: it may find more.
    assert predictions(curve)["1x"] == pytest.approx(curve["hit_rate"], abs=0.06)
    percent = f"{100 * predictions(curve)['2x']:.0f} % with twice"
    assert percent in curve["summary"]


def test_metrics_show_the_same_predictions(served):
    server, _, _ = served
    metrics = server.metrics()
    for memory, rate in predictions(curve_of(server)).items():
        shown = metrics[f'pagewise_cache_predicted_hit_ratio{{memory="{memory}"}}']
        assert shown == pytest.approx(rate, abs=1e-4)


def test_the_curve_follows_the_pool_and_outlives_what_is_cleared(served):
    server, _, _ = served
    before = curve_of(server)
    server.ok("/v1/cache/clear", {})
    assert curve_of(server) == before
    assert resize(server, int(2 * POOL * BLOCK_BYTES)).status_code == 200
    after = curve_of(server)
    assert after["pool_tokens"] == 2 * before["pool_tokens"] and after["hit_rate"] == before["hit_rate"]
    for less, more in (("0.5x", "1x"), ("1x", "2x"), ("2x", "4x")):
        assert predictions(after)[less] == predictions(before)[more]
    assert resize(server, int(POOL * BLOCK_BYTES)).status_code == 200
    assert predictions(curve_of(server)) == predictions(before)


def test_with_little_traffic_it_says_so_and_invents_nothing():
    with serving("--kv-memory", "64MiB", "--alias", "*") as server:
        for _ in range(3):
            server.ok("/v1/completions", ask([5] * 100, 1))
        curve = curve_of(server)
        assert not curve["enough"] and curve["predictions"] == [] and curve["points"] == []
        assert curve["summary"] == ("too little traffic to tell: 3 requests have looked into the cache, "
                                    "100 are needed")
        assert curve["requests"] == 3 and curve["hit_rate"] == pytest.approx(198 / 300, abs=1e-4)
        assert not [name for name in server.metrics() if name.startswith("pagewise_cache_predicted_hit_ratio")]
        # Not for who only passes on what others ask.
        assert server.http.get("/v1/cache/curve", headers={"via": "1.1 proxy"}).status_code == 403


@pytest.mark.parametrize("flags,reason", [(["--cache-curve", "off"], "the curve is off"),
                                          (["--no-prefix-cache"], "the prefix cache is off")])
def test_switched_off_it_says_which_flag_to_leave_out(flags, reason):
    with serving("--kv-memory", "64MiB", *flags) as server:
        curve = curve_of(server)
        assert curve["summary"].startswith(reason) and flags[0] in curve["summary"] and not curve["enough"]
        assert "requests" not in curve
