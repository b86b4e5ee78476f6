# SPDX-License-Identifier: Apache-2.0
"""The benchmarks of a served cache run, check that cold is cold and warm is warm, and draw. No figure is asserted."""

import json
import os
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree

import pytest

from conftest import PROGRAM, ROOT

sys.path[:0] = [str(ROOT / "bench")]

import line_picture


def run(script, folder, *arguments):
    done = subprocess.run([sys.executable, ROOT / "bench/serve" / script, "--pagewise", PROGRAM, "--results", folder,
                           *map(str, arguments)], capture_output=True, text=True, timeout=300, check=False,
                          env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = pathlib.Path(folder).glob("*.json")
    return json.loads(path.read_text()), path.with_suffix(".md").read_text()


def test_warm_and_cold_are_measured_and_drawn(tmp_path):
    picture = tmp_path / "p.svg"
    facts, text = run("warm_cold.py", tmp_path / "out", "--rounds", 2, "--lengths", "64,200", "--picture", picture)
    assert [row["tokens"] for row in facts["rows"]] == [64, 200]
    assert all(len(row[side]["rounds"]) == 2 for row in facts["rows"] for side in ("cold", "warm"))
    assert all(facts[key] for key in ("commit", "cpu", "command", "model")) and "| 64 |" in text
    drawn = xml.etree.ElementTree.parse(picture).getroot()
    assert drawn.tag.endswith("svg") and facts["commit"] in picture.read_text()


def test_isolation_compares_another_salts_prompt_with_a_cold_one(tmp_path):
    facts, text = run("isolation.py", tmp_path, "--rounds", 2, "--tokens", 64)
    assert {len(row["rounds"]) for row in facts["rows"].values()} == {2}
    assert facts["met"] == (abs(facts["apart"]) <= 0.1) and "the bar is 10 %" in text


def test_the_simulator_finds_what_a_running_server_finds(tmp_path):
    facts, text = run("sim_truth.py", tmp_path, "--requests", "0:6", "--scale", 64, "--load", 0.95, "--kv-memory", "512MiB",
                      "--calibration", ROOT / "examples/calibration_smollm2.json")
    assert facts["requests"] == 6 and facts["speed"] > 0
    hit = facts["rows"]["hit rate, %"]
    # Of the same tokens the same are found, whenever they come.
    assert hit["real"] > 1 and abs(hit["real"] - hit["simulated"]) < 1
    assert len(facts["real"]["first_tokens_s"]) == 6 and "| time to first token, half, ms |" in text
    assert facts["met"] == ("missed" not in text)


def places(svg, tag):
    root = xml.etree.ElementTree.fromstring(svg)
    return [element for element in root.iter() if element.tag.endswith("}" + tag)]


def test_a_picture_shows_every_point_within_its_frame_and_both_colour_schemes():
    svg = line_picture.line_picture("T & <t>", "x", "ms", {"a": [(500, 20), (8000, 9000)], "b": [(500, 3), (8000, 7)]},
                                    "note")
    circles = places(svg, "circle")
    assert len(circles) == 4
    for circle in circles:
        assert line_picture.LEFT <= float(circle.get("cx")) <= line_picture.WIDTH - line_picture.RIGHT
        assert line_picture.TOP <= float(circle.get("cy")) <= line_picture.HEIGHT - line_picture.BOTTOM
    words = [element.text for element in places(svg, "text")]
    assert {"T & <t>", "9,000", "20", "3", "500", "8,000", "a", "b", "note"} <= set(words)
    assert "prefers-color-scheme: dark" in svg
    ids = set(re.findall(r'class="([sf]\d)"', svg))
    assert all(svg.count(f".{name} {{") == 2 for name in ids), "each colour in both schemes"


@pytest.mark.parametrize("series", [{}, {"a": [(1, 0)]}, {"a": [(1, 1)], "b": [(1, 1)], "c": [(1, 1)]}])
def test_what_cannot_be_drawn_is_refused(series):
    with pytest.raises(ValueError):
        line_picture.line_picture("t", "x", "y", series, "")
