# SPDX-License-Identifier: Apache-2.0
"""Reference B7 through the served program: T(p) of each marked block is measured once, alone in a namespace of its own, and
every other request's four counters must be the formula's, exactly."""

import concurrent.futures

import pytest

from conftest import serving
from own_server import nothing_leased, server  # noqa: F401

RULE = "Rule {}: keep your desk clean, greet the guests and close the door behind you. "
MINUTES, HOUR = "5m", "1h"


class Case:
    """A prompt of three blocks, and how many tokens end with each."""

    def __init__(self, server, nonce, measured=True):
        self.server, self.space = server, f"case-{nonce}"
        self.words = [f"{nonce} {i} " + "".join(RULE.format(10 * i + k) for k in range(6 if measured else 3))
                      for i in range(3)]
        if measured:
            self.measure(nonce)

    def measure(self, nonce):
        self.ends = []
        for block in range(3):
            usage = self.send({block: MINUTES}, space=f"measure-{nonce}-{block}")
            self.ends.append(usage[1] + usage[2])
        assert 0 < self.ends[0] < self.ends[1] < self.ends[2]
        self.total = self.count()

    def count(self):
        body = {"model": "claude-x", "messages": self.messages({})}
        return self.server.ok("/v1/messages/count_tokens", body)["input_tokens"]

    def messages(self, marks, words=None):
        return [{"role": "user", "content": [
            {"type": "text", "text": text,
             **({"cache_control": {"type": "ephemeral", "ttl": marks[i]}} if i in marks else {})}
            for i, text in enumerate(words or self.words)]}]

    def send(self, marks, space=None, words=None, **more):
        """(read, created for minutes, created for an hour, input)"""
        response = self.server.post("/v1/messages", {"model": "claude-x", "max_tokens": 1,
                                                     "messages": self.messages(marks, words), **more},
                                    anthropic_workspace_id=space or self.space)
        assert response.status_code == 200, response.text
        usage = response.json()["usage"]
        by_ttl = usage["cache_creation"]
        assert usage["cache_creation_input_tokens"] == sum(by_ttl.values())
        return (usage["cache_read_input_tokens"], by_ttl["ephemeral_5m_input_tokens"],
                by_ttl["ephemeral_1h_input_tokens"], usage["input_tokens"])


@pytest.fixture
def case(server, nonce):
    return Case(server, nonce)


def test_the_same_again_reads_what_was_created(case):
    _, _, end = case.ends
    assert case.send({2: MINUTES}) == (0, end, 0, case.total - end)
    assert case.send({2: MINUTES}) == (end, 0, 0, case.total - end)
    assert case.send({}) == (0, 0, 0, case.total)


def test_a_hit_in_front_of_the_marker_creates_what_is_between(case):
    first, second, end = case.ends
    assert case.send({0: MINUTES}) == (0, first, 0, case.total - first)
    assert case.send({1: MINUTES}) == (first, second - first, 0, case.total - second)
    assert case.send({2: HOUR}) == (second, 0, end - second, case.total - end)


def test_a_hit_between_two_markers_counts_from_the_hit(case):
    _, second, end = case.ends
    assert case.send({1: MINUTES}) == (0, second, 0, case.total - second)
    assert case.send({0: MINUTES, 2: MINUTES}) == (second, end - second, 0, case.total - end)


def test_a_hit_behind_every_marker_that_reaches_it_creates_nothing(case):
    first, _, end = case.ends
    case.send({2: MINUTES})
    assert case.send({0: MINUTES}) == (0, first, 0, case.total - first), "an entry ends at its marker, not before"
    assert case.send({0: MINUTES, 2: MINUTES}) == (end, 0, 0, case.total - end)


def test_an_hour_before_minutes_divides_the_creation(case):
    first, second, end = case.ends
    assert case.send({0: HOUR, 1: MINUTES}) == (0, second - first, first, case.total - second)
    changed = [*case.words[:1], case.words[1] + "Changed. ", case.words[2]]
    read, minutes, hour, _ = case.send({0: HOUR, 1: MINUTES}, words=changed)
    assert (read, hour) == (first, 0) and minutes > second - first
    assert case.send({0: HOUR, 1: HOUR, 2: MINUTES}) == (second, end - second, 0, case.total - end)


def test_below_the_minimum_everything_is_input(nonce):
    with serving("--kv-memory", "64MiB", "--alias", "*", "--cache-min-tokens", "200") as server:
        case = Case(server, nonce, measured=False)
        total = case.count()
        long = [text * 6 for text in case.words]
        for _ in range(2):
            assert case.send({0: MINUTES}) == (0, 0, 0, total)
        read, created, _, _ = case.send({0: MINUTES, 1: MINUTES, 2: MINUTES}, words=long)
        assert read == 0 and created > 200
        assert case.send({2: MINUTES}, words=long)[0] == created


def test_a_pre_warm_creates_and_the_question_reads(case):
    first, _, end = case.ends
    assert case.send({0: HOUR}, max_tokens=0) == (0, 0, first, case.total - first)
    assert case.send({0: HOUR, 2: MINUTES}) == (first, end - first, 0, case.total - end)


def test_what_does_not_change_the_prompt_changes_no_counter(case):
    _, _, end = case.ends
    case.send({2: MINUTES})
    for more in ({"max_tokens": 3}, {"stop_sequences": ["x"]}, {"temperature": 0.3, "top_p": 0.9, "top_k": 5},
                 {"metadata": {"user_id": "u"}}, {"never_heard_of": 1}):
        assert case.send({2: MINUTES}, **more) == (end, 0, 0, case.total - end), more


def test_joined_in_flight_every_request_adds_up(case):
    _, _, end = case.ends
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        seen = list(pool.map(lambda _: case.send({2: MINUTES}), range(6)))
    assert sorted(seen) == [(0, end, 0, case.total - end)] + [(end, 0, 0, case.total - end)] * 5
