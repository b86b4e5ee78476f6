# SPDX-License-Identifier: Apache-2.0
"""Files in bench/results: one JSON and one Markdown file a run, which say what code and machine they are of."""

import argparse
import datetime
import json
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench/results"
sys.path.insert(0, str(ROOT / "scripts"))

from provenance import commit, cpu_name


class Result:
    """What a run found. `facts` go into the JSON; `lines` into the Markdown, behind a heading and the provenance."""

    def __init__(self, kind, title, arguments=None):
        self.kind, self.title = kind, title
        self.now = datetime.datetime.now(datetime.timezone.utc)
        self.facts = {"kind": kind, "time": self.now.strftime("%Y-%m-%d %H:%M UTC"), "commit": commit(), "cpu": cpu_name(),
                      "load_before": round(os.getloadavg()[0], 2), "command": command_line(kind, arguments)}
        self.lines = []

    def markdown(self):
        head = [f"# {self.title}, {self.facts['time']}", "",
                f"Commit {self.facts['commit']}; {self.facts['cpu']}; load of the machine before it began "
                f"{self.facts['load_before']}. Command: `{self.facts['command']}`", ""]
        return "\n".join(head + self.lines).rstrip() + "\n"

    def write(self, folder=None):
        """Writes both files, prints the Markdown, returns the path of the JSON file."""
        folder = pathlib.Path(folder or RESULTS)
        folder.mkdir(parents=True, exist_ok=True)
        stem = folder / f"{self.kind}-{self.facts['commit'].replace('+', '-')}-{self.now:%Y%m%dT%H%M%S}"
        text = self.markdown()
        stem.with_suffix(".json").write_text(json.dumps(self.facts, indent=1) + "\n", encoding="utf-8")
        stem.with_suffix(".md").write_text(text, encoding="utf-8")
        print("\n" + text)
        for suffix in (".json", ".md"):
            path = stem.with_suffix(suffix)
            print(f"wrote {path.relative_to(ROOT) if path.is_relative_to(ROOT) else path}", flush=True)
        return stem.with_suffix(".json")


def command_line(kind, arguments):
    verb = {"kernels": "./dev bench", "peers": "./dev bench --peers"}.get(kind, f"./dev bench {kind}")
    return " ".join([verb, *shown(sys.argv[1:] if arguments is None else arguments)])


def shown(words):
    """A command line without this machine's folders."""
    return [word if not os.path.isabs(word) else os.path.relpath(word, ROOT)
            if pathlib.Path(word).is_relative_to(ROOT) else os.path.basename(word) for word in map(str, words)]


def arguments(description, rounds=None):
    """The flags that measurements of the program have in common; a caller adds its own, and reads all by parsed()."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--pagewise", type=pathlib.Path, default=ROOT / "build/release/pagewise")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    if rounds is not None:
        parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--results", type=pathlib.Path, help="folder of the result files (default: bench/results)")
    return parser


def parsed(parser):
    args = parser.parse_args()
    refuse_debug_build(args.pagewise)
    return args


def refuse_debug_build(program):
    cache = pathlib.Path(program).parent / "CMakeCache.txt"
    if cache.exists() and "CMAKE_BUILD_TYPE:STRING=Release" not in cache.read_text(encoding="utf-8"):
        sys.exit(f"{program} is no release build; figures of others mean nothing")
