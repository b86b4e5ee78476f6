# SPDX-License-Identifier: Apache-2.0
"""`pagewise plan` as a user meets it: the commands of docs/design.md section 1 and their figures,
what docs/capacity.md shows, the field cases C17 (files that lie) and C22 (what the planner says),
and mistakes on the command line.

The program is build/release/pagewise, or what PAGEWISE_BIN (or PAGEWISE) names.
"""

import json
import os
import pathlib
import re
import resource
import subprocess

import pytest

from gguf_writer import attention_only, lying_files

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGEWISE = (os.environ.get("PAGEWISE_BIN") or os.environ.get("PAGEWISE") or
            str(ROOT / "build/release/pagewise"))
MODEL = ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
CLASSIC_7B = "--layers 32 --kv-heads 32 --head-dim 128 --kv-type f16"
MIB, GIB = 2**20, 2**30


def run(*arguments, **options):
    return subprocess.run([PAGEWISE, "plan", *map(str, arguments)], capture_output=True, text=True,
                          timeout=60, **options)


def plan(arguments, status=0):
    """Runs the command both ways; gives the text and the object."""
    words = arguments.split() if isinstance(arguments, str) else arguments
    text, as_json = run(*words), run(*words, "--json")
    assert text.returncode == status, text.stderr
    assert as_json.returncode == status, as_json.stderr
    assert text.stderr == "" and as_json.stderr == ""
    assert as_json.stdout.count("\n") == 1
    return text.stdout, json.loads(as_json.stdout)


def test_one_sequence_of_2k_tokens_takes_1024_mib():
    text, found = plan(f"{CLASSIC_7B} --tokens 2048")
    assert "1024.0 MiB" in text
    assert found["rows"] == [{"tokens": 2048, "batch": 1, "kv_bytes": 1024 * MIB}]
    assert found["kv_bytes"] == 1024 * MIB and found["tokens"] == 2048 and found["batch"] == 1
    assert found["kv_bytes_per_token"] == 524288
    assert not {"fits", "fixes", "naive_bytes", "billed_tokens", "max_sequences"} & found.keys()


def test_lengths_times_batches():
    text, found = plan(f"{CLASSIC_7B} --tokens 1024,8192,32768 --batch 1,16")
    table = {(row["tokens"], row["batch"]): row["kv_bytes"] / GIB for row in found["rows"]}
    assert table == {(1024, 1): 0.5, (1024, 16): 8, (8192, 1): 4, (8192, 16): 64,
                     (32768, 1): 16, (32768, 16): 256}
    assert "kv_bytes" not in found
    for line in ["0.5 GiB", "8.0 GiB", "4.0 GiB", "64.0 GiB", "16.0 GiB", "256.0 GiB"]:
        assert line in text


def test_reserved_against_used_against_blocks():
    text, found = plan(f"{CLASSIC_7B} --requests 300/4096,1200/4096,80/4096 --mib-per-token 0.5 "
                       "--block-tokens 128")
    assert found["naive_bytes"] == 6144 * MIB
    assert found["used_bytes"] == 790 * MIB
    assert found["wasted_bytes"] == 5354 * MIB
    assert found["paged_bytes"] == 896 * MIB
    assert "rows" not in found
    for figure in ["6144.0 MiB", "790.0 MiB", "5354.0 MiB", "87 %", "896.0 MiB", "blocks of 128"]:
        assert figure in text


def test_how_many_fit():
    text, found = plan(f"{CLASSIC_7B} --memory 40GiB --tokens 2048,8192")
    assert [(row["kv_bytes"], row["max_sequences"]) for row in found["rows"]] == [
        (1 * GIB, 40), (4 * GIB, 10)]
    assert found["fits"] is True and "fixes" not in found
    rows = [line.split() for line in text.splitlines()]
    assert ["2,048", "1", "1024.0", "MiB", "1.0", "GiB", "40", "yes"] in rows
    assert ["8,192", "1", "4096.0", "MiB", "4.0", "GiB", "10", "yes"] in rows


def test_what_does_not_fit_is_status_3_with_fixes_cheapest_first():
    text, found = plan(f"{CLASSIC_7B} --memory 30GiB --tokens 8192 --batch 12", status=3)
    assert found["fits"] is False
    assert found["kv_bytes"] == 48 * GIB and found["max_sequences"] == 7
    assert [(fix["fix"], fix["effect"], fix["cost"]) for fix in found["fixes"]] == [
        ("cap the context to 4k",
         "2.0 GiB each, 15 reserved in full, "
         "24 when paged and the mean real length is at most 2,560",
         "configuration"),
        ("KV type q8_0", "25.5 GiB, 12 fit (28 at 4k), at most 14", "configuration"),
        ("share a 5,000-token prefix (blocks of 32)", "21.2 GiB, 12 fit", "engineering"),
        ("paging alone (blocks on demand)",
         "12 fit while the mean real length is at most 5,120", "engineering"),
        ("a second device of 30.0 GiB", "60.0 GiB >= 48.0 GiB", "money"),
    ]
    assert "need 48.0 GiB" in text
    costs = [line.split()[-1] for line in text.splitlines()
             if line.endswith(("configuration", "engineering", "money"))]
    assert costs == ["configuration", "configuration", "engineering", "engineering", "money"]


