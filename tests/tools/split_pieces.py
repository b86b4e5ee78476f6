#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/pieces.json: how the published pre-tokenizer expressions cut some texts.

An independent regular-expression engine does the cutting, with the expressions as they are published.

    pip install regex && python3 tests/tools/split_pieces.py
"""
import json
import pathlib
import random

import regex

DATA = pathlib.Path(__file__).resolve().parent.parent / "data"

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
EXPRESSIONS = {
    "gpt-2": [GPT2],
    "smollm": [r"\p{N}", GPT2],
    "llama-bpe": [LLAMA3],
    "qwen2": [LLAMA3.replace("{1,3}", "")],
    "falcon": [r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"],
    "tekken": [
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}|"
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ],
    "gpt-4o": [
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
        r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ],
    "default": [r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
}

TEXTS = [
    "", " ", "  ", "Hello, world!", "  two leading", "trailing  ", "a  b   c", "\n\n\nx\n \n", "\tTabs\tand\r\nCRLF \r\n x",
    "don't CAN'T I'LL we've 'tis 'S 'sx", "3.14159 1234567 1,000 12 345 6789 ٣٤٥٦ Ⅷ½①", "x = y+1; // c++ <=> a->b",
    "naïve café Ångström é", "你好，世界。今天123天气", "안녕 세계", "مرحبا بالعالم", "हिन्दी में", "👨\u200d👩\u200d👧 🏳️\u200d🌈🇨🇭",
    "\u00a0nbsp\u2003em\u3000ideo\u200bzw\u1680og\u0085nel\u2028ls\u180emvs", "$1,234.56 €99 ^_^ ~|~ <<>>", "...!!!???\n\n---",
    "   \n   x", "x\n   \n\n  y ", "'", "''s", " 's 't", "a'", "_under__score_", "I'm  \t\t you're\n\n\n", "1 2  3   4",
    "  1", " \n1", "\r\r\n\n\r", "!\n\n!\r\n x", "a\u0301b", "\u0301\u0301", "x\u0000y", "1a2b3c", " 12345", "12345 ", "(abc)(1234)\n",
]


def cut(pattern, piece):
    at = 0
    for match in regex.finditer(pattern, piece):
        if match.start() > at:
            yield piece[at:match.start()]
        yield match.group()
        at = match.end()
    if at < len(piece):
        yield piece[at:]


def pieces(expressions, text):
    result = [text] if text else []
    for pattern in expressions:
        result = [part for piece in result for part in cut(pattern, piece)]
    return result


def main():
    chance = random.Random(7)
    alphabet = list("aB'sSlL t0 129  \n\n\r\t.,-_<|>$é中ß🙂́ \u3000") + ["ll", "'RE", "  ", "123"]
    texts = TEXTS + ["".join(chance.choices(alphabet, k=chance.randint(1, 40))) for _ in range(160)]
    out = [{"name": name, "cases": [pieces(expressions, text) for text in texts]}
           for name, expressions in EXPRESSIONS.items()]
    (DATA / "pieces.json").write_text(json.dumps(out, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
