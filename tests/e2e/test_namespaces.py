# SPDX-License-Identifier: Apache-2.0
"""Whose cache is whose, and how much of it: the public namespace that keys opt into, and floors and ceilings of the
key file."""

import concurrent.futures
import contextlib
import subprocess

import pytest

from conftest import MODEL, PROGRAM, serving
from test_errors import check_openai
from test_operations import BLOCK, ask, cached, context, ids, resize, words

BLOCKS = 64


@contextlib.contextmanager
def keyed(tmp_path, keys, blocks=BLOCKS):
    """A server with this key file and a pool of so many blocks of 16 tokens; the tests' own questions are root's."""
    path = tmp_path / "team.keys"
    path.write_text(keys + "\nsk-root admin\n")
    with serving("--kv-memory", int(blocks * BLOCK), "--block-tokens", "16", "--alias", "*",
                 "--api-key-file", path) as running:
        running.http.headers["authorization"] = "Bearer sk-root"
        assert running.blocks()["pool"] == blocks
        yield running


def send(server, key, body, **headers):
    return server.ok("/v1/completions", body, authorization=f"Bearer {key}", **headers)


def hit(server, key, prompt, **headers):
    return cached(send(server, key, ask(prompt, 1, **headers.pop("more", {})), **headers))


def accounts(server):
    return {one["namespace"]: one for one in server.http.get("/v1/cache/stats").json()["namespaces"]}


# The public namespace

PUBLIC = """\
sk-one public name=one
sk-two public
sk-tenant tenant=public
sk-team tenant=team
sk-alone
"""


def test_keys_marked_public_share_with_each_other_and_with_nobody_else(tmp_path):  # C09
    with keyed(tmp_path, PUBLIC, blocks=256) as server:
        prompt = ids(200)
        assert hit(server, "sk-one", prompt) == 0
        assert hit(server, "sk-two", prompt) == 199, "another public key reads it"
        for key in ("sk-tenant", "sk-team", "sk-alone", "sk-root"):
            assert hit(server, key, prompt) == 0, f"{key} did not opt in"
        # And the other way round: what the others sent is not read by those that opted in.
        for number, key in enumerate(("sk-tenant", "sk-team", "sk-alone", "sk-root")):
            private = ids(200, 2000 + 300 * number)
            assert hit(server, key, private) == 0
            for reader in ("sk-one", "sk-two"):
                assert hit(server, reader, private) == (0 if reader == "sk-one" else 199)
            assert hit(server, key, private) == 199, "its own is there"


def test_workspaces_and_salts_narrow_what_is_public(tmp_path):  # C09
    with keyed(tmp_path, PUBLIC, blocks=256) as server:
        prompt = ids(200)
        assert hit(server, "sk-one", prompt) == 0
        assert hit(server, "sk-two", prompt, anthropic_workspace_id="w") == 0
        assert hit(server, "sk-one", prompt, anthropic_workspace_id="w") == 199
        assert hit(server, "sk-one", prompt, more={"cache_salt": "s"}) == 0
        assert hit(server, "sk-two", prompt, more={"cache_salt": "s"}) == 199
        assert hit(server, "sk-two", prompt) == 199


def test_explain_and_statistics_keep_to_the_same_line(tmp_path):
    with keyed(tmp_path, PUBLIC, blocks=256) as server:
        def body(secret):
            return {"model": "m", "max_tokens": 1, "messages": [
                {"role": "system", "content": "The rules of the house are long. " * 12 + f"The word is {secret}."},
                {"role": "user", "content": "?"}]}

        def explained(key):
            return server.ok("/v1/cache/explain", body("swordfish"), authorization=f"Bearer {key}")

        server.ok("/v1/chat/completions", body("porcupine"), authorization="Bearer sk-one")
        assert "porcupine" in explained("sk-two")["divergence"]["cached_text"]
        for key in ("sk-tenant", "sk-team", "sk-alone"):
            told = explained(key)
            assert told["cached_tokens"] == 0 and told["nearest"] is None and told["divergence"] is None
        own = server.http.get("/v1/cache/stats", headers={"authorization": "Bearer sk-two"}).json()
        assert own["namespace"] == "public" and own["blocks"]["cached"] > 0
        assert accounts(server)["public"]["keys"] == ["one"]
        cleared = server.ok("/v1/cache/clear", {"namespace": "public"})
        assert cleared["blocks_cleared"] == own["blocks"]["cached"]


# Floors

def flood(server, key="sk-guest", count=12, tokens=280, workers=3):
    """Prompts that nobody sends twice, several at a time."""
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        list(pool.map(lambda i: send(server, key, ask(ids(tokens, 3000 + 400 * i), 1)), range(count)))


@pytest.mark.parametrize("floor", [0, 20])
def test_a_floor_keeps_what_others_would_push_out(tmp_path, floor):
    with keyed(tmp_path, f"sk-team tenant=team{f' floor={floor}' if floor else ''}\nsk-guest") as server:
        manual = ids(320)
        assert hit(server, "sk-team", manual) == 0
        flood(server)
        blocks = accounts(server)["tenant:team"]["blocks"]
        assert blocks["floor"] == floor and blocks["ceiling"] is None
        assert blocks["cached"] == (20 if floor else 0), "twelve times 18 blocks overflow a pool of 64"
        assert hit(server, "sk-team", manual) == (319 if floor else 0)
        assert server.metrics()["pagewise_evictions_below_floor_total"] == 0


