# SPDX-License-Identifier: Apache-2.0
"""`pagewise inspect`: what a file is and whether it can be served, whatever stands in it."""

import json
import math
import os
import pty
import struct
import subprocess

import pytest

from conftest import MODEL, PROGRAM, ROOT
from gguf_writer import (ARRAY, BOOL, F32, F32_TENSOR, F64, I32, STRING, U32, U64, TinyModel, Writer, attention_only,
                         lying_files)

GEMMA = ROOT / "models/gemma-3-270m-q4_k_m.gguf"
SERVED, UNREADABLE, NOT_SERVED = 0, 2, 3


def inspect(path, *flags):
    return subprocess.run([PROGRAM, "inspect", path, *flags], capture_output=True, timeout=60)


def report(path, status=SERVED):
    """The JSON form; the text form must come to the same end and be text."""
    text, as_json = inspect(path), inspect(path, "--json")
    assert text.returncode == as_json.returncode == status, (text, as_json.stderr)
    assert text.stderr == as_json.stderr == b""
    assert text.stdout.decode().endswith("\n") and as_json.stdout.count(b"\n") == 1
    return json.loads(as_json.stdout, parse_constant=lambda name: pytest.fail(name)), text.stdout.decode()


def written(tmp_path, data):
    path = tmp_path / "file.gguf"
    path.write_bytes(data if isinstance(data, bytes) else data.header())
    return path


def row_of(text, label):
    return next(line for line in text.splitlines() if line.startswith(f"  {label} "))


def test_the_test_model():
    found, text = report(MODEL)
    assert found["served"] and found["problems"] == []
    assert (found["architecture"], found["layers"], found["context"]) == ("llama", 30, 8192)
    assert found["layer_kinds"] == ["full"] * 30
    assert found["file_bytes"] == MODEL.stat().st_size
    assert found["tokenizer"]["kind"] == "byte-level BPE" and found["tokenizer"]["tokens"] == 49152
    assert {"role": "eos", "id": 2, "token": "<|im_end|>"} in found["tokenizer"]["special"]
    assert {"id": 2, "token": "<|im_end|>"} in found["tokenizer"]["end_of_generation"]
    template = found["chat_template"]
    assert template["family"] == "ChatML" and template["renders"] and template["system"]
    assert inspect(MODEL, "--template").stdout.decode().rstrip("\n") == template["source"].rstrip("\n")
    # 30 layers, 3 heads, K and V of 64 values, two bytes each.
    assert found["kv"]["token_bytes"] == 30 * 3 * 2 * 64 * 2
    assert found["kv"]["groups"] == [{"layers": 30, "window": 0, "kv_heads": 3, "key_dim": 64, "value_dim": 64,
                                      "token_bytes": found["kv"]["token_bytes"]}]
    types = found["tensors"]["types"]
    assert {row["type"]: row["kernels"] for row in types}["Q4_1"] == "integer"
    for what in ("tensors", "bytes"):
        assert sum(row[what] for row in types) == found["tensors"]["count" if what == "tensors" else what]
    assert len(found["tensors"]["list"]) == found["tensors"]["count"]
    assert len(found["metadata"]["tokenizer.ggml.tokens"]) == 49152
    assert "49152 values: " in text and "byte-level BPE" in text and row_of(text, "served").split() == ["served", "yes"]
    assert max(map(len, text.splitlines())) < 400


def test_latent_attention_keeps_one_row_a_token_of_one_type():
    path = ROOT / "tests/golden/architectures/deepseek2-lite.gguf"
    found, text = report(path)
    # 2 layers, a latent of 32 values and a key of 32 for all heads, two bytes each; V is a part of it.
    assert found["kv"]["groups"] == [{"layers": 2, "window": 0, "kv_heads": 1, "key_dim": 64, "value_dim": 0,
                                      "token_bytes": 2 * 64 * 2}]
    assert "64 values, V a part of K" in text
    plan = subprocess.run([PROGRAM, "plan", path, "--tokens", "1000", "--json"], capture_output=True, timeout=60)
    assert json.loads(plan.stdout)["kv_bytes_per_token"] == 2 * 64 * 2
    run = [PROGRAM, "run", path, "--prompt", "in the", "--tokens", "3"]
    assert subprocess.run([*run, "--kv-type", "q8_0"], capture_output=True, timeout=60).returncode == 0
    refused = subprocess.run([*run, "--kv-type-k", "q8_0"], capture_output=True, timeout=60)
    assert refused.returncode == 1 and refused.stderr.count(b"\n") == 1
    assert b"one KV type, and not q8_0 and f16" in refused.stderr


