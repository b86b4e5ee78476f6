# SPDX-License-Identifier: Apache-2.0
"""What clients ask and how they behave: each visit is a function of a seed.

A kind is a function that draws one visit from a `Draw`. KINDS names them with their weights.
"""

import dataclasses
import json

from link import request_bytes
from server import ACCOUNTS, CONTEXT, KEYS, OPERATOR, POOL_GROWTH_MAX, SEQS_MAX

BODY_BYTES_MAX = 32_000_000  # the server's
OK = frozenset({200})
OVERLOADED = frozenset({429, 503, 529})  # always a fair answer, with `retry-after`
ROUTES = {"completions": "/v1/completions", "chat": "/v1/chat/completions", "messages": "/v1/messages"}

WORDS = """the of and to in is that for it as was with be by on not he his but at are this have from or had an they
which one you were her all she there would their we him been has when who will more no if out so said what up its
about into than them can only other new some could time these two may then do first any my now such like our over man
me even most made after also did many before must through back years where much your way well down should because each
just those people how too little state good very make world still own see men work long get here between both life
being under never day same another know while last might us great old year off come since against go came right used
take three river stone lantern harbour 🦊 天地 über naïve — <|im_end|> {"a": 1} 3.14159 0x7f""".split()


@dataclasses.dataclass
class Ask:
    """One request for an answer."""
    route: str
    body: dict
    headers: dict
    repeatable: bool  # the same request gives the same tokens: what the oracle can compare

    def bytes(self):
        return request_bytes("POST", ROUTES[self.route], self.body, self.headers)


@dataclasses.dataclass
class Visit:
    """One stay of a client. Exactly one of `ask` and `raw` is there."""
    kind: str
    ask: Ask | None = None
    raw: bytes = b""
    expect: frozenset = OK
    leave: str | None = None  # "close", "reset", "shut": how it goes away before the answer's end
    leave_events: int | None = None  # after so many events of a stream,
    leave_s: float = 0  # or after so long
    cut: int | None = None  # it sends only so many bytes and leaves
    slow: bool = False
    pipelined: int = 1  # the same request so many times on one connection, without waiting
    may_close: bool = False  # the server may end the connection without an answer
    count: bool = False  # compares usage with count_tokens afterwards

    def bytes(self):
        return self.raw if self.ask is None else self.ask.bytes()

    def describe(self):
        """For the record of the last requests."""
        data = self.bytes()
        plan = {k: v for k, v in dataclasses.asdict(self).items() if k not in ("ask", "raw", "expect") and v}
        return {**plan, "bytes": len(data), "request": data[:2000].decode("utf-8", "replace")}


class World:
    """What all clients of one server share: texts that many begin with, and requests that were made before."""

    def __init__(self, seed, has_chat, kv_bytes, make_random):
        self.has_chat, self.kv_bytes = has_chat, kv_bytes
        draw = make_random(f"{seed}/world")
        # Around block edges and far over them, in words; the ids hit the edges exactly.
        self.prefixes = [words(draw, n) for n in (12, 40, 90, 200, 400, 700)]
        self.id_prefixes = [ids(draw, n) for n in (15, 16, 17, 64, 160, 512, 900)]
        self.conversations = [[words(draw, 20)] for _ in range(6)]
        self.systems = [words(draw, n) for n in (30, 80, 160, 400)]


def words(draw, count):
    return " ".join(draw.choices(WORDS, k=count))


def ids(draw, count):
    return draw.choices(range(1000, 40000), k=count)


