# SPDX-License-Identifier: Apache-2.0
"""Small GGUF files for end-to-end tests: right ones, and ones that claim more than there is."""

import copy
import functools
import math
import random
import struct

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
F32_TENSOR, F16_TENSOR, Q4_0_TENSOR, Q5_1_TENSOR, Q8_0_TENSOR, IQ4_NL_TENSOR, BF16_TENSOR = 0, 1, 2, 7, 8, 20, 30
MXFP4_TENSOR = 39

_SCALARS = {U8: "<B", I8: "<b", U16: "<H", I16: "<h", U32: "<I", I32: "<i", F32: "<f", BOOL: "<B",
            U64: "<Q", I64: "<q", F64: "<d"}


def string(text):
    data = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(data)) + data


def value(kind, content):
    return string(content) if kind == STRING else struct.pack(_SCALARS[kind], content)


class Writer:
    def __init__(self, version=3):
        self.version = version
        self.keys = []
        self.tensors = []
        self.tensor_count = None  # what the header claims, when not the truth
        self.key_count = None

    def raw(self, name, kind, content):
        """A key with any value type and any bytes behind it."""
        self.keys.append(string(name) + struct.pack("<I", kind) + content)
        return self

    def key(self, name, kind, content):
        return self.raw(name, kind, value(kind, content))

    def array(self, name, kind, items, count=None):
        content = b"".join(value(kind, item) for item in items)
        return self.raw(name, ARRAY,
                        struct.pack("<IQ", kind, len(items) if count is None else count) + content)

    def tensor(self, name, shape, kind, offset):
        """The description of a tensor, true or not."""
        self.tensors.append(string(name) + struct.pack("<I", len(shape)) +
                            b"".join(struct.pack("<Q", size) for size in shape) +
                            struct.pack("<IQ", kind, offset))
        return self

    def header(self):
        tensors = len(self.tensors) if self.tensor_count is None else self.tensor_count
        keys = len(self.keys) if self.key_count is None else self.key_count
        return (b"GGUF" + struct.pack("<IQQ", self.version, tensors, keys) + b"".join(self.keys) +
                b"".join(self.tensors))


def attention_only(arch, layers, embedding, heads, kv_heads, head_dim, window=None, context=32768):
    """A metadata-only file: all that a plan needs."""
    writer = Writer().key("general.architecture", STRING, arch)
    for name, number in [("block_count", layers), ("context_length", context),
                         ("embedding_length", embedding), ("attention.head_count", heads),
                         ("attention.head_count_kv", kv_heads), ("attention.key_length", head_dim),
                         ("attention.value_length", head_dim)]:
        writer.key(f"{arch}.{name}", U32, number)
    if window is not None:
        writer.key(f"{arch}.attention.sliding_window", U32, window)
    return writer


def lying_files():
    """C17: name and bytes of each file whose header lies, and a word its error must have."""
    arch = Writer().key("general.architecture", STRING, "llama")
    whole = (Writer().key("general.architecture", STRING, "llama").key("llama.block_count", U32, 2)
             .array("tokenizer.ggml.tokens", STRING, ["a", "b", "c", "d"])
             .tensor("token_embd.weight", [32, 4], F32_TENSOR, 0))
    whole_bytes = whole.header()
    whole_bytes += bytes(-len(whole_bytes) % 32 + 32 * 4 * 4)

    def counts(tensors=None, keys=None):
        writer = Writer()
        writer.tensor_count, writer.key_count = tensors, keys
        return writer.header()

    def alignment(number):
        return Writer().key("general.alignment", U32, number).header() + bytes(64)

    def version(number):
        return Writer(number).key("general.architecture", STRING, "llama").header()

    files = [
        ("a-string", Writer().raw("general.name", STRING, struct.pack("<Q", 2**62)).header(),
         "general.name"),
        ("b-array", Writer().array("tokenizer.ggml.tokens", STRING, [""] * 4, count=2**61).header(),
         "tokenizer.ggml.tokens"),
        ("c-keys", counts(keys=2**63), "key count"),
        ("c-tensors", counts(tensors=2**63), "tensor count"),
        ("c-both", counts(2**63, 2**63), "count"),
        ("d-dimension", arch.tensor("token_embd.weight", [0], F32_TENSOR, 0).header() + bytes(64),
         "token_embd.weight"),
        ("e-alignment-0", alignment(0), "general.alignment"),
        ("e-alignment-3", alignment(3), "general.alignment"),
        ("f-alignment-2^31", alignment(2**31), "general.alignment"),
        ("g-version-1", version(1), "version"),
        ("g-version-4", version(4), "version"),
        ("g-swapped", version(0x03000000), "byte-swapped"),
        ("h-empty-key", Writer().key("", U32, 1).header(), "key 0"),
        ("h-key-twice", Writer().key("a.b", U32, 1).key("a.b", U32, 1).header(), "a.b"),
    ]
    files += [(f"i-cut-at-{n}", whole_bytes[:n], " at offset ")
              for n in range(min(201, len(whole_bytes)))]
    return files


