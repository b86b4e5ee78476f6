# SPDX-License-Identifier: Apache-2.0
"""Many streams at once to a server with the OpenAI API, with a time stamp for each piece.

The client shares the cores with what it measures, so it does little while streams run: it keeps what each read of a
socket gives with its time, and looks into it when all have ended.
"""

import contextlib
import dataclasses
import json
import select
import socket
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
    wires = [wire_of(request, model) for request in requests]
    sent, reads = exchange(port, wires, at or [0.0] * len(wires), limit_s)
    return [timing_of(when, lines_of(received)) for when, received in zip(sent, reads)]


def wire_of(request, model):
    body = json.dumps(body_of(request, model)).encode()
    path = b"/v1/completions" if request.messages is None else b"/v1/chat/completions"
    return (b"POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nConnection: close\r\n"
            b"Content-Length: %d\r\n\r\n" % (path, len(body)) + body)


def exchange(port, wires, at, limit_s):
    """When each was sent, and what its connection gave until it ended or the time was up: [(time, bytes)]"""
    now, begin = time.perf_counter, time.perf_counter()
    end = begin + limit_s if limit_s is not None else float("inf")
    sent, reads = [0.0] * len(wires), [[] for _ in wires]
    to_send = sorted(range(len(wires)), key=lambda index: (at[index], index), reverse=True)
    running = {}  # by descriptor: (index, connection)
    with contextlib.ExitStack() as opened:
        poll = opened.enter_context(select.epoll())
        while to_send or running:
            while to_send and begin + at[to_send[-1]] <= now():
                index = to_send.pop()
                connection = opened.enter_context(socket.create_connection(("127.0.0.1", port)))
                sent[index] = now()
                connection.sendall(wires[index])
                poll.register(connection, select.EPOLLIN)
                running[connection.fileno()] = index, connection
            until = min(end, begin + at[to_send[-1]]) if to_send else end
            ready = poll.poll(None if until == float("inf") else max(0.0, until - now()))
            if now() >= end:
                break
            for descriptor, _ in ready:
                index, connection = running[descriptor]
                data = connection.recv(1 << 16)
                if data:
                    reads[index].append((now(), data))
                else:
                    poll.unregister(descriptor)
                    connection.close()  # thousands of them would be too many open files
                    del running[descriptor]
    return sent, reads


def lines_of(reads):
    """[(time, line)]: a line has the time of the read that ended it."""
    lines, rest = [], b""
    for at, data in reads:
        *whole, rest = (rest + data).split(b"\n")
        lines += [(at, line + b"\n") for line in whole]
    return lines + [(reads[-1][0], rest)] if rest else lines


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
