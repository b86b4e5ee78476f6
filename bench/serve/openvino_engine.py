# SPDX-License-Identifier: Apache-2.0
"""OpenVINO GenAI's continuous batching as a process that takes batches of requests on standard input.

Runs in the environment of requirements/peers/openvino.txt. Each input line is {"requests": [{"prompt": ids, "tokens": n}],
"limit_s": seconds or null}; the answer is one line of timings. Times are taken here, between the scheduler's steps, so no
HTTP and no other process stands between the peer and its figures.

usage: openvino_engine.py MODEL.gguf '{"scheduler": {..}, "properties": {..}}'
"""

import json
import sys
import time

import numpy
import openvino
import openvino_genai

PIPE = sys.stdout
sys.stdout = sys.stderr  # what the library prints must not get into the answers


def answer(fields):
    PIPE.write(json.dumps(fields) + "\n")
    PIPE.flush()


class Running:
    def __init__(self, pipeline, number, request):
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens = request["tokens"]
        config.ignore_eos = True
        config.do_sample = False
        ids = openvino.Tensor(numpy.array([request["prompt"]], dtype=numpy.int64))
        self.stamps, self.tokens, self.wanted, self.sent = [], 0, request["tokens"], time.perf_counter()
        self.handle = pipeline.add_request(number, ids, config)

    def read(self):
        if self.tokens < self.wanted and self.handle.can_read():
            new = sum(len(output.generated_ids) for output in self.handle.read().values())
            self.stamps += [time.perf_counter()] * new
            self.tokens += new


class Engine:
    def __init__(self, model, options):
        scheduler = openvino_genai.SchedulerConfig()
        for name, value in options["scheduler"].items():
            setattr(scheduler, name, value)
        self.pipeline = openvino_genai.ContinuousBatchingPipeline(model, scheduler, "CPU", options["properties"])
        self.number = 0

    def run(self, requests, limit_s):
        running = []
        for request in requests:
            running.append(Running(self.pipeline, self.number, request))
            self.number += 1
        end = time.perf_counter() + (limit_s or 1e9)
        while self.pipeline.has_non_finished_requests() and time.perf_counter() < end:
            self.pipeline.step()
            for one in running:
                one.read()
        for one in running:
            if one.tokens < one.wanted:
                one.handle.cancel()
        metrics = self.pipeline.get_metrics()
        return {"timings": [{"sent": one.sent, "stamps": one.stamps, "tokens": one.tokens,
                             "complete": one.tokens == one.wanted} for one in running],
                "kv_bytes": metrics.max_cache_usage / 100 * metrics.kv_cache_size_in_bytes}


def main():
    try:
        engine = Engine(sys.argv[1], json.loads(sys.argv[2]))
    except RuntimeError as error:
        answer({"error": str(error).strip().splitlines()[-1]})
        return
    answer({"version": openvino_genai.__version__})
    for line in sys.stdin:
        asked = json.loads(line)
        answer(engine.run(asked["requests"], asked["limit_s"]))


if __name__ == "__main__":
    main()
