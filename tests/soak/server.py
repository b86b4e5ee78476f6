# SPDX-License-Identifier: Apache-2.0
"""The server under test: the real program, one process a model, its log in a file."""

import asyncio
import json
import os
import pathlib
import re
import signal
import subprocess

from link import Link, request_bytes

KEYS = ("soak-key-one", "soak-key-two", "soak-key-three")
OPERATOR = "soak-key-operator"
KEY_FILE = f"""{KEYS[0]}  name=one tenant=crowd
{KEYS[1]}  name=two tenant=crowd
{KEYS[2]}  name=three tenant=alone max-requests=3 max-tokens=3000
{OPERATOR}  name=operator admin
"""
ACCOUNTS = ("tenant:crowd", "tenant:alone")
TEMPLATES = {"gemma": "tests/templates/families/gemma.jinja"}  # for files that have none, by how their names begin
ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK_TOKENS = 16
CONTEXT = 1536
POOL_GROWTH_MAX = 1.5  # operators make the pool larger, up to so much, and smaller again
POOL_CONTEXTS = 1.25  # the pool in full contexts: a few long requests fill it
SEQS_MAX = 12
QUEUE_MAX = 12
LEASE_SHARE = 0.5
START_S_MAX = 120


class StartFailed(Exception):
    pass


def kv_memory(program, model):
    """Bytes for POOL_CONTEXTS sequences of CONTEXT tokens, by the program's own arithmetic."""
    done = subprocess.run([program, "plan", str(model), "--block-tokens", str(BLOCK_TOKENS), "--tokens", str(CONTEXT),
                           "--json"], capture_output=True, text=True, check=True)
    return int(json.loads(done.stdout)["kv_bytes"] * POOL_CONTEXTS)


def template_flags(model):
    found = [path for start, path in TEMPLATES.items() if model.stem.startswith(start)]
    return ["--chat-template", str(ROOT / found[0])] if found else []


class Server:
    """Thread: the event loop's, like everything here."""

    def __init__(self, program, model, folder, threads):
        self.model, self.folder = pathlib.Path(model), folder
        keys = folder / "keys.txt"
        keys.write_text(KEY_FILE, encoding="utf-8")
        self.kv_bytes = kv_memory(program, model)
        self.flags = ["--kv-memory", str(self.kv_bytes), "--block-tokens", str(BLOCK_TOKENS),
                      "--max-context", str(CONTEXT), "--step-tokens", "128", "--max-seqs", str(SEQS_MAX),
                      "--max-queue", str(QUEUE_MAX), "--lease-5m", "3", "--lease-1h", "20",
                      "--lease-share", str(LEASE_SHARE), "--threads", str(threads), "--alias", "gpt-*,claude-*",
                      *template_flags(self.model), "--api-key-file", str(keys)]
        self.command = [program, "serve", str(model), "--port", "0", *self.flags]
        self.log = folder / "server.log"
        self.process = None
        self.port = 0
        self.link = None  # for the watch; one connection for the whole run
        self._turn = asyncio.Lock()  # one question at a time on it

    @property
    def pid(self):
        return self.process.pid

    def log_text(self):
        return self.log.read_text(encoding="utf-8", errors="replace")

    async def start(self, patience):
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=subprocess.STDOUT)
        for _ in range(int(START_S_MAX * patience * 20)):
            if found := re.search(r"address\s+http://127\.0\.0\.1:(\d+)", self.log_text()):
                self.port = int(found.group(1))
                self.link = await Link.open(self.port)
                return
            if self.process.poll() is not None:
                break
            await asyncio.sleep(0.05)
        raise StartFailed(f"the server did not start (status {self.process.poll()}): {' '.join(self.command)}: "
                          f"{self.log_text()[-500:]}")

    async def get(self, path):
        return await self._ask("GET", path)

    async def post(self, path, body):
        """As the operator; what it answers."""
        return json.loads(await self._ask("POST", path, body))

    async def _ask(self, method, path, body=b""):
        async with self._turn:
            await self.link.send(request_bytes(method, path, body, {"x-api-key": OPERATOR}))
            status, _ = await self.link.read_head()
            answer = (await self.link.body()).decode()
        if status != 200:
            raise RuntimeError(f"{method} {path}: {status} {answer}")
        return answer

    def ended(self):
        """The exit status, or None while it runs."""
        return self.process.poll()

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    async def wait_ended(self, seconds):
        """The exit status, or None when it still runs."""
        for _ in range(int(seconds * 20)):
            if self.process.poll() is not None:
                break
            await asyncio.sleep(0.05)
        return self.process.poll()

    def kill(self):
        """For the end of a failed run: nothing of ours stays behind."""
        if self.process is not None and self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait()
