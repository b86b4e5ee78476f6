# SPDX-License-Identifier: Apache-2.0
"""`pagewise plan SOURCE --live URL`: what was planned from the header against what a server of the same file takes,
on both models: KV within 1 %, weights and the whole process within 3 %."""

import http.server
import json
import random
import subprocess
import threading

import pytest

from conftest import GEMMA, MODEL, PROGRAM, eventually, serving, serving_gemma


def compare(source, base, *more, status=0):
    command = [PROGRAM, "plan", str(source), "--live", base, *map(str, more)]
    text = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert text.returncode == status, text.stdout + text.stderr
    if status == 2:
        return text.stderr
    found = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=60, check=False)
    return text.stdout, {row["row"]: row for row in json.loads(found.stdout)["live"]}


@pytest.mark.parametrize("start, source", [(serving, MODEL), (serving_gemma, GEMMA)], ids=["smollm2", "gemma3"])
def test_the_plan_is_what_the_server_takes(start, source):
    seed = random.randrange(2**32)
    print("seed", seed)
    draw = random.Random(seed)
    with start("--kv-memory", "256MiB", "--alias", "*") as server:
        answer_something(server, draw)
        text, rows = compare(source, server.base)
        print(text)
        assert all(row["holds"] for row in rows.values()), text
        assert rows["the whole process"]["percent_apart"] < 3
        assert rows["KV blocks in use"]["percent_apart"] < 1 and rows["KV blocks in use"]["running"] > 0
        assert rows["KV of a token"]["percent_apart"] == 0
        groups = [row for name, row in rows.items() if name.startswith("a block of")]
        assert len(groups) == (1 if source == MODEL else 2)
        assert all(row["planned"] == row["running"] for row in groups)
        # And what is kept back for computing before a pool is sized is what computing then takes.
        device = subprocess.run([PROGRAM, "plan", str(source), "--device-memory", "8GiB", "--tokens", "512", "--json"],
                                capture_output=True, text=True, timeout=60, check=True)
        computing = json.loads(device.stdout)["device"]["working_bytes"] - (128 << 20)
        assert computing == server.metrics()["pagewise_working_bytes"] > 1 << 20


def answer_something(server, draw):
    """The plan is of a server in use: code, buffers and blocks come into memory with the first requests."""
    for _ in range(3):
        prompt = [draw.randrange(2000, 40000) for _ in range(700)]
        server.ok("/v1/completions", {"model": "m", "prompt": prompt, "max_tokens": 4})
    server.wait_idle()
    # Free blocks keep their memory for ten seconds.
    eventually(lambda: compare_committed(server), 60)


def compare_committed(server):
    """Whether the memory of free blocks has gone back."""
    metrics = server.metrics()
    held = sum(value for name, value in metrics.items()
               if name.startswith("pagewise_kv_blocks{") and "free" not in name)
    block = [value for name, value in metrics.items() if name.startswith("pagewise_kv_group_block_bytes")]
    return metrics["pagewise_kv_committed_bytes"] <= held * max(block)


def test_a_server_of_another_block_size_is_told_apart():
    with serving("--kv-memory", "64MiB", "--block-tokens", "64", "--alias", "*") as server:
        answer_something(server, random.Random(1))
        text, rows = compare(MODEL, server.base, status=1)
        assert not rows["tokens a block"]["holds"] and "more than 0 %" in text
        _, rows = compare(MODEL, server.base, "--block-tokens", "64")
        assert rows["tokens a block"]["holds"]
        line = compare(MODEL, server.base, "--kv-type", "q8_0", status=2)
        assert "the server keeps KV as f16; give it with --kv-type" in line
        assert "groups of layers" in compare(GEMMA, server.base, "--block-tokens", "64", status=2)


def test_who_is_no_server_is_told_in_one_line():
    class Other(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"up 1\n")

        def log_message(self, *_):
            pass

    other = http.server.HTTPServer(("127.0.0.1", 0), Other)
    thread = threading.Thread(target=other.serve_forever)
    thread.start()
    try:
        address = f"http://127.0.0.1:{other.server_address[1]}"
        assert "is this a Pagewise server?" in compare(MODEL, address, status=2)
    finally:
        other.shutdown()
        thread.join()
        other.server_close()
    assert "https is not spoken here" in compare(MODEL, "https://127.0.0.1", status=2)
    gone = subprocess.run([PROGRAM, "plan", str(MODEL), "--live", address], capture_output=True, text=True,
                          timeout=60, check=False)
    assert gone.returncode == 1 and gone.stderr.count("\n") == 1, gone
