# SPDX-License-Identifier: Apache-2.0
"""Prompts of an exact number of tokens that read like English: frequent words in random order, one token each.

A prompt depends on its length and its label, and no two share a beginning: "cold" is cold, whatever ran before.
"""

import random

WORDS = ("the of and to in is that for it as was with be by on not he his but at are this have "
         "from or had an they which one you were all her she there would their we him been has "
         "when who will no more if out so up said what its about than into them can only other "
         "time new some could these two may first then do any like my now over such our man me "
         "even most made after also did many off before must well back through years").split()


def random_ids(count, seed):
    """Tokens of no language, for prompts of which not even the first tokens are another's."""
    draw = random.Random(str(seed))
    return [draw.randrange(1000, 40000) for _ in range(count)]


class Prompts:
    """`tokenize(text)` gives token ids; `seed` makes the prompts of another run others."""

    def __init__(self, tokenize, seed):
        self.seed = seed
        pieces = [tokenize(" " + word) for word in WORDS]
        self.ids = sorted({piece[-1] for piece in pieces if len(piece) == min(map(len, pieces))})

    def of(self, tokens, label):
        draw = random.Random(f"{self.seed} {label} {tokens}")
        return [draw.choice(self.ids) for _ in range(tokens)]
