# SPDX-License-Identifier: Apache-2.0
"""Clients: each draws one visit after the other and judges what comes back."""

import asyncio
import collections
import contextlib
import json
import random

from answers import StreamReader, check, read_whole
from link import Gone, Link, request_bytes
from visits import EXTREMES, KINDS, OVERLOADED, Draw

# Whatever is accepted ends, also on a machine with much else to do; times the patience of a slower build. A server
# that stands still is noticed earlier (watch.py).
VISIT_S_MAX = 600
RETRY_S = 0.5  # mean; a refusal for lack of room says `retry-after: 1`
REMEMBERED = 200  # of the last visits, for who looks for a failure
DROPPED = (Gone, ConnectionError, asyncio.IncompleteReadError)


def make_random(text):
    """A stream of draws of its own for each text: what one client draws does not depend on the others' speed."""
    return random.Random(text)


class Swarm:
    """Which kinds a tide has: some are off, so that the others meet each other more often."""

    def __init__(self, seed, tide):
        draw = make_random(f"{seed}/tide {tide}")
        everything = tide == 0
        self.kinds = [(kind, weight) for kind, weight in KINDS.items() if everything or draw.random() < 0.75]
        self.kinds = self.kinds or list(KINDS.items())
        self.pause_s = 0.0 if everything else draw.choice((0, 0.02, 0.2, 0.5))

    def draw_kind(self, draw):
        return draw.choices([k for k, _ in self.kinds], [w for _, w in self.kinds])[0]


class Sample:
    """A fair sample of bounded size of the answers that can be asked for again."""

    def __init__(self, seed, size):
        self._draw, self._size, self._seen = make_random(f"{seed}/sample"), size, 0
        self.kept = []

    def offer(self, item):
        self._seen += 1
        if len(self.kept) < self._size:
            self.kept.append(item)
        elif (place := self._draw.randrange(self._seen)) < self._size:
            self.kept[place] = item


