# SPDX-License-Identifier: Apache-2.0
"""Mistakes on the command line, of every subcommand: one line that names the subcommand and what was wrong, no
output, a status that says so."""

import subprocess

import pytest

from conftest import MODEL, PROGRAM

COMMANDS = {"run": ["-p", "x", "-n", "1"], "chat": [], "serve": ["--port", "0"], "plan": [], "inspect": []}


def call(*words, **options):
    options = {"stdin": subprocess.DEVNULL, "capture_output": True, "timeout": 60, **options}
    return subprocess.run([PROGRAM, *map(str, words)], **options)


def refused(*words, status=(1, 2)):
    done = call(*words)
    line = done.stderr.decode()
    assert done.returncode in status and done.stdout == b"" and line.count("\n") == 1, (words, done)
    return line


def test_a_command_that_is_none_is_answered_with_those_that_are():
    for words in ([], ["frobnicate"], ["--frobnicate"]):
        line = refused(*words, status=(2,))
        assert all(name in line for name in COMMANDS) and all(word in line for word in words)


@pytest.mark.parametrize("command", COMMANDS)
def test_files_that_are_no_model(command, tmp_path):
    text = tmp_path / "notes.txt"
    text.write_text("These are notes.\n")
    for path, words in [("/nonexistent.gguf", "/nonexistent.gguf: No such file"), (tmp_path, "not a regular file"),
                        (text, "not a GGUF file"), ("/dev/null", "not a regular file"), ("", "")]:
        line = refused(command, path, *COMMANDS[command])
        assert line.startswith(f"pagewise {command}: ") and words in line


@pytest.mark.parametrize("command", COMMANDS)
def test_words_that_do_not_belong(command):
    flags = COMMANDS[command]
    assert "no flag --frobnicate" in refused(command, MODEL, *flags, "--frobnicate", "7", status=(2,))
    assert "no flag --frobnicate" in refused(command, MODEL, *flags, "--frobnicate=7", status=(2,))
    assert "'extra' is one argument too many" in refused(command, MODEL, "extra", *flags, status=(2,))
    if command != "plan":
        assert "MODEL is missing" in refused(command, *flags, status=(2,))


VALUES = {
    "--threads": ["-1", "1x", "", "99999999999", "1.5"],
    "--seed": ["-1", "18446744073709551616", "0x10"],
    "--top-k": ["-1", "4294967296"],
    "--temp": ["nan", "-1", "hot", "1e9"],
    "--top-p": ["nan", "2", "-0.1"],
    "--min-p": ["inf", ""],
    "--tokens": ["0", "-5", "1e3"],
    "--logprobs": ["-1", "101"],
    "--max-tokens": ["-5", "1e3"],
    "--max-context": ["1", "-1", "lots"],
    "--kv-memory": ["1x", "-1GiB", "lots", ""],
    "--kv-type": ["q3", ""],
    "--kv-type-k": ["q4_0", ""],
    "--kv-type-v": ["Q8_0"],
    "--block-tokens": ["0", "33", "x"],
    "--port": ["65536", "-1", "http"],
    "--max-seqs": ["0", "4097"],
    "--max-queue": ["-1"],
    "--cache-min-tokens": ["-1", "", "sonnet", "4294967296"],
    "--cache-mode": ["", "Strict", "vendor"],
    "--lease-5m": ["0", "nan"],
    "--lease-share": ["1.1", "nan"],
}
OF = {"run": ["--threads", "--seed", "--top-k", "--temp", "--top-p", "--min-p", "--tokens", "--logprobs", "--kv-type",
              "--kv-type-k", "--kv-type-v", "--block-tokens"],
      "chat": ["--threads", "--seed", "--top-k", "--temp", "--top-p", "--min-p", "--max-tokens", "--max-context",
               "--kv-memory", "--kv-type", "--kv-type-k", "--kv-type-v", "--block-tokens"],
      "serve": ["--threads", "--max-context", "--kv-memory", "--kv-type", "--kv-type-k", "--kv-type-v", "--block-tokens",
                "--port", "--max-seqs", "--max-queue", "--cache-min-tokens", "--cache-mode", "--lease-5m",
                "--lease-share"]}


@pytest.mark.parametrize("command", OF)
def test_values_that_make_no_sense_name_their_flag(command):
    for flag in OF[command]:
        for value in VALUES[flag]:
            line = refused(command, MODEL, *COMMANDS[command], f"{flag}={value}", status=(2,))
            assert line.startswith(f"pagewise {command}: {flag}: ") and value in line, line
        assert f"{flag}: its value is missing" in refused(command, MODEL, *COMMANDS[command], flag, status=(2,))


def test_log_probabilities_need_a_form_that_has_them():
    assert "--json" in refused("run", MODEL, "-p", "x", "--logprobs", "3", status=(2,))


def test_of_two_equal_flags_the_last_counts():
    done = call("run", MODEL, "-p", "no", "-p", "The capital of France is", "-n", "9", "-n", "1", "--json")
    assert done.returncode == 0 and b'"prompt_tokens":5' in done.stdout


@pytest.mark.parametrize("command", ["run", "plan", "inspect"])
def test_output_that_cannot_be_written_is_a_failure(command):
    with open("/dev/full", "wb") as full:
        done = call(command, MODEL, *COMMANDS[command], capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 1 and done.stderr.decode().splitlines()[-1] == (
        f"pagewise {command}: cannot write to standard output: No space left on device")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_for_people(command):
    done = call(command, "--help")
    text = done.stdout.decode()
    assert done.returncode == 0 and done.stderr == b"" and f"pagewise {command} [OPTIONS]" in text
    for noise in ("UINT", "FLOAT", "REQUIRED", "{"):
        assert noise not in text
