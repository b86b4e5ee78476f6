# SPDX-License-Identifier: Apache-2.0
"""What a sequence holds of KV memory, against what the planner says for the same file, and whether as many
conversations as the start screen promises are really held at once."""

import concurrent.futures
import json
import random
import re
import subprocess
import threading
import time

from conftest import GEMMA, PROGRAM, eventually, serving_gemma

BLOCK, WINDOW = 32, 512
FULL, SLIDING = ("1", 0), ("0", WINDOW)  # label group (in the order of the layers) and window


def ids(seed, count):
    draw = random.Random(seed)
    return [draw.randrange(2000, 200000) for _ in range(count)]


def plan(tokens):
    """What the planner says about one sequence of so many tokens."""
    command = [PROGRAM, "plan", GEMMA, "--tokens", str(tokens), "--block-tokens", str(BLOCK), "--json"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def gauge(server, name, group, **labels):
    labels = {"group": group[0], "window": str(group[1]), **labels}
    text = ",".join(f'{key}="{labels[key]}"' for key in sorted(labels))
    return int(server.metrics()[f"{name}{{{text}}}"])


def complete(server, prompt, new):
    return server.ok("/v1/completions", {"model": "m", "prompt": prompt, "max_tokens": new, "temperature": 0,
                                         "ignore_eos": True})


def test_a_long_conversation_holds_what_the_plan_says_and_the_windows_bounds():
    seed = random.randrange(2**32)
    print("seed", seed)
    prompt, new, step = ids(seed, 1100), 70, 256
    with serving_gemma("--kv-memory", "128MiB", "--step-tokens", step) as server:
        seen, ended = set(), threading.Event()

        def watch():
            while not ended.is_set():
                seen.add((gauge(server, "pagewise_kv_group_blocks", FULL, state="live"),
                          gauge(server, "pagewise_kv_group_blocks", SLIDING, state="live")))
                time.sleep(0.02)

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            complete(server, prompt, new)
        finally:
            ended.set()
            watcher.join()
        tokens = len(prompt) + new
        print("live blocks seen (full, sliding)", sorted(seen))
        # At rest: the window and one block more; what the metrics show between steps is never above that.
        rest = WINDOW // BLOCK + 1
        assert max(sliding for _, sliding in seen) <= rest
        assert gauge(server, "pagewise_kv_sequence_blocks_max", SLIDING, when="rest") == rest
        # During a step: the window, the step's tokens and two blocks more.
        most = gauge(server, "pagewise_kv_sequence_blocks_max", SLIDING, when="step")
        assert rest < most <= (WINDOW + step) // BLOCK + 2
        assert gauge(server, "pagewise_kv_sequence_blocks_max", FULL, when="rest") == -(-(tokens - 1) // BLOCK)
        # The plan's bytes of one such sequence are those of the most blocks that it held at rest.
        held = sum(gauge(server, "pagewise_kv_sequence_blocks_max", group, when="rest") *
                   gauge(server, "pagewise_kv_group_block_bytes", group) for group in (FULL, SLIDING))
        planned = plan(tokens)
        assert abs(held - planned["rows"][0]["paged_bytes"]) <= planned["rows"][0]["paged_bytes"] / 100, (held, planned)
        # Every group's states sum to its pool, and the groups to the sums.
        metrics = server.metrics()
        for state in ("live", "cached", "free"):
            parts = sum(gauge(server, "pagewise_kv_group_blocks", group, state=state) for group in (FULL, SLIDING))
            assert parts == metrics[f'pagewise_kv_blocks{{state="{state}"}}']
        for group in (FULL, SLIDING):
            assert gauge(server, "pagewise_kv_group_pool_blocks", group) == sum(
                gauge(server, "pagewise_kv_group_blocks", group, state=state) for state in ("live", "cached", "free"))


def test_the_configuration_tells_the_tokens_that_can_be_kept(gemma):
    line = next(line for line in gemma.http.get("/metrics").text.splitlines()
                if line.startswith("vllm:cache_config_info{"))
    labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
    full = gauge(gemma, "pagewise_kv_group_pool_blocks", FULL)
    assert int(labels["kv_cache_size_tokens"]) == full * BLOCK
    assert int(labels["num_gpu_blocks"]) == full + gauge(gemma, "pagewise_kv_group_pool_blocks", SLIDING)


def test_as_many_conversations_as_the_start_screen_says_are_held_at_once():
    seed = random.randrange(2**32)
    print("seed", seed)
    with serving_gemma("--kv-memory", "80MiB", "--max-context", "2048") as server:
        promised = int(re.search(r"conversations\s+1k: (\d+),", server.log()).group(1))
        assert promised >= 4
        prompts = [ids(seed + k, 900) for k in range(promised)]
        together = []
        with concurrent.futures.ThreadPoolExecutor(promised) as pool:
            jobs = [pool.submit(complete, server, prompt, 1024 - 900) for prompt in prompts]
            eventually(lambda: together.append(server.running()) or together[-1] == promised or
                       all(job.done() for job in jobs), 120)
            assert together[-1] == promised
            assert all(job.result()["usage"]["total_tokens"] == 1024 for job in jobs)
        assert server.metrics()["vllm:num_preemptions_total"] == 0, "each found its memory, up to its last token"
        server.wait_idle()
