# SPDX-License-Identifier: Apache-2.0
"""`pagewise models`, and names in the place of paths: stores as other programs write them, in a home of the test's own,
whole and broken; and models in several files."""

import hashlib
import json
import os
import subprocess

import pytest

from conftest import PROGRAM, ROOT, serving
from gguf_writer import F32_TENSOR, STRING, U32, TinyModel, Writer, attention_only, part_name, split

VARIABLES = ("OLLAMA_MODELS", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "LLAMA_CACHE")
TINY = TinyModel().bytes()
TINY_TOKEN_BYTES = 2 * 2 * (16 + 16) * 2  # layers, KV heads, values of K and V, as f16


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Nothing of the machine's own stores."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def write(path, data=TINY):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def put_ollama(store, name, data=TINY, kind="application/vnd.ollama.image.model"):
    """A model under HOST/NAMESPACE/MODEL/TAG. Gives its blob."""
    digest = hashlib.sha256(data).hexdigest()
    write(store / "manifests" / name, json.dumps({
        "schemaVersion": 2, "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
        "config": {"mediaType": "application/vnd.docker.container.image.v1+json", "digest": f"sha256:{'0' * 64}"},
        "layers": [{"mediaType": kind, "digest": f"sha256:{digest}", "size": len(data)}]}))
    return write(store / "blobs" / f"sha256-{digest}", data)


def put_hub(hub, repository, file, data=TINY, commit="c" * 40):
    folder = hub / ("models--" + repository.replace("/", "--"))
    blob = write(folder / "blobs" / hashlib.sha256(data).hexdigest(), data)
    write(folder / "refs/main", commit)
    link = folder / "snapshots" / commit / file
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(os.path.relpath(blob, link.parent))
    return link


def call(*words, **options):
    return subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          **{"timeout": 120, **options})


def listed(*flags):
    """The JSON form by name; the text form must come to the same end and have a line for each."""
    as_json, text = call("models", "--json", *flags), call("models", *flags)
    assert as_json.returncode == text.returncode == 0 and as_json.stderr == text.stderr == "", (as_json, text)
    found = json.loads(as_json.stdout)
    rows = {}
    for row in found["models"]:
        assert row["name"] not in rows or row["store"] != rows[row["name"]]["store"], row
        rows[row["name"]] = row
        line = next(line for line in text.stdout.splitlines() if line.startswith(row["name"] + "  "))
        assert ("not served: " in line) == (not row["served"])
    assert all(ord(c) >= 32 or c == "\n" for c in text.stdout)
    return rows, found, text.stdout


def refused(*words, status=(1, 2)):
    done = call(*words)
    assert done.returncode in status and done.stdout == "" and done.stderr.count("\n") == 1, (words, done)
    return done.stderr


# ---- what is listed

