# SPDX-License-Identifier: Apache-2.0
"""Many streams at once to a server with the OpenAI API, with a time stamp for each piece.

The client shares the cores with what it measures, so it does little while streams run: it keeps lines with their time
and reads them when all have ended.
"""

import asyncio
import dataclasses
import json
import sys
import time


@dataclasses.dataclass
class Request:
    prompt: list  # token ids
    tokens: int  # of the answer; end-of-text does not end it
    more: dict = dataclasses.field(default_factory=dict)  # further fields of the body
    messages: list = None  # a chat, in the place of `prompt`


@dataclasses.dataclass
class Timing:
    """Of one request. Times are seconds of one clock; `stamps` has one a piece, first to last."""
    sent: float
    stamps: list
    tokens: int = 0
    prompt_tokens: int = 0
    cached: int = 0
    text: str = ""
    complete: bool = False
    headers: dict = dataclasses.field(default_factory=dict)

    @property
    def first_s(self):
        return self.stamps[0] - self.sent

    @property
    def decode_per_s(self):
        """Tokens a second from the first piece to the last."""
        return (self.tokens - 1) / (self.stamps[-1] - self.stamps[0])


def body_of(request, model):
    asked = {"prompt": request.prompt} if request.messages is None else {"messages": request.messages}
    return {"model": model, **asked, "max_tokens": request.tokens, "temperature": 0, "ignore_eos": True,
            "stream": True, "stream_options": {"include_usage": True}, "cache_prompt": True, **request.more}


def generate(port, requests, model, limit_s=None, at=None):
    """Timings of all requests, sent at once, or each so many seconds after the first as `at` has it. After `limit_s`
    seconds those still running are given up."""
    return asyncio.run(generate_all(port, requests, model, limit_s, at))


async def generate_all(port, requests, model, limit_s, at=None):
    lines = [[] for _ in requests]
    sent = [0.0] * len(requests)
    bodies = [json.dumps(body_of(request, model)).encode() for request in requests]
    begin = time.perf_counter()

    async def one(index):
        if at:
            await asyncio.sleep(begin + at[index] - time.perf_counter())
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
        sent[index] = time.perf_counter()
        path = b"/v1/completions" if requests[index].messages is None else b"/v1/chat/completions"
        writer.write(b"POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                     b"Connection: close\r\nContent-Length: %d\r\n\r\n" % (path, len(bodies[index])) + bodies[index])
        try:
            while line := await reader.readline():
                lines[index].append((time.perf_counter(), line))
        finally:
            writer.close()

    tasks = [asyncio.create_task(one(index)) for index in range(len(requests))]
    _, late = await asyncio.wait(tasks, timeout=limit_s)
    for task in late:
        task.cancel()
    await asyncio.gather(*late, return_exceptions=True)
    for task in tasks:
        if task not in late:
            task.result()  # raises what went wrong
    return [timing_of(when, received) for when, received in zip(sent, lines)]


def text_of(choice):
    return choice.get("text") or (choice.get("delta") or {}).get("content") or ""


def timing_of(sent, received):
    """Reads one answer: status, headers, and the events of its stream."""
    timing = Timing(sent, [])
    if received and b" 200 " not in received[0][1]:
        sys.exit("the server answered: " + b"".join(line for _, line in received).decode(errors="replace"))
    for at, line in received:
        if not line.startswith(b"data: "):
            name, colon, value = line.decode(errors="replace").partition(":")
            if colon and not timing.stamps:
                timing.headers[name.strip().lower()] = value.strip()
            continue
        if line.startswith(b"data: [DONE]"):
            timing.complete = True
            continue
        event = json.loads(line[6:])
        if "error" in event:
            sys.exit(f"the server answered: {event['error']}")
        if piece := "".join(text_of(choice) for choice in event.get("choices") or []):
            timing.stamps.append(at)
            timing.text += piece
        if usage := event.get("usage"):
            timing.tokens = usage["completion_tokens"]
            timing.prompt_tokens = usage["prompt_tokens"]
            timing.cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    if not timing.complete:
        timing.tokens = len(timing.stamps)
    return timing
