# SPDX-License-Identifier: Apache-2.0
"""`pagewise plan` about many requests and real devices: config.json as a source, distributions of lengths and
traces, waste by block size, numbers of users, devices divided by an engine's rule, calls in time, and the page with
charts, whose numbers must be those of the JSON."""

import html.parser
import json
import os
import pathlib
import re
import subprocess
import xml.etree.ElementTree

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGEWISE = (os.environ.get("PAGEWISE_BIN") or os.environ.get("PAGEWISE") or
            str(ROOT / "build/release/pagewise"))
CLASSIC_7B = "--layers 32 --kv-heads 32 --head-dim 128 --kv-type f16"
MIB, GIB = 2**20, 2**30
LLAMA_8B = {"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
            "num_key_value_heads": 8, "max_position_embeddings": 131072}


def run(*arguments):
    return subprocess.run([PAGEWISE, "plan", *map(str, arguments)], capture_output=True, text=True, timeout=60,
                          check=False)


def plan(arguments, status=0):
    """Runs the command both ways; gives the text and the object."""
    words = arguments.split() if isinstance(arguments, str) else list(map(str, arguments))
    text, as_json = run(*words), run(*words, "--json")
    assert text.returncode == status, text.stderr
    assert as_json.returncode == status, as_json.stderr
    return text.stdout, json.loads(as_json.stdout)


def refused(*arguments):
    """The one line of a wrong command line."""
    result = run(*arguments)
    assert result.returncode == 2 and result.stdout == "", result
    assert result.stderr.count("\n") == 1, result.stderr
    return result.stderr


@pytest.fixture
def config(tmp_path):
    """Writes a config.json; gives its path."""
    def write(keys, **more):
        path = tmp_path / "config.json"
        path.write_text(json.dumps({**keys, **more}), encoding="utf-8")
        return path
    return write


def test_a_config_json_is_a_source_by_its_path_or_its_folder(config):
    path = config(LLAMA_8B)
    for source in path, path.parent:
        text, found = plan([source, "--tokens", "8192", "--memory", "8GiB"])
        assert found["kv_bytes_per_token"] == 131072
        assert found["kv_bytes"] == GIB and found["max_sequences"] == 8
        assert "32 layers x 8 KV heads x 128" in text
    _, everything = plan([path])
    assert everything["rows"][-1]["tokens"] == 131072


def test_the_weights_of_a_config_json_are_those_beside_it(config):
    path = config(LLAMA_8B)
    (path.parent / "model.safetensors.index.json").write_text('{"metadata": {"total_size": 16060522496}}')
    _, found = plan([path, "--tokens", "1024", "--batch", "1,16"])
    assert found["weight_bytes"] == 16060522496
    assert found["crossover_tokens"] == 16060522496 // 131072 + 1
    assert [row["batch"] for row in found["crossovers"]] == [1, 16]
    for row in found["crossovers"]:
        assert row["batch"] * (row["tokens"] - 1) * 131072 <= 16060522496 < row["batch"] * row["tokens"] * 131072


def test_without_weights_beside_it_a_config_json_tells_them_by_its_sizes(config):
    sizes = {**LLAMA_8B, "vocab_size": 128256, "intermediate_size": 14336, "tie_word_embeddings": False}
    # What model.safetensors.index.json of meta-llama/Llama-3.1-8B says.
    text, found = plan([config(sizes, torch_dtype="bfloat16"), "--tokens", "8192", "--device-memory", "24GiB",
                        "--engine", "vllm"])
    assert found["weight_bytes"] == 16060522496
    assert found["device"]["kv_bytes"] == int(0.92 * 24 * GIB) - 16060522496
    _, told = plan([config(sizes, torch_dtype="bfloat16"), "--tokens", "8192", "--weights", "5GiB"])
    assert told["weight_bytes"] == 5 * GIB
    _, unknown = plan([config(sizes, torch_dtype="bfloat16", quantization_config={"bits": 4}), "--tokens", "8192"])
    assert "weight_bytes" not in unknown


