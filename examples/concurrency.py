#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How many requests fit into 40 GiB of KV memory at once? usage: examples/concurrency.py"""

from planner import GIB, agree, plan

FREE_GIB = 40

answer = plan("--memory", f"{FREE_GIB}GiB", "--tokens", "2048,8192")
for row in answer["rows"]:
    each = 2 * 32 * 32 * 128 * row["tokens"] * 2
    agree(f"{row['tokens']} tokens", each, row["kv_bytes"])
    agree(f"{row['tokens']} tokens at once", FREE_GIB * GIB // each, row["max_sequences"])
    print(f"{row['tokens']:>5} tokens: {each / GIB:.1f} GiB a request, "
          f"{row['max_sequences']} at once")
