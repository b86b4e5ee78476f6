# SPDX-License-Identifier: Apache-2.0
"""What nobody should give `pagewise plan`: cut files, absurd numbers, wrong types, texts without end. Each is one line on
standard error and status 2 within seconds, or a plan; never a crash, never a wait (C17)."""

import json
import os
import pathlib
import random
import subprocess

import pytest

from gguf_writer import F32, I32, STRING, U32, U64, attention_only

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGEWISE = (os.environ.get("PAGEWISE_BIN") or os.environ.get("PAGEWISE") or
            str(ROOT / "build/release/pagewise"))
MODELS = [ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf", ROOT / "models/gemma-3-270m-q4_k_m.gguf"]
MEMORY_MAX = 400 * 2**20
LLAMA_8B = {"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
            "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 131072, "vocab_size": 128256,
            "intermediate_size": 14336, "tie_word_embeddings": False, "torch_dtype": "bfloat16"}
DEEPSEEK = {"model_type": "deepseek_v3", "num_hidden_layers": 61, "kv_lora_rank": 512, "qk_rope_head_dim": 64}
JAMBA = {"model_type": "jamba", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
         "num_key_value_heads": 8, "attn_layer_period": 8, "attn_layer_offset": 4, "mamba_d_state": 16,
         "mamba_d_conv": 4, "mamba_expand": 2}
GEMMA = {"model_type": "gemma3_text", "hidden_size": 640, "num_hidden_layers": 18, "num_attention_heads": 4,
         "num_key_value_heads": 1, "head_dim": 256, "sliding_window": 512}


def run(*arguments, timeout=300):
    """Within memory that a plan never needs: what a file claims must not be taken. Mapped files do not count."""
    limited = ["prlimit", f"--data={MEMORY_MAX}", PAGEWISE, "plan", *map(str, arguments)]
    return subprocess.run(limited, capture_output=True, text=True, timeout=timeout, check=False, errors="replace")


def answered(*arguments):
    """A plan, or one line; gives which."""
    done = run(*arguments)
    if done.returncode in (0, 3):
        assert done.stderr == "" and done.stdout != "", done
        return True
    assert done.returncode == 2, done
    assert done.stdout == "" and done.stderr.count("\n") == 1 and len(done.stderr) < 2200, done
    return False


def refused(*arguments):
    done = run(*arguments)
    assert done.returncode == 2 and done.stdout == "", done
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


@pytest.mark.parametrize("model, step", [(MODELS[0], 4096), (MODELS[1], 65536)], ids=["smollm2", "gemma3"])
def test_a_file_cut_anywhere_in_its_header_is_one_line_that_names_it(model, step, tmp_path):
    path = tmp_path / "cut.gguf"
    with model.open("rb") as source:
        data = source.read(16 << 20)
    enough = None
    for size in range(0, len(data), step):
        path.write_bytes(data[:size])
        done = run(path, "--tokens", "1024")
        if done.returncode == 0:
            enough = size
            break
        assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1, done
        assert str(path) in done.stderr
    # The header is what was cut: the vocabulary alone takes as much.
    assert enough is not None and enough > 1 << 20
    path.write_bytes(data[:enough + 4096])
    assert answered(path, "--tokens", "1024")


def small_llama_without(name):
    writer = attention_only("llama", 4, 256, 8, 2, 32)
    writer.keys = [key for key in writer.keys if name.encode() not in key]
    return writer


@pytest.mark.parametrize("name", ["block_count", "attention.head_count", "attention.head_count_kv",
                                  "attention.key_length", "attention.value_length", "context_length",
                                  "embedding_length"])
def test_a_header_with_an_absurd_number_is_one_line_or_a_plan(name, tmp_path):
    path = tmp_path / "odd.gguf"
    for number in (0, 1, 3, 65535, 65537, 2**31, 2**32 - 1):
        path.write_bytes(small_llama_without(f"llama.{name}").key(f"llama.{name}", U32, number).header())
        answered(path, "--tokens", "1024,1073741824", "--batch", "1,4096", "--memory", "1GiB")
        answered(path)
    twice = attention_only("llama", 4, 256, 8, 2, 32).key(f"llama.{name}", U32, 4)
    path.write_bytes(twice.header())
    assert f"llama.{name}" in refused(path)


@pytest.mark.parametrize("layers, heads, kv_heads, head_dim", [
    (0, 8, 2, 32), (2**32 - 1, 8, 2, 32), (65537, 8, 2, 32), (4, 0, 2, 32), (4, 8, 0, 32), (4, 8, 2**32 - 1, 32),
    (4, 8, 2, 0), (4, 8, 2, 2**32 - 1), (65536, 65536, 65536, 1 << 20)])
def test_a_header_of_an_impossible_shape_is_one_line(layers, heads, kv_heads, head_dim, tmp_path):
    path = tmp_path / "odd.gguf"
    path.write_bytes(attention_only("llama", layers, 256, heads, kv_heads, head_dim).header())
    line = refused(path, "--tokens", "1024")
    assert str(path) in line or "from 1 byte to 4.0 GiB can be planned" in line


@pytest.mark.parametrize("kind, content", [(STRING, "32"), (F32, 32.0), (I32, -32), (U64, 2**63), (U64, 2**40)])
def test_a_number_of_another_type_is_one_line_or_read(kind, content, tmp_path):
    path = tmp_path / "odd.gguf"
    writer = small_llama_without("llama.block_count")
    path.write_bytes(writer.header())
    assert "llama.block_count" in refused(path)
    path.write_bytes(writer.key("llama.block_count", kind, content).header())
    assert "llama.block_count" in refused(path)


BAD_VALUES = [0, -1, 1, 3, 2**31, 2**40, 2**63, 2**64, 2**70, 1.5, 1e308, "32", "", True, None, [], [32], {}, {"a": 1},
              [[32]]]


@pytest.mark.parametrize("keys", [LLAMA_8B, DEEPSEEK, JAMBA, GEMMA], ids=lambda keys: keys["model_type"])
def test_a_configuration_with_any_key_wrong_or_missing_is_one_line_or_a_plan(keys, tmp_path):
    path = tmp_path / "config.json"
    refusals = 0
    for key in keys:
        for value in BAD_VALUES:
            path.write_text(json.dumps({**keys, key: value}))
            refusals += not answered(path, "--tokens", "1,1073741824", "--batch", "4096")
        path.write_text(json.dumps({name: keys[name] for name in keys if name != key}))
        answered(path)
    assert refusals > 2 * len(BAD_VALUES)


def test_a_configuration_changed_at_random_is_one_line_or_a_plan(tmp_path):
    seed = random.randrange(2**32)
    print("seed", seed)
    draw = random.Random(seed)
    path = tmp_path / "config.json"
    for _ in range(200):
        data = bytearray(json.dumps(draw.choice([LLAMA_8B, DEEPSEEK, JAMBA, GEMMA])).encode())
        for _ in range(draw.randrange(1, 4)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        path.write_bytes(data)
        answered(path)


@pytest.mark.parametrize("text, words", [
    ('{"a":' * 100_000, "not valid JSON"),
    ("[" * 100_000, "not valid JSON"),
    ('{"model_type": ' + "[" * 50_000 + "]" * 50_000 + "}", "not valid JSON"),
    ('{"model_type": "' + "x" * 100_000 + '"}', "does not know the layout"),
    ('{"' + "k" * 100_000 + '": 1}', "model_type: missing"),
    ('{"model_type": "llama", "num_hidden_layers": NaN}', "hidden_layers"),
    ('{"model_type": "llama", "num_hidden_layers": -Infinity}', "hidden_layers"),
    ('{"model_type": "llama", "num_hidden_layers": 1e400}', "num_hidden_layers"),
    ('{"model_type": "llama", "num_hidden_layers": ' + "9" * 10_000 + "}", "num_hidden_layers"),
    ('{"model_type": "lla\\u001b[31mma"}', "does not know the layout"),
    ("\0" * 5000, "not valid JSON"),
    ('{"model_type": "llama"', "not valid JSON"),
    ('{"text_config": {"text_config": {}}}', "text_config.model_type: missing"),
])
def test_a_strange_configuration_is_one_short_line(text, words, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(text)
    line = refused(path)
    assert words in line and len(line) < 3000 and "\x1b" not in line


def test_of_a_key_that_is_there_twice_the_last_counts_as_in_python(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA_8B)[:-1] + ', "num_hidden_layers": 16}')
    done = run(path, "--tokens", "1024", "--json")
    assert json.loads(done.stdout)["kv_bytes_per_token"] == json.loads(path.read_text())["num_hidden_layers"] * 4096


def test_files_without_end_are_told_by_their_size(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA_8B)[:-1])
    os.truncate(path, 2**30)
    assert "which no config.json has" in refused(path)
    model = tmp_path / "zeros.gguf"
    model.touch()
    os.truncate(model, 2**33)
    assert "not a GGUF file" in refused(model) or "magic" in refused(model)
    for endless in ("/dev/zero", "/dev/full"):
        assert not answered(endless)
        assert "line 1: longer than 16.0 MiB" in refused("--mib-per-token", "1", "--trace", endless)
    assert not answered("/dev/null")
    assert "no requests in it" in refused("--mib-per-token", "1", "--trace", "/dev/null")


SHAPE = ["--layers", "32", "--kv-heads", "8", "--head-dim", "128"]


@pytest.mark.parametrize("flag", ["--layers", "--kv-heads", "--head-dim", "--value-dim", "--window", "--full-every",
                                  "--latent-dim", "--state-layers", "--state-values", "--tokens", "--batch", "--memory",
                                  "--weights", "--mib-per-token", "--block-tokens", "--requests", "--lengths",
                                  "--max-tokens", "--users", "--prefix-tokens", "--calls", "--read-price",
                                  "--write-price", "--every", "--ttl", "--device-memory", "--devices",
                                  "--working-memory", "--utilization", "--step-tokens"])
def test_a_flag_with_any_value_is_one_line_or_a_plan(flag):
    refusals = 0
    for value in ("0", "-1", "", " ", "nan", "inf", "-inf", "1e400", "0x10", "1.5", "٣", "18446744073709551615",
                  "18446744073709551616", "9" * 400, "1,2,,3", "1/2/3", "5*", "*5", "1GiB1", "\n", "1\n2", "a" * 5000):
        around = [] if flag in SHAPE else SHAPE
        if flag.endswith("-price") or flag in ("--every", "--ttl"):
            around = ["--prefix-tokens", "500", "--calls", "3", *(["--every", "1m"] if flag == "--ttl" else [])]
        more = [] if flag in ("--tokens", "--lengths", "--requests") or "--calls" in around else ["--tokens", "1024"]
        refusals += not answered(*around, *more, flag, value)
    assert refusals >= 17


def test_an_empty_value_is_no_missing_question():
    for flag in ("--memory", "--tokens", "--trace", "--calibration", "--html", "--users"):
        line = refused(*SHAPE, "--tokens" if flag != "--tokens" else "--batch", "4", flag, "")
        assert flag in line and "empty" in line
    assert "SOURCE" in refused("")
    for flag in ("--read-price", "--write-price"):
        assert f"{flag} needs --calls" in refused(*SHAPE, "--tokens", "4", flag, "1")
