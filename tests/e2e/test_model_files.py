# SPDX-License-Identifier: Apache-2.0
"""Model files that are wrong in a way the format allows: keys that are missing, of another type, or
make no sense together, and tensors of other shapes. Whatever a file says, `run` and `plan` answer it
or refuse it with one line; they never end by a signal. C17's lying headers through `run`, too
(test_plan.py and test_serve_command.py have the other commands).
"""

import json
import math
import resource
import subprocess

import httpx2
import pytest

from conftest import MODEL, PROGRAM, ROOT, serving
from gguf_writer import (ARRAY, BOOL, F32, I32, STRING, U32, U64, TinyModel, lying_files)

MIB = 2**20


def ask(command, path, **options):
    words = {"run": ["run", path, "-p", "hello <|im_end|>", "-n", "2", "--threads", "1"],
             "plan": ["plan", path]}[command]
    return subprocess.run([PROGRAM, *map(str, words)], capture_output=True, timeout=60, **options)


def limit_memory():
    resource.setrlimit(resource.RLIMIT_AS, (200 * MIB, 200 * MIB))


def test_c17_run_refuses_a_file_that_lies_with_one_line(tmp_path):
    path = tmp_path / "lies.gguf"
    for name, data, word in lying_files():
        path.write_bytes(data)
        result = ask("run", path, preexec_fn=limit_memory)
        line = result.stderr.decode()
        assert 0 < result.returncode < 128 and result.stdout == b"", (name, result)
        assert line.count("\n") == 1 and word in line and " at offset " in line, (name, line)


def changed_keys(name, kind, content):
    """Other keys in the place of this one; None: without it."""
    yield None
    if kind in (U32, BOOL):
        for number in [0, 1, 3, 65, 300, 2**32 - 1]:
            yield name, U32, number
        yield name, I32, -1
        yield name, U64, 2**63
    if kind == F32:
        for number in [0.0, -1.0, math.inf, math.nan]:
            yield name, F32, number
    if kind == STRING:
        for text in ["", b"\xff\xfe\x00\n", "a\nb", "a" * 100000]:
            yield name, STRING, text
        yield name, U32, 7
    else:
        yield name, STRING, "x"
    if kind == ARRAY:
        element, items = content
        for other in [[], items[:1], items[:-1], items + items, items[::-1]]:
            yield name, ARRAY, (element, other)
        if element == STRING:
            for text in [b"\xff\xfe", "a", "", "a b c"]:
                yield name, ARRAY, (STRING, [text] * len(items))
        else:
            for number in [-1, 3, 6, 99]:
                yield name, ARRAY, (element, [number] * len(items))
    else:
        yield name, ARRAY, (U32, [1, 2])


def changed_tensors(name, shape, kind):
    yield None
    for other in [[], [1], shape[:1], shape[::-1], shape + [1], shape + [2], [shape[0] + 32, *shape[1:]],
                  [shape[0] // 2, *shape[1:]]]:
        yield name, other, kind
    for other in [1, 2, 9, 12, 24, 39]:
        yield name, shape, other


def variants():
    model = TinyModel()
    for index, key in enumerate(model.keys):
        for change in changed_keys(*key):
            other = TinyModel()
            other.keys[index:index + 1] = [] if change is None else [change]
            yield f"{key[0]} -> {str(change)[:80]}", other
    for index, tensor in enumerate(model.tensors[:5]):
        for change in changed_tensors(*tensor):
            other = TinyModel()
            other.tensors[index:index + 1] = [] if change is None else [change]
            yield f"{tensor[0]} -> {change}", other


def test_a_model_file_that_makes_no_sense_is_refused_with_one_line_or_runs(tmp_path):
    path = tmp_path / "tiny.gguf"
    path.write_bytes(TinyModel().bytes())
    assert ask("run", path).returncode == 0  # or all refusals below would prove nothing
    outcomes = {"run": [0, 0], "plan": [0, 0]}
    for name, model in variants():
        path.write_bytes(model.bytes())
        for command, counts in outcomes.items():
            result = ask(command, path)
            assert 0 <= result.returncode < 128, (command, name, result)
            counts[result.returncode != 0] += 1
            if result.returncode != 0:
                assert result.stdout == b"", (command, name)
                assert result.stderr.count(b"\n") == 1, (command, name, result.stderr)
    for command, (accepted, refused) in outcomes.items():
        assert accepted > 20 and refused > 50, (command, accepted, refused)


def test_scores_that_are_not_numbers_are_an_error_and_not_an_answer(tmp_path):
    model = TinyModel()
    model.factors["output_norm.weight"] = 3e38  # finite, as the loader asks; its products are not
    path = tmp_path / "overflows.gguf"
    path.write_bytes(model.bytes())
    result = ask("run", path)
    line = result.stderr.decode()
    assert 0 < result.returncode < 128 and result.stdout == b"", result
    assert line.count("\n") == 1 and "not numbers" in line, line
    body = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hello"}]}
    with serving("--alias", "m", "--chat-template", ROOT / "tests/templates/chatml.jinja", model=path) as server:
        for route, kind in [("/v1/messages", "api_error"), ("/v1/chat/completions", "server_error")]:
            answer = server.post(route, body)
            assert answer.status_code == 500, answer.text
            assert answer.json()["error"]["type"] == kind, answer.text
            assert "not numbers" in answer.json()["error"]["message"], answer.text
            with httpx2.stream("POST", server.base + route, json=body | {"stream": True}) as stream:
                text = "".join(stream.iter_text())
            assert "not numbers" in text, text
        assert server.blocks()["live"] == 0


@pytest.mark.parametrize("flags", [[], ["--block-tokens", "16"]])
def test_the_plan_is_what_the_server_allocates(flags):
    """C22, last sentence: as many blocks as planned, and as many conversations."""
    memory = "96MiB"

    def planned(tokens):
        done = subprocess.run([PROGRAM, "plan", MODEL, *flags, "--memory", memory, "--json",
                               "--tokens", str(tokens)], capture_output=True, check=True)
        return json.loads(done.stdout)

    block_tokens = int(flags[1]) if flags else 32
    with serving("--kv-memory", memory, *flags) as server:
        assert server.blocks()["pool"] == planned(block_tokens)["max_sequences"]
        assert f'{planned(1)["kv_bytes_per_token"] / 1024:.1f} KiB' in server.log()
