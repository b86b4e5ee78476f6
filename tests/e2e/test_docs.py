# SPDX-License-Identifier: Apache-2.0
"""The documents name what the program has: docs/flags.md every flag, ARCHITECTURE.md every folder,
README only verbs of ./dev that exist."""

import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = pathlib.Path(os.environ.get("PAGEWISE", ROOT / "build/release/pagewise"))
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def sections():
    """{subcommand: its part of docs/flags.md}"""
    parts = re.split(r"^## pagewise (\w+).*$", read("docs/flags.md"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2]))


@pytest.mark.parametrize("command", ["models", "plan", "simulate", "inspect", "run", "chat", "serve", "explain", "bench"])
def test_flags_page_lists_exactly_the_flags_of(command):
    done = subprocess.run([PROGRAM, command, "--help"], capture_output=True, text=True, check=True)
    # An option stands at the start of its line; the same words in a description do not count.
    has = {flag for line in done.stdout.splitlines() if line.lstrip().startswith("-")
           for flag in FLAG.findall(line.split("  ")[0] or line.split("  ")[1])} - {"--help"}
    rows = [line.split(" | ")[0] for line in sections()[command].splitlines() if
            line.startswith("| `")]
    assert set(FLAG.findall("\n".join(rows))) == has and len(has) > 1


def test_architecture_names_every_folder_of_the_source():
    text = read("ARCHITECTURE.md")
    folders = [p.name for p in (ROOT / "src").iterdir() if p.is_dir()]
    assert len(folders) > 8
    assert not [name for name in folders if f"`src/{name}`" not in text]


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "examples/README.md"])
def test_verbs_in_the_documents_exist(page):
    listed = subprocess.run([ROOT / "dev", "help"], capture_output=True, text=True, check=True)
    verbs = set(re.findall(r"^  (\w+)", listed.stdout, re.MULTILINE)) | {"VERB"}
    used = set(re.findall(r"\./dev (\w+)", read(page)))
    assert used and used <= verbs


def named_tests():
    """(file, test) of each rule of docs/prompt-caching.md."""
    return re.findall(r"`((?:src|tests)/[\w/]+\.(?:cc|py)):([\w.]+)`", read("docs/prompt-caching.md"))


def is_defined(file, test):
    text = read(file)
    if file.endswith(".py"):
        return re.search(rf"^def {re.escape(test)}\(", text, re.MULTILINE) is not None
    suite, name = test.split(".")
    return re.search(rf"^TEST(_F|_P)?\({suite}, {name}\)", text, re.MULTILINE) is not None


def test_every_rule_of_the_caching_contract_names_tests_that_exist():
    page = read("docs/prompt-caching.md")
    rows = [line for line in page.splitlines() if line.startswith("| ") and not line.startswith(("| ---", "| rule"))]
    assert len(rows) > 50
    assert not [row for row in rows if not re.search(r"`(src|tests)/[^`]+:[^`]+`", row)], "a rule without a test"
    assert all(re.search(rf"\bB{n}\b|B1 to B14", page) for n in range(1, 15)) and "C7" in page
    assert not [f"{file}:{test}" for file, test in named_tests() if not is_defined(file, test)]
    assert not is_defined("tests/e2e/test_docs.py", "test_that_is_none")
