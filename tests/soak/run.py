# SPDX-License-Identifier: Apache-2.0
"""One server's run: tides of visits with ebbs between them, the oracle, the end."""

import asyncio
import json
import time

import verdict
from answers import read_whole
from crowd import Crowd, Sample, make_random
from link import Gone, Link, request_bytes
from server import KEYS, Server, StartFailed
from visits import ROUTES, World
from watch import KV_ROUNDING_BYTES, Watch, blocks, load, process_counts, process_memory

EBB_S_MAX = 30  # until nothing runs, nothing is live, every connection is gone
EXIT_S_MAX = 30
DYING_S = 3
RETURN_S_MAX = 60  # the server waits ten
TIDES_AIMED = 30
TIDE_S_MIN, TIDE_S_MAX = 5, 60
SAMPLE_PER_MINUTE = 10
SAMPLE_MAX = 200
# Of the run's time, and at least: where each answer takes long, fewer are asked for.
ORACLE_SHARE, ORACLE_S_MIN = 0.1, 20
VIOLATIONS_KEPT = 50
LAST_STREAMS = 6


def tide_seconds(minutes):
    return min(max(minutes * 60 / TIDES_AIMED, TIDE_S_MIN), TIDE_S_MAX)


class Run:
    """Thread: the event loop's."""

    def __init__(self, program, model, folder, options):
        folder.mkdir(parents=True, exist_ok=True)
        self.options, self.folder = options, folder
        self.patience = options.patience
        self.server = Server(program, model, folder, options.threads)
        self.name = self.server.model.stem
        self.seed = f"{options.seed}/{self.name}"
        self.violations = []
        self.started = time.monotonic()
        self.tides = []
        self.oracle = {"sampled": 0, "compared": 0, "tokens": 0, "different": 0}
        self.end = {}
        self.stopped = 0
        self.crowd = self.watch = self.sample = None
        self.has_chat = False

    def say(self, text):
        seconds = int(time.monotonic() - self.started)
        print(f"[{seconds // 60:02d}:{seconds % 60:02d}] {self.name[:12]}: {text}", flush=True)

    def violate(self, text):
        if self.crowd:
            self.crowd.halted = True
        self.violations.append({"at_s": round(time.monotonic() - self.started, 1), "what": text})
        if len(self.violations) <= VIOLATIONS_KEPT:
            self.say(f"VIOLATION: {text}")

    async def whole(self):
        """Everything; leaves its figures in the fields."""
        try:
            await self._run()
        except StartFailed as error:
            self.violate(str(error))
        except RuntimeError as error:
            self.violate(str(error))
        except (Gone, ConnectionError, FileNotFoundError) as error:
            self.violate(f"the server's connection broke: {error!r}; exit status {self.server.ended()}")
        finally:
            if self.violations:
                # A process that was killed closes its connections before its status can be had.
                await self.server.wait_ended(DYING_S)
            self._note_death()
            self.server.kill()
            if self.violations:
                self._leave_evidence()

    def _note_death(self):
        """A server that died is the cause of all else, so it comes first."""
        if (status := self.server.ended()) not in (None, 0):
            tail = " / ".join(self.server.log_text().splitlines()[-3:])
            self.violate(f"the server ended with status {status}: {tail[-500:]}")
            self.violations.insert(0, self.violations.pop())

    async def _run(self):
        await self.server.start(self.patience)
        models = await self.server.get("/v1/models")
        if self.name not in models:
            self.violate(f"/v1/models does not name {self.name}: {models[:200]}")
        self.has_chat = "no chat" not in self.server.log_text()
        world = World(self.seed, self.has_chat, self.server.kv_bytes, make_random)
        minutes = self.options.minutes
        self.sample = Sample(self.seed, int(min(max(SAMPLE_PER_MINUTE * minutes, 10), SAMPLE_MAX)))
        self.crowd = Crowd(self.server, world, self.seed, self.options.clients, self.patience, self.sample,
                           self.violate)
        self.watch = Watch(self.server, self.patience, self.violate)
        await self.watch.look()
        idle = process_counts(self.server.pid)
        watching = asyncio.create_task(self.watch.run())
        await self.crowd.extremes()
        until = asyncio.get_running_loop().time() + minutes * 60
        while asyncio.get_running_loop().time() < until and not self.violations and self.server.ended() is None:
            await self._tide(until, idle)
        if self.server.ended() is None and not watching.done():
            await self._ask_again()
            await self._ebb(idle)
            self.end |= await self._figures()
            await self._return_everything()
            self.watch.stop.set()
            await watching
            await self._stop_under_load()
        self.watch.stop.set()
        await watching
        self._judge_memory()

    async def _tide(self, until, idle):
        loop, number = asyncio.get_running_loop(), len(self.tides)
        began, visits = loop.time(), self.crowd.visits
        length_s = tide_seconds(self.options.minutes)
        await self.crowd.tide(number, min(until, began + length_s), length_s / 4)
        if self.server.ended() is not None:
            return
        await self._ebb(idle)
        # Ebbs are compared with each other, so the pool is as large in each. Nobody asks: it must be possible.
        await self.server.post("/v1/admin/kv", {"memory": self.server.kv_bytes})
        states = blocks(await self.watch.look())
        memory = process_memory(self.server.pid)
        self.tides.append({"seconds": round(loop.time() - began, 1), "visits": self.crowd.visits - visits, **memory,
                           "cached": states["cached"], "free": states["free"]})
        self.say(f"tide {number}: {self.crowd.visits - visits} visits; cached {states['cached']}, free "
                 f"{states['free']} of {states['pool']} blocks; preempted "
                 f"{self.watch.last['vllm:num_preemptions_total']:.0f}, evicted "
                 f"{self.watch.last['pagewise_evictions_total']:.0f}; resident {memory['rss_kib'] // 1024} MiB, of it "
                 f"KV {memory['kv_kib'] // 1024}")

    async def _ebb(self, idle):
        """Nobody asks: nothing may run, no block may be live, threads and connections are as at the start."""
        deadline = asyncio.get_running_loop().time() + EBB_S_MAX * self.patience
        while self.server.ended() is None:
            metrics = await self.watch.look()
            counts = process_counts(self.server.pid)
            left = {"requests": sum(load(metrics)), "live blocks": blocks(metrics)["live"],
                    "threads": max(counts["threads"] - idle["threads"], 0),
                    "descriptors": max(counts["descriptors"] - idle["descriptors"], 0)}
            if not any(left.values()):
                return
            if asyncio.get_running_loop().time() > deadline:
                text = ", ".join(f"{n} {what}" for what, n in left.items() if n)
                return self.violate(f"nobody asks any more, but there are still {text}")
            await asyncio.sleep(0.1)

    async def _ask_again(self):
        """The oracle: the sampled requests, each alone, with the cache off."""
        self.oracle["sampled"] = len(self.sample.kept)
        self.say(f"asking {len(self.sample.kept)} requests again, each alone and without a cache")
        link = await Link.open(self.server.port)
        ends = time.monotonic() + max(self.options.minutes * 60 * ORACLE_SHARE, ORACLE_S_MIN) * self.patience
        for name, kind, ask, bits in self.sample.kept:
            if time.monotonic() > ends:
                break
            body = {k: v for k, v in ask.body.items() if k not in ("stream", "stream_options")}
            await link.send(request_bytes("POST", ROUTES[ask.route], {**body, "cache_prompt": False}, ask.headers))
            status, _ = await link.read_head()
            truth = read_whole(status, await link.body())
            self.oracle["compared"] += 1
            self.oracle["tokens"] += truth.output_tokens()
            # A stream without include_usage does not say how many tokens it had.
            silent = ask.body.get("stream") and "messages" != ask.route and "stream_options" not in ask.body
            if truth.bits()[0] != bits[0] or (not silent and truth.bits()[1] != bits[1]):
                self.oracle["different"] += 1
                self.violate(f"visit {name} ({kind}): alone and without a cache the answer differs: "
                             f"{first_difference(bits[0], truth.bits()[0])}; request {json.dumps(ask.body)[:500]}")
        link.close()

    async def _figures(self):
        metrics = await self.watch.look()
        running, waiting = load(metrics)
        ok = {label: metrics.get(f'pagewise_http_requests_total{{route="{label}",status="200"}}', 0)
              for label in ROUTES}
        for label, seen in self.crowd.routes_ok.items():
            if seen > ok[label]:  # those that left may have been answered too
                self.violate(f"{seen} answers 200 of {label} were seen, the server counts {ok[label]:.0f}")
        counters = {k: v for k, v in metrics.items() if "_total" in k and "{" not in k}
        return {**blocks(metrics), "running": running, "waiting": waiting, **process_counts(self.server.pid),
                "counters": counters}

    async def _return_everything(self):
        """Forgets the cache: no block is left over, and the memory of all goes back (after ten seconds)."""
        await self.server.post("/v1/cache/clear", {})
        began, metrics = time.monotonic(), await self.watch.look()
        now = blocks(metrics)
        if now["free"] != now["pool"]:
            self.violate(f"with an empty cache {now['pool'] - now['free']} of {now['pool']} blocks are not free: {now}")
        while metrics["pagewise_kv_committed_bytes"] > 0:
            if time.monotonic() - began > RETURN_S_MAX * self.patience:
                return self.violate(f"{metrics['pagewise_kv_committed_bytes']:.0f} bytes of free blocks have not gone "
                                    f"back to the system after {RETURN_S_MAX * self.patience:.0f} s")
            await asyncio.sleep(0.2)
            metrics = await self.watch.look()
        memory = process_memory(self.server.pid)
        self.end |= {"returned_s": round(time.monotonic() - began, 1), "returned_rss_kib": memory["rss_kib"],
                     "returned_kv_kib": memory["kv_kib"]}
        if memory["kv_kib"] * 1024 > KV_ROUNDING_BYTES:
            self.violate(f"{memory['kv_kib']} KiB of KV are resident though every block went back")

    async def _stop_under_load(self):
        """SIGTERM while answers are under way: each gets an end, and the exit status is 0."""
        asks = [{"model": "gpt-x", "prompt": [1000 + i] * 50, "max_tokens": 1000, "ignore_eos": True,
                 "stream": i % 2 == 0} for i in range(LAST_STREAMS)]
        links = [await Link.open(self.server.port) for _ in asks]
        for link, body in zip(links, asks):
            await link.send(request_bytes("POST", "/v1/completions", body, {"x-api-key": KEYS[0]}))
        await asyncio.sleep(0.3)
        began = time.monotonic()
        self.server.terminate()
        self.server.link.close()
        for link in links:
            try:
                async with asyncio.timeout(EXIT_S_MAX * self.patience):
                    await link.read_head()
                    await link.body()
            except TimeoutError:
                self.violate("after SIGTERM an answer did not end")
            except (Gone, ConnectionError) as error:
                self.violate(f"after SIGTERM an answer broke off: {error!r}")
            link.close()
        status = await self.server.wait_ended(EXIT_S_MAX * self.patience)
        self.end |= {"exit_status": status, "exit_s": round(time.monotonic() - began, 2)}
        if status is None:
            self.violate(f"the server still runs {EXIT_S_MAX * self.patience:.0f} s after SIGTERM")

    def _judge_memory(self):
        grown = verdict.growth([tide["rss_kib"] for tide in self.tides])
        if grown is None:
            return
        self.end["memory"] = grown
        if self.options.judge_memory and grown["growth_percent"] >= verdict.GROWTH_PERCENT_MAX:
            self.violate(f"resident memory grew by {grown['growth_percent']} % after warm-up, from "
                         f"{grown['baseline_kib']:.0f} to {grown['end_kib']:.0f} KiB")

    def _leave_evidence(self):
        with (self.folder / "last-requests.jsonl").open("w", encoding="utf-8") as out:
            for record in self.crowd.last if self.crowd else []:
                out.write(json.dumps(record) + "\n")

    def figures(self):
        """What the JSON says of this server."""
        kinds = {}
        for (kind, outcome), count in sorted(self.crowd.outcomes.items() if self.crowd else []):
            kinds.setdefault(kind, {})[outcome] = count
        out = {"model": self.server.model.name, "command": [*self.server.command[:2], self.server.model.name,
                                                           *self.server.flags[:-2]],
               "kv_bytes": self.server.kv_bytes, "seconds": round(time.monotonic() - self.started, 1),
               "visits": self.crowd.visits if self.crowd else 0, "kinds": kinds,
               "statuses": dict(sorted(self.crowd.statuses.items())) if self.crowd else {}, "oracle": self.oracle,
               "end": self.end, "tides": self.tides, "violations": self.violations[:VIOLATIONS_KEPT],
               "violations_total": len(self.violations)}
        if self.watch:
            out |= {"looks": self.watch.looks, "peaks": self.watch.peaks, "free_min": self.watch.free_min}
        return out


def first_difference(seen, truth):
    """Where two lists of choices part, in a few words."""
    for one, other in zip(seen, truth):
        if one != other:
            for i, (a, b) in enumerate(zip(one[3], other[3])):
                if a != b:
                    return f"choice {one[0]}, token {i}: {a} and {b}"
            return f"choice {one[0]}: {one[1][-80:]!r} ({one[2]}) and {other[1][-80:]!r} ({other[2]})"
    return f"{len(seen)} choices and {len(truth)}, or other counts of tokens"