def _byte_tokens():
    """The 256 one-byte tokens of byte-level BPE: printable bytes are themselves, the others U+0100 on."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in shown]
    return [chr(byte if byte in shown else 256 + others.index(byte)) for byte in range(256)]


@functools.cache
def _weights(name, count, factor):
    noise = random.Random(name)
    return struct.pack(f"<{count}f", *(factor * (1.0 if "norm" in name else noise.uniform(-0.1, 0.1))
                                       for _ in range(count)))


_IQ4_NL = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]
_MXFP4 = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12]


def _half(number):
    return struct.unpack("<e", struct.pack("<e", number))[0]


def _blocks(values, steps, low):
    """Of each 32 values: a scale, a minimum and the 32 codes, so that value = scale * code + minimum."""
    for at in range(0, len(values), 32):
        part = values[at:at + 32]
        lowest = min(part) if low is None else low * max(map(abs, part)) / -low
        scale = _half((max(max(part), -lowest if low is not None else 0) - lowest) / steps) or 1.0
        minimum = _half(lowest) if low is None else low * scale
        yield scale, minimum, [min(max(round((x - minimum) / scale), 0), steps) for x in part]


def _nibbles(codes):
    return bytes(codes[i] & 15 | (codes[i + 16] & 15) << 4 for i in range(16))


def encode(kind, values):
    """Numbers as a tensor of the type, and the numbers that the tensor then holds, all exact in f32."""
    if kind == F32_TENSOR:
        data = struct.pack(f"<{len(values)}f", *values)
        return data, list(struct.unpack(f"<{len(values)}f", data))
    if kind == F16_TENSOR:
        data = struct.pack(f"<{len(values)}e", *values)
        return data, list(struct.unpack(f"<{len(values)}e", data))
    if kind == BF16_TENSOR:
        upper = [struct.pack("<f", x)[2:] for x in values]
        return b"".join(upper), [struct.unpack("<f", b"\0\0" + x)[0] for x in upper]
    data, held = b"", []
    if kind == Q4_0_TENSOR:
        for scale, _, codes in _blocks(values, 15, -8):
            data += struct.pack("<e", scale) + _nibbles(codes)
            held += [scale * (code - 8) for code in codes]
    elif kind == Q5_1_TENSOR:
        for scale, minimum, codes in _blocks(values, 31, None):
            fifth = sum((code >> 4) << i for i, code in enumerate(codes))
            data += struct.pack("<eeI", scale, minimum, fifth) + _nibbles(codes)
            held += [scale * code + minimum for code in codes]
    elif kind == IQ4_NL_TENSOR:
        for at in range(0, len(values), 32):
            part = values[at:at + 32]
            scale = _half(max(map(abs, part)) / 127) or 1.0
            codes = [min(range(16), key=lambda code, x=x: abs(_IQ4_NL[code] * scale - x)) for x in part]
            data += struct.pack("<e", scale) + _nibbles(codes)
            held += [scale * _IQ4_NL[code] for code in codes]
    elif kind == MXFP4_TENSOR:
        for at in range(0, len(values), 32):
            part = values[at:at + 32]
            exponent = math.ceil(math.log2(max(map(abs, part)) / 12)) if any(part) else -128
            codes = [min(range(16), key=lambda code, x=x: abs(_MXFP4[code] * 2.0**exponent - x)) for x in part]
            data += bytes([128 + exponent]) + _nibbles(codes)
            held += [_MXFP4[code] * 2.0**exponent for code in codes]
    else:
        raise ValueError(kind)
    return data, held


class TinyModel:
    """A whole llama model of two layers with random weights: it runs, and says nothing sensible.
    `keys` and `tensors` are lists to be changed before `bytes()` is asked for; `factors` has tensors
    whose weights are that many times larger. Its matrices are of type `kind`, or with `as_f32` the
    same numbers in f32."""

    WIDTH, FFN, HEADS, KV_HEADS, LAYERS = 64, 96, 4, 2, 2
    ADDED = ()  # tokens that are recognised by their spelling

    def __init__(self, kind=F32_TENSOR, as_f32=False):
        self.kind, self.as_f32 = kind, as_f32
        self.factors = {}
        tokens = _byte_tokens() + ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "he", "ll", *self.ADDED]
        head = self.WIDTH // self.HEADS
        numbers = {"block_count": self.LAYERS, "context_length": 256, "embedding_length": self.WIDTH,
                   "feed_forward_length": self.FFN, "attention.head_count": self.HEADS,
                   "attention.head_count_kv": self.KV_HEADS, "attention.key_length": head,
                   "attention.value_length": head, "rope.dimension_count": head,
                   "vocab_size": len(tokens)}
        self.keys = [
            ("general.architecture", STRING, "llama"),
            *((f"llama.{name}", U32, number) for name, number in numbers.items()),
            ("llama.rope.freq_base", F32, 10000.0),
            ("llama.attention.layer_norm_rms_epsilon", F32, 1e-5),
            ("tokenizer.ggml.model", STRING, "gpt2"),
            ("tokenizer.ggml.pre", STRING, "smollm"),
            ("tokenizer.ggml.tokens", ARRAY, (STRING, tokens)),
            ("tokenizer.ggml.token_type", ARRAY, (I32, [1] * 256 + [3] * 3 + [1] * 2 + [4] * len(self.ADDED))),
            ("tokenizer.ggml.merges", ARRAY, (STRING, ["h e", "l l"])),
            ("tokenizer.ggml.bos_token_id", U32, 257),
            ("tokenizer.ggml.eos_token_id", U32, 258),
            ("tokenizer.ggml.add_bos_token", BOOL, 0),
        ]
        width, kv_width = self.WIDTH, self.KV_HEADS * head
        self.tensors = [("token_embd.weight", [width, len(tokens)], F32_TENSOR),
                        ("output_norm.weight", [width], F32_TENSOR)]
        for layer in range(self.LAYERS):
            for name, shape in [("attn_norm", [width]), ("ffn_norm", [width]),
                                ("attn_q", [width, width]), ("attn_k", [width, kv_width]),
                                ("attn_v", [width, kv_width]), ("attn_output", [width, width]),
                                ("ffn_gate", [width, self.FFN]), ("ffn_up", [width, self.FFN]),
                                ("ffn_down", [self.FFN, width])]:
                self.tensors.append((f"blk.{layer}.{name}.weight", shape, F32_TENSOR))

    def content(self, name, shape):
        return _weights(name, min(math.prod(shape), 1 << 20), self.factors.get(name, 1.0))

    def bytes(self):
        writer = Writer()
        for name, kind, content in self.keys:
            if kind == ARRAY:
                writer.array(name, *content)
            else:
                writer.key(name, kind, content)
        data = b""
        for name, shape, kind in self.tensors:
            data += bytes(-len(data) % 32)
            content = self.content(name, shape)
            if len(shape) == 2 and self.kind != F32_TENSOR:
                content, held = encode(self.kind, list(struct.unpack(f"<{len(content) // 4}f", content)))
                kind = self.kind
                if self.as_f32:
                    content, kind = struct.pack(f"<{len(held)}f", *held), F32_TENSOR
            writer.tensor(name, shape, kind, len(data))
            data += content
        header = writer.header()
        return header + bytes(-len(header) % 32) + data


class ScriptedModel(TinyModel):
    """A model that says `words`, a list of tokens no two of which are equal, behind every prompt that ends with the
    token in front of them, a newline unless told otherwise: each token is a direction of its own, attention and
    feed-forward add nothing, and the output head turns each direction into that of the next token."""

    WIDTH, FFN = 288, 32
    ADDED = ("<think>", "</think>")

    def __init__(self, words, start="\n", context=4096):
        super().__init__()
        self.keys = [(name, kind, context if name.endswith("context_length") else content)
                     for name, kind, content in self.keys]
        tokens = next(content[1] for name, _, content in self.keys if name == "tokenizer.ggml.tokens")
        byte_tokens = _byte_tokens()
        ids = [tokens.index(word) if len(word) > 1 else tokens.index(byte_tokens[ord(word)])
               for word in [start, *words, "<|im_end|>"]]
        assert len(set(ids)) == len(ids)
        self.next = dict(zip(ids, ids[1:]))
        self.tensors.append(("output.weight", [self.WIDTH, len(tokens)], F32_TENSOR))

    def content(self, name, shape):
        if "norm" in name:
            return struct.pack("<f", 1.0) * math.prod(shape)
        rows = {}
        if name == "token_embd.weight":
            rows = {token: (token, 1.0) for token in range(shape[1])}
        elif name == "output.weight":
            rows = {after: (token, 8.0) for token, after in self.next.items()}
        data = bytearray(4 * math.prod(shape))
        for row, (column, number) in rows.items():
            struct.pack_into("<f", data, 4 * (row * shape[0] + column), number)
        return bytes(data)


class ChannelModel(ScriptedModel):
    """A scripted model that answers in channels: each header is a token of its own, for what stands behind
    `<|channel|>` must follow from the token in front. Behind the generation prompt `<|start|>assistant`."""

    THINK, SPEAK = "<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"
    CALL = "<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>"
    ADDED = (THINK, SPEAK, CALL)

    def __init__(self, words):
        super().__init__(words, start="t")


def split(model, count):
    """The bytes of a model's parts, as llama.cpp's gguf-split cuts it: all keys in the first, tensors in order."""
    each = -(-len(model.tensors) // count)
    parts = []
    for number in range(count):
        part = copy.copy(model)
        part.keys = [*(model.keys if number == 0 else []), ("split.no", U16, number), ("split.count", U16, count),
                     ("split.tensors.count", I32, len(model.tensors))]
        part.tensors = model.tensors[number * each:(number + 1) * each]
        parts.append(part.bytes())
    return parts


def part_name(stem, number, count):
    """Of part `number`, from 1."""
    return f"{stem}-{number:05}-of-{count:05}.gguf"
