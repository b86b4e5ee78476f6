#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A model of Llama 3.2 1B's shape with random weights, for speed alone: its answers are noise.

Matrices are Q4_K; the values of attention and every second down projection are Q6_K, and so is the embedding, which is
the output head too, as the usual mixture has it. The vocabulary is another file's. Kept in build/bench.

usage: bench/serve/synthetic_model.py [VOCABULARY.gguf]
"""

import hashlib
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PATH = ROOT / "build/bench/llama-1b-shaped-q4_k.gguf"
LAYERS, EMBEDDING, FEED_FORWARD, HEADS, KV_HEADS, HEAD_DIM, CONTEXT = 16, 2048, 8192, 32, 8, 64, 8192


def sha256(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def need(vocabulary):
    """Writes the file unless it is there."""
    if not PATH.exists():
        print(f"writing {PATH.relative_to(ROOT)}", flush=True)
        PATH.parent.mkdir(parents=True, exist_ok=True)
        partial = PATH.with_suffix(".partial")
        write(partial, vocabulary)
        os.replace(partial, PATH)
    return PATH


def write(path, vocabulary, layers=LAYERS, embedding=EMBEDDING, feed_forward=FEED_FORWARD, heads=HEADS,
          kv_heads=KV_HEADS, head_dim=HEAD_DIM):
    import gguf
    import numpy

    draw = numpy.random.default_rng(0)
    half = {kind: numpy.array([value], dtype=numpy.float16).view(numpy.uint8) for kind, value in
            # Of a weight d * scale * q - m * minimum with 6-bit scales and 4-bit q: deviation 0.02, mean 0.
            (("d", 8e-5), ("m", 6e-4), ("d6", 2.3e-4))}

    def q4_k(rows, columns):
        blocks = draw.integers(0, 256, (rows * columns // 256, 144), dtype=numpy.uint8)
        blocks[:, 0:2], blocks[:, 2:4] = half["d"], half["m"]
        return blocks.reshape(rows, -1)

    def q6_k(rows, columns):
        blocks = draw.integers(0, 256, (rows * columns // 256, 210), dtype=numpy.uint8)
        blocks[:, 192:208] = draw.integers(-8, 9, (len(blocks), 16), dtype=numpy.int8).view(numpy.uint8)
        blocks[:, 208:210] = half["d6"]
        return blocks.reshape(rows, -1)

    makers = {"Q4_K": q4_k, "Q6_K": q6_k}
    out = gguf.GGUFWriter(str(path), "llama")
    out.add_name("random weights in the shape of Llama 3.2 1B")
    out.add_context_length(CONTEXT)
    out.add_embedding_length(embedding)
    out.add_block_count(layers)
    out.add_feed_forward_length(feed_forward)
    out.add_head_count(heads)
    out.add_head_count_kv(kv_heads)
    out.add_rope_dimension_count(head_dim)
    out.add_rope_freq_base(500_000.0)
    out.add_layer_norm_rms_eps(1e-5)
    out.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_K_M)
    tokens = copy_vocabulary(gguf.GGUFReader(str(vocabulary)), out)

    def matrix(name, rows, columns, kind):
        out.add_tensor(name, makers[kind](rows, columns), raw_dtype=gguf.GGMLQuantizationType[kind])

    def norm(name):
        out.add_tensor(name, numpy.ones(embedding, dtype=numpy.float32))

    matrix("token_embd.weight", tokens, embedding, "Q6_K")
    norm("output_norm.weight")
    for layer in range(layers):
        block = f"blk.{layer}."
        norm(block + "attn_norm.weight")
        norm(block + "ffn_norm.weight")
        matrix(block + "attn_q.weight", heads * head_dim, embedding, "Q4_K")
        matrix(block + "attn_k.weight", kv_heads * head_dim, embedding, "Q4_K")
        matrix(block + "attn_v.weight", kv_heads * head_dim, embedding, "Q6_K")
        matrix(block + "attn_output.weight", embedding, heads * head_dim, "Q4_K")
        matrix(block + "ffn_gate.weight", feed_forward, embedding, "Q4_K")
        matrix(block + "ffn_up.weight", feed_forward, embedding, "Q4_K")
        matrix(block + "ffn_down.weight", embedding, feed_forward, "Q6_K" if layer % 2 else "Q4_K")
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def copy_vocabulary(source, out):
    """Copies a byte-level BPE vocabulary; returns its size."""
    def field(name):
        return source.fields[f"tokenizer.ggml.{name}"].contents()

    out.add_tokenizer_model(field("model"))
    out.add_tokenizer_pre(field("pre"))
    out.add_token_list(field("tokens"))
    out.add_token_types(field("token_type"))
    out.add_token_merges(field("merges"))
    out.add_bos_token_id(field("bos_token_id"))
    out.add_eos_token_id(field("eos_token_id"))
    out.add_add_bos_token(False)
    out.add_vocab_size(len(field("tokens")))
    out.add_chat_template(source.fields["tokenizer.chat_template"].contents())
    return len(field("tokens"))


if __name__ == "__main__":
    print(need(sys.argv[1] if len(sys.argv) > 1 else ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"))
