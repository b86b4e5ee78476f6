#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a schema costs: decode with an answer that must follow one, and of the same length without.

Each round sends the same chat twice to one server, once with `response_format` and once plain, in turns. The schemas
ask for more than fits the answer's tokens, so that both sides decode equally many. Must: at least 0.95 of the plain
speed.

usage: bench/serve/grammar.py [--rounds 7] [--model PATH] (`./dev bench grammar`)
Writes bench/results/grammar-<commit>-<time>.{md,json}.
"""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))

import figures
import result_file
import servers
from client import Request

SHARE_MIN = 0.95
MODEL = ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"

GUEST = {
    "type": "object",
    "properties": {
        "name": {"type": "string"}, "nights": {"type": "integer"}, "price": {"type": "number"},
        "room": {"enum": ["single", "double", "suite"]}, "breakfast": {"type": "boolean"},
        "wishes": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
        "address": {"anyOf": [{"type": "null"}, {
            "type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            "required": ["street", "city"]}]},
    },
    "required": ["name", "nights", "price", "room", "breakfast", "wishes", "address"],
}
SCHEMAS = {
    "records": {"type": "array", "items": GUEST, "minItems": 200},
    "records, short texts": {"type": "array", "minItems": 200, "items": {
        "type": "object", "properties": {"title": {"type": "string", "minLength": 8, "maxLength": 24},
                                         "year": {"type": "integer", "minimum": 1900, "maximum": 2099}},
        "required": ["title", "year"]}},
    "one long text": {"type": "object", "properties": {"text": {"type": "string", "minLength": 20000}},
                      "required": ["text"]},
    "tree": {"$ref": "#/$defs/node", "$defs": {"node": {
        "type": "object", "properties": {"label": {"type": "string", "maxLength": 12}, "children": {
            "type": "array", "items": {"$ref": "#/$defs/node"}}, "weight": {"type": "number"}},
        "required": ["label", "children"]}}},
}


def decode(server, name, schema, number, tokens):
    """Tokens a second of one answer."""
    words = f"Round {number}, {name}: write a long list of hotel guests as JSON."
    more = {"response_format": {"type": "json_schema", "json_schema": {"name": "bench", "schema": schema}}} if schema else {}
    timing = server.generate([Request(None, tokens, more, [{"role": "user", "content": words}])])[0]
    # A tree may be complete before; what it had is a speed all the same.
    if timing.tokens < min(tokens, 16):
        sys.exit(f"{name}: the answer has {timing.tokens} tokens, {tokens} were asked for")
    return timing.decode_per_s


def measure(server, rounds, tokens):
    """{schema: {"plain", "held", "share": figures of the rounds}}"""
    found = {name: {"plain": [], "held": [], "share": []} for name in SCHEMAS}
    for name, schema in SCHEMAS.items():
        decode(server, name, schema, "warm-up", 16)
    for number in range(rounds):
        for name, schema in SCHEMAS.items():
            order = [("plain", None), ("held", schema)]
            speeds = {side: decode(server, name, asked, number, tokens)
                      for side, asked in (order if number % 2 == 0 else order[::-1])}
            for key, value in (*speeds.items(), ("share", speeds["held"] / speeds["plain"])):
                found[name][key].append(value)
            print(f"  round {number} {name}: plain {speeds['plain']:.1f} tok/s, with the schema {speeds['held']:.1f}",
                  flush=True)
    return {name: {key: figures.summary(values) for key, values in sides.items()} for name, sides in found.items()}


def table(found):
    return figures.table(
        ["schema", "plain, tok/s", "with the schema, tok/s", "share", f"must >= {SHARE_MIN}"],
        [[name, *(figures.spread(sides[key]) for key in ("plain", "held", "share")),
          figures.verdict(sides["share"]["median"], SHARE_MIN, True)] for name, sides in found.items()])


def main():
    parser = result_file.arguments(__doc__.splitlines()[0], 7)
    parser.add_argument("--model", type=pathlib.Path, default=MODEL)
    parser.add_argument("--tokens", type=int, default=192)
    args = result_file.parsed(parser)
    result = result_file.Result("grammar", "Decode with a schema and without")
    with servers.Pagewise(args.pagewise, args.model, args.threads) as server:
        found = measure(server, args.rounds, args.tokens)
        command = server.command_line()
    result.facts.update(threads=args.threads, rounds=args.rounds, tokens=args.tokens, figures=found, command_server=command)
    result.lines = [f"Decode of {args.tokens} tokens, {args.threads} threads, {args.rounds} rounds; median (smallest to "
                    "largest).", "", *table(found), f"    {command}"]
    result.write(args.results)


if __name__ == "__main__":
    main()
