# SPDX-License-Identifier: Apache-2.0
"""The rows of the table: what is measured, in what unit, and the bars (docs/design.md, section 9)."""

import dataclasses

import limits

PREFIX, OWN, NEW, CLIENTS = 4096, 16, 32, 32


@dataclasses.dataclass(frozen=True)
class Row:
    key: str
    group: str  # rows of one group share their servers, and are measured in one pass
    title: str
    more_is_better: bool
    must: float | None  # ratio to the better peer; kv-shared: to the limit
    aim: float | None
    limit: object  # (machine, model) to the figure that the machine allows


ROWS = [
    Row("decode-short", "single", "decode, short context, tok/s", True, 1.8, 2.0,
        lambda machine, model: limits.decode(machine, model, 80)),
    Row("decode-4096", "single", "decode at 4,096 tokens of context, tok/s", True, 2.7, 3.0,
        lambda machine, model: limits.decode(machine, model, PREFIX)),
    Row("prefill-512", "single", "prefill 512 tokens, tok/s", True, 1.4, 1.6,
        lambda machine, model: 512 / limits.prefill_s(machine, model, 512)),
    Row("cold-4112", "single", "time to first token, 4,112 tokens cold, s", False, 0.78, 0.70,
        lambda machine, model: limits.prefill_s(machine, model, PREFIX + OWN)),
    Row("again-4112", "single", "the same prompt again, ms", False, 0.6, 0.4,
        lambda machine, model: 1e3 * limits.step_s(machine, model, PREFIX + OWN - 1, 1)),
    Row("cached-4096", "single", "4,096 cached + 16 new tokens, ms", False, 0.6, 0.5,
        lambda machine, model: 1e3 * limits.step_s(machine, model, PREFIX, OWN)),
    Row("shared-32", "many", "32 clients x 32 tokens on one warm 4,096-token prefix, 16 own tokens each, tok/s", True,
        2.5, 2.8, lambda machine, model: limits.shared_prefix(machine, model, PREFIX, OWN, NEW, CLIENTS)),
    Row("kv-shared", "many", "KV memory of the shared-prefix run, MB (bar: times the limit)", False, 1.3, None,
        lambda machine, model: limits.shared_prefix_bytes(model, PREFIX, OWN, NEW, CLIENTS) / 1e6),
    Row("batch-32", "many", "32 sequences of 128 + 32 tokens, decode tok/s", True, 3.0, 3.5,
        lambda machine, model: limits.batch(machine, model, 144, CLIENTS)),
    Row("gemma-decode", "gemma", "Gemma 3 270M Q4_K_M: decode, tok/s", True, 1.4, 1.6,
        lambda machine, model: limits.decode(machine, model, 80)),
    Row("gemma-prefill-512", "gemma", "Gemma 3 270M Q4_K_M: prefill 512 tokens, tok/s", True, 2.0, 2.5,
        lambda machine, model: 512 / limits.prefill_s(machine, model, 512)),
    Row("llama-1b-decode", "llama-1b", "Llama-1B-shaped Q4_K: decode, tok/s", True, 1.15, 1.25,
        lambda machine, model: limits.decode(machine, model, 48)),
    Row("llama-1b-prefill-256", "llama-1b", "Llama-1B-shaped Q4_K: prefill 256 tokens, tok/s", True, 1.2, 1.4,
        lambda machine, model: 256 / limits.prefill_s(machine, model, 256)),
]
GROUPS = list(dict.fromkeys(row.group for row in ROWS))


def chosen(words):
    """Rows whose key or group begins with one of `words` (all without). Raises ValueError naming a word that fits none."""
    if not words:
        return ROWS
    for word in words:
        if not any(row.key.startswith(word) or row.group == word for row in ROWS):
            raise ValueError(f"no row {word}; there are {' '.join(row.key for row in ROWS)}, "
                             f"and the groups {' '.join(GROUPS)}")
    return [row for row in ROWS if any(row.key.startswith(word) or row.group == word for word in words)]
