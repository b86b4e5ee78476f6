# SPDX-License-Identifier: Apache-2.0
"""Hours of mixed load in minutes (`./dev soak`): real servers, one a model, under clients that ask, leave, return,
send nonsense and read slowly. docs/soak.md says what is checked and how to read the result.

Exit status: 0 when everything held, 1 when something did not, 2 for wrong usage.
"""

import argparse
import asyncio
import datetime
import json
import os
import pathlib
import platform
import secrets
import shutil
import signal
import sys

from run import Run

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from provenance import commit, cpu_model

PROGRAM = os.environ.get("PAGEWISE_BIN") or str(ROOT / "build/release/pagewise")
MODELS = ("models/SmolLM2-135M-Instruct.Q4_1.gguf", "models/gemma-3-270m-q4_k_m.gguf")
CLIENTS = 20
THREADS = 2


def arguments():
    parser = argparse.ArgumentParser(prog="./dev soak", description="Mixed load on real servers, with invariants "
                                     "every second and an oracle at the end.")
    parser.add_argument("--minutes", type=float, default=2, help="of load (default 2); the oracle comes on top")
    parser.add_argument("--json", type=pathlib.Path, help="write every figure here")
    parser.add_argument("--model", action="append", type=pathlib.Path, help="a GGUF file; may be repeated (default: "
                        "both test models, each with a server of its own, at once)")
    parser.add_argument("--seed", type=int, help="of everything that is drawn (default: a new one, printed)")
    parser.add_argument("--clients", type=int, default=CLIENTS, help=f"of each server (default {CLIENTS})")
    parser.add_argument("--threads", type=int, default=THREADS, help=f"of each server (default {THREADS}); fewer on a "
                        "machine that is busy with other work, where each step waits for the last of them")
    parser.add_argument("--program", default=PROGRAM, help="the server (default: $PAGEWISE_BIN or the release build)")
    parser.add_argument("--patience", type=float, default=1, help="factor on every time limit, for slow builds")
    parser.add_argument("--no-memory-verdict", dest="judge_memory", action="store_false",
                        help="do not judge growth of memory: sanitizers keep what was freed")
    options = parser.parse_args()
    for name in ("minutes", "clients", "threads", "patience"):
        if not getattr(options, name) > 0:
            parser.error(f"--{name} must be more than 0")
    options.model = options.model or [ROOT / name for name in MODELS]
    for model in options.model:
        if not model.is_file():
            parser.error(f"--model {model}: no such file")
    if not os.access(options.program, os.X_OK):
        parser.error(f"--program {options.program}: no such program; ./dev build makes it")
    if options.seed is None:
        options.seed = secrets.randbelow(1 << 32)
    return options


async def soak(options, folder):
    """Runs all at once; a signal ends them, and with them their servers."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asyncio.current_task().cancel)
    runs = [Run(options.program, model, folder / model.stem, options) for model in options.model]
    await asyncio.gather(*(run.whole() for run in runs))
    return runs


def main():
    options = arguments()
    began = datetime.datetime.now(datetime.timezone.utc)
    folder = ROOT / "build/soak" / f"{began:%Y%m%dT%H%M%S}-{options.seed}"
    print(f"soak: seed {options.seed}, {options.minutes:g} minutes, {options.clients} clients a server, "
          f"{', '.join(model.stem for model in options.model)}", flush=True)
    try:
        runs = asyncio.run(soak(options, folder))
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("soak: ended by a signal before there was a verdict", file=sys.stderr)
        return 1
    held = not any(run.violations for run in runs)
    result = {"what": "soak", "held": held, "began": f"{began:%Y-%m-%dT%H:%M:%SZ}", "commit": commit(),
              "machine": {"cpu": cpu_model(), "cores": os.cpu_count(), "system": platform.platform()},
              "minutes": options.minutes, "seed": options.seed, "clients": options.clients,
              "servers": [run.figures() for run in runs]}
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    for run in runs:
        print(summary(run))
    if held:
        shutil.rmtree(folder)
        return 0
    first = next(run for run in runs if run.violations)
    print(f"soak: FAILED, seed {options.seed}: {first.name}: {first.violations[0]['what']}\n"
          f"soak: logs of the servers and the last requests are in {folder}", file=sys.stderr)
    return 1


def summary(run):
    memory, end = run.end.get("memory"), run.end
    grown = f"memory {memory['growth_percent']:+.2f} % after warm-up" if memory else "too short to judge memory"
    return (f"soak: {run.name}: {run.crowd.visits if run.crowd else 0} visits, {run.oracle['compared']} answers "
            f"({run.oracle['tokens']} tokens) compared, {run.oracle['different']} differ; live blocks at the end "
            f"{end.get('live')}; {grown}; exit status {end.get('exit_status')}; {len(run.violations)} violations")


if __name__ == "__main__":
    sys.exit(main())
