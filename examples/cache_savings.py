#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What does caching a prefix of 5,000 tokens save over 100 calls, and when does it not pay?
usage: examples/cache_savings.py"""

from planner import agree, plan

PREFIX, READ_PRICE = 5000, 0.1


def billed(calls, write_price):
    """Tokens at full price: one write, then reads at a tenth."""
    return round(PREFIX * write_price + PREFIX * (calls - 1) * READ_PRICE)


for calls, write_price in ((100, 1.0), (100, 1.25), (1, 1.25)):
    answer = plan("--prefix-tokens", PREFIX, "--calls", calls, "--read-price", READ_PRICE,
                  "--write-price", write_price, shape=False)
    agree("without a cache", PREFIX * calls, answer["uncached_tokens"])
    agree("with a cache", billed(calls, write_price), answer["billed_tokens"])
    change = answer["billed_tokens"] / answer["uncached_tokens"] - 1
    print(f"{calls:>3} call(s), a write costs {write_price:.2f}: {answer['uncached_tokens']:,} -> "
          f"{answer['billed_tokens']:,} billed tokens ({change:+.0%})")
print("A prefix that is used once is a loss; from the second use on it is the cheapest saving.")