def test_the_model_with_windows():
    found, text = report(GEMMA)
    assert found["served"] and found["architecture"] == "gemma3"
    kinds = found["layer_kinds"]
    assert len(kinds) == found["layers"] and set(kinds) == {"full", "sliding 512"}
    assert kinds[:6] == ["sliding 512"] * 5 + ["full"]
    groups = {group["window"]: group for group in found["kv"]["groups"]}
    assert set(groups) == {0, 512} and groups[0]["layers"] == kinds.count("full")
    planned = json.loads(subprocess.run([PROGRAM, "plan", GEMMA, "--json", "--tokens", "1"], capture_output=True,
                                        check=True).stdout)
    assert found["kv"]["token_bytes"] == planned["kv_bytes_per_token"]
    assert found["tokenizer"]["kind"].startswith("SentencePiece") and found["tokenizer"]["adds_bos"]
    assert found["chat_template"] is None and "none: only text completion" in text  # this file has none
    assert "sliding window of 512" in text


def test_an_architecture_that_is_planned_but_not_served(tmp_path):
    found, text = report(written(tmp_path, attention_only("starcoder2", 4, 64, 4, 2, 16)), NOT_SERVED)
    assert not found["served"] and any("starcoder2" in problem for problem in found["problems"])
    assert found["kv"]["token_bytes"] == 4 * 2 * 2 * 16 * 2 and found["tensors"]["count"] == 0
    assert row_of(text, "served").split() == ["served", "no"] and "starcoder2" in text


def test_an_architecture_that_nobody_knows(tmp_path):
    writer = (Writer().key("general.architecture", STRING, "spaceship").key("spaceship.block_count", U32, 7)
              .key("spaceship.attention.head_count", STRING, "many").key("tokenizer.ggml.model", STRING, "starmap"))
    found, text = report(written(tmp_path, writer), NOT_SERVED)
    assert found["architecture"] == "spaceship" and found["layers"] == 7 and found["heads"] is None
    assert found["kv"]["token_bytes"] is None and "spaceship" in " ".join(found["problems"])
    assert found["tokenizer"]["kind"] == "not known" and "starmap" in found["tokenizer"]["problem"]
    assert "none: only text completion" in text


def test_a_file_without_any_key(tmp_path):
    found, text = report(written(tmp_path, Writer()), NOT_SERVED)
    assert found["architecture"] is None and found["metadata"] == {} and found["chat_template"] is None
    assert "no architecture named" in text


def test_a_file_that_is_cut_off_is_described_and_said_to_be(tmp_path):
    whole = TinyModel().bytes()
    assert report(written(tmp_path, whole))[0]["served"]
    found, text = report(written(tmp_path, whole[:-1000]), NOT_SERVED)
    assert found["problems"] == [f"the file is cut off: {len(whole) - 1000} of {len(whole)} bytes are there"]
    assert "cut off" in text and found["tensors"]["count"] == 20


def test_one_part_of_several_says_so(tmp_path):
    writer = attention_only("llama", 2, 64, 4, 2, 16).key("split.count", U32, 3)
    found, _ = report(written(tmp_path, writer), NOT_SERVED)
    assert any("one of 3 parts" in problem for problem in found["problems"])


