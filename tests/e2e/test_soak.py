# SPDX-License-Identifier: Apache-2.0
"""The judges of tests/soak: each must see what it is there for. The load itself is `./dev soak`."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from conftest import MODEL, PROGRAM, ROOT

sys.path.insert(0, str(ROOT / "tests/soak"))

import answers  # noqa: E402
import crowd  # noqa: E402
import run  # noqa: E402
import verdict  # noqa: E402
import visits  # noqa: E402
import watch  # noqa: E402


def page(**more):
    """A metrics page on which everything holds, but for `more`."""
    values = {"live": 40, "cached": 50, "free": 10, "pool": 100, "leased": 20, "running": 3, "waiting": 2, "slack": 9,
              "usage": 0.4, "hits": 10, "queries": 100, "resizes": 1, "committed": 90, "pool_bytes": 100, **more}
    return watch.parse_metrics(f"""# HELP pagewise_kv_blocks by state
pagewise_kv_blocks{{model_name="m",state="live"}} {values["live"]}
pagewise_kv_blocks{{model_name="m",state="cached"}} {values["cached"]}
pagewise_kv_blocks{{model_name="m",state="free"}} {values["free"]}
pagewise_kv_pool_blocks{{model_name="m"}} {values["pool"]}
pagewise_kv_leased_blocks{{model_name="m"}} {values["leased"]}
pagewise_kv_slack_tokens{{model_name="m"}} {values["slack"]}
pagewise_kv_pool_resizes_total{{model_name="m"}} {values["resizes"]}
pagewise_kv_committed_bytes{{model_name="m"}} {values["committed"]}
pagewise_kv_pool_bytes{{model_name="m"}} {values["pool_bytes"]}
vllm:kv_cache_usage_perc{{model_name="m"}} {values["usage"]}
vllm:num_requests_running{{model_name="m"}} {values["running"]}
vllm:num_requests_waiting{{model_name="m"}} {values["waiting"]}
vllm:prefix_cache_hits_total{{model_name="m"}} {values["hits"]}
vllm:prefix_cache_queries_total{{model_name="m"}} {values["queries"]}
""")


def test_a_page_that_adds_up_breaks_nothing():
    assert watch.broken_invariants(page(), page(hits=9)) == []
    assert watch.broken_invariants(page(pool=101, free=11, resizes=2), page()) == []


@pytest.mark.parametrize("planted, words", [
    ({"live": 41}, "not the pool's"), ({"free": 9}, "not the pool's"), ({"pool": 101, "free": 11}, "nobody resized"),
    ({"leased": 51}, "more than a share"), ({"live": 0, "cached": 10, "free": 90, "slack": 0}, "hold anything"),
    ({"running": 999}, "requests run"), ({"waiting": 999}, "requests wait"), ({"slack": 40 * 16 + 1}, "slack"),
    ({"usage": 1.1}, "usage"), ({"committed": 101}, "in use"), ({"hits": 8}, "went back"), ({"hits": 101}, "looked up"),
])
def test_a_planted_fault_on_the_metrics_page_is_seen(planted, words):
    found = watch.broken_invariants(page(**planted), page(hits=9))
    assert any(words in sentence for sentence in found), found


def test_growth_of_memory_is_told_from_noise():
    flat = [300, 340] + [500, 502, 499, 501] * 6  # the warm-up is not judged
    assert abs(verdict.growth(flat)["growth_percent"]) < 0.5
    assert abs(verdict.growth([*flat[:-1], 900])["growth_percent"]) < 0.5, "one burst decides nothing"
    leak = [500 + i for i in range(40)]
    assert verdict.growth(leak)["growth_percent"] > 2
    step = [500] * 20 + [520] * 20
    assert verdict.growth(step)["growth_percent"] > 2
    assert verdict.growth([500, 500]) is None


STREAM = [b'data: {"choices": [{"index": 0, "text": "a", "logprobs": null, "finish_reason": null}]}\n\n',
          b'data: {"choices": [{"index": 0, "text": "b", "logprobs": null, "finish_reason": "stop"}]}\n\n',
          b'data: {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5, '
          b'"prompt_tokens_details": {"cached_tokens": 2}}}\n\n', b"data: [DONE]\n\n"]
BODY = {"stream": True, "max_tokens": 2, "stream_options": {"include_usage": True}}


def read(stream):
    reader = answers.StreamReader(200)
    for piece in stream:
        reader.feed(piece)
    return reader.finish()


def test_a_whole_stream_is_read_and_judged_whole():
    answer = read(STREAM)
    assert answers.check(BODY, answer) == []
    assert answer.bits() == ([(0, "ab", "stop", [])], 2)


@pytest.mark.parametrize("spoilt, words", [
    (STREAM[:-1], "without an end"), (STREAM[1:2] * 2 + STREAM[2:], "ended twice"),
    (STREAM[:1] + STREAM[2:], "no reason"), ([*STREAM, STREAM[0]], "behind the last"),
    (STREAM[:3] + STREAM[2:], "two usage"), (STREAM[:2] + STREAM[3:], "without usage"),
    ([b'data: {"error": {"message": "m"}}\n\n'], "an error in the stream"), ([b"data: \xff\n\n"], "a bad event"),
    ([s.replace(b'"cached_tokens": 2', b'"cached_tokens": 3') for s in STREAM], "cached"),
    ([s.replace(b'"total_tokens": 5', b'"total_tokens": 6') for s in STREAM], "add up"),
])
def test_a_spoilt_stream_is_seen(spoilt, words):
    problems = answers.check(BODY, read(spoilt))
    assert any(words in problem for problem in problems), problems


def test_answers_that_differ_in_one_logprob_differ():
    one, other = [(0, "ab", "stop", [["a", -1.5, {}]])], [(0, "ab", "stop", [["a", -1.25, {}]])]
    assert "token 0" in run.first_difference(one, other)
    assert "'ab'" in run.first_difference([(0, "ab", "stop", [])], [(0, "ac", "stop", [])])


def test_the_same_seed_draws_the_same_visits_and_every_kind_occurs():
    def drawn(seed):
        world = visits.World(seed, True, 1 << 25, crowd.make_random)
        out = []
        for number in range(1500):
            draw = crowd.make_random(f"{seed}/{number}")
            out.append(crowd.Swarm(seed, 0).draw_kind(draw)(visits.Draw(draw, world)))
        return out

    first = drawn(7)
    assert [v.describe() for v in first[:100]] == [v.describe() for v in drawn(7)[:100]]
    assert [v.bytes() for v in first[:100]] != [v.bytes() for v in drawn(8)[:100]]
    assert len({v.kind for v in first}) == len(visits.KINDS) - 3, "resized, cleared and predicted are operated, forbidden is malformed"


def soak(*flags, program=PROGRAM):
    return subprocess.run([sys.executable, str(ROOT / "tests/soak"), *map(str, flags)], capture_output=True, text=True,
                          check=False, env={**os.environ, "PAGEWISE_BIN": str(program)}, timeout=240)


def test_a_mistake_on_the_command_line_is_one_line():
    for flags in (["--model", "nothing.gguf"], ["--minutes", "0"], ["--clients", "0"]):
        done = soak(*flags)
        assert done.returncode == 2 and flags[0] in done.stderr


def test_a_server_that_dies_under_load_fails_the_run_and_leaves_its_log(tmp_path):
    broken = tmp_path / "pagewise"
    broken.write_text(f'#!/bin/sh\n[ "$1" = serve ] || exec {PROGRAM} "$@"\n'
                      f'(sleep 8; kill -KILL $$) & exec {PROGRAM} "$@"\n', encoding="utf-8")
    broken.chmod(0o755)
    result = tmp_path / "result.json"
    done = soak("--minutes", "0.3", "--model", MODEL, "--json", result, "--clients", "4", program=broken)
    assert done.returncode == 1, done.stdout
    assert "status -9" in done.stderr
    found = json.loads(result.read_text())
    assert not found["held"] and "status -9" in found["servers"][0]["violations"][0]["what"]
    folder = pathlib.Path(done.stderr.splitlines()[-1].rsplit(" ", 1)[1]) / MODEL.stem
    assert "address" in (folder / "server.log").read_text()
    assert json.loads((folder / "last-requests.jsonl").read_text().splitlines()[-1])["visit"]
    shutil.rmtree(folder.parent)
