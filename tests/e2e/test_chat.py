# SPDX-License-Identifier: Apache-2.0
"""`pagewise chat`: through a pipe, and at a terminal of its own (a pseudo-terminal) as a person types."""

import os
import pty
import re
import select
import signal
import subprocess
import time

import pytest

from conftest import MODEL, PROGRAM
from gguf_writer import STRING, TinyModel

PROMPT = b"\x1b[?2004h"  # the editor asks the terminal to mark pastes whenever it waits for a line
CTRL_C, CTRL_D, ENTER = b"\x03", b"\x04", b"\r"
LEFT, UP, CTRL_LEFT, HOME, BACKSPACE = b"\x1b[D", b"\x1b[A", b"\x1b[1;5D", b"\x1b[H", b"\x7f"
GREEDY = ["--temp", "0"]


def chat(lines, *flags, model=MODEL, **options):
    """A conversation through a pipe: (answers, standard error, exit status)."""
    data = lines if isinstance(lines, bytes) else "".join(line + "\n" for line in lines).encode()
    done = subprocess.run([PROGRAM, "chat", model, *map(str, flags)], input=data, capture_output=True, timeout=120,
                          **options)
    return done.stdout, done.stderr.decode(), done.returncode


class Terminal:
    """The program on a pseudo-terminal: what it prints is collected, what is typed goes in."""

    def __init__(self, *flags, model=MODEL, **environment):
        self.seen = b""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update({"TERM": "xterm", "LC_ALL": "C.UTF-8", "HOME": "/nonexistent", **environment})
            os.execv(PROGRAM, [str(word) for word in (PROGRAM, "chat", model, *flags)])

    def type(self, keys):
        os.write(self.fd, keys if isinstance(keys, bytes) else keys.encode())

    def until(self, what, seconds=90):
        """Everything up to and with `what`; what comes behind it stays for the next call."""
        what = what if isinstance(what, bytes) else what.encode()
        deadline = time.monotonic() + seconds
        while what not in self.seen:
            assert time.monotonic() < deadline, (what, self.seen[-2000:])
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    self.seen += os.read(self.fd, 65536)
                except OSError:  # the other side is closed
                    assert what in self.seen, (what, self.seen[-2000:])
        end = self.seen.index(what) + len(what)
        found, self.seen = self.seen[:end], self.seen[end:]
        return found.decode(errors="replace")

    def ask(self, text):
        """Types a line and gives what is printed until the next prompt."""
        self.type(text)
        self.type(ENTER)
        return self.until(PROMPT)

    def leave(self, seconds=90):
        """Reads until the program ends; its status as waitpid tells it."""
        deadline = time.monotonic() + seconds
        while True:
            assert time.monotonic() < deadline, ("still there", self.seen[-2000:])
            if not select.select([self.fd], [], [], 0.1)[0]:
                continue
            try:
                data = os.read(self.fd, 65536)
            except OSError:
                break
            if not data:
                break
            self.seen += data
        status = os.waitpid(self.pid, 0)[1]
        self.pid = 0
        return status

    def __enter__(self):
        self.until(PROMPT)
        return self

    def __exit__(self, *_):
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)


# ------------------------------------------------------------------ through a pipe

def test_each_line_is_a_turn_and_the_cache_changes_no_answer():
    lines = ["My name is Ann. What is a cache?", "", "And what is my name?", "  ", "Say it again."]
    cached = chat(lines, *GREEDY, "--max-tokens", 24)
    assert cached[2] == 0 and cached[1] == "" and len(cached[0]) > 50
    assert chat(lines, *GREEDY, "--max-tokens", 24, "--no-prefix-cache") == cached
    assert chat(lines, *GREEDY, "--max-tokens", 24, "--block-tokens", 16, "--threads", 1) == cached
    # A conversation and not three questions: the second answer depends on the first turn.
    assert chat(lines[2:3], *GREEDY, "--max-tokens", 24)[0] not in cached[0]


def test_the_next_turn_reads_the_one_before_from_the_cache():
    out, _, status = chat(["What is a cache?", "Why?", "/stats"], *GREEDY, "--max-tokens", 20)
    assert status == 0
    prompt, read = map(int, re.search(rb"(\d+) prompt tokens, of these (\d+) read", out).groups())
    assert read > 40 and prompt > read
    assert b"2 messages, " in out and b" of 8192 tokens" in out