@pytest.mark.parametrize("source, problem, system", [
    ("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}", None, True),
    ("{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('No system here') }}{% endif %}"
     "{{ m.content }}{% endfor %}", None, False),
    ("{% for m in messages %}{% if m.role != 'system' %}{{ m.content }}{% endif %}{% endfor %}", None, False),
    ("{{ raise_exception('Never') }}", "Never", False),
    ("{% for m in", "chat template", False),
])
def test_templates_are_tried(tmp_path, source, problem, system):
    model = TinyModel()
    model.keys.append(("tokenizer.chat_template", STRING, source))
    found, _ = report(written(tmp_path, model.bytes()))
    template = found["chat_template"]
    assert template["source"] == source and template["renders"] == (problem is None)
    assert template["system"] == system and (problem is None or problem in template["problem"])
    assert ("raise_exception" in source) == ("raise_exception" in template["uses"])


def test_hostile_text_drives_no_terminal_and_breaks_no_json(tmp_path):
    nasty = b"\x1b]0;owned\x07\x1b[2J\xc2\x9b31m\r\n\xff\xe2\x80\xaeevil\x00"
    writer = (Writer().key("general.architecture", STRING, nasty).key("general.name", STRING, nasty)
              .key("key", STRING, nasty * 100).array("list", STRING, [nasty] * 30)
              .key("tokenizer.ggml.model", STRING, nasty).key("tokenizer.chat_template", STRING, nasty)
              .array("tokenizer.ggml.tokens", STRING, [nasty]).key("tokenizer.ggml.bos_token_id", U32, 0)
              .key("tokenizer.ggml.odd_token_id", U64, 2**63)
              .key("tokenizer.chat_template." + "x" * 500, STRING, "")
              .tensor(nasty, [32], F32_TENSOR, 0))
    found, text = report(written(tmp_path, writer.header() + bytes(256)), NOT_SERVED)
    assert not [c for c in text if (ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160 or c == "\u202e"]
    assert "owned" in text and found["metadata"]["list"][29].startswith("\x1b]0;owned")
    # To a pipe the template goes as it is, to a terminal it is shown.
    assert inspect(tmp_path / "file.gguf", "--template").stdout == nasty + b"\n"
    reading, writing = pty.openpty()
    subprocess.run([PROGRAM, "inspect", tmp_path / "file.gguf", "--template"], stdout=writing, timeout=60, check=True)
    shown = os.read(reading, 4096)
    os.close(reading), os.close(writing)
    assert b"\x1b" not in shown and b"owned" in shown


def test_numbers_that_json_does_not_have(tmp_path):
    writer = (attention_only("llama", 2, 64, 4, 2, 16).key("a", F32, math.nan).key("b", F64, math.inf)
              .key("c", U64, 2**64 - 1).array("d", F32, [-math.inf, 1.5]).array("e", BOOL, [1, 0])
              .array("f", I32, [-1, 2]).array("g", STRING, []))
    found, _ = report(written(tmp_path, writer), NOT_SERVED)
    assert [found["metadata"][name] for name in "abcdefg"] == [
        "NaN", "Infinity", 2**64 - 1, ["-Infinity", 1.5], [True, False], [-1, 2], []]


def test_c17_a_file_that_lies_is_refused_with_one_line(tmp_path):
    path = tmp_path / "lies.gguf"
    refused = 0
    for name, data, word in lying_files():
        path.write_bytes(data)
        done = inspect(path)
        # A tensor part that is cut off is described (status 3); everything else is no header.
        assert done.returncode in (UNREADABLE, NOT_SERVED), (name, done)
        if done.returncode == UNREADABLE:
            refused += 1
            assert done.stdout == b"" and done.stderr.count(b"\n") == 1 and word in done.stderr.decode(), (name, done)
    assert refused > 100


@pytest.mark.parametrize("data, words", [
    (b"", "at offset 0"), (b"just some text, nothing else", "not a GGUF file"),
    (b"GGUF" + struct.pack("<IQQ", 9, 0, 0), "version 9"),
])
def test_what_is_no_model_file_is_one_line(tmp_path, data, words):
    done = inspect(written(tmp_path, data))
    assert done.returncode == UNREADABLE and done.stdout == b"" and done.stderr.count(b"\n") == 1
    assert words in done.stderr.decode()