def test_a_request_that_fits_the_pool_is_served_whatever_the_floors_say(tmp_path, uncached):
    """A floor of the whole pool, filled: others wait until they run alone, and are answered as ever."""
    bodies = [ask(ids(560, 100 + 40 * i), 24) for i in range(2)] + [ask(ids(30 * i + 20, 3000 + i), 16)
                                                                   for i in range(4)]
    expected = [words(uncached.ok("/v1/completions", body)) for body in bodies]
    whole = ask(ids(1000, 5000), 8)
    with keyed(tmp_path, f"sk-team tenant=team floor={BLOCKS}\nsk-guest") as server:
        for part in range(4):
            send(server, "sk-team", ask(ids(250, 7000 + 300 * part), 1))
        assert accounts(server)["tenant:team"]["blocks"]["cached"] == BLOCKS
        with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
            answers = list(pool.map(lambda body: send(server, "sk-guest" if body is not bodies[0] else "sk-team",
                                                      body), bodies))
        assert [words(answer) for answer in answers] == expected
        server.wait_idle()
        assert server.metrics()["pagewise_evictions_below_floor_total"] > 0
        # One request that takes the whole pool.
        assert words(send(server, "sk-guest", whole)) == words(uncached.ok("/v1/completions", whole))


# Ceilings

def test_a_ceiling_bounds_what_a_namespace_caches(tmp_path, uncached):
    with keyed(tmp_path, "sk-job tenant=job ceiling=10\nsk-team") as server:
        manual = ids(320)
        assert hit(server, "sk-team", manual) == 0
        long = ask(ids(500, 3000), 8)
        assert words(send(server, "sk-job", long)) == words(uncached.ok("/v1/completions", long)), "it never refuses"
        flood(server, "sk-job", workers=1)
        blocks = accounts(server)["tenant:job"]["blocks"]
        assert blocks["cached"] == blocks["ceiling"] == 10 and blocks["live"] == 0
        assert hit(server, "sk-team", manual) == 319, "a batch job pushes out its own"
        assert hit(server, "sk-job", ids(280, 3000 + 400 * 11)) == 160, "of the last prompt ten blocks"
        assert server.metrics()["pagewise_evictions_ceiling_total"] > 0
        assert server.blocks()["free"] > 10, "although there was room"


def test_what_a_ceiling_would_give_up_is_not_billed_as_created(tmp_path):
    with keyed(tmp_path, "sk-job tenant=job ceiling=10\nsk-team") as server:
        def usage(key, repeats):
            system = [{"type": "text", "text": "The rules of the house are long. " * repeats,
                       "cache_control": {"type": "ephemeral"}}]
            return server.ok("/v1/messages", {"model": "m", "max_tokens": 1, "system": system, "messages": [
                {"role": "user", "content": "?"}]}, authorization=f"Bearer {key}")["usage"]

        assert usage("sk-job", 30)["cache_creation_input_tokens"] == 0, "more than ten blocks"
        assert usage("sk-team", 30)["cache_creation_input_tokens"] > 200
        created = usage("sk-job", 10)["cache_creation_input_tokens"]
        assert created > 60 and usage("sk-job", 10)["cache_read_input_tokens"] == created


# What cannot be

@pytest.mark.parametrize("keys,message", [
    ("sk-a floor=40\nsk-b tenant=t floor=30\n", "the floors of namespaces sum to 70 KV blocks, and the pool has room "
                                                "for 64: lower some, or make the pool larger (--kv-memory)"),
    ("sk-a floor=9 ceiling=8\n", ":1: floor=9 is above ceiling=8"),
    ("sk-a tenant=t floor=9\nsk-b tenant=t floor=8\n", ":2: another floor= than on line 1, for the same cache"),
    ("sk-a public tenant=t\n", ":1: 'public' and tenant= exclude each other"),
    ("sk-a floor=25%\n", ":1: floor= takes a whole number from 1 to 1000000000"),
])
def test_a_key_file_that_cannot_be_kept_stops_the_start(tmp_path, keys, message):
    path = tmp_path / "team.keys"
    path.write_text(keys)
    done = subprocess.run([PROGRAM, "serve", MODEL, "--port", "0", "--kv-memory", str(int(BLOCKS * BLOCK)),
                           "--block-tokens", "16", "--api-key-file", path], capture_output=True, text=True, timeout=60)
    assert done.returncode in (1, 2) and done.stdout == "" and done.stderr.count("\n") == 1
    assert message in done.stderr and str(path) in done.stderr and "sk-" not in done.stderr


def test_a_pool_smaller_than_the_floors_is_a_conflict_with_the_numbers(tmp_path):
    with keyed(tmp_path, "sk-team tenant=team floor=20\nsk-b public floor=12\nsk-guest") as server:
        manual = ids(320)
        hit(server, "sk-team", manual)
        flood(server, count=4)
        message = check_openai(resize(server, int(31 * BLOCK)), 409, "conflict")["message"]
        assert "floors of namespaces sum to 32 KV blocks" in message and "room for 31" in message
        assert server.blocks()["pool"] == 64
        assert resize(server, int(32 * BLOCK)).status_code == 200 and context(server) == 512
        assert hit(server, "sk-team", manual) == 319, "and what a floor keeps is kept"