def test_the_bill_of_a_cached_prefix():
    text, found = plan(f"{CLASSIC_7B} --prefix-tokens 5000 --calls 100 --read-price 0.1")
    assert (found["uncached_tokens"], found["billed_tokens"]) == (500000, 54500)
    assert "500,000 -> 54,500" in text and "89 % less" in text
    _, found = plan(f"{CLASSIC_7B} --prefix-tokens 5000 --calls 100 --read-price 0.1 "
                    "--write-price 1.25")
    assert found["billed_tokens"] == 55750


def test_a_prefix_used_once_is_a_net_loss_and_the_plan_says_so():
    text, found = plan("--prefix-tokens 5000 --calls 1 --write-price 1.25")
    assert (found["uncached_tokens"], found["billed_tokens"]) == (5000, 6250)
    assert "net loss" in text
    assert found["break_even_calls"] == 2
    assert "kv_bytes_per_token" not in found


@pytest.mark.parametrize("flags, per_token, total", [
    ("--kv-type f16", 147456, 4831838208),
    ("--kv-type q8_0", 78336, 2566914048),
    ("--kv-type q4_0", 41472, 1358954496),
    ("--kv-type-k q8_0 --kv-type-v q4_0", 59904, 1962934272),
])
def test_c22_qwen3(tmp_path, flags, per_token, total):
    path = tmp_path / "qwen3.gguf"
    path.write_bytes(attention_only("qwen3", 36, 2560, 32, 8, 128).header())
    text, found = plan([str(path), *flags.split(), "--tokens", "32768"])
    assert found["kv_bytes_per_token"] == per_token
    assert found["kv_bytes"] == total
    assert f"{per_token:,} bytes of KV a token" in text


def test_c22_gemma3_charges_window_layers_for_their_window(tmp_path):
    path = tmp_path / "gemma3.gguf"
    path.write_bytes(attention_only("gemma3", 18, 640, 4, 1, 256, window=512).header())
    text, found = plan([str(path), "--tokens", "32768"])
    assert found["kv_bytes"] == 108527616
    # The margin of docs/capacity.md: a window touches one block more than it fills.
    assert found["paged_bytes"] == 108527616 + 15 * 2 * 256 * 2 * 32
    assert "the last 512 positions" in text
    _, everything = plan([str(path), "--tokens", "32768", "--window", "0"])
    assert everything["kv_bytes"] == 603979776


def test_c22_a_layout_that_is_not_known_is_an_error(tmp_path):
    path = tmp_path / "mamba.gguf"
    path.write_bytes(attention_only("mamba", 18, 640, 4, 1, 256).header())
    result = run(path)
    assert result.returncode == 2 and result.stdout == ""
    assert result.stderr.count("\n") == 1 and "general.architecture at offset" in result.stderr


def limit_memory():
    resource.setrlimit(resource.RLIMIT_AS, (200 * MIB, 200 * MIB))


def test_c17_a_file_that_lies_costs_one_line(tmp_path):
    path = tmp_path / "lies.gguf"
    for name, data, word in lying_files():
        path.write_bytes(data)
        result = run(path, preexec_fn=limit_memory)
        assert 0 < result.returncode < 128, (name, result)
        assert result.stdout == "", name
        assert result.stderr.count("\n") == 1, (name, result.stderr)
        assert word in result.stderr and str(path) in result.stderr, (name, result.stderr)
        assert " at offset " in result.stderr, (name, result.stderr)


def test_a_model_file_is_enough():
    text, found = plan([str(MODEL)])
    assert found["kv_bytes_per_token"] == 2 * 30 * 3 * 64 * 2
    assert [row["tokens"] for row in found["rows"]] == [1024, 4096, 8192]
    assert found["rows"][2]["kv_bytes"] == 8192 * 23040
    assert found["weight_bytes"] < MODEL.stat().st_size
    assert found["crossover_tokens"] == found["weight_bytes"] // 23040 + 1
    assert "30 layers x 3 KV heads x 64" in text


