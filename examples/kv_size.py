#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How large is the KV cache? One sequence of 2,048 tokens, then tokens x batch, by hand and by
`pagewise plan`. usage: examples/kv_size.py"""

from planner import GIB, MIB, agree, plan


def kv_bytes(tokens, batch=1, layers=32, kv_heads=32, head_dim=128, element_bytes=2):
    """K and V (the 2) of every token in every layer and KV head."""
    return 2 * layers * kv_heads * head_dim * tokens * batch * element_bytes


one = plan("--tokens", 2048)
agree("2,048 tokens", kv_bytes(2048), one["kv_bytes"])
print(f"one sequence of 2,048 tokens: {one['kv_bytes'] / MIB:.1f} MiB")

table = plan("--tokens", "1024,8192,32768", "--batch", "1,16")
sizes = {(row["tokens"], row["batch"]): row["kv_bytes"] for row in table["rows"]}
print(f"{'tokens':>8} {'batch 1':>12} {'batch 16':>12}")
for tokens in (1024, 8192, 32768):
    for batch in (1, 16):
        agree(f"{tokens} x {batch}", kv_bytes(tokens, batch), sizes[tokens, batch])
    print(f"{tokens:>8} {sizes[tokens, 1] / GIB:>8.1f} GiB {sizes[tokens, 16] / GIB:>8.1f} GiB")
