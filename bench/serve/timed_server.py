# SPDX-License-Identifier: Apache-2.0
"""A Pagewise server of one's own, and how long a prompt waits there for its first token."""

import http.client
import json
import pathlib
import random
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = ROOT / "build/release/pagewise"


class TimedServer:
    """`flags` beside the model, the port and `--alias '*'`."""

    def __init__(self, program, model, *flags):
        self.command = [str(program), "serve", str(model), "--port", "0", "--alias", "*", *map(str, flags)]
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True)
        for line in self.process.stdout:
            if found := re.search(r"address\s+http://127.0.0.1:(\d+)", line):
                self.port = int(found.group(1))
                return
        sys.exit("the server did not start")

    def first_token(self, prompt, **more):
        """(milliseconds from the request to the first token, prompt tokens read from the cache)"""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        body = json.dumps({"model": "m", "prompt": prompt, "max_tokens": 1, "temperature": 0, "ignore_eos": True,
                           "stream": True, "stream_options": {"include_usage": True}, **more})
        begin = time.perf_counter()
        connection.request("POST", "/v1/completions", body, {"content-type": "application/json"})
        response, first, cached = connection.getresponse(), None, None
        if response.status != 200:
            sys.exit(f"the server answered {response.status}: {response.read().decode()}")
        for line in response:
            if line.startswith(b"data: {"):
                first = first or (time.perf_counter() - begin) * 1000
                usage = json.loads(line[6:]).get("usage")
                cached = usage["prompt_tokens_details"]["cached_tokens"] if usage else cached
        connection.close()
        return first, cached

    def end(self):
        self.process.terminate()
        self.process.stdout.read()
        self.process.wait()


def random_ids(count, seed):
    """A prompt that no other seed shares a beginning with."""
    draw = random.Random(str(seed))
    return [draw.randrange(1000, 40000) for _ in range(count)]
