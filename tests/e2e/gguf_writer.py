# SPDX-License-Identifier: Apache-2.0
"""Small GGUF files for end-to-end tests: right ones, and ones that claim more than there is."""

import struct

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
F32_TENSOR, F16_TENSOR, Q4_0_TENSOR, Q8_0_TENSOR = 0, 1, 2, 8

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
