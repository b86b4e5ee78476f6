#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The story of one policy manual in numbers (`./dev demo`): a cold call that writes it to the
cache, warm calls that read it, a change in front of it that misses, and the manual *behind* the
question, where nothing can be reused. Starts a server of its own and stops it at the end.

Every call goes over HTTP through the official `anthropic` client, streamed, so the time to first
token is what a user would wait. Blocks are read from /metrics while the answer's first token is
there: live blocks belong to the running request, cached ones can be read again.

Exit status: 0 when the cache did what it promises, 1 when a counter contradicts it.
"""

import argparse
import contextlib
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODEL = ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
START_SECONDS_MAX = 120
WARM_SHARE_MIN = 0.95  # of the second call's prompt, read from the cache
WARM_TTFT_MAX = 1 / 20  # of the first call's time to first token


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def fetch(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


@contextlib.contextmanager
def running_server(program, model, flags):
    """Yields the base URL of a server that is ready; ends the server whatever happens."""
    base = f"http://127.0.0.1:{free_port()}"
    command = [str(program), "serve", str(model), "--port", base.rsplit(":", 1)[1],
               "--alias", "claude-*", *flags]
    with tempfile.TemporaryFile("w+") as log:
        server = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            wait_until_ready(server, base, log)
            yield base
        finally:
            server.send_signal(signal.SIGTERM)
            try:
                server.wait(10)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def wait_until_ready(server, base, log):
    for _ in range(START_SECONDS_MAX * 10):
        if server.poll() is not None:
            log.seek(0)
            sys.exit(f"the server ended at once, status {server.returncode}:\n{log.read()}")
        with contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError):
            fetch(base + "/ready")
            return
        time.sleep(0.1)
    sys.exit(f"the server was not ready within {START_SECONDS_MAX} s")


def blocks(base):
    """{'live': n, 'cached': n, 'free': n}, as the server counts them now."""
    found = re.findall(r'^pagewise_kv_blocks\{[^}]*state="(\w+)"[^}]*\} (\S+)$',
                       fetch(base + "/metrics"), re.MULTILINE)
    return {state: int(float(value)) for state, value in found}


def call(client, base, manual, question, system_head="", manual_behind=False):
    """One streamed call; returns what it cost, and what memory looked like at its first token."""
    marked = {"type": "text", "text": manual, "cache_control": {"type": "ephemeral"}}
    if manual_behind:
        extra = {}
        content = [{"type": "text", "text": question + "\n\n"}, marked]
    else:
        extra = {"system": ([{"type": "text", "text": system_head}] if system_head else [])
                           + [marked]}
        content = question
    started = time.perf_counter()
    first, at_first = None, None
    # The client's own fields know no temperature any more; the server does.
    with client.messages.stream(model="claude-demo", max_tokens=24,
                                messages=[{"role": "user", "content": content}],
                                extra_body={"temperature": 0}, **extra) as stream:
        for event in stream:
            if event.type == "content_block_delta" and first is None:
                first = time.perf_counter() - started
                at_first = blocks(base)
        usage = stream.get_final_message().usage
    written, read = usage.cache_creation_input_tokens or 0, usage.cache_read_input_tokens or 0
    if first is None:
        sys.exit("the answer was empty, so there is no time to a first token")
    return {"written": written, "read": read, "prompt": usage.input_tokens + written + read,
            "ttft": first, "blocks": at_first}


ROW = "{:<46} {:>7} {:>8} {:>7} {:>6} {:>9}   {:>5} {:>6} {:>6}"


def print_row(title, result):
    held = result["blocks"]
    print(ROW.format(title, f"{result['prompt']:,}", f"{result['written']:,}",
                     f"{result['read']:,}", f"{result['read'] / result['prompt']:.1%}",
                     f"{result['ttft'] * 1000:,.0f} ms",
                     held.get("live", 0), held.get("cached", 0), held.get("free", 0)), flush=True)


def tell(client, base, manual):
    """Runs the calls of the story, a row each; returns their results by name."""
    print(ROW.format("call", "prompt", "written", "read", "", "first", "live", "cached", "free"))
    print(ROW.format("", "tokens", "tokens", "tokens", "", "token", "", "blocks", ""))
    story = [
        ("cold", "1 first question: the manual is computed",
         dict(question="Given the policy, can I refund order 123?")),
        ("warm", "2 another question: the manual is read",
         dict(question="How much may an agent spend on goodwill?")),
        ("warm_again", "3 one more",
         dict(question="Summarize section 3.")),
        ("changed", "4 a date in front of the manual: all differs",
         dict(question="Summarize section 3.", system_head="Today is 4 March.\n")),
        ("behind", "5 the manual behind the question",
         dict(question="What does a late parcel cost us?", manual_behind=True)),
        ("behind_again", "6 same order, another question: cannot hit",
         dict(question="Who may promise a refund of 100 euros?", manual_behind=True)),
        ("back", "7 manual first again: still there",
         dict(question="What does a late parcel cost us?")),
    ]
    results = {}
    for name, title, arguments in story:
        results[name] = call(client, base, manual, **arguments)
        print_row(title, results[name])
    return results


def judge(results):
    """Prints the verdicts; returns the promises that the counters contradict."""
    broken = []

    def promise(text, kept, counts=True):
        print(f"  {'yes' if kept else 'NO '}  {text}")
        if counts and not kept:
            broken.append(text)

    cold, warm, back = results["cold"], results["warm"], results["back"]
    print("\nWhat this shows")
    promise(f"the first call wrote {cold['written']:,} tokens and read none",
            cold["written"] > 0 and cold["read"] == 0)
    promise(f"the second read {warm['read'] / warm['prompt']:.1%} of its prompt "
            f"(at least {WARM_SHARE_MIN:.0%})", warm["read"] >= WARM_SHARE_MIN * warm["prompt"])
    promise(f"and waited {cold['ttft'] / warm['ttft']:.0f} times less for its first token "
            f"(at least {1 / WARM_TTFT_MAX:.0f} times)",
            warm["ttft"] <= WARM_TTFT_MAX * cold["ttft"],
            counts=False)  # a busy machine may miss it
    promise("a change in front of the marker read nothing: a hit needs an equal prefix",
            results["changed"]["read"] == 0)
    promise("behind the question nothing could be read: put the shared part first",
            results["behind_again"]["read"] == 0)
    promise("the first manual was still there at the end", back["read"] == warm["read"])
    pools = {sum(r["blocks"].values()) for r in results.values()}
    promise(f"live + cached + free was the pool at every look: {sorted(pools)} blocks",
            len(pools) == 1)
    return broken


def main():
    parser = argparse.ArgumentParser(description="The story of one policy manual in numbers.")
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/release/pagewise")
    parser.add_argument("--model", type=pathlib.Path, default=MODEL)
    parser.add_argument("--manual", type=pathlib.Path, default=ROOT / "examples/policy_manual.txt")
    parser.add_argument("--short", action="store_true",
                        help="the manual's first 3,000 characters only: takes seconds")
    parser.add_argument("--kv-memory", default="1GiB")
    args = parser.parse_args()

    from anthropic import Anthropic  # here, so that --help works without the package

    signal.signal(signal.SIGTERM, lambda *_: sys.exit("told to stop"))  # so that the server ends too
    manual = args.manual.read_text(encoding="utf-8")[:3000 if args.short else None]
    with running_server(args.program, args.model, ["--kv-memory", args.kv_memory]) as base:
        print(f"{args.model.name} at {base}, {args.kv_memory} of KV memory\n")
        client = Anthropic(base_url=base, api_key=os.environ.get("ANTHROPIC_API_KEY", "local"),
                           max_retries=0, timeout=600)
        # The first request of a process pays for its connection and page faults; the manual's own
        # cold call should not.
        client.messages.create(model="claude-demo", max_tokens=1,
                               messages=[{"role": "user", "content": "Good morning."}])
        broken = judge(tell(client, base, manual))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
