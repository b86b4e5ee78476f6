# SPDX-License-Identifier: Apache-2.0
"""Field cases of caching through the clients that people use: the vendors' own, and litellm in front of both APIs."""

import os

import anthropic
import openai
import pytest

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # nothing is fetched
import litellm  # noqa: E402

from conftest import check_warm_usage  # noqa: E402
from own_server import nothing_leased, server  # noqa: E402, F401

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")

MARK = {"cache_control": {"type": "ephemeral"}}
RULE = "The guests of this house close the door behind them. "


def text(words, **more):
    return {"type": "text", "text": words, **more}


class Vendor:
    """The official Anthropic client."""

    name, error = "anthropic", anthropic.BadRequestError

    def __init__(self, server):
        self.client = server.anthropic()

    def send(self, system, messages, tokens=2, **more):
        """(input, created, read, answer's text)"""
        answer = self.client.messages.create(model="claude-x", max_tokens=tokens, system=system, messages=messages,
                                             extra_body={"temperature": 0}, **more)
        usage = answer.usage
        return (usage.input_tokens, usage.cache_creation_input_tokens, usage.cache_read_input_tokens,
                "".join(block.text for block in answer.content))


class Lite:
    """litellm speaking the Messages API."""

    name, error = "litellm", litellm.BadRequestError

    def __init__(self, server):
        self.base = server.base

    def send(self, system, messages, tokens=2, **more):
        answer = litellm.completion(model="anthropic/claude-x", api_base=self.base, api_key="key", max_tokens=tokens,
                                    temperature=0, messages=[{"role": "system", "content": system}, *messages], **more)
        usage = answer.usage
        created, read = usage.cache_creation_input_tokens, usage.cache_read_input_tokens
        assert usage.prompt_tokens_details.cached_tokens == read
        return usage.prompt_tokens - created - read, created, read, answer.choices[0].message.content


both = pytest.mark.parametrize("client", [Vendor, Lite], ids=lambda client: client.name)


def total(server, system, messages):
    return server.anthropic().messages.count_tokens(model="claude-x", system=system, messages=messages).input_tokens


def user(*blocks):
    return [{"role": "user", "content": list(blocks)}]


@both
def test_c11_usage_adds_up_on_the_messages_api(server, nonce, client):
    asking = client(server)
    marked, bare = [text(f"{nonce} {RULE * 100}", **MARK)], [text(f"{nonce} {RULE * 100}")]
    seen = []
    for system, question in ((marked, "Why?"), (marked, "Why?"), (marked, "And when?"), (bare, "Why?")):
        *numbers, _ = asking.send(system, user(text(question)))
        assert all(isinstance(number, int) and number >= 0 for number in numbers)
        assert sum(numbers) == total(server, system, user(text(question)))
        seen.append(numbers)
    created = seen[0][1]
    assert created > 1000 and [numbers[1:] for numbers in seen] == [[created, 0], [0, created], [0, created], [0, 0]]


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("name", ["openai", "litellm"])
def test_c11_usage_adds_up_on_chat(server, nonce, name, streamed):
    messages = user(text(f"{nonce} {RULE * 90}", **(MARK if name == "litellm" else {})))
    more = {"stream": True, "stream_options": {"include_usage": True}} if streamed else {}

    def usage():
        if name == "openai":
            answer = server.openai().chat.completions.create(model="gpt-x", max_tokens=3, messages=messages, **more)
        else:
            answer = litellm.completion(model="openai/gpt-x", api_base=f"{server.base}/v1", api_key="key",
                                        max_tokens=3, messages=messages, **more)
        return [chunk.usage for chunk in answer if getattr(chunk, "usage", None)][-1] if streamed else answer.usage

    check_warm_usage(usage(), usage())


C10 = {  # system, messages, words of the refusal; None: answered
    "a five markers": ([text("s0", **MARK), text("s1", **MARK)], user(*[text(f"m{i}", **MARK) for i in range(3)]),
                       "A maximum of 4 blocks with cache_control may be provided. Found 5."),
    "b marker on an empty text": ("s", [*user(text("q")), {"role": "assistant", "content": "a"},
                                        *user(text("x"), text("", **MARK))], "messages.2.content.1"),
    "c a type that is none": ("s", user(text("q", cache_control={"type": "forever"})), "cache_control"),
    "d four markers": ([text("s0", **MARK)], user(*[text(f"m{i}", **MARK) for i in range(3)]), None),
}


def litellm_drops(client, case):
    """litellm leaves empty texts out before it sends."""
    return client is Lite and case.startswith("b ")


@both
@pytest.mark.parametrize("case", C10)
def test_c10_wrong_markers_are_refused_and_nothing_is_computed(server, client, case):
    system, messages, words = C10[case]
    before = server.metrics()["vllm:prompt_tokens_total"]
    if words is None or litellm_drops(client, case):
        assert client(server).send(system, messages)[0] > 0
        return
    with pytest.raises(client.error) as refused:
        client(server).send(system, messages)
    assert words in str(refused.value) and "invalid_request_error" in str(refused.value)
    assert server.metrics()["vllm:prompt_tokens_total"] == before


def test_c10_an_empty_text_without_a_marker_is_not_refused_for_the_cache(server):
    with pytest.raises(anthropic.BadRequestError) as refused:
        Vendor(server).send("s", user(text("x"), text("")))
    assert "cache" not in str(refused.value)


def test_c10_an_openai_client_hears_of_a_fifth_marker_too(server):
    with pytest.raises(openai.BadRequestError) as refused:
        server.openai().chat.completions.create(model="gpt-x", max_tokens=1,
                                                messages=user(*[text(f"m{i}", **MARK) for i in range(5)]))
    assert "Found 5" in str(refused.value)


@both
def test_c04_a_billing_line_that_changes_does_not_spoil_the_cache(server, nonce, client):
    asking = client(server)
    fixed = text(f"{nonce} {RULE * 100}", **MARK)

    def system(cch):
        return [text(f"x-anthropic-billing-header: cc_version=2.1; cch={cch};"), fixed]

    answers = [asking.send(system(cch), user(text("Why?")), tokens=8) for cch in ("a1f", "0b2", "99c")]
    created = answers[0][1]
    assert created > 1000
    assert [answer[1:3] for answer in answers] == [(created, 0), (0, created), (0, created)]
    assert len({answer[3] for answer in answers}) == 1, "the same words three times"
    plain = total(server, [fixed], user(text("Why?")))
    assert total(server, system("77d"), user(text("Why?"))) == plain
    spoken = user(text("x-anthropic-billing-header: cc_version=2.1; cch=a1f;"), text("Why?"))
    assert total(server, [fixed], spoken) > plain
    assert sum(asking.send([fixed], spoken)[:3]) == total(server, [fixed], spoken)
