# SPDX-License-Identifier: Apache-2.0
"""Answers that follow a schema, through both official clients: every one validates (jsonschema), whatever the model
would have said, streamed or not, from the cache or not, alone or in a crowd that does not fit the pool."""

import concurrent.futures
import datetime
import json
import random
import uuid
from typing import Literal, Optional

import jsonschema
import pydantic
import pytest

from conftest import serving
from test_errors import check_anthropic, check_openai

MESSAGES = [{"role": "user", "content": "Tell me about a hotel guest."}]


class Address(pydantic.BaseModel):
    city: str = pydantic.Field(max_length=12)
    zip: Optional[int]


class Guest(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=16)
    nights: int = pydantic.Field(ge=1, le=30)
    room: Literal["single", "double", "suite"]
    vip: bool
    wishes: list[Literal["sea view", "late check-out", "a \"quiet\" floor"]] = pydantic.Field(max_length=3)
    address: Optional[Address]


class Visit(pydantic.BaseModel):
    """What the client hands on as it is: it makes a remark of other bounds."""
    room: Literal["single", "double", "suite"]
    nights: int
    arrival: datetime.date
    contact: Optional[uuid.UUID]
    paid: bool


def text(length):
    return {"type": "string", "maxLength": length}


SCHEMAS = {
    "record": {
        "type": "object", "additionalProperties": False, "required": ["name", "tags", "size", "état"],
        "properties": {"name": text(10), "tags": {"type": "array", "items": text(6), "minItems": 1, "maxItems": 3},
                       "size": {"type": "number"}, "état": {"enum": ["été", "hiver", None, 7, 1.5]},
                       "left out": {"type": "boolean"}}},
    "recursive": {
        "$ref": "#/$defs/node", "$defs": {"node": {
            "type": "object", "required": ["value", "next"], "properties": {
                "value": {"type": "integer", "minimum": -5, "maximum": 50},
                "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]}}}}},
    "choice": {"anyOf": [{"type": "object", "properties": {"kind": {"const": "circle"}, "r": {"type": "number"}},
                          "required": ["kind", "r"]},
                         {"type": "object", "properties": {"kind": {"const": "square"}, "side": {"type": "integer"}},
                          "required": ["kind", "side"]}]},
    "numbers": {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 4},
    "map": {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"],
            "additionalProperties": {"type": "boolean"}},
    "enumeration": {"type": "string", "enum": ["red", "green", "re"]},
}


def response_format(schema):
    return {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}}


def chat(server, schema, **more):
    return server.openai().chat.completions.create(**{
        "model": "gpt-x", "messages": MESSAGES, "max_tokens": 200, "temperature": 0,
        "response_format": response_format(schema), **more})


def check(schema, choice):
    """The answer validates, or was cut by its length."""
    if choice.finish_reason == "length":
        return False
    assert choice.finish_reason == "stop"
    jsonschema.validate(json.loads(choice.message.content), schema, cls=jsonschema.Draft202012Validator)
    return True


@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.parametrize("temperature", [0, 1.5])
def test_every_choice_validates(server, name, temperature):
    answer = chat(server, SCHEMAS[name], temperature=temperature, n=3, seed=5)
    complete = [check(SCHEMAS[name], choice) for choice in answer.choices]
    # A list may go on to the last level that there is.
    assert any(complete) or name == "recursive", answer


@pytest.mark.parametrize("name", SCHEMAS)
def test_streams_and_caches_do_not_show(server, uncached, name):
    for sampling in ({"temperature": 0, "max_tokens": 80}, {"temperature": 1, "seed": 11, "max_tokens": 80}):
        asked = {**sampling, "logprobs": True, "top_logprobs": 2}
        truth = chat(uncached, SCHEMAS[name], **asked).choices[0]
        for _ in range(2):
            got = chat(server, SCHEMAS[name], **asked).choices[0]
            assert (got.message.content, got.finish_reason) == (truth.message.content, truth.finish_reason)
            assert got.logprobs == truth.logprobs
        pieces = [chunk.choices[0] for chunk in chat(server, SCHEMAS[name], stream=True, **sampling) if chunk.choices]
        assert "".join(piece.delta.content or "" for piece in pieces) == truth.message.content
        assert pieces[-1].finish_reason == truth.finish_reason


def test_the_schema_is_no_part_of_the_prompt(server):
    plain = server.ok("/v1/chat/completions", {"model": "gpt-x", "messages": MESSAGES, "max_tokens": 1})
    held = chat(server, SCHEMAS["record"], max_tokens=1)
    assert held.usage.prompt_tokens == plain["usage"]["prompt_tokens"]
    assert held.usage.prompt_tokens_details.cached_tokens == plain["usage"]["prompt_tokens"] - 1


def test_openai_parse_gives_the_models_own_type(server):
    answer = server.openai().chat.completions.parse(model="gpt-x", messages=MESSAGES, response_format=Guest,
                                                    max_tokens=300, temperature=0)
    guest = answer.choices[0].message.parsed
    assert isinstance(guest, Guest) and 1 <= guest.nights <= 30
    with server.openai().chat.completions.stream(model="gpt-x", messages=MESSAGES, response_format=Guest,
                                                 max_tokens=300, temperature=0) as stream:
        assert stream.get_final_completion().choices[0].message.parsed == guest


def test_anthropic_formats_validate_streamed_and_not(server):
    client = server.anthropic()
    for name, schema in SCHEMAS.items():
        asked = {"model": "claude-x", "max_tokens": 150, "messages": MESSAGES,
                 "output_config": {"format": {"type": "json_schema", "schema": schema}},
                 "extra_body": {"temperature": 0}}
        answer = client.messages.create(**asked)
        if answer.stop_reason == "end_turn":
            jsonschema.validate(json.loads(answer.content[0].text), schema)
        else:
            assert answer.stop_reason == "max_tokens", name
        with client.messages.stream(**asked) as stream:
            streamed = stream.get_final_message()
        assert streamed.content[0].text == answer.content[0].text
        assert streamed.stop_reason == answer.stop_reason


def test_anthropic_parse_gives_the_models_own_type(server):
    answer = server.anthropic().messages.parse(model="claude-x", max_tokens=300, messages=MESSAGES, output_format=Visit,
                                               extra_body={"temperature": 0})
    assert isinstance(answer.parsed_output, Visit)


def test_json_object_is_some_object(server):
    for seed in range(6):
        answer = chat(server, None, response_format={"type": "json_object"}, temperature=1, seed=seed, max_tokens=120)
        content = answer.choices[0].message.content
        assert content.startswith("{")
        if answer.choices[0].finish_reason == "stop":
            assert isinstance(json.loads(content), dict)


def test_completions_take_a_format_too(server, uncached):
    body = {"model": "gpt-x", "prompt": ["A guest: ", "Another guest: "], "max_tokens": 250, "seed": 5, "extra_body": {
        "response_format": {"type": "json_schema", "json_schema": {"name": "guest", "schema": SCHEMAS["record"]}}}}
    texts = [choice.text for choice in server.openai().completions.create(**body).choices]
    assert len(texts) == 2
    for answer in texts:
        jsonschema.validate(json.loads(answer), SCHEMAS["record"])
    assert texts == [choice.text for choice in uncached.openai().completions.create(**body).choices]
    echoed = server.openai().completions.create(**body, echo=True).choices
    assert [choice.text for choice in echoed] == [p + t for p, t in zip(body["prompt"], texts)]


def test_an_answer_is_cut_by_its_length_and_by_stop_strings(server):
    whole = chat(server, SCHEMAS["record"]).choices[0].message.content
    cut = chat(server, SCHEMAS["record"], max_tokens=6).choices[0]
    assert cut.finish_reason == "length" and whole.startswith(cut.message.content)
    stop = whole[5:8]
    stopped = chat(server, SCHEMAS["record"], stop=[stop]).choices[0]
    assert stopped.finish_reason == "stop" and stopped.message.content == whole[:whole.index(stop)]


def test_bias_and_penalties_cannot_break_the_form(server):
    forbidden = server.tokens("Sorry") + server.tokens(" the")
    answer = chat(server, SCHEMAS["record"], logit_bias={str(token): 100 for token in forbidden}, presence_penalty=2,
                  frequency_penalty=2, extra_body={"repetition_penalty": 2})
    assert check(SCHEMAS["record"], answer.choices[0]) or answer.choices[0].finish_reason == "length"


def test_a_crowd_that_does_not_fit_is_answered_as_if_alone(uncached):
    def asked(server, number):
        name = list(SCHEMAS)[number % len(SCHEMAS)]
        return chat(server, SCHEMAS[name], temperature=1, seed=number, max_tokens=80,
                    messages=[{"role": "user", "content": f"Tell me about guest number {number}."}]).choices[0]

    with serving("--kv-memory", "8MiB", "--alias", "gpt-*") as small:
        with concurrent.futures.ThreadPoolExecutor(12) as threads:
            crowd = list(threads.map(lambda number: asked(small, number), range(12)))
        small.wait_idle()
    for number, choice in enumerate(crowd):
        alone = asked(uncached, number)
        assert (choice.message.content, choice.finish_reason) == (alone.message.content, alone.finish_reason)
        check(SCHEMAS[list(SCHEMAS)[number % len(SCHEMAS)]], choice)


def test_a_sentencepiece_vocabulary_follows_schemas_too(gemma, gemma_uncached):
    for name, schema in SCHEMAS.items():
        for sampling in ({"temperature": 0}, {"temperature": 1, "seed": 3}):
            answer = chat(gemma, schema, max_tokens=120, **sampling).choices[0]
            check(schema, answer)
            assert chat(gemma_uncached, schema, max_tokens=120, **sampling).choices[0].message == answer.message, name


def random_schema(draw, depth):
    """Schemas whose values are short."""
    kind = draw.choice(["integer", "boolean", "null", "text", "enum"] + ["object", "array", "any"] * (depth > 0))
    if kind == "text":
        return {"type": "string", "minLength": draw.randrange(3), "maxLength": draw.randrange(3, 12)}
    if kind == "enum":
        return {"enum": draw.sample(["a", "ab", "é", "x\"y", None, True, 1, 12, 0.5, {"k": [1]}], draw.randrange(1, 6))}
    if kind == "object":
        names = draw.sample(["a", "ab", "name", "naïve", "x y", "q\"", "z"], draw.randrange(5))
        return {"type": "object", "additionalProperties": False,
                "properties": {name: random_schema(draw, depth - 1) for name in names},
                "required": [name for name in names if draw.random() < 0.7]}
    if kind == "array":
        low = draw.randrange(3)
        return {"type": "array", "items": random_schema(draw, depth - 1), "minItems": low,
                "maxItems": low + draw.randrange(3)}
    if kind == "any":
        return {"anyOf": [random_schema(draw, depth - 1) for _ in range(draw.randrange(1, 4))]}
    if kind == "integer":
        low = draw.randrange(-1000, 1000)
        return {"type": "integer", "minimum": low, "maximum": low + draw.randrange(2000)}
    return {"type": kind}


def test_random_schemas_are_followed(server):
    first = 20261130
    complete = 0
    for seed in range(first, first + 30):
        schema = random_schema(random.Random(seed), 3)
        temperature = random.Random(seed).choice([0, 1, 2])
        choice = chat(server, schema, temperature=temperature, seed=seed, max_tokens=150).choices[0]
        try:
            complete += check(schema, choice)
        except (ValueError, jsonschema.ValidationError) as problem:
            pytest.fail(f"seed {seed}: {schema}: {choice.message.content!r}: {problem}")
    assert complete > 15  # the others were cut, which random words often are


@pytest.mark.parametrize("schema, place", [
    ({"type": "object", "properties": {"a": {"type": "string", "pattern": "^a"}}}, "schema.properties.a.pattern"),
    ({"anyOf": [{"type": "null"}, {"not": {}}]}, "schema.anyOf[1].not"),
    ({"oneOf": [{"type": "null"}]}, "schema.oneOf"),
    ({"$ref": "https://example.com/schema"}, "schema.$ref"),
    ({"$ref": "#"}, "schema"),
    ({"type": "object", "properties": {"me": {"$ref": "#"}}, "required": ["me"]}, "schema"),
])
def test_what_cannot_be_followed_is_a_400_that_names_it(server, schema, place):
    before = server.metrics()["vllm:prompt_tokens_total"]
    answer = server.post("/v1/chat/completions", {"model": "gpt-x", "messages": MESSAGES,
                                                  "response_format": response_format(schema)})
    error = check_openai(answer, 400, None, "response_format")
    assert error["message"].startswith(f"response_format.json_schema.{place}: ")
    error = check_anthropic(server.post("/v1/messages", {
        "model": "claude-x", "max_tokens": 5, "messages": MESSAGES,
        "output_config": {"format": {"type": "json_schema", "schema": schema}}}), 400)
    assert error["message"].startswith(f"output_config.format.{place}: ")
    assert server.metrics()["vllm:prompt_tokens_total"] == before
