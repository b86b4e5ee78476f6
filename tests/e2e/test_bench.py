# SPDX-License-Identifier: Apache-2.0
"""The benchmark harness: its arithmetic, its tables, and that its verbs run. What it measures is asserted nowhere."""

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import threading
import xml.etree.ElementTree

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = pathlib.Path(os.environ.get("PAGEWISE_BIN", ROOT / "build/release/pagewise"))
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "bench/serve")]

import capacity
import client
import figures
import kv_curve
import limits
import peers
import prompts
import rows


def run(script, *arguments):
    done = subprocess.run([sys.executable, ROOT / "bench" / script, *map(str, arguments)], capture_output=True, text=True,
                          timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def result_of(folder):
    paths = sorted(pathlib.Path(folder).glob("*.json"))
    assert len(paths) == 1
    return json.loads(paths[0].read_text()), paths[0].with_suffix(".md").read_text()


def test_the_ratio_is_taken_round_by_round_because_rounds_were_taken_in_turns():
    ours, theirs = figures.summary([10, 30, 20]), figures.summary([5, 10, 20])
    assert figures.ratio(ours, theirs)["rounds"] == [2, 3, 1]
    assert figures.ratio(ours, theirs)["median"] == 2


def test_sides_with_unequal_numbers_of_rounds_are_compared_by_their_medians():
    assert figures.ratio(figures.summary([4, 6, 8]), figures.summary([3]))["rounds"] == [2]


@pytest.mark.parametrize("more_is_better, best", [(True, "b"), (False, "a")])
def test_the_better_peer_is_the_one_with_the_better_median_and_one_without_a_figure_is_none(more_is_better, best):
    sides = {"a": figures.summary([1, 2, 3]), "b": figures.summary([2, 3, 1000]), "c": None}
    assert figures.better(sides, more_is_better) == best
    assert figures.better({"c": None}, more_is_better) is None


@pytest.mark.parametrize("value, bar, more, share, said", [
    (1.8, 1.8, True, None, "met"), (1.79, 1.8, True, 0.5, "missed"), (1.79, 1.8, True, 0.85, "met by the limit"),
    (0.6, 0.6, False, None, "met"), (0.61, 0.6, False, 0.2, "missed"), (0.61, 0.6, False, 0.9, "met by the limit"),
    (1.0, None, True, None, ""), (None, 1.8, True, None, "")])
def test_a_bar_is_met_by_the_ratio_or_by_being_near_the_machines_limit(value, bar, more, share, said):
    assert figures.verdict(value, bar, more, share) == said


def test_the_share_of_a_limit_is_one_at_the_limit_for_rates_and_for_times():
    assert figures.share_of_limit(150, 300, True) == 0.5
    assert figures.share_of_limit(20, 10, False) == 0.5


def test_tables_escape_what_would_end_a_cell():
    assert figures.table(["a"], [["x|y"], [1234.5]]) == ["| a |", "| --- |", "| x\\|y |", "| 1,234 |", ""]


def test_kernel_tables_hold_every_row_that_was_measured(tmp_path):
    run("kernels.py", "--quick", "--threads", 1, "--types", "Q8_0", "--only", "limits,linear,look-up", "--programs",
        PROGRAM.parent / "bench", "--results", tmp_path)
    facts, text = result_of(tmp_path)
    linear = [row for row in facts["rows"] if row["table"] == "linear"]
    assert [row["rows"] for row in linear] == [1, 2, 4, 8, 32, 512]
    assert {row["type"] for row in linear} == {"Q8_0"}
    assert facts["quick"] and "mean nothing" in text
    assert all(facts[key] for key in ("commit", "cpu", "isa", "command"))
    assert "| Q8_0 | 30 |" in text and "the same prompt again" in text


# ---------------------------------------------------------------- limits, rows and prompts

GEMMA_LIKE = {  # two layers, one of them with a window of 4
    "heads": 2,
    "kv": {"token_bytes": 32, "groups": [{"layers": 1, "window": 4, "token_bytes": 16, "key_dim": 8, "value_dim": 8},
                                         {"layers": 1, "window": 0, "token_bytes": 16, "key_dim": 8, "value_dim": 8}]},
    "tensors": {"list": [{"name": "token_embd.weight", "shape": [4, 10], "bytes": 40},
                         {"name": "blk.0.ffn_up.weight", "shape": [4, 6], "bytes": 24},
                         {"name": "blk.0.attn_norm.weight", "shape": [4], "bytes": 16}]}}


def machine(read, fma, dot):
    return limits.Machine({"read_gb_per_s": read / 1e9, "fma_gflop_per_s": fma / 1e9, "dot_gop_per_s": dot / 1e9})


def test_a_step_is_bound_by_reading_weights_and_keys_or_by_multiplying_them():
    model = limits.Model(GEMMA_LIKE)
    reading = limits.step_s(machine(read=1, fma=1e30, dot=1e30), model, 9, 1)
    assert reading == pytest.approx(24 + 40 + (4 + 1) * 16 + 10 * 16)  # a row with a window reads no more than it
    multiplying = limits.step_s(machine(read=1e30, fma=1, dot=1), model, 9, 1)
    assert multiplying == pytest.approx(2 * (24 + 40) + 2 * (2 * 16) * (4 + 10))


def test_a_latent_row_is_multiplied_whole_and_again_as_far_as_it_is_a_value():
    latent = {
        "heads": 3,
        "kv": {"token_bytes": 20, "groups": [{"layers": 1, "window": 0, "token_bytes": 20, "key_dim": 10, "value_dim": 0}]},
        "tensors": {"list": [{"name": "token_embd.weight", "shape": [4, 10], "bytes": 40},
                             {"name": "blk.0.attn_kv_a_norm.weight", "shape": [8], "bytes": 32},
                             {"name": "blk.0.attn_k_b.weight", "shape": [5, 8, 3], "bytes": 120},
                             {"name": "blk.0.attn_v_b.weight", "shape": [8, 6, 3], "bytes": 144}]}}
    multiplying = limits.step_s(machine(read=1e30, fma=1, dot=1), limits.Model(latent), 9, 1)
    assert multiplying == pytest.approx(2 * (120 + 144 + 40) + 2 * 3 * (10 + 8) * 10)
    reading = limits.step_s(machine(read=1, fma=1e30, dot=1e30), limits.Model(latent), 9, 1)
    assert reading == pytest.approx(120 + 144 + 40 + 10 * 20)


def test_what_sequences_share_is_read_once_and_multiplied_for_each():
    model, slow_read = limits.Model(GEMMA_LIKE), machine(read=1, fma=1e30, dot=1e30)
    alone = limits.step_s(slow_read, model, 99, 1, sequences=3)
    shared = limits.step_s(slow_read, model, 99, 1, sequences=3, shared=90)
    assert alone - shared == pytest.approx(2 * 90 * 16 + 2 * 5 * 16)
    slow_products = machine(read=1e30, fma=1, dot=1)
    assert limits.step_s(slow_products, model, 99, 1, 3) == limits.step_s(slow_products, model, 99, 1, 3, shared=90)


def test_rows_are_chosen_by_key_or_group_and_an_unknown_word_names_those_that_exist():
    assert [row.key for row in rows.chosen(["gemma", "decode-4096"])] == ["decode-4096", "gemma-decode", "gemma-prefill-512"]
    assert rows.chosen([]) == rows.ROWS
    with pytest.raises(ValueError, match="no row decoed; there are decode-short"):
        rows.chosen(["decoed"])


def test_prompts_have_the_length_that_was_asked_for_and_share_no_beginning():
    made = prompts.Prompts(lambda text: [len(text), *text.encode()][-2:], 1)
    drawn = [made.of(length, label) for length in (100, 101) for label in ("a", "b")]
    assert [len(ids) for ids in drawn] == [100, 100, 101, 101]
    assert len({tuple(ids[:24]) for ids in drawn}) == 4
    assert drawn[0] == made.of(100, "a")


def test_a_stream_is_read_into_tokens_a_second_and_what_was_cut_off_is_not_complete():
    def event(**fields):
        return b"data: " + json.dumps(fields).encode()
    usage = {"completion_tokens": 3, "prompt_tokens": 7, "prompt_tokens_details": {"cached_tokens": 5}}
    received = [(0.9, b"HTTP/1.1 200 OK\r\n"), (0.9, b"Server-Timing: lookup;dur=0.1\r\n"), (1.0, event(choices=[{"text": "a"}])),
                (2.0, event(choices=[{"text": "b"}])), (3.0, event(choices=[{"text": "c"}])),
                (3.0, event(choices=[], usage=usage)), (3.0, b"data: [DONE]\n")]
    timing = client.timing_of(0.5, received)
    assert (timing.first_s, timing.decode_per_s, timing.tokens, timing.cached) == (0.5, 1.0, 3, 5)
    assert timing.complete and timing.headers["server-timing"] == "lookup;dur=0.1"
    assert not client.timing_of(0.5, received[:4]).complete


def test_a_line_has_the_time_of_the_read_that_ended_it():
    reads = [(1.0, b"HTTP/1.1 200 OK\r\n\r"), (2.0, b"\ndata: a"), (3.0, b"b\ndata: c\n\nda"), (4.0, b"ta")]
    assert client.lines_of(reads) == [(1.0, b"HTTP/1.1 200 OK\r\n"), (2.0, b"\r\n"), (3.0, b"data: ab\n"),
                                      (3.0, b"data: c\n"), (3.0, b"\n"), (4.0, b"data")]
    assert client.lines_of([]) == []


def test_streams_are_read_side_by_side_and_given_up_when_they_last_too_long():
    head = b'HTTP/1.1 200 OK\r\n\r\ndata: {"choices": [{"text": "x"}]}\n\n'
    given_up = threading.Event()

    def serve(listener):
        with contextlib.ExitStack() as until_the_end:
            for answer in [head, head + b"data: [DONE]\n\n", head + b"data: [DONE]\n\n"]:
                connection = until_the_end.enter_context(listener.accept()[0])
                connection.recv(1 << 16)
                connection.sendall(answer)
                if answer != head:
                    connection.shutdown(socket.SHUT_WR)
            given_up.wait(60)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=[listener])
        thread.start()
        timings = client.generate(listener.getsockname()[1], [client.Request([1], 1)] * 3, "gpt-x", limit_s=1)
        given_up.set()
        thread.join()
    assert [timing.complete for timing in timings] == [False, True, True]  # in their order
    assert [timing.text for timing in timings] == ["x", "x", "x"]


