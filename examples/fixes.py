#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Twelve requests of 8,192 tokens do not fit into 30 GiB. What can one do, and what does it cost?
usage: examples/fixes.py"""

from planner import GIB, agree, plan

one = plan("--memory", "30GiB", "--tokens", 8192)
agree("one request fits", True, one["fits"])
twelve = plan("--memory", "30GiB", "--tokens", 8192, "--batch", 12, statuses=(3,))
agree("twelve fit", False, twelve["fits"])
print(f" 1 request  of 8,192 tokens: {one['kv_bytes'] / GIB:.1f} GiB of 30: fits")
print(f"12 requests of 8,192 tokens: {twelve['kv_bytes'] / GIB:.1f} GiB of 30: does not fit")
for fix in twelve["fixes"]:
    print(f"- {fix['fix']} | {fix['effect']} | {fix['cost']}")
