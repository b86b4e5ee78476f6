# SPDX-License-Identifier: Apache-2.0
"""A conversation reads the turn before it: up to the first token in which the new prompt, tokenized afresh, differs from
what was computed, whatever the client made of the answer."""

import pytest

from conftest import GEMMA

SYSTEM = "{} You are a guide in a harbour town. You know the tides, the boats and the lighthouse, and you like to talk."
QUESTIONS = ("Tell me about the lighthouse.", "Who lives there?", "And the boats?")
TOKENS = 24


def common(a, b):
    """How many leading items are equal."""
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


class Dialogue:
    """A conversation over one of the two APIs; `said` are the spellings of what the last turn generated."""

    def __init__(self, server, route, nonce):
        self.server, self.route = server, route
        self.system = SYSTEM.format(nonce)
        self.turns, self.said = [], []

    def prompt(self):
        """The ids of the prompt, tokenized afresh."""
        messages = [{"role": "system", "content": self.system}, *self.turns]
        return self.server.ok("/tokenize", {"messages": messages})["tokens"]

    def spelled(self, tokens):
        return [self.server.ok("/detokenize", {"tokens": [token]})["content"] for token in tokens]

    def learn(self, choice):
        self.said = [entry["token"] for entry in choice["logprobs"]["content"]]
        if choice["finish_reason"] == "stop":
            self.said.append(None)  # the end of the turn: generated, but no text

    def answer(self):
        """(text, physically cached, usage); ids of the answer are learned by the same request over /chat."""
        chat = {"model": "gpt-x", "max_tokens": TOKENS, "temperature": 0, "logprobs": True,
                "messages": [{"role": "system", "content": self.system}, *self.turns]}
        if self.route == "chat":
            response = self.server.post("/v1/chat/completions", chat)
            assert response.status_code == 200, response.text
            choice = response.json()["choices"][0]
            self.learn(choice)
            return choice["message"]["content"], int(response.headers["x-cached-tokens"]), response.json()["usage"]
        response = self.server.post("/v1/messages", {
            "model": "claude-x", "max_tokens": TOKENS, "temperature": 0, "system": self.system,
            "messages": self.turns, "cache_control": {"type": "ephemeral"}})
        assert response.status_code == 200, response.text
        body = response.json()
        words = "".join(block["text"] for block in body["content"])
        # The answer without a cache is the same: its tokens are asked for there, and nothing enters the cache.
        truth = self.server.ok("/v1/chat/completions", {**chat, "cache_prompt": False})["choices"][0]
        assert truth["message"]["content"] == words
        self.learn(truth)
        return words, int(response.headers["x-cached-tokens"]), body["usage"]


def changed(answer, how):
    middle = answer.index(" ", len(answer) // 2)
    return {"exactly": answer, "trimmed": answer.strip(), "cut": answer[:middle],
            "edited": answer[:middle] + " indeed" + answer[middle:]}[how]


@pytest.mark.parametrize("how", ["exactly", "trimmed", "cut", "edited"])
@pytest.mark.parametrize("route", ["chat", "messages"])
def test_the_next_turn_reads_this_one_up_to_the_first_token_that_differs(server, nonce, route, how):
    talk = Dialogue(server, route, nonce)
    talk.turns = [{"role": "user", "content": QUESTIONS[0]}]
    answer, _, _ = talk.answer()
    for question in QUESTIONS[1:]:
        before, said = talk.prompt(), talk.said
        talk.turns += [{"role": "assistant", "content": changed(answer, how)}, {"role": "user", "content": question}]
        fresh = talk.prompt()
        assert common(before, fresh) == len(before), "a turn's prompt begins with the prompt before it"
        # The last generated token was never an input: its K and V do not exist.
        same = common(said[:-1], talk.spelled(fresh[len(before):len(before) + len(said)]))
        if how == "exactly":
            assert same == len(said) - 1
        if how in ("cut", "edited"):
            assert 3 < same < len(said) - 1
        answer, cached, _ = talk.answer()
        assert cached == len(before) + same


def test_a_marked_conversation_reads_by_the_contract_what_the_turn_before_wrote(server, nonce):
    talk = Dialogue(server, "messages", nonce)
    talk.turns = [{"role": "user", "content": QUESTIONS[0]}]
    answer, _, usage = talk.answer()
    written = usage["cache_creation_input_tokens"]
    assert written > 32 and usage["cache_read_input_tokens"] == 0
    for how in ("exactly", "edited"):
        talk.turns += [{"role": "assistant", "content": changed(answer, how)},
                       {"role": "user", "content": QUESTIONS[1]}]
        answer, cached, usage = talk.answer()
        assert usage["cache_read_input_tokens"] == written <= cached, "an edited answer stands behind the marker"
        written += usage["cache_creation_input_tokens"]
        assert sum(usage[f"{part}input_tokens"] for part in ("", "cache_read_", "cache_creation_")) == len(talk.prompt())


CONTENTS = ("plain", " in front", "behind  ", "two\n\nlines\n", "\ttab", "  ", "ends with a newline\n")


@pytest.mark.parametrize("model", ["server", "gemma"])
def test_bos_white_space_and_the_templates_tail_stay_from_turn_to_turn(request, model, nonce):
    """Whatever white space people and models write: each prompt begins with the whole prompt before it, and with one
    BOS where the model has one."""
    running = request.getfixturevalue(model)
    bos = running.ok("/tokenize", {"content": "", "add_special": True})["tokens"]
    assert len(bos) == (1 if model == "gemma" else 0), GEMMA
    turns, before = [], []
    for i, content in enumerate(CONTENTS):
        turns.append({"role": "user", "content": f"{nonce} {i} {content}"})
        prompt = running.ok("/tokenize", {"messages": turns})["tokens"]
        # Blanks in front of an answer belong to one token with the line break that the template's tail ends with.
        begins_blank = bool(turns[-2:-1]) and turns[-2]["content"][0].isspace()
        assert common(before, prompt) >= len(before) - begins_blank, turns[-2:]
        assert prompt[:len(bos)] == bos and all(token not in bos for token in prompt[len(bos):])
        before = prompt
        turns.append({"role": "assistant", "content": f"{content}answer {i}{content}"})
