# SPDX-License-Identifier: Apache-2.0
"""`pagewise serve` as a program: its start screen, its log, what it refuses to start with, how it stops."""

import fcntl
import os
import re
import resource
import signal
import socket
import subprocess
import threading

import httpx2
import pytest

from conftest import MODEL, NAME, PROGRAM, eventually, serving
from gguf_writer import lying_files


def refused(*arguments, **options):
    """Runs a command that must fail; gives its one line."""
    done = subprocess.run([PROGRAM, "serve", *map(str, arguments)], capture_output=True, text=True,
                          **{"timeout": 60, **options})
    assert done.returncode in (1, 2), (done.returncode, done.stdout, done.stderr)
    assert done.stdout == "" and done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def test_the_start_screen_says_what_fits(server):
    screen = server.log()
    for pattern in (rf"model\s+{re.escape(NAME)} \(llama, 13\d M parameters\)", r"weights\s+\d+\.\d MiB",
                    r"KV per token\s+22\.5 KiB \(f16\)", r"pool\s+364 blocks of 32 tokens, 255\.9 MiB",
                    r"context\s+8192 tokens", r"conversations\s+1k: 11, 4k: 2, 8k: 1 at once",
                    rf"address\s+{re.escape(server.base)}", r"curl http://\S+/v1/messages"):
        assert re.search(pattern, screen), pattern


def test_the_log_has_one_line_a_request_and_none_of_its_words(server, nonce):
    answer = server.post("/v1/messages", {"model": "claude-x", "max_tokens": 3, "messages": [
        {"role": "user", "content": nonce}]})
    identity = answer.headers["request-id"]
    lines = eventually(lambda: [line for line in server.log().splitlines() if identity in line])
    assert len(lines) == 1
    assert re.fullmatch(rf"{identity} messages 200 prompt=\d+ cached=\d+ created=0 out=[1-3] queue=\d+ms ttft=\d+ms "
                        r"\d+tok/s blocks=\d+ \(\d+ shared\) stop=\w+", lines[0]), lines[0]
    assert nonce.split()[1] not in server.log()


def test_a_port_in_use_is_one_line(server):
    line = refused(MODEL, "--port", server.port)
    assert f"127.0.0.1:{server.port}: the port is in use; choose another with --port" in line


def test_an_outside_address_needs_keys():
    line = refused(MODEL, "--host", "0.0.0.0", "--port", "0")
    assert "--api-key-file" in line and "--insecure" in line


def test_memory_that_is_not_there_is_refused_with_the_numbers():
    line = refused(MODEL, "--port", "0", "--kv-memory", "900GiB")
    assert "900.0 GiB" in line and len(re.findall(r"[\d.]+ [KMGT]iB", line)) >= 3
    line = refused(MODEL, "--port", "0", "--kv-memory", "1KiB")
    assert "1.0 KiB" in line and "720.0 KiB" in line


@pytest.mark.parametrize("arguments, words", [
    ((MODEL, "--kv-memory", "lots"), "lots"),
    (("/nonexistent.gguf", "--port", "0"), "/nonexistent.gguf"),
    ((MODEL, "--api-key-file", "/nonexistent"), "/nonexistent"),
    ((MODEL, "--host", "no.such.host.invalid"), "no.such.host.invalid"),
    ((MODEL, "--lease-5m", "0"), "--lease-5m: '0' is no number of seconds"),
    ((MODEL, "--lease-1h", "0"), "--lease-1h: '0' is no number of seconds"),
    ((MODEL, "--lease-5m", "nan"), "--lease-5m: 'nan'"),
    ((MODEL, "--lease-1h", "inf"), "--lease-1h: 'inf'"),
    ((MODEL, "--lease-share", "nan"), "--lease-share: 'nan' is no share from 0 to 1"),
    ((MODEL, "--alias", ""), "--alias"),
    ((MODEL, "--max-context", "1"), "--max-context: 1 leaves no token for an answer"),
])
def test_mistakes_on_the_command_line_are_one_line(arguments, words):
    assert words in refused(*arguments)


