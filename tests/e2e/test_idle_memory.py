# SPDX-License-Identifier: Apache-2.0
"""Memory of free blocks goes back to the system ten seconds after the last request, seen from outside."""

import pathlib

from conftest import eventually, serving

BLOCK_TOKENS = 128
BLOCK_KIB = BLOCK_TOKENS * 22.5  # f16, 22.5 KiB a token


def resident_kib(server):
    """Of the server's process, as the system counts it."""
    status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text(encoding="ascii")
    return int(status.split("VmRSS:")[1].split()[0])


def test_memory_of_free_blocks_goes_back_and_that_of_cached_ones_stays():
    with serving("--kv-memory", "128MiB", "--block-tokens", BLOCK_TOKENS, "--alias", "*") as server:
        def fill(first, count, **more):
            body = {"model": "m", "prompt": [first + i % 999 for i in range(count * BLOCK_TOKENS - 1)],
                    "max_tokens": 1, **more}
            return server.ok("/v1/completions", body)["usage"]["prompt_tokens_details"]["cached_tokens"]

        fill(1000, 2)  # what the first request allocates beside KV
        fill(5000, 4)  # stays cached
        cached = server.wait_idle()["cached"]
        returned = server.metrics()["pagewise_kv_blocks_returned_total"]
        idle = resident_kib(server)
        fill(9000, 24, cache_prompt=False)  # becomes free at once
        assert server.wait_idle()["cached"] == cached
        full = resident_kib(server)
        assert full > idle + 20 * BLOCK_KIB
        eventually(lambda: server.metrics()["pagewise_kv_blocks_returned_total"] >= returned + 24, 60)
        # Pages that the kernel put together around a block that stays count as the block's.
        eventually(lambda: resident_kib(server) < full - 20 * BLOCK_KIB)
        assert fill(5000, 4) == 4 * BLOCK_TOKENS - 2, "what was cached is still there, and is read"
        server.wait_idle()
