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
# Letters with case, as the published expression lists them.
CASED = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373"
    "\u0376-\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481"
    "\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b"
    "\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b"
    "\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb"
    "\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128"
    "\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183-\u2184\u2c00-\u2c7b\u2c7e-\u2ce4"
    "\u2ceb-\u2cee\u2cf2-\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf"
    "\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3"
    "\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df"
    "\U0001e900-\U0001e943"
)
CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
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
    "deepseek-llm": [
        r"[\r\n]", r"\s?[" + CASED + "]+", "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
        r"\s+$", CJK, r"\p{N}+",
    ],
    "deepseek-v3": [
        r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"""
        r""" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""",
    ],
    "deepseek-coder": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK, r"\p{N}"],
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
