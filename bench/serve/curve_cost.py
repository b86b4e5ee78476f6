# SPDX-License-Identifier: Apache-2.0
"""What the live curve costs: CPU time of the engine thread with --cache-curve on and off. Both servers are there all the
time and take turns, so that what the machine does meanwhile meets both alike."""

import figures
from client import Request

SIDES = ("on", "off")
RATIO_MAX = 1.01
WARM_NEW_TOKENS = 4


def engine_seconds(seconds):
    """Of `seconds(pid)` by name of thread: the one that schedules, keeps the curve, and computes its share."""
    return seconds["engine"]


def warm_requests(engine, prompt, count):
    """One after the other: nearly all of the prompt is read, which the curve looks up block by block, and hardly
    anything is computed."""
    for _ in range(count):
        timing = engine.generate([Request(prompt, WARM_NEW_TOKENS)], 600)[0]
        if timing.cached < len(prompt) - 1 or timing.tokens != WARM_NEW_TOKENS:
            raise SystemExit(f"{timing.cached} of {len(prompt)} tokens of a warm prompt came from the cache")


def streams(engine, prompts, args, label):
    """All at once: prompts of their own, and answers."""
    timings = engine.generate([Request(prompts.of(32, f"{label} {i}"), args.tokens) for i in range(args.streams)], 600)
    if not all(timing.complete and timing.tokens == args.tokens for timing in timings):
        raise SystemExit(f"not every one of {args.streams} streams got its {args.tokens} tokens")


def measure(start, prompts_of, seconds, args):
    """({load: {side: summary of CPU seconds a request}}, the command lines). `start(*flags)` gives a server,
    `prompts_of(server)` its prompts, `seconds(pid)` CPU seconds by thread."""
    spent = {load: {side: [] for side in SIDES} for load in ("warm", "streams")}
    with start("--cache-curve", "on") as on, start("--cache-curve", "off") as off:
        servers, prompts = {"on": on, "off": off}, prompts_of(on)
        warm = prompts.of(args.prompt_tokens, "warm")
        for engine in servers.values():
            engine.generate([Request(warm, 1)], 600)
            streams(engine, prompts, args, "warm-up")

        def take(load, side, requests, work):
            engine = servers[side]
            before = engine_seconds(seconds(engine.process.pid))
            work(engine)
            spent[load][side].append((engine_seconds(seconds(engine.process.pid)) - before) / requests)

        for number in range(args.rounds):
            for side in SIDES if number % 2 == 0 else SIDES[::-1]:
                take("warm", side, args.warm_requests, lambda engine: warm_requests(engine, warm, args.warm_requests))
                take("streams", side, args.streams, lambda engine: streams(engine, prompts, args, f"round {number}"))
        commands = [engine.command_line() for engine in servers.values()]
    found = {load: {side: figures.summary(values) for side, values in sides.items()} for load, sides in spent.items()}
    return found, commands


def milliseconds(side):
    return {key: [1e3 * seconds for seconds in value] if key == "rounds" else 1e3 * value for key, value in side.items()}


def rows(found, args):
    titles = {"warm": f"CPU of the engine thread for a warm prompt of {args.prompt_tokens:,} tokens and {WARM_NEW_TOKENS} "
                      "new, ms: --cache-curve off; on",
              "streams": f"the same for one of {args.streams} streams of {args.tokens} tokens"}
    out = []
    for load, sides in found.items():
        more = sides["on"]["median"] / sides["off"]["median"]
        both = "; ".join(figures.spread(milliseconds(sides[side])) for side in ("off", "on"))
        out.append([titles[load], both, f"{100 * (more - 1):+.2f} %", f"< {100 * (RATIO_MAX - 1):.0f} % more",
                    figures.verdict(more, RATIO_MAX, False)])
    return out
