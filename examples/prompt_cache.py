#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two questions about one long manual. The first call computes the manual and writes it to the
cache; the second reads it and computes only the question.

Needs the `anthropic` package and a server (`./dev serve`):
  ANTHROPIC_BASE_URL=http://127.0.0.1:8080 ANTHROPIC_API_KEY=local examples/prompt_cache.py
With another base URL and key the same script runs against the hosted API."""

import pathlib
import sys

from anthropic import Anthropic

MANUAL = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else
                      pathlib.Path(__file__).with_name("policy_manual.txt")).read_text("utf-8")
QUESTIONS = ["Given the policy, can I refund order 123?", "How long may a customer return a lamp?"]

client = Anthropic()
for number, question in enumerate(QUESTIONS, 1):
    answer = client.messages.create(
        model="claude-opus-4-8",
        max_tokens=64,
        # The manual stands first and is marked: all before the marker's end can be read again.
        system=[{"type": "text", "text": MANUAL, "cache_control": {"type": "ephemeral"}}],
        messages=[{"role": "user", "content": question}],
    )
    usage = answer.usage
    print(f"call {number}: written {usage.cache_creation_input_tokens}, "
          f"read {usage.cache_read_input_tokens}, other input {usage.input_tokens}, "
          f"output {usage.output_tokens}")