def test_reset_undo_and_system_do_what_they_say():
    flags = [*GREEDY, "--max-tokens", 12]
    alone = chat(["Name a colour."], *flags)[0]
    assert chat(["Hello", "/reset", "Name a colour."], *flags)[0].endswith(alone)
    assert chat(["Hello", "/undo", "Name a colour."], *flags)[0].endswith(alone)
    terse = chat(["Name a colour."], *flags, "--system", "Answer in French.")[0]
    assert terse != alone
    assert chat(["/system Answer in French.", "Name a colour."], *flags)[0] == terse
    assert chat(['/system ""', "Name a colour."], *flags, "--system", "x")[0] == alone
    assert chat(["/system"], *flags, "--system", "Be\x1bbrief.")[0] == "Be␛brief.\n".encode()
    assert chat(["/exit", "Name a colour."], *flags) == (b"", "", 0)


def test_a_line_without_an_end_counts_and_carriage_returns_do_not():
    flags = [*GREEDY, "--max-tokens", 8]
    assert chat(b"Name a colour.", *flags) == chat(b"Name a colour.\r\n", *flags) == chat(["Name a colour."], *flags)
    assert chat(b"", *flags) == chat(b"\n\n", *flags) == (b"", "", 0)


def test_a_seed_draws_the_same_and_no_seed_something_else():
    flags = ["--max-tokens", 16, "--temp", 1.5]
    seeded = [chat(["Tell me something."], *flags, "--seed", 7)[0] for _ in range(2)]
    assert seeded[0] == seeded[1]
    assert chat(["Tell me something."], *flags)[0] != chat(["Tell me something."], *flags)[0]


@pytest.mark.parametrize("line, words", [
    ("/nothing", "no command /nothing"), ("/undo", "no message to take back"), ("/reset now", "takes no text"),
])
def test_a_command_that_cannot_be_ends_a_pipe_with_one_line(line, words):
    out, errors, status = chat([line, "Hello"], *GREEDY, "--max-tokens", 4)
    assert (out, status) == (b"", 1) and errors.count("\n") == 1 and words in errors


def test_a_full_context_is_said_with_what_to_do():
    flags = [*GREEDY, "--max-context", 96]
    out, errors, status = chat(["Tell me a very long story."], *flags)
    assert status == 0 and out and errors.count("\n") == 1
    assert "context of 96 tokens is full" in errors and "/reset" in errors and "--max-context" in errors
    out, errors, status = chat(["Hello " * 200], *flags)
    assert (out, status) == (b"", 1) and errors.count("\n") == 1
    assert "too long" in errors and "95" in errors and "shorten the message" in errors
    out, errors, status = chat(["Hello", "Go on. " * 10, "And on. " * 10], *flags, "--max-tokens", 4)
    assert status == 1 and "/undo" in errors


def test_a_template_that_refuses_says_so_in_one_line(tmp_path):
    model = TinyModel()
    path = tmp_path / "tiny.gguf"
    path.write_bytes(model.bytes())
    out, errors, status = chat(["hello"], model=path)
    assert (out, status) == (b"", 1) and errors.count("\n") == 1 and "no chat template" in errors
    model.keys.append(("tokenizer.chat_template", STRING, "{{ raise_exception('Roles must alternate\n') }}"))
    path.write_bytes(model.bytes())
    out, errors, status = chat(["hello"], model=path)
    assert (out, status) == (b"", 1) and errors.count("\n") == 1 and "Roles must alternate" in errors


def test_output_that_cannot_be_written_is_a_failure():
    with open("/dev/full", "wb") as full:
        done = subprocess.run([PROGRAM, "chat", MODEL, "--max-tokens", "4"], input=b"Hello\n", stdout=full,
                              stderr=subprocess.PIPE, timeout=60)
    assert done.returncode == 1 and b"cannot write to standard output" in done.stderr


# ------------------------------------------------------------------ at a terminal

def test_ctrl_c_stops_the_answer_and_what_was_said_stays():
    with Terminal(*GREEDY) as terminal:
        terminal.type(b"Tell me a long story" + ENTER)  # the likeliest one has no end
        terminal.until(b"?2004l")
        first = terminal.until(b"story")  # some of the answer is there
        terminal.type(CTRL_C)
        stopped = terminal.until(PROMPT)
        assert "stopped]" in stopped and " tok/s" in stopped and "0 of " in stopped
        said = int(re.search(r"\[(\d+) tokens?;", stopped).group(1))
        stats = terminal.ask("/stats")
        assert "1 message, " in stats and f"{said} answer tokens" in stats and first
        # The conversation goes on, and reads what was said before.
        terminal.type(b"Go on." + ENTER)
        terminal.until(b"?2004l")
        terminal.until(b" ")
        terminal.type(CTRL_C)
        assert int(re.search(r"(\d+) of \d+ prompt", terminal.until(PROMPT)).group(1)) > 20
        terminal.type(CTRL_D)
        assert terminal.leave() == 0


