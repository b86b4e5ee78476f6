# SPDX-License-Identifier: Apache-2.0
"""Prompt caching as both APIs define it: markers, the arithmetic of usage (reference B7), who shares with whom."""

import pytest

from conftest import serving

RULES = "Rule {}: keep your desk clean, greet the guests and close the door behind you. "
MARK = {"cache_control": {"type": "ephemeral"}}
LONG = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}


def text(words, **more):
    return {"type": "text", "text": words, **more}


def rules(count, nonce):
    return nonce + " " + "".join(RULES.format(i) for i in range(count))


def send(server, system, messages, headers=None, **more):
    body = {"model": "claude-x", "max_tokens": 1, "system": system, "messages": messages, **more}
    response = server.http.post("/v1/messages", json=body, headers=headers or {})
    assert response.status_code == 200, response.text
    usage = response.json()["usage"]
    usage["physical"] = int(response.headers["x-cached-tokens"])
    return usage


def counters(usage):
    return usage["cache_read_input_tokens"], usage["cache_creation_input_tokens"], usage["input_tokens"]


def total(server, system, messages):
    return server.ok("/v1/messages/count_tokens", {"model": "claude-x", "system": system, "messages": messages})[
        "input_tokens"]


def user(*blocks):
    return [{"role": "user", "content": list(blocks)}]


def test_the_first_call_creates_and_the_next_ones_read_the_marked_part(server, nonce):
    system = [text(rules(12, nonce), **MARK)]
    first = send(server, system, user(text("First question?")))
    again = send(server, system, user(text("First question?")))
    other = send(server, system, user(text("Another one, longer than the first?")))
    marked = first["cache_creation_input_tokens"]
    assert marked > 200 and counters(first) == (0, marked, first["input_tokens"])
    assert counters(again) == (marked, 0, first["input_tokens"])
    assert counters(other)[:2] == (marked, 0)
    assert sum(counters(other)) == total(server, system, user(text("Another one, longer than the first?")))
    assert other["physical"] >= marked, "read means that it was not computed"


def test_without_a_marker_the_counters_are_zero_and_the_header_tells_the_reuse(server, nonce):  # B14
    words = rules(12, nonce)
    first = send(server, words, user(text("q")))
    second = send(server, words, user(text("q")))
    assert counters(first) == counters(second) == (0, 0, total(server, words, user(text("q"))))
    assert first["physical"] < 32 and second["physical"] == second["input_tokens"] - 1


def test_a_growing_conversation_reads_what_the_turn_before_wrote(server, nonce):  # B4, B5
    system = rules(6, nonce)
    turns = [{"role": "user", "content": "Question number one?"}]
    written = send(server, system, turns, **MARK)["cache_creation_input_tokens"]
    for number in ("two", "three"):
        turns = [*turns, {"role": "assistant", "content": "An answer."},
                 {"role": "user", "content": f"Question number {number}?"}]
        usage = send(server, system, turns, **MARK)
        assert usage["cache_read_input_tokens"] == written
        assert usage["cache_creation_input_tokens"] > 0
        written += usage["cache_creation_input_tokens"]


def test_several_markers_split_the_counters_by_lease(server, nonce):  # B7
    system = [text(rules(8, nonce), **LONG)]
    messages = user(text("First part. " * 10, **MARK), text("Second part."))
    first = send(server, system, messages)
    by_lease = first["cache_creation"]
    assert by_lease["ephemeral_1h_input_tokens"] > 100 and by_lease["ephemeral_5m_input_tokens"] > 20
    assert sum(by_lease.values()) == first["cache_creation_input_tokens"]
    assert sum(counters(first)) == total(server, system, messages)
    # Another second-to-last part: the long one is read, the short one is created anew.
    changed = send(server, system, user(text("Changed part. " * 10, **MARK), text("Second part.")))
    assert changed["cache_read_input_tokens"] == by_lease["ephemeral_1h_input_tokens"]
    assert changed["cache_creation"]["ephemeral_1h_input_tokens"] == 0
    assert changed["cache_creation"]["ephemeral_5m_input_tokens"] > 20


