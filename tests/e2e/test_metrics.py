# SPDX-License-Identifier: Apache-2.0
"""/metrics: names that dashboards and routers know, numbers that add up."""

import concurrent.futures
import re

from conftest import NAME, eventually, serving

TYPES = {
    "vllm:num_requests_running": "gauge",
    "vllm:num_requests_waiting": "gauge",
    "vllm:kv_cache_usage_perc": "gauge",
    "vllm:cache_config_info": "gauge",
    "vllm:prefix_cache_queries_total": "counter",
    "vllm:prefix_cache_hits_total": "counter",
    "vllm:prompt_tokens_total": "counter",
    "vllm:generation_tokens_total": "counter",
    "vllm:prompt_tokens_cached_total": "counter",
    "vllm:num_preemptions_total": "counter",
    "vllm:request_success_total": "counter",
    "vllm:time_to_first_token_seconds": "histogram",
    "vllm:inter_token_latency_seconds": "histogram",
    "vllm:e2e_request_latency_seconds": "histogram",
    "vllm:request_queue_time_seconds": "histogram",
    "vllm:request_prefill_time_seconds": "histogram",
    "vllm:request_decode_time_seconds": "histogram",
    "vllm:request_prompt_tokens": "histogram",
    "vllm:request_generation_tokens": "histogram",
    "pagewise_kv_blocks": "gauge",
    "pagewise_kv_pool_blocks": "gauge",
    "pagewise_kv_slack_tokens": "gauge",
    "pagewise_kv_naive_reserve_bytes": "gauge",
    "pagewise_leases_broken_total": "counter",
    "pagewise_prefill_saved_seconds_total": "counter",
}


def complete(server, prompt, **more):
    return server.ok("/v1/completions", {"model": "gpt-x", "prompt": prompt, "max_tokens": 4, "temperature": 0,
                                         **more})


def test_the_page_has_the_names_types_and_label_that_others_expect(server):
    response = server.http.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", response.text, re.MULTILINE))
    assert {name: types.get(name) for name in TYPES} == TYPES
    for line in response.text.splitlines():
        assert line.startswith("#") or f'model_name="{NAME}"' in line


def test_configuration_tells_block_size_and_pool(server):
    line = next(line for line in server.http.get("/metrics").text.splitlines()
                if line.startswith("vllm:cache_config_info{"))
    labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
    blocks = server.blocks()
    assert labels["block_size"] == "32" and int(labels["num_gpu_blocks"]) == blocks["pool"]
    # 256 MiB in blocks of 32 tokens of 22.5 KiB
    assert blocks["pool"] == 256 * 1024 // (32 * 22.5)


def test_a_request_moves_each_counter_by_what_it_used(server, nonce):
    prompt = nonce + " count these words " * 30
    complete(server, prompt)
    before = server.metrics()
    usage = complete(server, prompt)["usage"]
    after = server.metrics()
    moved = {name: after[name] - before.get(name, 0) for name in after}
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    assert cached == usage["prompt_tokens"] - 1
    assert moved["vllm:prompt_tokens_total"] == usage["prompt_tokens"]
    assert moved["vllm:prefix_cache_queries_total"] == usage["prompt_tokens"]
    assert moved["vllm:prefix_cache_hits_total"] == moved["vllm:prompt_tokens_cached_total"] == cached
    assert moved["vllm:generation_tokens_total"] == usage["completion_tokens"]
    assert sum(v for n, v in moved.items() if n.startswith("vllm:request_success_total")) == 1
    assert moved["vllm:time_to_first_token_seconds_count"] == 1
    assert moved["vllm:e2e_request_latency_seconds_count"] == 1
    assert moved['pagewise_http_requests_total{route="completions",status="200"}'] == 1


def test_while_an_answer_runs_its_blocks_are_live_and_the_states_sum_to_the_pool(server, nonce):
    server.wait_idle()
    body = {"model": "gpt-x", "prompt": f"{nonce} " * 20, "max_tokens": 2000, "ignore_eos": True, "stream": True}
    with server.http.stream("POST", "/v1/completions", json=body) as response:
        lines = response.iter_lines()
        next(lines)
        # The page shows the state after a step; a token is sent within it.
        eventually(lambda: server.metrics()["vllm:num_requests_running"] == 1)
        metrics, blocks = server.metrics(), server.blocks()
    assert blocks["live"] > 0 and blocks["live"] + blocks["cached"] + blocks["free"] == blocks["pool"]
    assert 0 < metrics["vllm:kv_cache_usage_perc"] <= 1
    assert 0 <= metrics["pagewise_kv_slack_tokens"] < 32, "only the last block has room left"
    # 2,000 new tokens and the prompt, at 22.5 KiB a token
    assert metrics["pagewise_kv_naive_reserve_bytes"] > 2000 * 22.5 * 1024
    server.wait_idle()


def test_many_short_requests_leave_no_block_behind_and_no_counter_goes_back():  # C25 (c)
    with serving("--kv-memory", "22.5MiB", "--block-tokens", "16", "--alias", "*") as server:
        last = server.metrics()
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for batch in range(5):
                work = [pool.submit(complete, server, f"batch {batch} number {i}", max_tokens=2) for i in range(20)]
                for job in work:
                    job.result()
                now = server.metrics()
                for name, value in now.items():
                    if "_total" in name or "_count" in name or "_bucket" in name:
                        assert value >= last.get(name, 0), name
                last = now
        blocks = server.wait_idle()
        assert blocks["pool"] == 64 and blocks["cached"] <= blocks["pool"]
        assert last["vllm:prompt_tokens_total"] >= 100
