# SPDX-License-Identifier: Apache-2.0
"""What must hold at every moment, seen from outside: /metrics and /proc once a second."""

import asyncio
import contextlib
import os
import re

from server import BLOCK_TOKENS, LEASE_SHARE, POOL_GROWTH_MAX, QUEUE_MAX, SEQS_MAX

KV_ROUNDING_BYTES = 4 << 20  # the arena's ends, in huge pages, of two groups
STEPLESS_S_MAX = 60  # work without a single step for so long is a standstill
LINE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$")


def parse_metrics(page):
    """{name{labels but the model's}: value}"""
    found = {}
    for line in page.splitlines():
        if match := LINE.match(line):
            labels = ",".join(p for p in (match[2] or "").split(",") if p and not p.startswith("model_name="))
            found[f"{match[1]}{{{labels}}}" if labels else match[1]] = float(match[3])
    return found


def is_counter(name):
    return re.search(r"_(total|count|bucket|sum)(\{|$)", name) is not None


def blocks(metrics):
    states = {s: int(metrics[f'pagewise_kv_blocks{{state="{s}"}}']) for s in ("live", "cached", "free")}
    return {**states, "pool": int(metrics["pagewise_kv_pool_blocks"]),
            "leased": int(metrics["pagewise_kv_leased_blocks"])}


def load(metrics):
    """Requests that run and that wait."""
    return int(metrics["vllm:num_requests_running"]), int(metrics["vllm:num_requests_waiting"])


def broken_invariants(metrics, before):
    """Sentences on what does not hold on a metrics page; `before` is the page before it, or {}."""
    found = []
    now = blocks(metrics)
    if now["live"] + now["cached"] + now["free"] != now["pool"]:
        found.append(f"live {now['live']} + cached {now['cached']} + free {now['free']} is not the pool's {now['pool']}")
    resizes = "pagewise_kv_pool_resizes_total"
    if before and metrics[resizes] == before[resizes] and now["pool"] != blocks(before)["pool"]:
        found.append(f"the pool has {now['pool']} blocks and had {blocks(before)['pool']}, and nobody resized it")
    if metrics["pagewise_kv_committed_bytes"] > metrics["pagewise_kv_pool_bytes"]:
        found.append(f"{metrics['pagewise_kv_committed_bytes']:.0f} bytes of KV are in use, and the pool is "
                     f"{metrics['pagewise_kv_pool_bytes']:.0f}")
    if now["leased"] > now["live"] + now["cached"]:
        found.append(f"{now['leased']} blocks are leased, but only {now['live'] + now['cached']} hold anything")
    if now["leased"] > LEASE_SHARE * now["pool"]:
        found.append(f"{now['leased']} of {now['pool']} blocks are leased, more than a share of {LEASE_SHARE}")
    running, waiting = load(metrics)
    if not 0 <= running <= SEQS_MAX:
        found.append(f"{running} requests run where {SEQS_MAX} sequences may")
    # A full queue, those that free slots may take at once, and those that ran and were preempted.
    if not 0 <= waiting <= QUEUE_MAX + 2 * SEQS_MAX:
        found.append(f"{waiting} requests wait where {QUEUE_MAX} may")
    slack = metrics["pagewise_kv_slack_tokens"]
    if not 0 <= slack <= now["live"] * BLOCK_TOKENS:
        found.append(f"{slack:.0f} slack tokens in {now['live']} live blocks")
    if not 0 <= metrics["vllm:kv_cache_usage_perc"] <= 1:
        found.append(f"a usage of {metrics['vllm:kv_cache_usage_perc']}")
    for name, value in before.items():
        if is_counter(name) and metrics.get(name, -1) < value:
            found.append(f"{name} went back from {value} to {metrics.get(name)}")
    hits, queries = metrics["vllm:prefix_cache_hits_total"], metrics["vllm:prefix_cache_queries_total"]
    if hits > queries:
        found.append(f"{hits:.0f} prefix hits of {queries:.0f} tokens looked up")
    return found


def process_memory(pid):
    """{'rss_kib', 'kv_kib'}: resident in all, and in the KV arena, whose mappings alone are kept out of core dumps
    and ask for huge pages."""
    rss = kv = size = 0
    with open(f"/proc/{pid}/smaps", encoding="ascii", errors="replace") as lines:
        for line in lines:
            if line.startswith("Rss:"):
                size = int(line.split()[1])
                rss += size
            elif line.startswith("VmFlags:") and {"dd", "hg"} <= set(line.split()):
                kv += size
    return {"rss_kib": rss, "kv_kib": kv}


def process_counts(pid):
    return {"threads": len(os.listdir(f"/proc/{pid}/task")), "descriptors": len(os.listdir(f"/proc/{pid}/fd"))}


class Watch:
    """Looks once a second, and remembers the extremes."""

    def __init__(self, server, patience, violate):
        self.server, self.patience, self.violate = server, patience, violate
        self.last = {}
        self.looks = 0
        self.peaks = {"running": 0, "waiting": 0, "live": 0, "cached": 0, "leased": 0, "rss_kib": 0, "kv_kib": 0, "threads": 0,
                      "descriptors": 0}
        self.free_min = None
        self.stop = asyncio.Event()
        self._steps, self._moved_at = -1, 0.0

    async def look(self):
        """One look; gives the metrics."""
        metrics = parse_metrics(await self.server.get("/metrics"))
        now = blocks(metrics)
        for sentence in broken_invariants(metrics, self.last):
            self.violate(sentence)
        self.last = metrics
        self.looks += 1
        running, waiting = load(metrics)
        memory = process_memory(self.server.pid)
        if memory["kv_kib"] * 1024 > self.server.kv_bytes * POOL_GROWTH_MAX + KV_ROUNDING_BYTES:
            self.violate(f"{memory['kv_kib']} KiB of KV are resident in a pool of {self.server.kv_bytes // 1024}")
        seen = {**now, "running": running, "waiting": waiting, **process_counts(self.server.pid), **memory}
        for name in self.peaks:
            self.peaks[name] = max(self.peaks[name], seen[name])
        self.free_min = now["free"] if self.free_min is None else min(self.free_min, now["free"])
        self._check_progress(metrics["pagewise_steps_total"], running + waiting)
        return metrics

    def _check_progress(self, steps, requests):
        now = asyncio.get_running_loop().time()
        if steps != self._steps or requests == 0:
            self._steps, self._moved_at = steps, now
        elif now - self._moved_at > STEPLESS_S_MAX * self.patience:
            self.violate(f"{requests} requests and no step for {now - self._moved_at:.0f} s")
            self._moved_at = now

    async def run(self):
        """Until `stop` is set or the server is gone."""
        while not self.stop.is_set() and self.server.ended() is None:
            await self.look()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.stop.wait(), 1)
