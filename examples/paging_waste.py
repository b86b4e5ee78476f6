#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What reserving every request's maximum wastes, and what blocks on demand take instead: three
requests that use 300, 1,200 and 80 of 4,096 tokens. usage: examples/paging_waste.py"""

from planner import MIB, agree, plan

USED_MAX = [(300, 4096), (1200, 4096), (80, 4096)]
MIB_PER_TOKEN = 0.5
BLOCK_TOKENS = 128

naive = sum(longest for _, longest in USED_MAX) * MIB_PER_TOKEN
used = sum(tokens for tokens, _ in USED_MAX) * MIB_PER_TOKEN
blocks = sum(-(-tokens // BLOCK_TOKENS) for tokens, _ in USED_MAX)  # rounded up
paged = blocks * BLOCK_TOKENS * MIB_PER_TOKEN

answer = plan("--requests", ",".join(f"{u}/{m}" for u, m in USED_MAX), "--mib-per-token",
              MIB_PER_TOKEN, "--block-tokens", BLOCK_TOKENS, shape=False)
agree("naive reserve", naive * MIB, answer["naive_bytes"])
agree("used", used * MIB, answer["used_bytes"])
agree("wasted", (naive - used) * MIB, answer["wasted_bytes"])
agree("in blocks", paged * MIB, answer["paged_bytes"])

print(f"reserved for the maximum: {naive:.0f} MiB, used {used:.0f} MiB, "
      f"wasted {naive - used:.0f} MiB ({(naive - used) / naive:.0%})")
print(f"in blocks of {BLOCK_TOKENS} tokens: {paged:.0f} MiB in {blocks} blocks; "
      f"less than one block wasted a request")
