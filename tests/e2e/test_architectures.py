# SPDX-License-Identifier: Apache-2.0
"""Every architecture through the program: the tiny models of tests/golden/architectures."""

import json
import re
import subprocess

import pytest

from conftest import PROGRAM, ROOT

FOLDER = ROOT / "tests/golden/architectures"
FAMILIES = sorted(path.stem for path in FOLDER.glob("*.gguf"))


def pagewise(verb, family, *flags):
    done = subprocess.run([PROGRAM, verb, FOLDER / f"{family}.gguf", *map(str, flags), "--json"],
                          capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("family", FAMILIES)
def test_it_is_served_and_its_bits_do_not_depend_on_the_cache(family):
    found = pagewise("inspect", family)
    assert found["served"] and found["problems"] == []
    assert len(found["layer_kinds"]) == found["layers"]
    flags = ["-p", "the rest of it is in another tin", "-n", 8, "--logprobs", 5]
    cached = pagewise("run", family, *flags)
    assert len(cached["tokens"]) <= 8 and cached["logprobs"]
    for change in (["--recompute"], ["--threads", 1], ["--block-tokens", 16]):
        other = pagewise("run", family, *flags, *change)
        assert (other["tokens"], other["logprobs"]) == (cached["tokens"], cached["logprobs"]), change


def test_the_layers_that_slide_are_shown():
    assert pagewise("inspect", "gemma2")["layer_kinds"] == ["sliding 20", "full"]
    assert pagewise("inspect", "cohere2")["layer_kinds"] == ["sliding 20"] * 3 + ["full"]
    assert pagewise("inspect", "mistral")["layer_kinds"] == ["sliding 20"] * 2
    assert pagewise("inspect", "gpt-oss")["layer_kinds"] == ["sliding 20", "full"]
    assert pagewise("inspect", "mixtral")["experts"] == 6


def test_the_documents_name_every_architecture():
    served = {pagewise("inspect", family)["architecture"] for family in FAMILIES}
    in_readme = set(re.findall(r"^\| `([\w-]+)` \| ", (ROOT / "README.md").read_text(), re.MULTILINE))
    assert served <= in_readme
    table = re.findall(r"^\| ([\w-]+) \| `([\w-]+)` \| ", (ROOT / "docs/architectures.md").read_text(), re.MULTILINE)
    assert {name for name, _ in table} == set(FAMILIES)
    assert {architecture for _, architecture in table} == served