def test_every_store_is_listed_with_what_its_files_are(home, tmp_path):
    blob = put_ollama(home / ".ollama/models", "registry.ollama.ai/library/tiny/1m")
    put_ollama(home / ".ollama/models", "registry.ollama.ai/someone/tuned/latest",
               attention_only("starship", 2, 64, 4, 2, 16).header())
    put_hub(home / ".cache/huggingface/hub", "org/Tiny-GGUF", "Tiny-F32.gguf")
    write(home / ".lmstudio/models/maker/qwen/qwen-Q4_K_M.gguf",
          attention_only("qwen3", 4, 64, 4, 2, 16).key("general.file_type", U32, 15).header())
    write(home / ".cache/lm-studio/models/maker/old/old.gguf")
    write(home / ".cache/llama.cpp/org_Small-GGUF_Small-F32.gguf")
    mine = write(tmp_path / "mine/some model.gguf")
    rows, found, text = listed("--model-dir", tmp_path / "mine")
    assert {(row["store"], row["name"]) for row in rows.values()} == {
        ("Ollama", "tiny:1m"), ("Ollama", "someone/tuned:latest"), ("Hugging Face", "org/Tiny-GGUF:F32"),
        ("LM Studio", "maker/qwen:Q4_K_M"), ("LM Studio", "maker/old/old"), ("llama.cpp", "org/Small-GGUF:F32"),
        ("folder", "some model")}
    assert {place["store"] for place in found["searched"]} == {"Ollama", "Hugging Face", "LM Studio", "llama.cpp",
                                                               "folder"}
    assert found["notes"] == [] and found["memory_available"] > 2**20
    for name in ("tiny:1m", "org/Tiny-GGUF:F32", "some model"):
        row = rows[name]
        assert row["served"] and row["fits_now"] and row["problem"] is None
        assert (row["type"], row["architecture"], row["context"], row["bytes"], row["parts"]) == (
            "F32", "llama", 256, len(TINY), 1)
        assert row["kv_bytes_per_token"] == TINY_TOKEN_BYTES and row["context_now"] == 256
    assert rows["tiny:1m"]["path"] == str(blob) and rows["some model"]["path"] == str(mine)
    qwen = rows["maker/qwen:Q4_K_M"]
    assert qwen["type"] == "Q4_K_M" and qwen["kv_bytes_per_token"] == 4 * 2 * (16 + 16) * 2 and qwen["context"] == 32768
    assert rows["someone/tuned:latest"]["problem"] == "architecture 'starship' is not supported"
    assert rows["someone/tuned:latest"]["kv_bytes_per_token"] is None
    # Those that can be served come first.
    order = [row["served"] for row in found["models"]]
    assert order == sorted(order, reverse=True)
    assert "256 B" in text and "Looked in" in text


def test_what_is_planned_is_what_is_listed(home):
    path = put_hub(home / ".cache/huggingface/hub", "org/Tiny", "Tiny.gguf")
    rows, _, _ = listed()
    planned = json.loads(call("plan", "org/Tiny", "--json", "--tokens", "1").stdout)
    assert planned["kv_bytes_per_token"] == rows["org/Tiny/Tiny"]["kv_bytes_per_token"]
    assert json.loads(call("plan", path, "--json", "--tokens", "1").stdout) == planned


def test_variables_move_the_stores(home, tmp_path, monkeypatch):
    put_ollama(tmp_path / "o", "registry.ollama.ai/library/a/1")
    put_hub(tmp_path / "h/hub", "org/b", "b.gguf")
    put_hub(tmp_path / "l", "org/c", "c.gguf")  # llama.cpp's newer form
    put_ollama(home / ".ollama/models", "registry.ollama.ai/library/not/here")
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "o"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "h"))
    monkeypatch.setenv("LLAMA_CACHE", str(tmp_path / "l"))
    rows, _, _ = listed()
    assert {(row["store"], row["name"]) for row in rows.values()} == {
        ("Ollama", "a:1"), ("Hugging Face", "org/b/b"), ("llama.cpp", "org/c/c")}


def test_a_machine_without_models_is_told_where_was_looked(home, tmp_path):
    rows, found, text = listed()
    assert not rows and found["searched"] == [] and "--model-dir" in text
    (tmp_path / "empty").mkdir()
    rows, found, text = listed("--model-dir", tmp_path / "empty")
    assert not rows and "No model in" in text and str(tmp_path / "empty") in text


def test_what_cannot_be_served_says_why_in_one_clause(home, tmp_path):
    folder = tmp_path / "mine"
    model = TinyModel()
    model.keys = [(name, kind, "tokens-of-mars" if name == "tokenizer.ggml.model" else content)
                  for name, kind, content in model.keys]
    cases = {
        "text": (b"This is no model.", "this is not a GGUF file"),
        "empty": (b"", "magic at offset 0"),
        "cut": (TINY[:-1000], "cut off"),
        "headless": (TINY[:1000], "at offset"),
        "swapped": (b"FUGG" + bytes(100), "byte-swapped"),
        "tokenizer": (model.bytes(), "tokens-of-mars"),
        "vision": (Writer().key("general.architecture", STRING, "clip").header(), "architecture 'clip'"),
        "unnamed": (Writer().header(), "general.architecture"),
        "tensors": (attention_only("llama", 2, 64, 4, 2, 16).header(), ""),
        "hostile": (Writer().key("general.architecture", STRING, "\x1b[2Jevil\n" * 50).header(), "evil"),
    }
    for name, (data, _) in cases.items():
        write(folder / f"{name}.gguf", data)
    (folder / "nowhere.gguf").symlink_to("gone")
    (folder / "loop").symlink_to(folder)
    (folder / "pipe.gguf").parent.mkdir(exist_ok=True)
    os.mkfifo(folder / "pipe.gguf")
    rows, found, _ = listed("--model-dir", folder)
    assert set(rows) == set(cases)
    for name, (_, words) in cases.items():
        problem = rows[name]["problem"]
        assert not rows[name]["served"] and rows[name]["fits_now"] is None
        assert words in problem and "\n" not in problem and not problem.startswith("/"), (name, problem)
    assert [note for note in found["notes"]] == [f"{folder}/nowhere.gguf: No such file or directory"]