def test_help_explains_every_flag():
    text = subprocess.run([PROGRAM, "serve", "--help"], capture_output=True, text=True, check=True).stdout
    for flag in ("host", "port", "threads", "kv-memory", "block-tokens", "kv-type", "kv-type-k", "kv-type-v",
                 "max-context", "step-tokens", "max-seqs", "max-queue", "no-prefix-cache", "alias", "api-key-file",
                 "insecure", "lease-5m", "lease-1h", "lease-share", "cache-mode", "cache-min-tokens",
                 "debug-shuffle-blocks"):
        assert re.search(rf"^\s+--{flag}\b", text, re.MULTILINE), flag


def test_a_file_that_lies_is_one_line(tmp_path):  # C17
    def limit_memory():
        resource.setrlimit(resource.RLIMIT_AS, (200 * 2**20, 200 * 2**20))

    path = tmp_path / "lying.gguf"
    lies = lying_files()
    # Of the files cut short, every tenth: `plan` and `run` take them all.
    cuts = [lie for lie in lies if lie[0].startswith("i-cut")]
    for name, data, word in [lie for lie in lies if lie not in cuts] + cuts[::10]:
        path.write_bytes(data)
        line = refused(path, "--port", "0", timeout=10, preexec_fn=limit_memory)
        assert str(path) in line and word in line, name


def test_a_model_without_a_chat_template_serves_completions(tmp_path):
    path = tmp_path / "bare.gguf"
    path.write_bytes(MODEL.read_bytes().replace(b"tokenizer.chat_template", b"tokenizer.chat_templatX", 1))
    with serving("--kv-memory", "64MiB", "--alias", "*", model=path) as server:
        assert "no chat template" in server.log()
        assert server.ok("/v1/completions", {"model": "m", "prompt": "1, 2,", "max_tokens": 1})["choices"]
        for route in ("/v1/chat/completions", "/v1/messages"):
            answer = server.post(route, {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "x"}]})
            assert answer.status_code == 400
            assert "no chat template" in answer.json()["error"]["message"]


def start(stdout):
    """A server whose output the test holds; it is ready when /ready says so."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    process = subprocess.Popen([PROGRAM, "serve", str(MODEL), "--port", str(port), "--kv-memory", "64MiB"],
                               stdout=stdout, stderr=subprocess.DEVNULL)
    client = httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=30)

    def ready():
        try:
            return client.get("/ready").status_code == 200
        except httpx2.TransportError:
            return False

    eventually(ready, 60)
    return process, client


def test_a_log_that_nobody_reads_stops_neither_answers_nor_the_end():
    reader, writer = os.pipe()
    process, client = start(writer)
    os.close(writer)
    try:
        fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4096)
        for _ in range(300):  # some 12 kB of log
            assert client.get("/v1/models").status_code == 200
        assert client.get("/health").status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
    finally:
        process.kill()
        os.close(reader)


def test_a_log_whose_reader_went_away_only_ends_the_log():
    reader, writer = os.pipe()
    process, client = start(writer)
    os.close(writer)
    os.close(reader)
    try:
        for _ in range(20):
            assert client.get("/v1/models").status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
    finally:
        process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_an_idle_server_cleanly(number):
    with serving("--kv-memory", "64MiB") as server:
        with socket.create_connection(("127.0.0.1", server.port)):
            server.process.send_signal(number)
            assert server.process.wait(5) == 0
        assert server.log().endswith("stopped\n")


def test_a_signal_lets_an_answer_finish_and_tells_the_one_that_does_not():
    with serving("--kv-memory", "64MiB", "--alias", "*") as server:
        body = {"model": "m", "prompt": "1, 2, 3,", "ignore_eos": True}
        short = {}
        streamed = []

        def stream():
            with server.http.stream("POST", "/v1/completions", json={**body, "max_tokens": 3000, "stream": True}) as r:
                streamed.extend(r.iter_lines())

        def whole():
            short["answer"] = server.post("/v1/completions", {**body, "max_tokens": 60})

        threads = [threading.Thread(target=stream), threading.Thread(target=whole)]
        for thread in threads:
            thread.start()
        eventually(lambda: server.running() == 2)
        server.process.send_signal(signal.SIGTERM)
        for thread in threads:
            thread.join(30)
        assert server.process.wait(15) == 0
        assert short["answer"].status_code == 200
        assert "shutting down" in [line for line in streamed if line][-1]
        assert re.search(r" completions 200 .*out=[1-9]\d* .*ttft=[1-9]\d*ms [1-9]\d*tok/s .*stop=overloaded_error$",
                         server.log(), re.MULTILINE), "what was sent, and the real times"
