# SPDX-License-Identifier: Apache-2.0
"""Servers for the end-to-end tests: the real program on a free port of the loopback interface, the real model,
the official clients.

The program is build/release/pagewise, or what PAGEWISE_BIN (or PAGEWISE) names.
"""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time

import anthropic
import httpx2
import openai
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = (os.environ.get("PAGEWISE_BIN") or os.environ.get("PAGEWISE") or
           str(ROOT / "build/release/pagewise"))
MODEL = ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
GEMMA = ROOT / "models/gemma-3-270m-q4_k_m.gguf"
# Its file has no chat template: ours, built like its family's.
GEMMA_TEMPLATE = ROOT / "tests/templates/families/gemma.jinja"
START_S_MAX = 120
NAME = "SmolLM2-135M-Instruct.Q4_1"


def eventually(condition, seconds=30):
    """Polls until `condition()` is true; gives its value. Fails with the last value otherwise."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"not true within {seconds} s: {value!r}"
        time.sleep(0.02)


def check_warm_usage(cold, warm):
    """OpenAI usage of a prompt of more than 900 tokens, new and then sent again (C11)."""
    assert cold.prompt_tokens == warm.prompt_tokens > 900
    assert cold.prompt_tokens_details.cached_tokens < 64
    assert warm.prompt_tokens_details.cached_tokens == warm.prompt_tokens - 1
    for found in (cold, warm):
        assert found.total_tokens == found.prompt_tokens + found.completion_tokens


class Server:
    """A running server and ways to ask it."""

    def __init__(self, process, base, log):
        self.process, self.base, self._log = process, base, log
        self.port = int(base.rsplit(":", 1)[1])
        self.http = httpx2.Client(base_url=base, timeout=120)

    def openai(self, **options):
        return openai.OpenAI(base_url=f"{self.base}/v1", api_key="key", max_retries=0, timeout=120, **options)

    def anthropic(self, **options):
        return anthropic.Anthropic(base_url=self.base, api_key="key", max_retries=0, timeout=120, **options)

    def post(self, path, body, **headers):
        """JSON in, response out; header names with underscores for dashes."""
        return self.http.post(path, json=body, headers={k.replace("_", "-"): v for k, v in headers.items()})

    def ok(self, path, body, **headers):
        response = self.post(path, body, **headers)
        assert response.status_code == 200, response.text
        return response.json()

    def metrics(self):
        """{name{labels without the model}: value}"""
        found = {}
        for line in self.http.get("/metrics").text.splitlines():
            if line.startswith("#"):
                continue
            name, value = line.rsplit(" ", 1)
            name = re.sub(r'model_name="[^"]*",?', "", name).replace(",}", "}").replace("{}", "")
            found[name] = float(value)
        return found

    def blocks(self):
        metrics = self.metrics()
        states = {state: int(metrics[f'pagewise_kv_blocks{{state="{state}"}}'])
                  for state in ("live", "cached", "free")}
        return {**states, "pool": int(metrics["pagewise_kv_pool_blocks"])}

    def group_blocks(self, group, window, state="live"):
        """Blocks of one layer group."""
        name = f'pagewise_kv_group_blocks{{group="{group}",state="{state}",window="{window}"}}'
        return int(self.metrics()[name])

    def computed(self):
        """Prompt tokens computed so far, of finished requests."""
        return int(self.metrics()["vllm:request_prefill_kv_computed_tokens_sum"])

    def running(self):
        return int(self.metrics()["vllm:num_requests_running"])

    def waiting(self):
        return int(self.metrics()["vllm:num_requests_waiting"])

    def wait_idle(self, seconds=30):
        """Nothing runs, nothing waits, no block is live, and the three states sum to the pool."""
        eventually(lambda: self.running() == 0 and self.waiting() == 0, seconds)
        blocks = eventually(lambda: (b := self.blocks())["live"] == 0 and b, seconds)
        assert blocks["live"] + blocks["cached"] + blocks["free"] == blocks["pool"]
        return blocks

    def tokens(self, text):
        return self.ok("/tokenize", {"content": text})["tokens"]

    def log(self):
        self._log.seek(0)
        return self._log.read()


@contextlib.contextmanager
def serving(*flags, model=MODEL):
    """Starts a server, yields it when it is ready, ends it whatever happens."""
    command = [PROGRAM, "serve", str(model), "--port", "0", *map(str, flags)]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            base = _wait_for_address(process, log)
            server = Server(process, base, log)
            eventually(lambda: server.http.get("/health").status_code == 200)
            yield server
            server.http.close()
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(15)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def _wait_for_address(process, log):
    deadline = time.monotonic() + START_S_MAX
    while time.monotonic() < deadline:
        log.seek(0)
        text = log.read()
        if found := re.search(r"address\s+(http://\S+)", text):
            return found.group(1)
        assert process.poll() is None, f"the server ended with {process.returncode}:\n{text}"
        time.sleep(0.02)
    raise AssertionError(f"the server did not start within {START_S_MAX} s:\n{text}")


@pytest.fixture(scope="session")
def server():
    """The server that most tests share: the cache is on, two families of aliases."""
    with serving("--kv-memory", "256MiB", "--alias", "claude-*,gpt-*", "--alias", "local-chat") as running:
        yield running


@pytest.fixture(scope="session")
def uncached():
    """The same model with the prefix cache off: what every answer must be equal to."""
    with serving("--kv-memory", "64MiB", "--no-prefix-cache", "--alias", "*") as running:
        yield running


@contextlib.contextmanager
def serving_gemma(*flags, template=GEMMA_TEMPLATE):
    with serving("--chat-template", template, "--alias", "*", *flags, model=GEMMA) as running:
        yield running


@pytest.fixture(scope="session")
def gemma():
    """A model whose layers mostly see 512 positions; the cache is on."""
    with serving_gemma("--kv-memory", "256MiB") as running:
        yield running


@pytest.fixture(scope="session")
def gemma_uncached():
    with serving_gemma("--kv-memory", "64MiB", "--no-prefix-cache") as running:
        yield running


@pytest.fixture
def nonce():
    """Words that no other test has sent: what begins with them is cold."""
    return f"nonce {os.urandom(6).hex()}"