class Draw:
    """The draws of one visit."""

    def __init__(self, random, world):
        self.random, self.world = random, world

    def chance(self, share):
        return self.random.random() < share

    def headers(self):
        key = self.random.choices(KEYS, (5, 3, 2))[0]
        headers = {"x-api-key": key} if self.chance(0.5) else {"authorization": f"Bearer {key}"}
        if self.chance(0.05):
            headers["anthropic-workspace-id"] = f"room-{self.random.randrange(3)}"
        return headers

    def route(self, *among):
        if not self.world.has_chat:
            return "completions"
        return self.random.choice(among or tuple(ROUTES))

    def prompt(self, tokens):
        """A prompt of about so many tokens that nobody else sends: words or ids."""
        if self.chance(0.4):
            return ids(self.random, max(1, tokens))
        return words(self.random, max(1, tokens // 2))

    def tokens_out(self):
        return self.random.choices((1, 2, 8, 24, 80), (2, 2, 5, 4, 1))[0]

    def ask(self, route, text, max_tokens=None, **more):
        """`text`: a prompt, for the chat routes the user's turn."""
        body = {"model": "claude-x" if route == "messages" else "gpt-x",
                "max_tokens": self.tokens_out() if max_tokens is None else max_tokens}
        if route == "completions":
            body["prompt"] = text
        else:
            text = text if isinstance(text, str) else words(self.random, len(text) // 2 + 1)
            body["messages"] = [{"role": "user", "content": text}]
        body |= more
        return Ask(route, self.sampling(route, body), self.headers(), self.repeatable(body))

    def sampling(self, route, body):
        """Adds how tokens are drawn, streams, log-probabilities, stops."""
        body.setdefault("stream", self.chance(0.5))
        hot = self.chance(0.4)
        if not hot:
            body["temperature"] = 0
        elif route == "messages":
            body |= {"temperature": 0.8, "top_k": 20}
        else:
            body |= {"temperature": self.random.choice((0.3, 1, 1.7)), "seed": self.random.randrange(1 << 40)}
            if self.chance(0.5):
                body[self.random.choice(("top_p", "min_p"))] = 0.2
        if route == "messages":
            if self.chance(0.2):
                body["stop_sequences"] = [" the", "zebra"]
            return body
        body["ignore_eos"] = self.chance(0.7)
        if "logprobs" not in body and self.chance(0.6):
            body["logprobs"] = self.random.randrange(6) if route == "completions" else True
            if route == "chat" and self.chance(0.7):
                body["top_logprobs"] = self.random.randrange(4)
        if self.chance(0.2):
            body["stop"] = [" the", "zebra"]
        if body["stream"] and self.chance(0.7):
            body["stream_options"] = {"include_usage": True}
        return body

    @staticmethod
    def repeatable(body):
        return body["temperature"] == 0 or "seed" in body


# ---------------------------------------------------------------- kinds


def short(d):
    return Visit("short", d.ask(d.route(), d.prompt(d.random.randrange(1, 60))))


def long(d):
    return Visit("long", d.ask(d.route(), d.prompt(d.random.randrange(500, CONTEXT - 100)),
                               d.random.choice((1, 4, 16))))


def unique(d):
    return Visit("unique", d.ask(d.route(), d.prompt(d.random.randrange(60, 300)), cache_prompt=d.chance(0.6)))


def talkative(d):
    """Long answers: their blocks are taken one by one, and others are preempted for them."""
    return Visit("talkative", d.ask(d.route("completions", "chat"), d.prompt(20), d.random.randrange(100, 400)))


def shared(d):
    route = d.route()
    if route == "completions" and d.chance(0.5):
        text = d.random.choice(d.world.id_prefixes) + ids(d.random, d.random.choice((0, 1, 15, 16, 40)))
    else:
        text = d.random.choice(d.world.prefixes) + " " + words(d.random, d.random.randrange(0, 30))
    return Visit("shared", d.ask(route, text, d.random.choice((1, 8, 24))))


def repeated(d):
    """The very same request as others: all of it is there but the last token."""
    prefix = d.random.choice(d.world.id_prefixes if d.chance(0.5) else d.world.prefixes)
    return Visit("repeated", d.ask(d.route(), prefix, d.random.choice((1, 8))))


def salted(d):
    return Visit("salted", d.ask(d.route(), d.random.choice(d.world.prefixes[:4]),
                                 cache_salt=f"salt-{d.random.randrange(4)}"))


def forked(d):
    n = d.random.choice((2, 3, 4, SEQS_MAX))
    return Visit("forked", d.ask(d.route("completions", "chat"), d.prompt(d.random.randrange(10, 200)),
                                 d.random.choice((1, 4, 24)), n=n))


def conversation(d):
    """The next turn of one that several clients carry on; the marker moves along (B5)."""
    turns = d.random.choice(d.world.conversations)
    count = d.random.randrange(1, 6)
    texts = [turns[0], *(f"turn {i}: {turns[0][:40 * i]}" for i in range(1, count))]
    messages = []
    for text in texts:
        messages += [{"role": "user", "content": text}, {"role": "assistant", "content": "Yes, " + text[:30].strip()}]
    more = {"messages": messages[:-1]}
    if d.route() == "completions":
        return Visit("conversation", d.ask("completions", "\n".join(texts), 8))
    if d.chance(0.7):
        return Visit("conversation", d.ask("messages", "", 8, cache_control={"type": "ephemeral"}, **more),
                     count=d.chance(0.3))
    return Visit("conversation", d.ask("chat", "", 8, **more))


def _marker(d, classes):
    return {"type": "ephemeral", **({"ttl": "1h"} if d.random.choice(classes) == "1h" else {})}


def marked(d):
    """Leases: up to four markers, long ones first, on system and message blocks; a pre-warm now and then."""
    if not d.world.has_chat:
        return shared(d)
    parts = [{"type": "text", "text": words(d.random, 30)} for _ in range(d.random.randrange(1, 4))]
    system = [{"type": "text", "text": d.random.choice(d.world.systems)}]
    if d.chance(0.8):
        system[0]["cache_control"] = _marker(d, ("1h", "5m"))
    if d.chance(0.5):
        parts[-1]["cache_control"] = _marker(d, ("5m",))
    if d.chance(0.2):  # the OpenAI route takes markers on parts
        return Visit("marked", d.ask("chat", "", 4, messages=[{"role": "system", "content": system},
                                                             {"role": "user", "content": parts}]))
    more = {"max_tokens": 0, "stream": False} if d.chance(0.1) else {"max_tokens": d.random.choice((1, 8))}
    return Visit("marked", d.ask("messages", "", system=system, messages=[{"role": "user", "content": parts}], **more),
                 count=d.chance(0.3))


def slow_reader(d):
    return Visit("slow reader", d.ask(d.route(), d.prompt(30), d.random.choice((8, 60)), stream=True), slow=True)


def pipelined(d):
    return Visit("pipelined", d.ask(d.route(), d.prompt(30), 2, stream=False), pipelined=d.random.choice((2, 5)))


def _leaving(d, kind, ask, how, **when):
    return Visit(kind, ask, leave=how, **when)


def left_streaming(d):
    ask = d.ask(d.route(), d.prompt(d.random.randrange(1, 200)), d.random.randrange(40, 400), stream=True)
    return _leaving(d, "left while streaming", ask, d.random.choice(("close", "reset")),
                    leave_events=d.random.randrange(1, 20))


def left_waiting(d):
    """In the queue, in the prefill, or in the middle of an answer in one piece."""
    n = d.random.choice((1, 1, 3))
    route = d.route("completions", "chat") if n > 1 else d.route()
    ask = d.ask(route, d.prompt(d.random.choice((10, 100, 1200))), d.random.randrange(40, 300),
                **({"n": n} if n > 1 else {}))
    return _leaving(d, "left while waiting", ask, d.random.choice(("close", "reset")),
                    leave_s=d.random.choice((0, 0.001, 0.05, d.random.random())))


def half_closed(d):
    """Shuts its sending side: documented to end the request."""
    ask = d.ask(d.route(), d.prompt(30), d.random.randrange(40, 400))
    return _leaving(d, "half-closed", ask, "shut", leave_s=d.random.choice((0, 0.02, 0.3 * d.random.random())))


def half_sent(d):
    ask = d.ask(d.route(), d.prompt(100))
    return Visit("half-sent", ask, leave=d.random.choice(("close", "reset")),
                 cut=d.random.randrange(1, len(ask.bytes())))


def oversized(d):
    """Larger than the context or than a body may be: refused, and at once."""
    size = d.random.choice((CONTEXT + 1, CONTEXT + 1, 2 * CONTEXT, 20 * CONTEXT))
    if d.chance(0.1):
        raw = (f"POST /v1/completions HTTP/1.1\r\nhost: x\r\nx-api-key: {KEYS[0]}\r\n"
               f"content-length: {BODY_BYTES_MAX + 1}\r\n\r\n" + "x" * 1000).encode()
        return Visit("oversized", raw=raw, expect=frozenset({413}))
    if d.chance(0.05):
        return huge(d)
    prompt = ids(d.random, size) if d.chance(0.6) else words(d.random, size * 2)
    route = "completions" if isinstance(prompt, list) else d.route()
    return Visit("oversized", d.ask(route, prompt, 4), expect=frozenset({400}))


def huge(d):
    """5 MB of text: not even tokenized."""
    return Visit("oversized", d.ask(d.route(), "a long story " * 400_000, 4), expect=frozenset({400}))


def _json(d, value, path="/v1/completions", expect=frozenset({400}), **headers):
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    raw = request_bytes("POST", path, data, {"x-api-key": KEYS[0], **headers})
    return Visit("malformed", raw=raw, expect=expect)


def malformed(d):
    """Rows of the error tables, and requests that are no HTTP."""
    ask = d.ask(d.route(), d.prompt(10), 1)
    path, body, text = ROUTES[ask.route], ask.body, json.dumps(ask.body).encode()
    if ask.route == "messages":
        prompt_field = "messages"
    else:
        prompt_field = "prompt" if ask.route == "completions" else "messages"
    marks = [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}] * 5
    choice = d.random.randrange(16)
    if choice == 0:
        return _json(d, text[:d.random.randrange(0, len(text) - 1)], path)
    if choice == 1:
        return _json(d, d.random.choice((b"[]", b"1", b'"x"', b"null", b"{}")), path)
    if choice == 2:
        return _json(d, {**body, "max_tokens": d.random.choice((-1, 1.5, "3", [], {}, True))}, path)
    if choice == 3:
        return _json(d, {**body, prompt_field: d.random.choice((1, {}, [[]], [{}], [None]))}, path)
    if choice == 4:
        return _json(d, {**body, "model": "no-such-model"}, path, expect=frozenset({404}))
    if choice == 5:
        return _json(d, text, "/v1/nothing", expect=frozenset({404}))
    if choice == 6:
        raw = request_bytes("GET", path, headers={"x-api-key": KEYS[0]})
        return Visit("malformed", raw=raw, expect=frozenset({405}))
    if choice == 7:
        return _json(d, b'{"a":' + b"[" * 1000 + b"]" * 1000 + b"}", path)
    if choice == 8:
        return _json(d, text, path, expect=frozenset({431}), padding="p" * 70_000)
    if choice == 9:
        return _json(d, text, path, **{"content-encoding": "gzip"})
    if choice == 10:
        return _json(d, b'{"model": "gpt-x", "prompt": "\xff\xfe"}')
    if choice == 11:
        return Visit("malformed", raw=request_bytes("POST", path, text, {"x-api-key": "stranger"}),
                     expect=frozenset({401}))
    if choice == 12:
        return Visit("malformed", raw=bytes(d.random.choices(range(256), k=200)) + b"\r\n\r\n",
                     expect=frozenset({400}), may_close=True)
    if choice == 13:
        raw = (f"POST {path} HTTP/1.1\r\nhost: x\r\nx-api-key: {KEYS[0]}\r\ntransfer-encoding: chunked\r\n\r\n"
               "zz\r\nnot a chunk\r\n").encode()
        return Visit("malformed", raw=raw, expect=frozenset({400}), may_close=True)
    if choice == 14:
        return _json(d, {"model": "claude-x", "max_tokens": 1, "messages": [{"role": "user", "content": marks}]},
                     "/v1/messages")
    return _json(d, {"model": "claude-x", "max_tokens": 1, "system": [
        {"type": "text", "text": "x", "cache_control": d.random.choice(({"type": "x"}, {}, 1, {"type": "ephemeral",
                                                                                             "ttl": "2h"}))}],
        "messages": [{"role": "user", "content": "x"}]}, "/v1/messages")


def _get(path, expect=OK):
    return Visit("small", raw=request_bytes("GET", path, headers={"x-api-key": KEYS[0]}), expect=expect)


def small(d):
    """Routes that do not reach the engine."""
    path = d.random.choice(("/health", "/v1/models", "/v1/models/gpt-x", "/metrics", "/ready", "/version", "/",
                            "/v1/cache/stats", "/tokenize", "/detokenize", "/v1/messages/count_tokens"))
    if path == "/tokenize":
        return _small_post(path, {"content": words(d.random, 50), "with_pieces": d.chance(0.5)})
    if path == "/detokenize":
        return _small_post(path, {"tokens": ids(d.random, 50)})
    if path.endswith("count_tokens"):
        return _small_post(path, {"model": "claude-x", "messages": [{"role": "user", "content": words(d.random, 20)}]},
                           OK if d.world.has_chat else frozenset({400}))
    return _get(path)


def _small_post(path, body, expect=OK):
    return Visit("small", raw=request_bytes("POST", path, body, {"x-api-key": KEYS[0]}), expect=expect)


def widest(d):
    return Visit("forked", d.ask("completions", d.prompt(200), 20, n=SEQS_MAX, logprobs=5))


def longest(d):
    return Visit("long", d.ask("completions", ids(d.random, CONTEXT - 60), 60))


def _operate(path, body, expect=OK):
    return Visit("operated", raw=request_bytes("POST", path, body, {"x-api-key": OPERATOR}), expect=expect)


def resized(d):
    """The pool, never smaller than at the start: what fits then always fits."""
    memory = int(d.world.kv_bytes * d.random.uniform(1, POOL_GROWTH_MAX))
    return _operate("/v1/admin/kv", {"memory": memory}, frozenset({200, 409}))


def cleared(d):
    return _operate("/v1/cache/clear", {"namespace": d.random.choice(ACCOUNTS)} if d.chance(0.8) else {})


def predicted(_):
    """What other sizes of memory would find."""
    return Visit("operated", raw=request_bytes("GET", "/v1/cache/curve", headers={"x-api-key": OPERATOR}), expect=OK)


def forbidden(d):
    """What only operators may do."""
    path = d.random.choice(("/v1/cache/clear", "/v1/admin/kv"))
    return Visit("malformed", raw=request_bytes("POST", path, {}, {"x-api-key": KEYS[0]}), expect=frozenset({403}))


EXTREMES = (huge, huge, widest, longest)  # at once, before all else: as large as it gets
KINDS = {
    short: 10, long: 3, unique: 5, talkative: 6, shared: 10, repeated: 5, salted: 3, forked: 3, conversation: 5,
    marked: 8, slow_reader: 2, pipelined: 2, left_streaming: 5, left_waiting: 6, half_closed: 3, half_sent: 2,
    oversized: 2, malformed: 6, small: 4, resized: 1, cleared: 0.3, predicted: 0.5,
    forbidden: 0.5,
}