def test_latent_rows_sharing_layers_and_states_are_told_and_counted(config):
    text, found = plan([config({"model_type": "deepseek_v3", "num_hidden_layers": 61, "kv_lora_rank": 512,
                                "qk_rope_head_dim": 64}), "--tokens", "1024"])
    assert found["kv_bytes_per_token"] == 61 * 576 * 2 and "1 latent row x 576" in text
    text, found = plan([config({"model_type": "jamba", "hidden_size": 4096, "num_hidden_layers": 32,
                                "num_attention_heads": 32, "num_key_value_heads": 8, "attn_layer_period": 8,
                                "attn_layer_offset": 4, "mamba_d_state": 16, "mamba_d_conv": 4,
                                "mamba_expand": 2}), "--tokens", "1024"])
    state = 28 * (3 * 8192 + 16 * 8192) * 4
    assert found["state_bytes"] == state
    assert found["kv_bytes"] == 1024 * 4 * 8 * 128 * 2 * 2 + state
    assert found["states"] == [{"layers": 28, "values": 3 * 8192 + 16 * 8192}]
    assert "28 layers with a state" in text
    _, halved = plan([config({**LLAMA_8B}), "--tokens", "1024"])
    assert "state_bytes" not in halved
    text, found = plan([config({"model_type": "gemma3n", "text_config": {"model_type": "gemma3n_text"}}),
                        "--tokens", "1024"])
    assert found["layers_sharing"] == 15 and "15 layers that read the rows of others" in text


def test_the_same_from_flags():
    _, found = plan("--layers 61 --latent-dim 576 --tokens 1024")
    assert found["kv_bytes_per_token"] == 61 * 576 * 2
    _, found = plan("--layers 4 --kv-heads 8 --head-dim 128 --state-layers 28 --state-values 155648 --tokens 1024 "
                    "--state-type f16")
    assert found["state_bytes"] == 28 * 155648 * 2


@pytest.mark.parametrize("keys, words", [
    ({"model_type": "t5", "is_encoder_decoder": True}, "'t5' is an encoder-decoder"),
    ({"model_type": "whale"}, "does not know the layout of 'whale'"),
    ({"hidden_size": 64}, "model_type: missing"),
    ({**LLAMA_8B, "num_attention_heads": 0}, "num_attention_heads: 0 is not in 1 to 65536"),
    ({**LLAMA_8B, "num_hidden_layers": 2**40}, "num_hidden_layers: 1099511627776 is not in"),
    ({**LLAMA_8B, "num_hidden_layers": 2**70}, "num_hidden_layers: no whole number"),
    ({**LLAMA_8B, "kv_lora_rank": 512}, "kv_lora_rank: latent attention"),
])
def test_a_config_json_that_is_not_understood_is_one_line_and_status_2(config, keys, words):
    path = config(keys)
    line = refused(path)
    assert words in line and str(path) in line


def test_what_is_no_json_is_one_line(tmp_path):
    path = tmp_path / "config.json"
    for text, words in [("{", "not valid JSON"), ("", "not valid JSON"), ("[]", "no JSON object"),
                        ('{"a": "\udcff"}'.encode("utf-8", "surrogateescape"), "not valid JSON")]:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        assert words in refused(path)


def test_a_distribution_of_lengths_reserved_paged_and_shared():
    text, found = plan(f"{CLASSIC_7B} --lengths 300,1200,80 --max-tokens 4096 --memory 40GiB --waste")
    lengths = found["lengths"]
    assert (lengths["requests"], lengths["tokens_mean"], lengths["tokens_max"]) == (3, 527, 1200)
    assert lengths["naive_bytes"] == 3 * 4096 * 524288 and lengths["used_bytes"] == 1580 * 524288
    assert lengths["max_requests_naive"] == 20
    # Blocks of 32: 10 + 38 + 3.
    assert lengths["paged_bytes"] == 51 * 32 * 524288
    assert lengths["max_requests_paged"] == 40 * GIB * 3 // lengths["paged_bytes"]
    blocks = {16: 19 + 75 + 5, 32: 51, 64: 5 + 19 + 2, 128: 3 + 10 + 1}
    assert {row["block_tokens"]: row["paged_bytes"] for row in found["waste"]} == {
        size: count * size * 524288 for size, count in blocks.items()}
    for row in found["waste"]:
        assert row["slack_bytes"] == row["paged_bytes"] - 1580 * 524288
    assert "reserved" in text and "blocks of 128" in text
    _, shared = plan(f"{CLASSIC_7B} --lengths 1200*3 --memory 40GiB --prefix-tokens 1000")
    # 31 whole blocks once, 7 of each one's own.
    assert shared["lengths"]["max_requests_sharing"] == (40 * 64 - 31) // 7


