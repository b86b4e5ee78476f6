#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the tiny models of tests/golden/architectures: of each family a decoder with random weights, as
a GGUF file, and the logits that transformers gives for one prompt of 48 tokens.

    tests/tools/make_tiny_models.py [--out FOLDER] [--type f32] [FAMILY..]

Needs the packages of requirements/oracle/transformers.txt, which no test does. Seeds are fixed; weights
are rounded to what f16 holds before transformers computes, so that the f16 files hold the same model (and
`--type f32` writes it again at twice the size, for programs that round activations to f16 beside f16
weights). The initialisation that transformers has would make attention nearly even and layers nearly
nothing: here every part has a say in the logits.

NAME.logits: int32 tokens (T), int32 vocabulary (V), T int32 token ids, T * V float32 logits.
"""

import argparse
import math
import struct
import sys
from pathlib import Path

import gguf
import numpy as np
import torch
import transformers

TOKENS = 48
VOCAB = 288
HIDDEN = 64
FFN = 96
CONTEXT = 96
OUT = Path(__file__).resolve().parents[1] / "golden" / "architectures"

BASE = dict(vocab_size=VOCAB, hidden_size=HIDDEN, intermediate_size=FFN, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=CONTEXT,
            bos_token_id=None, eos_token_id=280, pad_token_id=None, tie_word_embeddings=False)
ROPE = dict(rope_type="default", rope_theta=10000.0)
LLAMA3 = dict(rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=32)
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=24)
LITE = dict(num_key_value_heads=4, kv_lora_rank=32, q_lora_rank=None, qk_nope_head_dim=24, qk_rope_head_dim=32,
            v_head_dim=20, first_k_dense_replace=1, n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=2,
            moe_intermediate_size=32, rope_parameters=dict(YARN, mscale=0.707, mscale_all_dim=0.707))


def longrope(original):
    """Factors of 8 pairs; the contexts up to `original` take the short ones."""
    return dict(rope_type="longrope", rope_theta=10000.0, original_max_position_embeddings=original,
                short_factor=[1.0 + 0.05 * i for i in range(8)],
                long_factor=[1.0 + 0.9 * i for i in range(8)])


GPT_OSS = dict(max_position_embeddings=2048, head_dim=24, sliding_window=20, num_local_experts=6,
               num_experts_per_tok=2, intermediate_size=32,
               rope_parameters=dict(YARN, rope_theta=100.0, beta_fast=2.0, beta_slow=1.0, truncate=False))


# Of each family: the architecture of the file, the classes, what differs from BASE.
FAMILIES = {
    "llama": ("llama", "Llama", dict(rope_parameters=LLAMA3)),
    "mistral": ("llama", "Mistral", dict(rope_parameters=ROPE, sliding_window=20, head_dim=16)),
    "mixtral": ("llama", "Mixtral", dict(rope_parameters=ROPE, num_local_experts=6, num_experts_per_tok=2,
                                         intermediate_size=32, sliding_window=None)),
    "qwen2": ("qwen2", "Qwen2", dict(rope_parameters=ROPE)),
    "qwen3": ("qwen3", "Qwen3", dict(rope_parameters=ROPE, head_dim=24)),
    "qwen3-yarn": ("qwen3", "Qwen3", dict(rope_parameters=YARN, head_dim=32, tie_word_embeddings=True)),
    "qwen2moe": ("qwen2moe", "Qwen2Moe", dict(rope_parameters=ROPE, num_experts=6, num_experts_per_tok=3,
                                              moe_intermediate_size=32, shared_expert_intermediate_size=48,
                                              norm_topk_prob=False)),
    "qwen3moe": ("qwen3moe", "Qwen3Moe", dict(rope_parameters=ROPE, head_dim=16, num_experts=8,
                                              num_experts_per_tok=3, moe_intermediate_size=32,
                                              norm_topk_prob=True)),
    "gemma": ("gemma", "Gemma", dict(rope_parameters=ROPE, head_dim=24, tie_word_embeddings=True)),
    "gemma2": ("gemma2", "Gemma2", dict(rope_parameters=ROPE, head_dim=32, sliding_window=20,
                                        query_pre_attn_scalar=32, attn_logit_softcapping=2.0,
                                        final_logit_softcapping=3.0, tie_word_embeddings=True)),
    "gemma3": ("gemma3", "Gemma3", dict(num_hidden_layers=6, head_dim=16, sliding_window=20,
                                        query_pre_attn_scalar=16, tie_word_embeddings=True,
                                        rope_parameters=dict(
                                            full_attention=dict(rope_type="linear", rope_theta=1e6, factor=8.0),
                                            sliding_attention=ROPE))),
    "phi3-short": ("phi3", "Phi3", dict(rope_parameters=longrope(CONTEXT), sliding_window=20,
                                       original_max_position_embeddings=CONTEXT)),
    "phi3-long": ("phi3", "Phi3", dict(rope_parameters=longrope(32), original_max_position_embeddings=32)),
    "phi4-mini": ("phi3", "Phi3", dict(hidden_size=96, rope_parameters=dict(ROPE, partial_rotary_factor=0.75),
                                       num_attention_heads=3, num_key_value_heads=1,
                                       tie_word_embeddings=True)),
    "granite": ("granite", "Granite", dict(rope_parameters=ROPE, embedding_multiplier=6.0,
                                           attention_multiplier=0.11, residual_multiplier=0.7,
                                           logits_scaling=3.0, tie_word_embeddings=True)),
    "smollm3": ("smollm3", "SmolLM3", dict(rope_parameters=ROPE, num_hidden_layers=4,
                                           tie_word_embeddings=True)),
    "olmo2": ("olmo2", "Olmo2", dict(rope_parameters=ROPE)),
    "olmo3": ("olmo2", "Olmo3", dict(num_hidden_layers=4, sliding_window=20,
                                     rope_parameters=dict(full_attention=YARN, sliding_attention=ROPE))),
    "command-r": ("command-r", "Cohere", dict(rope_parameters=ROPE, logit_scale=0.5, use_qk_norm=False,
                                              tie_word_embeddings=True)),
    "cohere2": ("cohere2", "Cohere2", dict(rope_parameters=ROPE, logit_scale=0.5, num_hidden_layers=4,
                                           head_dim=16, sliding_window=20, tie_word_embeddings=True)),
    "gpt-oss": ("gpt-oss", "GptOss", GPT_OSS),
    "gpt-oss-mxfp4": ("gpt-oss", "GptOss", GPT_OSS),
    "falcon-7b": ("falcon", "Falcon", dict(new_decoder_architecture=False, multi_query=True,
                                           parallel_attn=True, bias=False, alibi=False)),
    "falcon-40b": ("falcon", "Falcon", dict(new_decoder_architecture=True, num_kv_heads=2, bias=False,
                                            alibi=False)),
    "deepseek2-lite": ("deepseek2", "DeepseekV2", LITE),
    "deepseek2-old": ("deepseek2", "DeepseekV2", LITE),  # in the form of files from before April 2025
    "deepseek2": ("deepseek2", "DeepseekV2", dict(LITE, num_hidden_layers=3, kv_lora_rank=48, q_lora_rank=40,
                                                  qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16,
                                                  rope_parameters=ROPE, topk_method="group_limited_greedy",
                                                  n_routed_experts=8, num_experts_per_tok=3, n_shared_experts=1,
                                                  n_group=4, topk_group=2, routed_scaling_factor=4.0)),
    "deepseek3": ("deepseek2", "DeepseekV3", dict(LITE, num_hidden_layers=3, kv_lora_rank=32, q_lora_rank=24,
                                                  qk_nope_head_dim=16, v_head_dim=16, n_routed_experts=8,
                                                  num_experts_per_tok=3, n_shared_experts=1, n_group=4,
                                                  topk_group=2, routed_scaling_factor=2.5, norm_topk_prob=True,
                                                  rope_parameters=dict(YARN, mscale=1.0, mscale_all_dim=1.0))),
}
# Files whose Q and K rows are permuted, because their rope takes neighbouring pairs.
PERMUTED = ("Llama", "Mistral", "Mixtral", "Granite", "SmolLM3")


def make_model(name):
    architecture, kind, changes = FAMILIES[name]
    if kind == "Falcon":
        settings = dict(vocab_size=VOCAB, hidden_size=HIDDEN, num_hidden_layers=2, num_attention_heads=4,
                        bos_token_id=None, eos_token_id=280, pad_token_id=None, tie_word_embeddings=True,
                        rope_parameters=dict(ROPE), max_position_embeddings=CONTEXT, **changes)
    else:
        settings = {**BASE, **changes}
    suffix = "TextConfig" if kind == "Gemma3" else "Config"
    config = getattr(transformers, kind + suffix)(**settings)
    config._attn_implementation = "eager"
    model = getattr(transformers, kind + "ForCausalLM")(config).float().eval()

    generator = torch.Generator().manual_seed(sum(name.encode()))
    for parameter_name, parameter in sorted(dict(model.named_parameters()).items()):
        uniform = torch.rand(parameter.shape, generator=generator) * 2 - 1
        if parameter_name.endswith("bias"):
            values = 0.4 * uniform
        elif parameter_name.endswith("sinks"):
            values = 1.0 + 2.0 * uniform
        elif kind == "GptOss" and ".experts." in parameter_name:  # columns of outputs; some reach the clamp
            reach = 4.0 if parameter_name.endswith("gate_up_proj") else 0.3
            values = reach * math.sqrt(3 / parameter.shape[1]) * uniform
            if name.endswith("mxfp4"):
                values = from_mxfp4(to_mxfp4(values.transpose(1, 2))).transpose(1, 2)
        elif parameter.dim() == 1:  # norms; Gemma's weights have 1 added when used
            values = 0.3 * uniform + (0.0 if kind.startswith("Gemma") else 1.0)
        elif "embed" in parameter_name:
            values = 0.25 * math.sqrt(3) * uniform
        else:
            values = 1.3 * math.sqrt(3 / parameter.shape[-1]) * uniform
        parameter.data = values.half().float()
    for buffer_name, buffer in sorted(dict(model.named_buffers()).items()):
        if buffer_name.endswith("e_score_correction_bias"):
            buffer.data = 0.4 * (torch.rand(buffer.shape, generator=generator) * 2 - 1)
    return architecture, kind, config, model


def to_mxfp4(weights):
    return gguf.quants.quantize(weights.contiguous().numpy(), gguf.GGMLQuantizationType.MXFP4)


def from_mxfp4(blocks):
    return torch.from_numpy(gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType.MXFP4))


def permute(weight, heads):
    """Rows of halves of a head to neighbouring rows."""
    rest = weight.shape[1:]
    return weight.reshape(heads, 2, weight.shape[0] // heads // 2, *rest).transpose(1, 2).reshape(weight.shape)


def split_latent(value, config):
    """From a latent to the keys and values of all heads: of each head that of keys, turned over, and of values."""
    heads = value.view(config.num_attention_heads, config.qk_nope_head_dim + config.v_head_dim, config.kv_lora_rank)
    return heads[:, :config.qk_nope_head_dim].transpose(1, 2), heads[:, config.qk_nope_head_dim:]


def tensors_of(name, architecture, kind, config, model):
    """GGUF names and values, as the converters of the format write them."""
    names = gguf.get_tensor_name_map(next(a for a, n in gguf.MODEL_ARCH_NAMES.items() if n == architecture),
                                     config.num_hidden_layers)

    def gguf_name(name):
        found = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if found is None:
            raise KeyError(name)
        return found

    heads = config.num_attention_heads
    kv_heads = getattr(config, "num_key_value_heads", None) or getattr(config, "num_kv_heads", heads)
    if kind == "Falcon" and not config.new_decoder_architecture:
        kv_heads = 1
    old = name == "deepseek2-old"
    for name, value in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        if kind in PERMUTED and ("q_proj" in name or "k_proj" in name):
            value = permute(value, heads if "q_proj" in name else kv_heads)
        if kind.startswith("Gemma") and name.endswith("norm.weight"):
            value = value + 1
        if "query_key_value" in name:  # groups of queries with their key and value: to Q, then K, then V
            dim = config.hidden_size // heads
            groups = value.view(kv_heads, heads // kv_heads + 2, dim, -1)
            value = torch.cat([groups[:, :-2].reshape(-1, config.hidden_size),
                               groups[:, -2].reshape(-1, config.hidden_size),
                               groups[:, -1].reshape(-1, config.hidden_size)])
        name = name.replace("e_score_correction_bias", "e_score_correction.bias")
        if "kv_b_proj" in name and not old:
            keys, values = split_latent(value, config)
            yield gguf_name(name.replace("kv_b_proj", "k_b_proj")), keys
            yield gguf_name(name.replace("kv_b_proj", "v_b_proj")), values
            continue
        if ".experts." in name:
            block = "blk." + name.split(".layers.")[1].split(".")[0]
            if kind == "GptOss":  # gate and up take turns, outputs are columns
                parts = {"gate": value[..., ::2], "up": value[..., 1::2]} if "gate_up" in name else {"down": value}
                for part, own in parts.items():
                    is_bias = name.endswith("bias")
                    yield (f"{block}.ffn_{part}_exps." + ("bias" if is_bias else "weight"),
                           own if is_bias else own.transpose(1, 2))
                continue
            if name.endswith("gate_up_proj"):
                gate, up = value.chunk(2, dim=1)
                yield block + ".ffn_gate_exps.weight", gate
                yield block + ".ffn_up_exps.weight", up
            else:
                yield block + ".ffn_down_exps.weight", value
            continue
        yield gguf_name(name) + (".weight" if name.endswith("sinks") else ""), value

    rope = config.rope_parameters
    rope = rope.get("full_attention", rope)
    if rope["rope_type"] == "longrope":
        yield "rope_factors_short.weight", torch.tensor(rope["short_factor"])
        yield "rope_factors_long.weight", torch.tensor(rope["long_factor"])
    if rope["rope_type"] == "llama3":  # how the converters write the divisors of Llama 3's frequencies
        dim = config.hidden_size // heads
        factors = []
        for i in range(0, dim, 2):
            turns = rope["original_max_position_embeddings"] / (2 * math.pi * rope["rope_theta"] ** (i / dim))
            if turns > rope["high_freq_factor"]:
                factors.append(1.0)
            elif turns < rope["low_freq_factor"]:
                factors.append(rope["factor"])
            else:
                smooth = (turns - rope["low_freq_factor"]) / (rope["high_freq_factor"] - rope["low_freq_factor"])
                factors.append(1 / ((1 - smooth) / rope["factor"] + smooth))
        yield "rope_freqs.weight", torch.tensor(factors)


def byte_characters():
    """The printable character that stands for each byte in a byte-level vocabulary."""
    plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    characters, further = {}, 0
    for byte in range(256):
        if byte in plain:
            characters[byte] = chr(byte)
        else:
            characters[byte] = chr(256 + further)
            further += 1
    return characters


CONTROLS = ["<|endoftext|>"] + [f"<|control_{i}|>" for i in range(1, 8)]
CHANNELS = ["<|endoftext|>", "<|return|>", "<|call|>", "<|end|>", "<|start|>", "<|channel|>", "<|constrain|>",
            "<|message|>"]


def write_vocabulary(writer, controls):
    """256 bytes, 24 merges, 8 control tokens."""
    space = byte_characters()[ord(" ")]
    merges = ["t h", "h e", "i n", "e r", "a n", "r e", "o n", "a t", "e n", "n d", "t i", "e s", "o r", "t e",
              "o f", "e d", "i s", "i t", f"{space} t", f"{space} a", f"{space} i", f"{space} s",
              f"{space}t he", "in g"]
    tokens = list(byte_characters().values()) + [merge.replace(" ", "") for merge in merges]
    tokens += controls
    assert len(tokens) == VOCAB and len(set(tokens)) == VOCAB
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.NORMAL] * 280 + [gguf.TokenType.CONTROL] * 8)
    writer.add_token_merges(merges)
    writer.add_eos_token_id(280)
    writer.add_add_bos_token(False)


def write_rope(writer, config):
    rope = config.rope_parameters
    sliding = rope.get("sliding_attention")
    rope = rope.get("full_attention", rope)
    writer.add_rope_freq_base(rope["rope_theta"])
    if sliding is not None and sliding["rope_theta"] != rope["rope_theta"]:
        writer.add_float32(f"{writer.arch}.rope.freq_base_swa", sliding["rope_theta"])
    if rope["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        if "beta_fast" in rope:
            writer.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
            writer.add_rope_scaling_yarn_beta_slow(rope["beta_slow"])
        if "mscale_all_dim" in rope:
            writer.add_rope_scaling_yarn_log_mul(0.1 * rope["mscale_all_dim"])
    if rope["rope_type"] == "longrope":
        original = rope["original_max_position_embeddings"]
        scale = config.max_position_embeddings / original
        writer.add_rope_scaling_orig_ctx_len(original)
        writer.add_rope_scaling_attn_factors(
            math.sqrt(1 + math.log(scale) / math.log(original)) if scale > 1 else 1.0)


def write_latent_keys(writer, kind, config, old):
    rank, turning = config.kv_lora_rank, config.qk_rope_head_dim
    if old:
        writer.add_key_length(config.qk_head_dim)
        writer.add_value_length(config.v_head_dim)
    else:
        writer.add_key_length(rank + turning)
        writer.add_value_length(rank)
        writer.add_key_length_mla(config.qk_head_dim)
        writer.add_value_length_mla(config.v_head_dim)
    writer.add_kv_lora_rank(rank)
    if config.q_lora_rank is not None:
        writer.add_q_lora_rank(config.q_lora_rank)
    writer.add_leading_dense_block_count(config.first_k_dense_replace)
    writer.add_expert_shared_count(config.n_shared_experts)
    writer.add_expert_weights_scale(config.routed_scaling_factor)
    writer.add_expert_weights_norm(kind == "DeepseekV3")
    if not old:
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID if kind == "DeepseekV3" else
                                      gguf.ExpertGatingFuncType.SOFTMAX)
    if getattr(config, "n_group", None) is not None:
        writer.add_expert_group_count(config.n_group)
        writer.add_expert_group_used_count(config.topk_group)


def write_keys(writer, name, kind, config):
    old = name == "deepseek2-old"
    latent = kind.startswith("Deepseek")
    heads = config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    kv_heads = getattr(config, "num_key_value_heads", None) or getattr(config, "num_kv_heads", heads)
    if kind == "Falcon" and not config.new_decoder_architecture:
        kv_heads = 1
    if latent and not old:
        kv_heads = 1
    writer.add_name("tiny random model")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(4 * config.hidden_size if kind == "Falcon" else config.intermediate_size)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    if latent:
        write_latent_keys(writer, kind, config, old)
    elif head_dim * heads != config.hidden_size:
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    if kind in ("Cohere", "Cohere2", "Falcon"):
        writer.add_layer_norm_eps(config.layer_norm_epsilon if kind == "Falcon" else config.layer_norm_eps)
    else:
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    write_rope(writer, config)
    rotated = config.rope_parameters.get("partial_rotary_factor", 1.0)
    writer.add_rope_dimension_count(int(head_dim * rotated))
    window = getattr(config, "sliding_window", None)
    if window is not None and kind not in ("Qwen2", "Qwen3", "Qwen2Moe", "Qwen3Moe", "SmolLM3"):
        writer.add_sliding_window(window)
    if kind == "Olmo3":
        writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in config.layer_types])
    if kind == "Gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if kind == "Granite":
        writer.add_attention_scale(config.attention_multiplier)
        writer.add_embedding_scale(config.embedding_multiplier)
        writer.add_residual_scale(config.residual_multiplier)
        writer.add_logit_scale(config.logits_scaling)
    if kind in ("Cohere", "Cohere2"):
        writer.add_logit_scale(config.logit_scale)
        writer.add_rope_scaling_type(gguf.RopeScalingType.NONE)
    experts = getattr(config, "num_local_experts", None) or getattr(config, "num_experts", None)
    if experts:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
        if kind != "Mixtral":
            writer.add_expert_feed_forward_length(
                config.intermediate_size if kind == "GptOss" else config.moe_intermediate_size)
        if kind == "Qwen2Moe":
            writer.add_expert_shared_feed_forward_length(config.shared_expert_intermediate_size)


def make(name, out, as_f32):
    architecture, kind, config, model = make_model(name)
    writer = gguf.GGUFWriter(out / f"{name}.gguf", architecture)
    write_keys(writer, name, kind, config)
    write_vocabulary(writer, CHANNELS if kind == "GptOss" else CONTROLS)
    for tensor_name, value in tensors_of(name, architecture, kind, config, model):
        if name.endswith("mxfp4") and tensor_name.endswith("exps.weight") and not as_f32:
            writer.add_tensor(tensor_name, to_mxfp4(value.detach()), raw_dtype=gguf.GGMLQuantizationType.MXFP4)
            continue
        value = value.detach().squeeze().numpy()
        # Routers and their gate and all biases stay f32, as the converters have it.
        wide = as_f32 or value.ndim == 1 or "ffn_gate_inp" in tensor_name or tensor_name.endswith(".bias")
        writer.add_tensor(tensor_name, np.ascontiguousarray(value.astype(np.float32 if wide else np.float16)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    generator = torch.Generator().manual_seed(7)
    tokens = torch.randint(0, 280, (1, TOKENS), generator=generator)
    with torch.no_grad():
        logits = model(tokens, use_cache=False).logits[0].float().numpy()
    with open(out / f"{name}.logits", "wb") as file:
        file.write(struct.pack("<ii", TOKENS, VOCAB))
        file.write(tokens[0].numpy().astype("<i4").tobytes())
        file.write(logits.astype("<f4").tobytes())
    print(f"{name}: {(out / f'{name}.gguf').stat().st_size} bytes, logits of deviation {logits.std():.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=", ".join(FAMILIES))
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--type", choices=("f16", "f32"), default="f16", help="of matrices")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.families if name not in FAMILIES]:
        parser.error(f"no such family: {', '.join(unknown)}; there are {', '.join(FAMILIES)}")
    torch.set_num_threads(1)
    arguments.out.mkdir(parents=True, exist_ok=True)
    print(f"transformers {transformers.__version__}, torch {torch.__version__}, gguf 0.19.0", file=sys.stderr)
    for name in arguments.families or FAMILIES:
        make(name, arguments.out, arguments.type == "f32")


if __name__ == "__main__":
    main()
