#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How far llama.cpp is from the logits of tests/golden/architectures: the last column of the table in
docs/architectures.md.

    tests/tools/compare_with_llama_cpp.py LLAMA_SERVER FOLDER [FAMILY..]

FOLDER holds what `tests/tools/make_tiny_models.py --type f32 --out FOLDER` wrote: with f16 weights llama.cpp
would round activations to f16, too. The server gives the log-probabilities of all tokens behind each prefix
of the prompt, with f32 keys and values. Only the standard library is used.
"""

import json
import math
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path


def read_logits(path):
    data = path.read_bytes()
    rows, columns = struct.unpack_from("<ii", data)
    tokens = struct.unpack_from(f"<{rows}i", data, 8)
    values = struct.unpack_from(f"<{rows * columns}f", data, 8 + 4 * rows)
    return tokens, [values[r * columns:(r + 1) * columns] for r in range(rows)]


def log_softmax(row):
    most = max(row)
    total = math.log(sum(math.exp(x - most) for x in row)) + most
    return [x - total for x in row]


def post(port, path, body):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(),
                                     {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def wait_until_up(process, port):
    for _ in range(600):
        if process.poll() is not None:
            return False
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1) as answer:
                if answer.status == 200:
                    return True
        except OSError:
            time.sleep(0.1)
    return False


def log_probabilities(port, prefix, vocabulary):
    """Behind a prefix, before any sampling. They come only with a token that is text, and half of the vocabulary
    is parts of characters: hence a grammar, which the log-probabilities do not know of."""
    answer = post(port, "/completion", {"prompt": list(prefix), "n_predict": 1, "n_probs": vocabulary,
                                        "grammar": "root ::= [a-z]", "cache_prompt": False})
    found = {entry["id"]: entry["logprob"] for entry in answer["completion_probabilities"][0]["top_logprobs"]}
    if len(found) != vocabulary:
        raise SystemExit(f"{len(found)} of {vocabulary} log-probabilities")
    return found


def divergences(port, tokens, logits):
    """Of llama.cpp's distribution behind each prefix from the recorded one."""
    for end in range(1, len(tokens) + 1):
        found = log_probabilities(port, tokens[:end], len(logits[0]))
        exact = log_softmax(logits[end - 1])
        yield sum(math.exp(p) * (p - found[token]) for token, p in enumerate(exact))


def main():
    server, folder, *families = sys.argv[1:]
    for path in sorted(Path(folder).glob("*.gguf")):
        if families and path.stem not in families:
            continue
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        log = tempfile.TemporaryFile("w+")  # a pipe that nobody reads would fill up and stop the server
        process = subprocess.Popen([server, "-m", str(path), "--host", "127.0.0.1", "--port", str(port), "-t", "1",
                                    "-c", "96", "-ctk", "f32", "-ctv", "f32", "-fa", "off", "-np", "1", "--no-warmup"],
                                   stdout=subprocess.DEVNULL, stderr=log)
        try:
            if not wait_until_up(process, port):
                process.kill()
                log.seek(0)
                words = [line for line in log.read().splitlines() if "error" in line.lower()]
                print(f"{path.stem}: not served: {words[0] if words else 'no word why'}")
                continue
            values = list(divergences(port, *read_logits(path.with_suffix(".logits"))))
            print(f"{path.stem}: mean {sum(values) / len(values):.1e}, most {max(values):.1e}")
        finally:
            process.terminate()
            process.wait()


if __name__ == "__main__":
    main()
