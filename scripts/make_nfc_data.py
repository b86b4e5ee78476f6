#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes src/text/nfc_data.h: what Unicode's composed form (NFC) needs to know of characters, from Python's own
copy of the character database (3.11: Unicode 14). Normalisation is stable: a later version only adds characters.
And tests/data/nfc.json: checksums of what Python's normalisation gives for 64 x 1000 texts.

    python3 scripts/make_nfc_data.py
"""
import json
import pathlib
import sys
import unicodedata

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = ROOT / "src/text/nfc_data.h"
SUMS = ROOT / "tests/data/nfc.json"
WIDTH = 100
HANGUL = range(0xAC00, 0xD7A4)  # by arithmetic

HEAD = """\
// SPDX-License-Identifier: Apache-2.0
// Canonical decompositions and combining classes of characters, as scripts/make_nfc_data.py wrote
// them from the Unicode Character Database {version}. Hangul syllables follow by arithmetic.
#pragma once

#include <cstdint>

namespace pagewise::text {{

// Packed by the script.
// clang-format off

"""

TAIL = """
// clang-format on

}  // namespace pagewise::text
"""


def characters():
    return (c for c in range(sys.maxunicode + 1) if not 0xD800 <= c < 0xE000)


def classes():
    """(first, last, class) of neighbours with one class."""
    found = []
    for c in characters():
        value = unicodedata.combining(chr(c))
        if not value:
            continue
        if found and found[-1][1] == c - 1 and found[-1][2] == value:
            found[-1][1] = c
        else:
            found.append([c, c, value])
    return found


def decompositions():
    """(character, first, second or 0, whether the pair composes again), one step each."""
    found = []
    for c in characters():
        parts = unicodedata.decomposition(chr(c))
        if not parts or parts.startswith("<") or c in HANGUL:
            continue
        first, second = (int(part, 16) for part in (parts + " 0").split()[:2])
        composes = second and unicodedata.normalize("NFC", chr(first) + chr(second)) == chr(c)
        found.append((c, first, second, int(bool(composes))))
    return found


def packed(rows):
    lines, line = [], " "
    for row in rows:
        item = "{" + ", ".join(f"0x{value:X}" if value > 9 else str(value) for value in row) + "},"
        if len(line) + 1 + len(item) > WIDTH:
            lines.append(line)
            line = " "
        line += " " + item
    return "\n".join([*lines, line])


# Where characters are that something happens to; half of all come from the first.
RANGES = [(0x300, 0x36F), (0x41, 0x7A), (0xC0, 0x24F), (0x370, 0x52F), (0x590, 0x6FF), (0x900, 0xDFF), (0xF00, 0xFFF),
          (0x1000, 0x11FF), (0x135D, 0x135F), (0x1AB0, 0x1B7F), (0x1DC0, 0x1FFF), (0x20D0, 0x20FF), (0x2126, 0x212B),
          (0x2190, 0x22ED), (0x2ADC, 0x2ADD), (0x3040, 0x30FF), (0xAC00, 0xD7A3), (0xD7B0, 0xD7FB), (0xF900, 0xFB4F),
          (0x11000, 0x11FFF), (0x1D150, 0x1D1FF), (0x2F800, 0x2FA1F), (0x1100, 0x1112),
          (0x1161, 0x1175), (0x11A7, 0x11C2)]


def sums():
    """FNV-1a of the normalised texts of each batch; src/text/nfc_test.cc makes the same texts."""
    for batch in range(64):
        state, value = batch, 0xCBF29CE484222325

        def below(bound):
            nonlocal state
            state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
            return (state >> 33) % bound
        for _ in range(1000):
            text = ""
            for _ in range(1 + below(8)):
                first, last = RANGES[0 if below(2) == 0 else below(len(RANGES))]
                text += chr(first + below(last - first + 1))
            for byte in (unicodedata.normalize("NFC", text) + "\n").encode():
                value = (value ^ byte) * 0x100000001B3 % 2**64
        yield f"{value:016x}"


def main():
    SUMS.write_text(json.dumps({"unicode": unicodedata.unidata_version, "ranges": RANGES, "sums": list(sums())}) + "\n",
                    encoding="utf-8")
    text = HEAD.format(version=unicodedata.unidata_version)
    text += "/// Characters whose canonical combining class is not 0, in ascending order.\n"
    text += "struct CombiningClass {\n  uint32_t first, last;\n  uint8_t value;\n};\n"
    text += f"inline constexpr CombiningClass kCombiningClasses[] = {{\n{packed(classes())}\n}};\n\n"
    text += "/// One step of a canonical decomposition, in ascending order. second == 0: into one character.\n"
    text += "/// composes: the two become the one again.\n"
    text += "struct Decomposition {\n  uint32_t character, first, second;\n  bool composes;\n};\n"
    text += f"inline constexpr Decomposition kDecompositions[] = {{\n{packed(decompositions())}\n}};\n"
    TARGET.write_text(text + TAIL, encoding="utf-8")


if __name__ == "__main__":
    main()