def test_a_trace_is_a_distribution(tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_text('{"timestamp": 0, "input_length": 250, "output_length": 50, "hash_ids": [0]}\n'
                    '{"timestamp": 9, "input_length": 1000, "output_length": 200, "hash_ids": [0, 1]}\n')
    _, traced = plan([*CLASSIC_7B.split(), "--trace", path, "--memory", "4GiB"])
    _, given = plan(f"{CLASSIC_7B} --lengths 300,1200 --memory 4GiB")
    assert traced == given
    path.write_text('{"input_length": 1, "output_length": 1}\n{"input_length": 1}\n')
    assert f"{path}: line 2: output_length is missing" in refused(*CLASSIC_7B.split(), "--trace", path)


def test_what_reaches_a_number_of_users():
    text, found = plan(f"{CLASSIC_7B} --memory 30GiB --tokens 8192 --users 12", status=3)
    assert found["users"]["wanted"] == 12 and found["users"]["sequences"] == 7
    options = {(row["by"], row["value"]): row for row in found["users"]["options"]}
    assert options["KV type", "q8_0"]["sequences"] == 14 and options["KV type", "q8_0"]["reached"]
    assert options["KV type", "q4_0"]["served"] is False
    assert not options["KV type", "f16"]["reached"]
    assert options["KV type", "f16"]["memory_bytes"] == 48 * GIB
    assert options["context cap", "5,120 tokens"]["reached"]
    assert options["memory", "48.0 GiB"]["sequences"] == 12
    assert "12 at once are wanted in 30.0 GiB: 7 fit" in text and "not served yet" in text
    _, enough = plan(f"{CLASSIC_7B} --memory 30GiB --tokens 8192 --users 7")
    assert enough["fits"] is True
    assert not [row for row in enough["users"]["options"] if row["by"] == "context cap"]


@pytest.mark.parametrize("engine, devices, kv_bytes, block_tokens", [
    ("pagewise", 1, (25 * GIB - 15 * GIB - 128 * MIB) // 2, 32),
    ("vllm", 1, 8 * GIB, 16),
    ("vllm", 2, 31 * GIB, 16),
    ("llama.cpp", 2, 33 * GIB, 256),
])
def test_a_device_is_divided_by_its_engines_rule(engine, devices, kv_bytes, block_tokens):
    text, found = plan(f"--layers 32 --kv-heads 8 --head-dim 128 --weights 15GiB --tokens 8192 --device-memory 25GiB "
                       f"--devices {devices} --engine {engine}")
    device = found["device"]
    assert device["kv_bytes"] == device["kv_bytes_distinct"] == kv_bytes
    assert device["block_tokens"] == block_tokens and device["source"]
    assert found["max_sequences"] == kv_bytes // GIB
    assert f"{engine} on {devices} device" in text and "note: " in text


def test_a_device_that_holds_no_request_is_status_3_and_says_what_helps():
    text, found = plan("--layers 32 --kv-heads 8 --head-dim 128 --weights 15GiB --tokens 8192 --device-memory 10GiB "
                       "--engine vllm", status=3)
    assert found["device"]["kv_bytes"] == 0 and found["max_sequences"] == 0
    assert found["fixes"][-1]["fix"] == "a second device of 10.0 GiB"
    assert "Does not fit" in text


def test_calls_that_come_too_late_for_the_entry():
    text, found = plan("--prefix-tokens 5000 --calls 100 --write-price 1.25 --every 10m --ttl 5m")
    timed = found["timed"]
    assert timed["even_writes"] == 100 and timed["even_billed_tokens"] == 625000
    assert 0.39 < timed["random_hit_share"] < 0.40
    assert 55750 < timed["random_billed_tokens"] < 625000
    assert "at random" in text and "gain while they come every" in text
    _, hour = plan("--prefix-tokens 5000 --calls 100 --write-price 1.25 --every 10m --ttl 1h")
    assert hour["timed"]["even_billed_tokens"] == 55750
    _, usual = plan("--prefix-tokens 5000 --calls 100 --write-price 1.25 --every 300s")
    assert usual["timed"]["even_writes"] == 1


@pytest.mark.parametrize("arguments, words", [
    (f"{CLASSIC_7B} --waste", "--waste needs"),
    (f"{CLASSIC_7B} --users 3 --tokens 1", "--users needs --memory"),
    (f"{CLASSIC_7B} --users 3 --tokens 1,2 --memory 1GiB", "--users needs one length"),
    (f"{CLASSIC_7B} --users many --tokens 1 --memory 1GiB", "--users: 'many' is not a whole number"),
    (f"{CLASSIC_7B} --lengths 5x", "--lengths: '5x' is not TOKENS or TOKENS*REQUESTS"),
    (f"{CLASSIC_7B} --lengths 5 --trace x", "--lengths and --trace: one of the two"),
    (f"{CLASSIC_7B} --trace /nonexistent", "/nonexistent: No such file or directory"),
    (f"{CLASSIC_7B} --lengths 50 --max-tokens 49", "--max-tokens: 49 is less than the longest request"),
    (f"{CLASSIC_7B} --max-tokens 49", "--max-tokens needs --lengths"),
    (f"{CLASSIC_7B} --tokens 5 --weights some", "--weights: 'some' is not a size"),
    (f"{CLASSIC_7B} --tokens 5 --device-memory 1GiB", "give --weights"),
    (f"{CLASSIC_7B} --tokens 5 --devices 2", "--devices needs --device-memory"),
    (f"{CLASSIC_7B} --tokens 5 --device-memory 9GiB --weights 1GiB --devices 0", "--devices: 0"),
    (f"{CLASSIC_7B} --tokens 5 --device-memory 9GiB --weights 1GiB --engine other", "--engine: 'other' is not known"),
    (f"{CLASSIC_7B} --tokens 5 --device-memory 9GiB --weights 1GiB --memory 1GiB", "--memory says already"),
    (f"{CLASSIC_7B} --tokens 5 --device-memory 9GiB --weights 1GiB --utilization 2", "--utilization: 2"),
    (f"{CLASSIC_7B} --tokens 5 --device-memory 9GiB --weights 1GiB --devices 2", "uses one machine's memory"),
    (f"{CLASSIC_7B} --tokens 5 --state-type q8_0", "--state-type: 'q8_0'"),
    (f"{CLASSIC_7B} --tokens 5 --state-layers 3", "--state-layers and --state-values go together"),
    ("--layers 3 --latent-dim 576 --kv-heads 3", "--kv-heads: latent rows have none"),
    ("--latent-dim 576", "--latent-dim needs --layers"),
    ("--prefix-tokens 5 --calls 3 --ttl 5m", "--ttl needs --every"),
    ("--prefix-tokens 5 --calls 3 --every often", "--every: 'often' is not a time like 90s, 5m or 1h"),
    ("--prefix-tokens 5 --calls 3 --every 0", "--every: 0 s"),
    (f"{CLASSIC_7B} --tokens 5 --svg out.svg", "--svg needs two lengths"),
    (f"{CLASSIC_7B} --tokens 5 --live http://127.0.0.1:1", "--live needs SOURCE"),
])
def test_a_wrong_question_is_one_clear_line_and_status_2(arguments, words):
    assert words in refused(*arguments.split())


def test_a_page_that_cannot_be_written_is_one_line_and_status_1():
    result = run(*CLASSIC_7B.split(), "--tokens", "5", "--html", "/nonexistent/plan.html")
    assert result.returncode == 1 and result.stdout == ""
    assert result.stderr == "pagewise plan: /nonexistent/plan.html: No such file or directory\n"


class Page(html.parser.HTMLParser):
    """What the page says, by the paths of its JSON; and what it would load from elsewhere."""

    def __init__(self, text):
        super().__init__()
        self.cells, self.marks, self.foreign, self.json, self._in_json = {}, [], [], "", False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self._in_json = tag == "script"
        if tag == "script":
            assert found == {"id": "plan", "type": "application/json"}
        if tag in ("link", "img", "iframe") or found.get("src") or found.get("href"):
            self.foreign.append((tag, found))
        if "data-key" in found:
            if tag == "td":
                assert found["data-key"] not in self.cells
                self.cells[found["data-key"]] = found["data-value"]
            else:
                self.marks.append((found["data-key"], found["data-value"]))

    def handle_endtag(self, tag):
        if tag == "script":
            self._in_json = False

    def handle_data(self, data):
        if self._in_json:
            self.json += data


def leaves(value, path=""):
    """{path: leaf} of a JSON value."""
    if isinstance(value, dict):
        pairs = value.items()
    elif isinstance(value, list):
        pairs = enumerate(value)
    else:
        return {path: value}
    found = {}
    for key, inner in pairs:
        found.update(leaves(inner, f"{path}.{key}" if path else str(key)))
    return found


@pytest.mark.parametrize("arguments, status, marks", [
    (f"{CLASSIC_7B} --tokens 1024,8192,32768 --batch 1,16 --weights 14GiB", 0, 6 + 1),
    (f"{CLASSIC_7B} --memory 30GiB --tokens 8192 --batch 12", 3, 0),
    (f"{CLASSIC_7B} --lengths 300*5,1200,80 --max-tokens 4096 --memory 40GiB --waste --users 900", 3, 5 + 9 + 4 + 2),
    ("--layers 32 --kv-heads 8 --head-dim 128 --weights 15GiB --tokens 1024,8192 --device-memory 25GiB "
     "--engine vllm", 0, 2 + 2 + 4),
    ("--prefix-tokens 5000 --calls 100 --write-price 1.25 --every 10m", 0, 0),
])
def test_the_page_says_the_numbers_of_the_json(tmp_path, arguments, status, marks):
    path = tmp_path / "plan.html"
    result = run(*arguments.split(), "--json", "--html", path)
    assert result.returncode == status, result.stderr
    found = json.loads(result.stdout)
    page = Page(path.read_text(encoding="utf-8"))
    assert json.loads(page.json) == found
    assert page.foreign == []
    expected = leaves(found)
    for key, shown in [*page.cells.items(), *page.marks]:
        value = expected[key]
        if isinstance(value, str):
            assert shown == value, key
        elif isinstance(value, bool):
            assert shown == str(value).lower(), key
        else:
            assert float(shown) == value, key
    assert page.cells.keys() == expected.keys()
    assert len(page.marks) == marks


def test_the_chart_alone_is_an_svg_file_with_the_numbers_of_the_json(tmp_path):
    path = tmp_path / "plan.svg"
    result = run(*f"{CLASSIC_7B} --tokens 1024,2048,4096 --batch 1,8 --weights 13GiB --json --svg".split(), path)
    assert result.returncode == 0, result.stderr
    found = leaves(json.loads(result.stdout))
    root = xml.etree.ElementTree.parse(path).getroot()
    marks = [element.attrib for element in root.iter() if "data-key" in element.attrib]
    assert len(marks) == 6 + 1
    for mark in marks:
        assert int(mark["data-value"]) == found[mark["data-key"]]


def test_the_picture_of_the_readme_is_what_its_command_draws(tmp_path):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    command = re.search(r"^    \$ build/release/pagewise plan (.*?)$\n\n", text.replace("\\\n", " "),
                        re.MULTILINE | re.DOTALL).group(1).split()
    assert command[-2:] == ["--svg", "docs/plan.svg"]
    path = tmp_path / "plan.svg"
    assert run(*command[:-1], path).returncode == 3
    assert path.read_text() == (ROOT / "docs/plan.svg").read_text()


def test_names_in_a_file_cannot_become_markup(tmp_path, config):
    page = tmp_path / "plan.html"
    result = run(config({**LLAMA_8B, "_name_or_path": "<script>alert(1)</script>"}), "--html", page)
    assert result.returncode == 0, result.stderr
    text = page.read_text(encoding="utf-8")
    assert "<script>alert" not in text and "&lt;script&gt;" in text
