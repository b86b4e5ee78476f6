#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One streamed question over a cached document, with the time to its first token: run it twice and
compare. Needs what prompt_cache.py needs."""

import pathlib
import sys
import time

from anthropic import Anthropic

DOCUMENT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else
                        pathlib.Path(__file__).with_name("policy_manual.txt")).read_text("utf-8")

started = time.perf_counter()
first = None
with Anthropic().messages.stream(
    model="claude-sonnet-4-5",
    max_tokens=64,
    system=[{"type": "text", "text": DOCUMENT, "cache_control": {"type": "ephemeral"}}],
    messages=[{"role": "user", "content": "Summarize section 3."}],
) as stream:
    for text in stream.text_stream:
        first = first or time.perf_counter() - started
        print(text, end="", flush=True)
    usage = stream.get_final_message().usage
print(f"\n\nfirst token after {first or 0:.2f} s; {usage}")
