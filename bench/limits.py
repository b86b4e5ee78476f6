# SPDX-License-Identifier: Apache-2.0
"""What a row could be at most on this machine: bytes that must be read and products that must be formed, over the
bandwidth and the peaks that were measured in the same run.

The model is simple on purpose. Weights are read once a step or multiplied with all its rows, whichever takes longer; K
and V of all positions are read once a step or multiplied with all rows that see them, whichever takes longer; the two
follow one another. Everything else (norms, activation functions, sampling, HTTP) is free.
"""

import json
import math
import subprocess


PER_HEAD = (".attn_k_b.weight", ".attn_v_b.weight")  # one matrix a head


class Machine:
    """`row`: what the benchmark program measured with the threads that serve."""

    def __init__(self, row):
        self.read, self.fma, self.dot = (row[key] * 1e9 for key in ("read_gb_per_s", "fma_gflop_per_s", "dot_gop_per_s"))


class Model:
    """Sizes of a dense model, from what `pagewise inspect --json` says of its file. With latent attention a head's
    query is taken to the latent and what it attended to from there, by two matrices of its own; between them it
    multiplies whole latent rows, and again the part of them that is V (value_dim 0: part of K)."""

    def __init__(self, facts):
        tensors = facts["tensors"]["list"]
        matrices = [t for t in tensors if len(t["shape"]) == 2 or t["name"].endswith(PER_HEAD)]
        rank = next((t["shape"][0] for t in tensors if t["name"].endswith(".attn_kv_a_norm.weight")), 0)
        layers = [t for t in matrices if t["name"].startswith("blk.")]
        head = [t for t in matrices if t["name"] == "output.weight"] or \
               [t for t in matrices if t["name"] == "token_embd.weight"]
        self.layer_weights, self.layer_bytes = size(layers), sum(t["bytes"] for t in layers)
        self.head_weights, self.head_bytes = size(head), sum(t["bytes"] for t in head)
        self.groups = [(group["layers"], group["window"], group["token_bytes"],
                        facts["heads"] * (group["key_dim"] + (group["value_dim"] or rank)))
                       for group in facts["kv"]["groups"]]
        self.kv_token_bytes = facts["kv"]["token_bytes"]

    @classmethod
    def of_file(cls, program, path):
        done = subprocess.run([program, "inspect", path, "--json"], capture_output=True, text=True, check=True)
        return cls(json.loads(done.stdout))


def size(tensors):
    return sum(math.prod(t["shape"]) for t in tensors)


def seen(begin, rows, window):
    """Positions that rows [begin, begin + rows) of a sequence attend to, all together."""
    return sum(min(at + 1, window) if window else at + 1 for at in range(begin, begin + rows))


def step_s(machine, model, begin, rows, sequences=1, heads=None, shared=0):
    """Seconds of a step that computes `rows` rows from position `begin` of each of `sequences`, which share the first
    `shared` positions. `heads`: rows whose logits are wanted; one a sequence by default."""
    heads = sequences if heads is None else heads
    operations = 2 * (model.layer_weights * rows * sequences + model.head_weights * heads)
    weights = max((model.layer_bytes + model.head_bytes) / machine.read, operations / machine.dot)
    attention = 0.0
    for layers, window, token_bytes, head_width in model.groups:
        end = begin + rows
        own = min(end, window + rows) if window else end
        common = min(shared, own)
        read = (common + (own - common) * sequences) * token_bytes / machine.read
        attention += max(read, 2 * head_width * layers * seen(begin, rows, window) * sequences / machine.fma)
    return weights + attention


def decode(machine, model, context):
    """Tokens a second of one sequence."""
    return 1 / step_s(machine, model, context, 1)


def prefill_s(machine, model, tokens):
    return step_s(machine, model, 0, tokens)


def shared_prefix(machine, model, prefix, own, new, sequences):
    """Tokens a second of `sequences` that send `own` tokens behind one warm prefix and get `new` each."""
    first = step_s(machine, model, prefix, own, sequences, shared=prefix)
    later = sum(step_s(machine, model, prefix + own + at, 1, sequences, shared=prefix) for at in range(new - 1))
    return sequences * new / (first + later)


def shared_prefix_bytes(model, prefix, own, new, sequences):
    """KV of one prefix and every sequence's own part."""
    return model.kv_token_bytes * (prefix + sequences * (own + new))


def batch(machine, model, context, sequences):
    """Tokens a second of `sequences` that decode together, nothing shared."""
    return sequences / step_s(machine, model, context, 1, sequences)
