# SPDX-License-Identifier: Apache-2.0
"""Answers of all routes, streamed or not, in one shape that can be compared token by token; and what must be true
of each answer whatever was asked."""

import dataclasses
import json


@dataclasses.dataclass
class Choice:
    text: str = ""
    reason: str | None = None
    tokens: list = dataclasses.field(default_factory=list)  # (token, its log-probability, the runners-up)


@dataclasses.dataclass
class Answer:
    status: int = 0
    choices: dict = dataclasses.field(default_factory=dict)  # index: Choice
    usage: dict | None = None
    error: str = ""
    problems: list = dataclasses.field(default_factory=list)
    last_event: str = ""

    def choice(self, index):
        return self.choices.setdefault(index, Choice())

    def output_tokens(self):
        usage = self.usage or {}
        return usage.get("completion_tokens", usage.get("output_tokens", 0))

    def bits(self):
        """What must be equal to the same request alone without a cache."""
        return [(i, c.text, c.reason, c.tokens) for i, c in sorted(self.choices.items())], self.output_tokens()


def _completion_tokens(logprobs):
    if not logprobs:
        return []
    return [list(row) for row in zip(logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"])]


def _chat_tokens(logprobs):
    return [[t["bytes"], t["logprob"], [[o["bytes"], o["logprob"]] for o in t["top_logprobs"]]]
            for t in (logprobs or {}).get("content") or []]


def read_whole(status, body):
    answer = Answer(status=status)
    try:
        found = json.loads(body.decode("utf-8", "strict"))
    except ValueError as error:
        answer.problems.append(f"the body is no JSON: {error}: {body[:200]!r}")
        return answer
    if status != 200:
        error = found.get("error") if isinstance(found, dict) else None
        if not (isinstance(error, dict) and error.get("message") and error.get("type")):
            answer.problems.append(f"an error without type or message: {body[:200]!r}")
        else:
            answer.error = error["message"]
        return answer
    answer.usage = found.get("usage")
    if found.get("type") == "message":
        choice = answer.choice(0)
        choice.text = "".join(block["text"] for block in found["content"])
        choice.reason = found["stop_reason"]
    for part in found.get("choices", []):
        choice = answer.choice(part["index"])
        choice.reason = part["finish_reason"]
        if "message" in part:
            choice.text, choice.tokens = part["message"]["content"], _chat_tokens(part["logprobs"])
        else:
            choice.text, choice.tokens = part["text"], _completion_tokens(part["logprobs"])
    return answer


class StreamReader:
    """Takes the bytes of a stream of events as they come. Thread: one."""

    def __init__(self, status):
        self.answer = Answer(status=status)
        self.events = 0
        self._rest = b""
        self._done = False

    def feed(self, data):
        self._rest += data
        while b"\n\n" in self._rest:
            event, self._rest = self._rest.split(b"\n\n", 1)
            try:
                self._event(event.decode("utf-8", "strict"))
            except (ValueError, KeyError, TypeError) as error:
                self.answer.problems.append(f"a bad event: {error!r}: {event[:200]!r}")

    def finish(self):
        """The connection has ended the answer: was it whole?"""
        if self._rest or not self._done:
            self.answer.problems.append(f"a stream without an end; last event {self.answer.last_event[:200]}")
        return self.answer

    def _event(self, text):
        answer = self.answer
        for line in text.split("\n"):  # not splitlines(): U+2028 in an answer ends no line of a stream
            if not line.startswith("data: "):
                continue
            self.events += 1
            answer.last_event = line
            if self._done:
                answer.problems.append(f"an event behind the last one: {line[:200]}")
            if line == "data: [DONE]":
                self._done = True
                continue
            event = json.loads(line[6:])
            if event.get("error"):
                answer.problems.append(f"an error in the stream: {line[:300]}")
                self._done = True
            elif "type" in event:
                self._message_event(event)
            else:
                self._chunk(event)

    def _message_event(self, event):
        answer, kind = self.answer, event["type"]
        if kind == "message_start":
            answer.usage = dict(event["message"]["usage"])
        elif kind == "content_block_delta":
            answer.choice(0).text += event["delta"]["text"]
        elif kind == "message_delta":
            answer.choice(0).reason = event["delta"]["stop_reason"]
            for name, value in event["usage"].items():
                if name != "output_tokens" and answer.usage.get(name) != value:
                    answer.problems.append(f"{name} changed within a stream: {answer.usage.get(name)} and {value}")
            answer.usage = dict(event["usage"])
        self._done = kind == "message_stop"

    def _chunk(self, event):
        answer = self.answer
        if event.get("usage"):
            if answer.usage:
                answer.problems.append("two usage chunks")
            answer.usage = event["usage"]
        for part in event["choices"]:
            choice = answer.choice(part["index"])
            if part["finish_reason"]:
                if choice.reason:
                    answer.problems.append(f"choice {part['index']} ended twice")
                choice.reason = part["finish_reason"]
            if "delta" in part:
                choice.text += part["delta"].get("content") or ""
                choice.tokens += _chat_tokens(part["logprobs"])
            else:
                choice.text += part["text"]
                choice.tokens += _completion_tokens(part["logprobs"])


def check(body, answer):
    """What is wrong with a whole answer to `body` (a dict); an empty list when nothing is."""
    problems = list(answer.problems)
    if answer.status != 200:
        return problems
    usage = answer.usage
    if usage is None and (not body.get("stream") or "stream_options" in body):
        return [*problems, "an answer without usage"]
    wanted = body.get("n", 1)
    if sorted(answer.choices) != list(range(wanted)) and body.get("max_tokens") != 0:
        problems.append(f"choices {sorted(answer.choices)} where {wanted} were asked for")
    for index, choice in answer.choices.items():
        if choice.reason is None:
            problems.append(f"choice {index} has no reason for its end")
        if body.get("logprobs") not in (None, False) and choice.text and not choice.tokens:
            problems.append(f"choice {index} has no log-probabilities")
    if usage is None:
        return problems
    if answer.output_tokens() > wanted * body.get("max_tokens", 1 << 30):
        problems.append(f"{answer.output_tokens()} tokens where {wanted} x {body['max_tokens']} were asked for")
    if "prompt_tokens" in usage:
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        if not 0 <= cached < max(usage["prompt_tokens"], 1):
            problems.append(f"{cached} of {usage['prompt_tokens']} prompt tokens cached")
        if cached and body.get("cache_prompt") is False:
            problems.append(f"{cached} tokens cached though cache_prompt is false")
        if usage["total_tokens"] != usage["prompt_tokens"] + usage["completion_tokens"]:
            problems.append(f"usage does not add up: {usage}")
    else:
        created = usage["cache_creation"]
        if usage["cache_creation_input_tokens"] != sum(created.values()):
            problems.append(f"usage does not add up: {usage}")
    return problems