def test_a_change_in_front_of_the_marker_misses(server, nonce):
    assert send(server, [text("A" + rules(8, nonce), **MARK)], user(text("q")))["cache_creation_input_tokens"] > 0
    usage = send(server, [text("B" + rules(8, nonce), **MARK)], user(text("q")))
    assert usage["cache_read_input_tokens"] == 0 and usage["cache_creation_input_tokens"] > 0


def test_moving_a_marker_keeps_the_earlier_entry(server, nonce):
    blocks = [text(rules(6, nonce)), text("Middle. " * 10), text("End. " * 10)]
    first = send(server, [dict(blocks[0], **MARK), *blocks[1:]], user(text("q")))
    later = send(server, [*blocks[:2], dict(blocks[2], **MARK)], user(text("q")))
    assert later["cache_read_input_tokens"] == first["cache_creation_input_tokens"]
    assert later["cache_creation_input_tokens"] > 0


def test_looking_back_ends_after_twenty_positions(server, nonce):  # B4, the worked example
    def blocks(count, *marked):
        return user(*[text(f"{nonce} block {i} says something of its own. ", **(MARK if i in marked else {}))
                      for i in range(count)])

    written = send(server, "s", blocks(10, 9))["cache_creation_input_tokens"]
    assert written > 0
    fifteen = send(server, "s", blocks(15, 14))
    assert fifteen["cache_read_input_tokens"] == written
    far = send(server, "s", blocks(35, 34))
    assert far["cache_read_input_tokens"] == 0, "15 is one position too far back"
    assert far["physical"] > written, "the memory is reused all the same"
    reachable = send(server, "s", blocks(36, 14, 35))
    assert reachable["cache_read_input_tokens"] > written


def test_prefixes_below_the_minimum_are_not_cached():  # B6
    with serving("--kv-memory", "64MiB", "--cache-min-tokens", "300", "--alias", "*") as server:
        for count, cached in ((4, False), (30, True)):
            system = [text(rules(count, f"size {count} "), **MARK)]
            usage = send(server, system, user(text("q")))
            assert (usage["cache_creation_input_tokens"] > 0) == cached
            assert (send(server, system, user(text("q")))["cache_read_input_tokens"] > 0) == cached
            assert sum(counters(usage)) == total(server, system, user(text("q")))


def test_the_billing_header_of_an_agent_does_not_spoil_the_cache(server, nonce):  # C04
    def system(cch):
        return [text(f"x-anthropic-billing-header: cc_version=2.1; cch={cch};"), text(rules(12, nonce), **MARK)]

    usages = [send(server, system(cch), user(text("q"))) for cch in ("a1", "b2", "c3")]
    marked = usages[0]["cache_creation_input_tokens"]
    assert [u["cache_read_input_tokens"] for u in usages] == [0, marked, marked]
    bare = [text(rules(12, nonce), **MARK)]
    assert total(server, system("zz"), user(text("q"))) == total(server, bare, user(text("q")))
    spoken = user(text("x-anthropic-billing-header: cc_version=2.1; cch=a1;"))
    assert total(server, bare, spoken) > total(server, bare, user(text("q")))


def cached(server, prompt, headers=None, **more):
    body = {"model": "gpt-x", "prompt": prompt, "max_tokens": 1, **more}
    response = server.http.post("/v1/completions", json=body, headers=headers or {})
    assert response.status_code == 200, response.text
    return response.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_a_salt_separates_and_an_empty_one_is_none(server, nonce):  # C09
    prompt, space = rules(12, nonce), {"anthropic-workspace-id": nonce}
    seen = [cached(server, prompt, space, **({} if salt is None else {"cache_salt": salt}))
            for salt in ("X", "X", "Y", None, "X", "")]
    full = seen[1]
    assert full > 200
    assert seen == [0, full, 0, 0, full, full]