def test_the_table_says_where_a_bar_is_met_missed_or_an_engine_came_to_no_end():
    row = next(row for row in rows.ROWS if row.key == "shared-32")
    met = peers.row_report(row, {"pagewise": [30, 31], "OpenVINO": [10, 10], "llama.cpp": "> 60 s (3 of 1024 tokens)"}, 100)
    missed = peers.row_report(row, {"pagewise": [20, 20], "OpenVINO": [10, 10]}, 100)
    assert (met["must_verdict"], missed["must_verdict"], met["better_peer"]) == ("met", "missed", "OpenVINO")
    lines = "\n".join(peers.table_lines([met, missed], ["llama.cpp", "OpenVINO"]))
    assert "> 60 s (3 of 1024 tokens)" in lines and ">= 2.5x: missed" in lines


def test_kv_memory_is_held_against_the_limit_and_not_against_a_peer():
    row = next(row for row in rows.ROWS if row.key == "kv-shared")
    report = peers.row_report(row, {"pagewise": [125], "llama.cpp": [3300]}, 100)
    assert report["must_verdict"] == "met" and report["ratio"] is None


def test_the_mix_of_conversations_fills_the_pool_and_one_more_does_not_fit():
    fit = capacity.most_that_fit(23040)
    blocks = 2**30 // (32 * 23040)
    assert capacity.blocks_of(capacity.conversations(fit), 32) <= blocks
    assert capacity.blocks_of(capacity.conversations(fit + 1), 32) > blocks
    assert fit >= capacity.HELD_MUST