def test_conversations_of_a_mix_in_1_gib():
    _, found = plan([str(MODEL), "--memory", "1GiB", "--requests", "300/4096,1200/4096,80/4096"])
    assert found["max_requests_naive"] == 11
    assert found["max_requests_paged"] == 85


@pytest.mark.parametrize("arguments, words", [
    ("", "no layout"),
    ("--tokens 2048", "no layout"),
    ("--layers 32 --kv-heads 32 --tokens 1", "--head-dim is missing"),
    (f"{CLASSIC_7B} --tokens 1e3", "--tokens: '1e3' is not a whole number"),
    (f"{CLASSIC_7B} --tokens -5", "--tokens: '-5' is not a whole number"),
    (f"{CLASSIC_7B} --tokens 1,,2", "--tokens: '' is not a whole number"),
    (f"{CLASSIC_7B} --tokens 99999999999999999999", "--tokens: '99999999999999999999'"),
    (f"{CLASSIC_7B} --tokens 0", "--tokens: 0"),
    (f"{CLASSIC_7B} --batch 2", "--batch needs --tokens"),
    (f"{CLASSIC_7B} --tokens 1 --batch 0", "--batch: 0"),
    (f"{CLASSIC_7B} --tokens 1 --memory lots", "--memory: 'lots' is not a size"),
    (f"{CLASSIC_7B} --memory 1GiB", "--memory needs --tokens or --requests"),
    (f"{CLASSIC_7B} --requests 300", "--requests: '300' is not USED/MAXIMUM"),
    (f"{CLASSIC_7B} --requests 5/4", "--requests: 5/4 uses more than its maximum"),
    (f"{CLASSIC_7B} --block-tokens 33", "--block-tokens: 33 is not 16, 32, 64 or 128"),
    (f"{CLASSIC_7B} --kv-type q9", "--kv-type: 'q9' is no KV type"),
    ("--layers 2 --kv-heads 1 --head-dim 80 --kv-type q8_0 --tokens 1",
     "q8_0 packs 32 values together, which does not divide a head of 80"),
    ("--calls 3", "--calls needs --prefix-tokens"),
    ("--prefix-tokens 5 --calls 3 --read-price free", "--read-price: 'free' is not a number"),
    ("--mib-per-token 0 --tokens 5", "--mib-per-token: 0 MiB"),
    ("/nonexistent.gguf", "/nonexistent.gguf: No such file or directory"),
    (f"{MODEL} --layers 3", "--layers: the file says it already"),
    ("--frobnicate", "--frobnicate"),
    (f"{CLASSIC_7B} --tokens", "--tokens"),
])
def test_a_wrong_command_line_is_one_clear_line_and_status_2(arguments, words):
    for extra in [], ["--json"]:
        result = run(*extra, *arguments.split())
        assert result.returncode == 2, result
        assert result.stdout == ""
        assert result.stderr.count("\n") == 1 and words in result.stderr, result.stderr


def test_help_lists_every_flag():
    result = run("--help")
    assert result.returncode == 0
    for flag in ["--tokens", "--batch", "--memory", "--requests", "--mib-per-token",
                 "--block-tokens", "--prefix-tokens", "--calls", "--read-price", "--write-price",
                 "--kv-type-k", "--json"]:
        assert flag in result.stdout


def shown_commands(page):
    """(command, output) of each example of a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```console\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    for block in blocks:
        # A command may go on behind a backslash; its output ends at the next one.
        for part in re.split(r"^\$ ", block.replace("\\\n", ""), flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            yield command, output


@pytest.mark.parametrize("page, least", [("docs/capacity.md", 8), ("docs/learn.md", 8), ("README.md", 1)])
def test_the_pages_about_memory_show_what_the_program_prints(page, least):
    examples = list(shown_commands(page))
    assert len(examples) >= least
    for command, output in examples:
        words = command.removeprefix("build/release/").split()
        assert words[:2] == ["pagewise", "plan"], command
        result = run(*words[2:], cwd=ROOT)
        assert result.returncode == (3 if "Does not fit" in output else 0), command
        assert result.stdout.rstrip() == output.rstrip(), command


def test_a_command_answers_each_of_the_twelve_questions():
    text = (ROOT / "docs/learn.md").read_text(encoding="utf-8")
    questions = re.findall(r"^([0-9]+)\. ", text, flags=re.MULTILINE)
    rows = re.findall(r"^\| ([0-9, ]+) \| `pagewise plan (.*)` \|$", text, flags=re.MULTILINE)
    assert questions == [number for numbers, _ in rows for number in numbers.split(", ")]
    assert len(questions) == 12
    for _, command in rows:
        assert run(*command.split(), cwd=ROOT).returncode in (0, 3), command