class Crowd:
    """The clients of one server."""

    def __init__(self, server, world, seed, clients, patience, sample, violate):
        self.server, self.world, self.seed, self.patience = server, world, seed, patience
        self.clients = clients
        self.sample, self.violate = sample, violate
        self.outcomes = collections.Counter()  # (kind, outcome)
        self.statuses = collections.Counter()
        self.routes_ok = collections.Counter()
        self.last = collections.deque(maxlen=REMEMBERED)
        self.visits = 0
        self.halted = False  # nobody begins a new visit
        self._cutting = False  # whoever is interrupted goes away

    async def extremes(self):
        """The largest of what will come: afterwards every buffer has its size."""
        async def one(number, kind):
            draw = make_random(f"{self.seed}/extremes/{number}")
            link, _ = await self._visit(f"extremes/{number}", kind(Draw(draw, self.world)), None)
            if link is not None:
                link.close()
        await asyncio.gather(*(one(number, kind) for number, kind in enumerate(EXTREMES)))

    async def tide(self, number, until, grace_s):
        """Visits until the loop's clock reads `until`. Then even tides wait for those under way; in odd ones all that
        are still there after `grace_s` go away at once."""
        swarm = Swarm(self.seed, number)
        tasks = [asyncio.create_task(self._client(number, i, swarm, until)) for i in range(self.clients)]
        try:
            wait_s = max(until - asyncio.get_running_loop().time(), 0) + grace_s
            _, under_way = await asyncio.wait(tasks, timeout=wait_s if number % 2 else None)
            self._cutting = True
            for task in under_way:
                task.cancel()
            await asyncio.gather(*tasks)
        finally:
            self._cutting = False
            for task in tasks:
                task.cancel()

    async def _client(self, tide, index, swarm, until):
        loop, link, count = asyncio.get_running_loop(), None, 0
        try:
            while loop.time() < until and not self.halted and self.server.ended() is None:
                draw = make_random(f"{self.seed}/{tide}/{index}/{count}")
                name = f"{tide}/{index}/{count}"
                count += 1
                visit = swarm.draw_kind(draw)(Draw(draw, self.world))
                if link is not None and (visit.slow or draw.random() < 0.3):
                    link.close()
                    link = None
                link, outcome = await self._visit(name, visit, link)
                pause_s = RETRY_S if outcome == "overloaded" else swarm.pause_s
                if pause_s:
                    await asyncio.sleep(min(draw.expovariate(1 / pause_s), max(until - loop.time(), 0)))
        finally:
            if link is not None:
                link.close()

    async def _visit(self, name, visit, link):
        """Performs one visit. Gives the connection, when it can be used again, and the outcome."""
        record = {"visit": name, **visit.describe()}
        self.last.append(record)
        self.visits += 1
        outcome = "failed"
        try:
            async with asyncio.timeout(VISIT_S_MAX * self.patience):
                if link is None:
                    link = await Link.open(self.server.port, visit.slow)
                outcome = await self._perform(name, visit, link, record)
        except DROPPED as error:
            if visit.may_close or visit.leave:
                outcome = "closed"
            else:
                self.violate(f"visit {name} ({visit.kind}): the connection broke: {error!r}")
        except asyncio.CancelledError:
            if not self._cutting:
                raise
            outcome = "cut off"
        except TimeoutError:
            self.violate(f"visit {name} ({visit.kind}): no end within {VISIT_S_MAX * self.patience:.0f} s")
        finally:
            if link is not None and (outcome not in ("answered", "refused", "overloaded") or not link.keep_alive):
                link.close(reset=visit.leave == "reset")
                link = None
        record["outcome"] = outcome
        self.outcomes[visit.kind, outcome] += 1
        return link, outcome

    async def _perform(self, name, visit, link, record):
        data = visit.bytes()
        if visit.cut is not None:
            await link.send(data[:visit.cut])
            await asyncio.sleep(0.001)
            return "left"
        await link.send(data * visit.pipelined)
        if visit.leave and visit.leave_events is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(visit.leave_s):
                    return await self._read(name, visit, link, record)
            return await self._leave(visit, link)
        outcome = "failed"
        for _ in range(visit.pipelined):
            outcome = await self._read(name, visit, link, record)
        return outcome

    @staticmethod
    async def _leave(visit, link):
        if visit.leave == "shut":
            link.shut_sending()
            await link.wait_for_end()  # the server's part: it must not keep the connection
        return "left"

    async def _read(self, name, visit, link, record):
        status, headers = await link.read_head()
        self.statuses[status] += 1
        record["status"] = status
        if headers["content-type"].startswith("text/event-stream"):
            reader = StreamReader(status)
            async for piece in link.pieces():
                reader.feed(piece)
                if visit.leave_events is not None and reader.events >= visit.leave_events:
                    return await self._leave(visit, link)
            answer = reader.finish()
        else:
            body = await link.body()
            if visit.ask is None and status == 200:
                return self._judge_status(name, visit, status, headers, "")
            answer = read_whole(status, body)
        outcome = self._judge_status(name, visit, status, headers, answer.error)
        for problem in check(visit.ask.body if visit.ask else {}, answer):
            self.violate(f"visit {name} ({visit.kind}): {problem}")
        if status == 200 and visit.ask is not None:
            self.routes_ok[visit.ask.route] += 1
            if visit.ask.repeatable:
                self.sample.offer((name, visit.kind, visit.ask, answer.bits()))
            if visit.count:
                await self._compare_count(name, visit, answer)
        return outcome

    def _judge_status(self, name, visit, status, headers, error):
        if "request-id" not in headers:
            self.violate(f"visit {name} ({visit.kind}): an answer {status} without request-id")
        if status in OVERLOADED and visit.ask is not None:
            if "retry-after" not in headers:
                self.violate(f"visit {name} ({visit.kind}): {status} without retry-after")
            return "overloaded"
        if status not in visit.expect:
            self.violate(f"visit {name} ({visit.kind}): status {status}, expected {sorted(visit.expect)}: {error}")
        return "answered" if status == 200 else "refused"

    async def _compare_count(self, name, visit, answer):
        """C11: the three counters sum to what count_tokens says."""
        body = {k: v for k, v in visit.ask.body.items() if k in ("model", "system", "messages", "cache_control")}
        link = await Link.open(self.server.port)
        try:
            await link.send(request_bytes("POST", "/v1/messages/count_tokens", body, visit.ask.headers))
            status, _ = await link.read_head()
            counted = _counted(status, await link.body())
        finally:
            link.close()
        usage = answer.usage
        total = sum(usage[k] for k in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"))
        if total != counted:
            self.violate(f"visit {name} ({visit.kind}): usage sums to {total}, count_tokens says {counted}")


def _counted(status, body):
    return json.loads(body)["input_tokens"] if status == 200 else f"status {status}: {body[:200]!r}"