def test_ctrl_c_at_the_prompt_says_how_to_leave_and_empties_a_line():
    with Terminal(*GREEDY, "--max-tokens", 4) as terminal:
        terminal.type(CTRL_C)
        assert "Ctrl-D or /exit leaves" in terminal.until(PROMPT)
        terminal.type("/exit")
        terminal.until("/exit")
        terminal.type(CTRL_C)
        assert "leaves" not in terminal.until(PROMPT)
        assert "1 message, " not in terminal.ask("/stats")
        terminal.type(b"/exit" + ENTER)
        assert terminal.leave() == 0


def test_lines_are_edited_by_character_and_word_whatever_their_bytes_and_widths():
    with Terminal() as terminal:
        # The command's own answer shows which text the editor made.
        terminal.ask("/system größe 漢字x".encode() + LEFT + BACKSPACE)
        assert "größe 漢x" in terminal.ask("/system").splitlines()[1]
        terminal.ask("/system one two three".encode() + CTRL_LEFT + "größer als ".encode() + HOME + b"\x1b[C" * 8 +
                     b"\x1b[3~" * 4)
        assert terminal.ask("/system").splitlines()[1].endswith("two größer als three")
        terminal.ask(UP + UP + b"!")  # the last but one, and more
        assert terminal.ask("/system").splitlines()[1].endswith("two größer als three!")


def test_history_brings_back_what_was_typed():
    with Terminal() as terminal:
        terminal.ask("/system first")
        terminal.ask("/system second")
        terminal.ask(UP + UP)
        assert terminal.ask("/system").splitlines()[1].endswith("first")


def test_pasted_lines_are_one_message_and_no_keys():
    with Terminal() as terminal:
        terminal.ask(b"\x1b[200~/system one\rtwo\r\x1b[A\x04\tthree\n\x1b[201~")
        shown = terminal.ask("/system").splitlines()
        assert shown[1].endswith("one") and shown[2] == "two" and shown[3].replace("\t", " ").split() == ["[A", "three"]
        terminal.ask(b"\x1b[200~/system " + b"\r".join(b"line %d" % i for i in range(300)) + b"\x1b[201~")
        assert "line 299" in terminal.ask("/system").splitlines()
        terminal.ask("/system a\x1b\rb")  # Alt-Enter
        assert terminal.ask("/system").splitlines()[2] == "b"


def test_control_characters_of_a_model_are_shown_and_not_obeyed(tmp_path):
    model = TinyModel()  # random weights: of 261 tokens, 32 are control characters
    model.keys.append(("tokenizer.chat_template", STRING, "{% for m in messages %}{{ m.content }}{% endfor %}"))
    path = tmp_path / "tiny.gguf"
    path.write_bytes(model.bytes())
    flags = ["--temp", 2, "--seed", 11, "--max-tokens", 200]
    raw, _, status = chat(["hello"], *flags, model=path)
    assert status == 0 and b"\x1b" in raw, "the model was to write an escape character"
    with Terminal(*flags, model=path, NO_COLOR="1") as terminal:
        shown = terminal.ask("hello").split("\x1b[?2004l")[1].removesuffix(PROMPT.decode())
        assert "␛" in shown
        assert not [c for c in shown if (ord(c) < 32 and c not in "\r\n\t") or 127 <= ord(c) < 160]


def test_a_full_context_at_the_terminal_does_not_end_the_program():
    with Terminal(*GREEDY, "--max-context", 96) as terminal:
        assert "context of 96 tokens is full" in terminal.ask("Tell me a very long story.")
        assert "/undo takes back a message" in terminal.ask("And another one, please.")
        terminal.ask("/reset")
        assert "tok/s" in terminal.ask("Hello")
        terminal.type(CTRL_D)
        assert terminal.leave() == 0


def test_a_signal_to_leave_gives_the_terminal_back():
    with Terminal() as terminal:
        os.kill(terminal.pid, signal.SIGTERM)
        status = terminal.leave()
        assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGTERM
        assert terminal.seen.count(b"?2004l") == 1


def test_a_closed_terminal_ends_the_program():
    terminal = Terminal()
    terminal.until(PROMPT)
    os.close(terminal.fd)
    deadline = time.monotonic() + 30
    while os.waitpid(terminal.pid, os.WNOHANG)[0] == 0:
        assert time.monotonic() < deadline, "still there"
        time.sleep(0.05)