def test_keys_and_workspaces_separate(tmp_path, nonce):  # C09
    prompt = rules(12, nonce)
    keys = tmp_path / "keys"
    keys.write_text("first\nsecond\n")
    with serving("--kv-memory", "64MiB", "--alias", "*", "--api-key-file", keys) as server:
        one, two = {"authorization": "Bearer first"}, {"authorization": "Bearer second"}
        assert cached(server, prompt, one) == 0
        full = cached(server, prompt, one)
        assert full > 200
        assert cached(server, prompt, two) == 0
        assert cached(server, prompt, {"x-api-key": "first"}) == full, "the key counts, not the header it comes in"
        workspace = {**one, "anthropic-workspace-id": "w"}
        assert cached(server, prompt, workspace) == 0 and cached(server, prompt, workspace) == full


def test_without_a_key_file_a_presented_key_names_no_cache(server, nonce):  # C09
    prompt = rules(12, nonce)
    full = [cached(server, prompt, {"x-api-key": key}) for key in ("a", "a", "b")]
    assert full[1] == full[2] > 200
    workspace = {"x-api-key": "a", "anthropic-workspace-id": nonce}
    assert cached(server, prompt, workspace) == 0 and cached(server, prompt, workspace) == full[1]


def test_both_apis_share_one_cache_in_one_namespace(server, nonce):
    space = {"anthropic-workspace-id": nonce}
    words = rules(12, nonce)
    usage = send(server, words, user(text("q")), headers=space)
    body = {"model": "gpt-x", "max_tokens": 1, "messages": [{"role": "system", "content": words},
                                                             {"role": "user", "content": "q"}]}
    answer = server.http.post("/v1/chat/completions", json=body, headers=space).json()
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == usage["input_tokens"] - 1


def test_a_request_can_skip_the_cache(server, nonce):
    prompt, space = rules(12, nonce), {"anthropic-workspace-id": nonce}
    assert cached(server, prompt, space, cache_prompt=False) == 0
    assert cached(server, prompt, space) == 0, "what skipped the cache did not enter it"
    assert cached(server, prompt, space) > 200
    assert cached(server, prompt, space, cache_prompt=False) == 0


def test_markers_on_parts_of_a_chat_are_markers_too(server, nonce):
    def ask(question):
        return server.openai().chat.completions.create(model="gpt-x", max_tokens=1, messages=[
            {"role": "system", "content": [{**text(rules(12, nonce)), **MARK}]},
            {"role": "user", "content": question}]).usage.prompt_tokens_details

    first, second = ask("one?"), ask("two?")
    assert first.cached_tokens < 32, "what the template and other tests begin with"
    assert first.cache_write_tokens > 200
    assert second.cached_tokens >= first.cache_write_tokens and second.cache_write_tokens == 0


def test_a_changed_answer_in_the_middle_keeps_what_stands_before_it(server, nonce):
    prompt = server.tokens(rules(12, nonce))
    cached(server, prompt)
    for at in (33, 64, 100, len(prompt) - 1):
        changed = [*prompt[:at], (prompt[at] + 1) % 1000 + 100, *prompt[at + 1:]]
        assert changed[at] != prompt[at]
        assert cached(server, changed) == at, "hits are exact to the token"


@pytest.mark.parametrize("block_tokens", [16, 32, 128])
def test_counters_do_not_depend_on_the_block_size(block_tokens):
    with serving("--kv-memory", "128MiB", "--block-tokens", block_tokens, "--cache-min-tokens", "64",
                 "--debug-shuffle-blocks", "--alias", "*") as server:
        system = [text(rules(12, "same "), **MARK)]
        usages = [send(server, system, user(text(q))) for q in ("one", "one", "two")]
        marked = usages[0]["cache_creation_input_tokens"]
        assert [counters(u)[:2] for u in usages] == [(0, marked), (marked, 0), (marked, 0)]
        answer = server.ok("/v1/completions", {"model": "m", "prompt": rules(3, "same "), "max_tokens": 8,
                                               "temperature": 0})
        assert answer["choices"][0]["text"] == ANSWERS.setdefault("text", answer["choices"][0]["text"])


ANSWERS = {}