def test_broken_entries_of_ollama_are_listed(home):
    store = home / ".ollama/models"
    put_ollama(store, "registry.ollama.ai/library/good/1")
    put_ollama(store, "registry.ollama.ai/library/gone/1", TINY + b"2").unlink()
    put_ollama(store, "registry.ollama.ai/library/text/1", b"not a model")
    put_ollama(store, "registry.ollama.ai/library/tensors/1", b"x", "application/vnd.ollama.image.tensor")
    write(store / "manifests/registry.ollama.ai/library/broken/1", "{")
    rows, _, _ = listed()
    problems = {name: row["problem"] for name, row in rows.items()}
    assert problems == {"good:1": None, "gone:1": "its blob: No such file or directory",
                        "text:1": "magic at offset 0: this is not a GGUF file", "tensors:1": "safetensors, not GGUF",
                        "broken:1": "its manifest is not a JSON object"}
    for name in ("gone:1", "tensors:1", "broken:1"):
        assert problems[name] in refused("run", name, "-p", "x")


def test_a_model_that_needs_more_memory_than_there_is(home, tmp_path):
    model = TinyModel()
    model.LAYERS, model.FFN = 400, 1 << 20
    keys = {f"llama.{name}": number for name, number in
            [("block_count", model.LAYERS), ("feed_forward_length", model.FFN)]}
    model.keys = [(name, kind, keys.get(name, content)) for name, kind, content in model.keys]
    writer, offset = Writer(), 0
    for name, kind, content in model.keys:
        if isinstance(content, tuple):
            writer.array(name, *content)
        else:
            writer.key(name, kind, content)
    tensors = model.tensors[:2]
    for layer in range(model.LAYERS):
        tensors += [(name.replace("blk.0.", f"blk.{layer}."),
                     [model.FFN if size == TinyModel.FFN else size for size in shape], kind)
                    for name, shape, kind in model.tensors if name.startswith("blk.0.")]
    for name, shape, _ in tensors:
        writer.tensor(name, shape, F32_TENSOR, offset)
        offset += -(-4 * shape[0] * (shape[1] if len(shape) > 1 else 1) // 32) * 32
    path = write(tmp_path / "mine/huge.gguf", writer.header())
    os.truncate(path, path.stat().st_size + 32 + offset)  # all of it a hole
    assert path.stat().st_size > 200 * 2**30
    rows, found, text = listed("--model-dir", tmp_path / "mine")
    row = rows["huge"]
    assert row["served"] and row["fits_now"] is False and row["context_now"] is None
    assert row["bytes_needed"] > row["bytes"] > found["memory_available"]
    assert "no: takes" in text and "not enough memory" in refused("serve", path, "--port", "0")


def test_thousands_of_files_are_listed_from_their_headers(home, tmp_path):
    header = attention_only("llama", 2, 64, 4, 2, 16).header()
    for number in range(3000):
        write(tmp_path / f"mine/org{number % 9}/model{number}-Q4_0.gguf", header)
    done = call("models", "--json", "--model-dir", tmp_path / "mine", timeout=60)
    assert done.returncode == 0 and len(json.loads(done.stdout)["models"]) == 3000


def test_a_folder_that_may_not_be_read_is_said(home, tmp_path):
    folder = tmp_path / "mine"
    write(folder / "open/fine.gguf")
    write(folder / "open/unreadable.gguf").chmod(0)
    write(folder / "closed/secret.gguf").parent.chmod(0)
    # To root nothing is closed, unless it gives that power up.
    prefix = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.getuid() == 0 else []
    done = subprocess.run([*prefix, PROGRAM, "models", "--json", "--model-dir", folder], capture_output=True,
                          timeout=60)
    (folder / "closed").chmod(0o755)
    assert done.returncode == 0, done
    found = json.loads(done.stdout)
    assert found["notes"] == [f"{folder}/closed: Permission denied"]
    assert {row["name"]: row["problem"] for row in found["models"]} == {"open/fine": None,
                                                                      "open/unreadable": "Permission denied"}


# ---- names

def test_every_command_takes_a_name(home):
    blob = put_ollama(home / ".ollama/models", "registry.ollama.ai/library/tiny/1m")
    flags = ["-p", "hello", "-n", "5", "--json", "--logprobs", "2", "--threads", "1"]
    by_name, by_path = (json.loads(call("run", model, *flags).stdout) for model in ("tiny:1m", blob))
    for key in ("tokens", "text", "logprobs"):
        assert by_name[key] == by_path[key]
    assert json.loads(call("inspect", "Tiny:1M", "--json").stdout)["path"] == str(blob)
    chat = subprocess.run([PROGRAM, "chat", "tiny", "--max-tokens", "3", "--temp", "0", "--chat-template",
                           ROOT / "tests/templates/chatml.jinja"], input="hello\n", capture_output=True, text=True,
                          timeout=60)
    assert chat.returncode == 0 and chat.stdout
    with serving("--chat-template", ROOT / "tests/templates/chatml.jinja", model="tiny") as server:
        assert [model.id for model in server.openai().models.list()] == ["tiny:1m"]
        assert server.openai().models.retrieve("tiny:1m").id == "tiny:1m"
        answer = server.post("/v1/messages", {"model": "tiny:1m", "max_tokens": 2,
                                              "messages": [{"role": "user", "content": "hello"}]})
        assert answer.status_code == 200 and answer.headers["x-model"] == "tiny:1m"


def test_a_name_with_an_owner_is_served_and_asked_for(home):
    put_hub(home / ".cache/huggingface/hub", "org/Tiny-GGUF", "Tiny-F32.gguf")
    with serving(model="org/Tiny-GGUF") as server:
        client = server.openai()
        assert client.models.retrieve("org/Tiny-GGUF:F32").id == "org/Tiny-GGUF:F32"
        assert client.completions.create(model="org/Tiny-GGUF:F32", prompt="hello", max_tokens=2).choices


def test_a_path_goes_before_a_name(home, tmp_path, monkeypatch):
    put_ollama(home / ".ollama/models", "registry.ollama.ai/library/tiny/latest", b"not a model")
    monkeypatch.chdir(tmp_path)
    assert "not a GGUF file" in refused("run", "tiny", "-p", "x")
    write(tmp_path / "tiny")
    assert call("run", "tiny", "-p", "x", "-n", "1").returncode == 0
    # A folder is no file: the name counts.
    (tmp_path / "tiny").unlink()
    (tmp_path / "tiny").mkdir()
    assert "not a GGUF file" in refused("run", "tiny", "-p", "x")


def test_names_that_lead_nowhere_or_to_several_are_one_line(home, tmp_path):
    put_ollama(home / ".ollama/models", "registry.ollama.ai/library/tiny/1m")
    for kind in ("F32", "Q8_0"):
        put_hub(home / ".cache/huggingface/hub", "org/Small-GGUF", f"Small-{kind}.gguf", TINY + kind.encode())
    for command, more, status in (("run", ["-p", "x"], 1), ("serve", ["--port", "0"], 1), ("inspect", [], 2),
                                  ("chat", [], 1), ("plan", [], 2)):
        line = refused(command, "tinny:1m", *more, status=(status,))
        assert line.startswith(f"pagewise {command}: tinny:1m: no such file, and no model of that name in Ollama (")
        assert line.endswith("; near: tiny:1m\n") and "Hugging Face (" in line
        line = refused(command, "small", *more, status=(status,))
        assert "2 models have that name; give one of: org/Small-GGUF:F32, org/Small-GGUF:Q8_0" in line
        assert "no such file" in refused(command, "", *more) or command in ("plan",)
    assert "--model-dir: '/nonexistent': No such file" in refused("models", "--model-dir", "/nonexistent", status=(2,))
    file = write(tmp_path / "file.gguf")
    assert "is no folder" in refused("run", "x", "-p", "x", "--model-dir", file, status=(2,))


def test_a_folder_that_is_named_is_looked_at_too(home, tmp_path):
    write(tmp_path / "a/one.gguf")
    write(tmp_path / "b/two.gguf")
    flags = ["--model-dir", tmp_path / "a", "--model-dir", tmp_path / "b", "-p", "x", "-n", "1"]
    for name in ("one", "two"):
        assert call("run", *flags, name).returncode == 0
        assert call("run", name, *flags).returncode == 0
    assert str(tmp_path / "a") in refused("run", "three", *flags)


# ---- models in several files

@pytest.fixture
def parts(tmp_path):
    folder = tmp_path / "split"
    return [write(folder / part_name("tiny", number, 3), data)
            for number, data in enumerate(split(TinyModel(), 3), 1)]


def test_a_model_in_parts_answers_as_the_whole_one(home, parts, tmp_path):
    whole = write(tmp_path / "whole.gguf")
    flags = ["-p", "hello hell", "-n", "8", "--json", "--logprobs", "3", "--threads", "1"]
    expected = json.loads(call("run", whole, *flags).stdout)
    for name in (*parts, "tiny", "split"):
        found = call("run", name, *flags, "--model-dir", parts[0].parent)
        assert found.returncode == 0, found
        for key in ("tokens", "text", "logprobs"):
            assert json.loads(found.stdout)[key] == expected[key]
    plans = [json.loads(call("plan", path, "--json", "--tokens", "1,256").stdout) for path in (whole, *parts)]
    assert all(plan == plans[0] for plan in plans)
    found = json.loads(call("inspect", parts[1], "--json").stdout)
    assert found["served"] and found["parts"] == 3 and found["path"] == str(parts[0])
    assert found["file_bytes"] == sum(path.stat().st_size for path in parts) and found["tensors"]["count"] == 20
    rows, _, _ = listed("--model-dir", parts[0].parent)
    assert rows["tiny"]["parts"] == 3 and rows["tiny"]["served"] and rows["tiny"]["bytes"] == found["file_bytes"]
    with serving("--chat-template", ROOT / "tests/templates/chatml.jinja", model=parts[2]) as server:
        assert [model.id for model in server.openai().models.list()] == ["tiny"]


def test_a_part_that_is_missing_is_said_by_every_command(home, parts):
    parts[1].unlink()
    words = f"{parts[1]}: No such file or directory (part 2 of 3)"
    for command in (("run", "-p", "x"), ("serve", "--port", "0"), ("chat",), ("plan",)):
        assert words in refused(command[0], parts[0], *command[1:])
    described = call("inspect", parts[0])
    assert described.returncode == 3 and words in described.stdout.replace("\n", " ")
    rows, _, _ = listed("--model-dir", parts[0].parent)
    assert "part 2 of 3" in rows["tiny"]["problem"] and not rows["tiny"]["served"]


def test_parts_that_do_not_belong_together_are_refused(home, tmp_path):
    whole, twice, fewer = split(TinyModel(), 2), TinyModel(), TinyModel()
    twice.tensors[-1] = twice.tensors[1]
    fewer.tensors.pop()
    path = write(tmp_path / part_name("m", 1, 2), whole[0])
    for second, words in ((whole[0], "split.no"), (split(twice, 2)[1], "tensor 'output_norm.weight'"),
                          (split(fewer, 2)[1], "split.tensors.count"), (TINY, "split.no: missing")):
        other = write(tmp_path / part_name("m", 2, 2), second)
        assert words in refused("run", path, "-p", "x")
        if second != TINY:  # which says nothing of parts, and is a model
            assert words in refused("run", other, "-p", "x")
