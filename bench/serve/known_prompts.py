#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long a known prompt waits for its first token, on a model with sliding windows and on one without.

Each round sends a new prompt cold, the same again, the next turn (the answer and a new question behind it), and the
same with its last five tokens changed. A figure is the median of the rounds' times to the first token, streamed, with
smallest and largest, beside what was read from the cache and what was computed; the ratio is to the cold one of the
same round. The field's demand (C06) is at most 40 % for the first two.

usage: bench/serve/known_prompts.py [--tokens 3000] [--rounds 5] [--threads N]
Writes bench/results/known-prompts-<commit>-<time>.{md,json}.
"""

import argparse
import datetime
import http.client
import json
import pathlib
import random
import re
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

from provenance import commit, cpu_name

PROGRAM = ROOT / "build/release/pagewise"
MODELS = ["models/gemma-3-270m-q4_k_m.gguf", "models/SmolLM2-135M-Instruct.Q4_1.gguf"]
CASES = ["cold", "the same again", "the next turn", "another end"]
CHANGED, QUESTION, ANSWER = 5, 24, 16  # tokens


class Server:
    def __init__(self, model, threads):
        self.command = [str(PROGRAM), "serve", str(ROOT / model), "--port", "0", "--kv-memory", "512MiB", "--alias", "*",
                        "--threads", str(threads)]
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True)
        for line in self.process.stdout:
            if found := re.search(r"address\s+http://127.0.0.1:(\d+)", line):
                self.port = int(found.group(1))
                break
        else:
            sys.exit("the server did not start")

    def ask(self, prompt):
        """(seconds to the first token, cached tokens, ids of the answer)"""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        body = {"model": "m", "prompt": prompt, "max_tokens": ANSWER, "temperature": 0, "ignore_eos": True, "stream": True,
                "stream_options": {"include_usage": True}}
        begin = time.perf_counter()
        connection.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
        response, first, text, usage = connection.getresponse(), None, "", None
        for line in response:
            if not line.startswith(b"data: {"):
                continue
            first = first or time.perf_counter() - begin
            event = json.loads(line[6:])
            text += "".join(choice["text"] for choice in event["choices"])
            usage = event["usage"] or usage
        connection.close()
        return first, usage["prompt_tokens_details"]["cached_tokens"], self.tokens(text)

    def tokens(self, text):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("POST", "/tokenize", json.dumps({"content": text}))
        return json.load(connection.getresponse())["tokens"]

    def end(self):
        self.process.terminate()
        self.process.wait()


def one_round(server, tokens, draw):
    def ids(count):
        return [draw.randrange(1000, 40000) for _ in range(count)]

    prompt, out = ids(tokens), {}

    def take(case, given):
        seconds, cached, answer = server.ask(given)
        out[case] = {"ms": seconds * 1000, "prompt": len(given), "cached": cached, "computed": len(given) - cached}
        return answer

    answer = take("cold", prompt)
    take("the same again", prompt)
    take("the next turn", prompt + answer + ids(QUESTION))
    take("another end", prompt[:-CHANGED] + ids(CHANGED))
    return out


def summary(rounds):
    out = {}
    for case in CASES:
        times = [r[case]["ms"] for r in rounds]
        ratios = [r[case]["ms"] / r["cold"]["ms"] for r in rounds]
        out[case] = {"ms": statistics.median(times), "ms_min": min(times), "ms_max": max(times),
                     "ratio": statistics.median(ratios), "ratio_max": max(ratios),
                     "prompt": rounds[0][case]["prompt"], "cached": min(r[case]["cached"] for r in rounds),
                     "computed": max(r[case]["computed"] for r in rounds)}
    return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    seed = random.randrange(2**32)
    now = datetime.datetime.now(datetime.timezone.utc)
    result = {"time": now.strftime("%Y-%m-%d %H:%M UTC"), "commit": commit(), "cpu": cpu_name(),
              "threads": options.threads, "rounds": options.rounds, "seed": seed, "models": {}}
    lines = [f"# Known prompts: time to the first token\n\n{result['time']}, commit {result['commit']}, {result['cpu']}, "
             f"{options.threads} threads, {options.rounds} rounds, prompts of {options.tokens} tokens; medians (smallest "
             "to largest).\n"]
    for model in MODELS:
        server = Server(model, options.threads)
        draw = random.Random(seed)
        try:
            server.ask([draw.randrange(1000, 40000) for _ in range(600)])  # memory and code are warm
            rounds = [one_round(server, options.tokens, draw) for _ in range(options.rounds)]
        finally:
            server.end()
        name, figures = pathlib.Path(model).name, summary(rounds)
        result["models"][name] = {"command": [pathlib.Path(part).name if part.startswith("/") else part
                                              for part in server.command], "summary": figures, "rounds": rounds}
        lines += [f"## {name}\n", "| prompt | tokens | read | computed | first token, ms | share of cold |",
                  "| --- | --- | --- | --- | --- | --- |"]
        for case, f in figures.items():
            lines.append(f"| {case} | {f['prompt']:,} | {f['cached']:,} | {f['computed']:,} | {f['ms']:,.0f} "
                         f"({f['ms_min']:,.0f} to {f['ms_max']:,.0f}) | {f['ratio']:.1%} |")
        lines.append("")
    lines.append("Command: `bench/serve/known_prompts.py " + " ".join(sys.argv[1:]) + "`")
    path = ROOT / f"bench/results/known-prompts-{result['commit']}-{now.strftime('%Y%m%dT%H%M')}"
    path.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    path.with_suffix(".md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