def test_the_picture_is_xml_with_a_line_for_each_series():
    points = [{"tokens": n, "cached": {"median": 3.0}, "recomputed": {"median": n / 10}} for n in (64, 512, 1024)]
    picture = xml.etree.ElementTree.fromstring(kv_curve.picture(points, "kv-<commit>.json"))
    lines = picture.findall("{http://www.w3.org/2000/svg}polyline")
    assert [len(line.get("points").split()) for line in lines] == [3, 3]


# ---------------------------------------------------------------- the verbs, on our server alone, as short as they go


def test_whole_system_rows_run_on_our_server_alone(tmp_path):
    run("serve/peers.py", "--pagewise", PROGRAM, "--llama-server", "none", "--openvino-python", "none", "--rounds", 1, "--rows",
        "decode-short,batch-32", "--results", tmp_path)
    facts, text = result_of(tmp_path)
    assert [row["key"] for row in facts["rows"]] == ["decode-short", "batch-32"]
    assert all(row["figures"]["pagewise"]["median"] > 0 and row["limit"] > 0 for row in facts["rows"])
    assert "Fewer than three rounds" in text and "pagewise serve models/" in text


def test_overhead_tells_threads_by_name(tmp_path):
    run("serve/overhead.py", "--pagewise", PROGRAM, "--streams", 3, "--tokens", 8, "--prompt-tokens", 200, "--rounds", 1,
        "--look-ups", 2, "--starts", 1, "--warm-requests", 2, "--results", tmp_path)
    facts, _ = result_of(tmp_path)
    assert {"engine", "compute", "network", "log"} <= set(facts["figures"]["thread_seconds"])
    assert len(facts["figures"]["look_up_ms"]["rounds"]) == 2
    assert all(facts["curve"][load][side]["median"] > 0 for load in ("warm", "streams") for side in ("on", "off"))


def test_capacity_counts_the_conversations_that_are_there_at_once(tmp_path):
    run("serve/capacity.py", "--pagewise", PROGRAM, "--llama-server", "none", "--conversations", 3, "--results", tmp_path)
    facts, _ = result_of(tmp_path)
    found = facts["figures"]["engines"]["pagewise"]
    assert (found["answered"], found["late"], found["refused"], found["put_back"]) == (3, 0, [], 0)
    assert 1 <= found["held"] <= 3


def test_contention_and_the_kv_curve_write_their_tables(tmp_path):
    run("serve/contention.py", "--pagewise", PROGRAM, "--llama-server", "none", "--rounds", 1, "--tokens", 8, "--results",
        tmp_path / "contention")
    facts, text = result_of(tmp_path / "contention")
    assert set(facts["figures"]["pagewise"]) == {"quiet", "beside", "fall"} and "times slower" in text
    run("serve/kv_curve.py", "--pagewise", PROGRAM, "--rounds", 1, "--lengths", "16,48", "--results", tmp_path / "kv",
        "--picture", tmp_path / "kv.svg")
    facts, _ = result_of(tmp_path / "kv")
    assert [point["tokens"] for point in facts["points"]] == [20, 52]
    assert (tmp_path / "kv.svg").read_text().startswith("<svg")
