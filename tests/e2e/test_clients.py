# SPDX-License-Identifier: Apache-2.0
"""The clients of docs/clients.md, each configured as that page says: the official packages are everywhere in these
tests, here are the ones that others built on them."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # nothing is fetched
os.environ["LANGSMITH_TRACING"] = "false"  # nothing is sent
import litellm  # noqa: E402
from langchain_anthropic import ChatAnthropic  # noqa: E402
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage  # noqa: E402
from langchain_openai import ChatOpenAI  # noqa: E402

from conftest import NAME, ROOT  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")

CAPITAL = "What is the capital of France?"
MARK = {"cache_control": {"type": "ephemeral"}}


@pytest.fixture
def manual(nonce):
    return nonce + " The guests of this house close the door behind them. " * 60


# ---- langchain

def langchain_openai(server, **more):
    return ChatOpenAI(base_url=f"{server.base}/v1", api_key="local", model="gpt-local", max_tokens=8, temperature=0,
                      max_retries=0, **more)


def langchain_anthropic(server, **more):
    return ChatAnthropic(base_url=server.base, api_key="local", model="claude-local", max_tokens=8, max_retries=0,
                         **more)


@pytest.mark.parametrize("make", [langchain_openai, langchain_anthropic])
def test_langchain_answers_streams_and_counts(server, make):
    model = make(server)
    answer = model.invoke([SystemMessage("Be brief."), HumanMessage(CAPITAL)])
    assert isinstance(answer, AIMessage) and answer.text.strip()
    usage = answer.usage_metadata
    assert usage["input_tokens"] > 10 and 0 < usage["output_tokens"] <= 8
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    pieces = list(model.stream([SystemMessage("Be brief."), HumanMessage(CAPITAL)]))
    whole = pieces[0]
    for piece in pieces[1:]:
        whole += piece
    assert len(pieces) > 2 and whole.text == answer.text or make is langchain_anthropic
    again = model.invoke([SystemMessage("Be brief."), HumanMessage(CAPITAL), answer, HumanMessage("And of Spain?")])
    assert again.text.strip()


def test_langchain_sees_what_was_cached(server, manual):
    model = langchain_openai(server)
    for _ in range(2):
        answer = model.invoke([SystemMessage(manual), HumanMessage(CAPITAL)])
    details = answer.usage_metadata["input_token_details"]
    assert details["cache_read"] == answer.usage_metadata["input_tokens"] - 1 > 500
    marked = [SystemMessage([{"type": "text", "text": "Again. " + manual, **MARK}]), HumanMessage(CAPITAL)]
    first, second = (langchain_anthropic(server).invoke(marked).usage_metadata["input_token_details"] for _ in range(2))
    created = first["cache_creation"] or first.get("ephemeral_5m_input_tokens", 0)
    assert created > 500 and second["cache_read"] == created


# ---- litellm

def test_litellm_answers_over_both_apis(server):
    for name, base in (("openai/gpt-local", f"{server.base}/v1"), ("anthropic/claude-local", server.base)):
        ask = {"model": name, "api_base": base, "api_key": "local", "max_tokens": 8, "temperature": 0,
               "messages": [{"role": "user", "content": CAPITAL}]}
        answer = litellm.completion(**ask)
        text = answer.choices[0].message.content
        assert text.strip() and answer.usage.completion_tokens <= 8
        streamed = "".join(chunk.choices[0].delta.content or "" for chunk in litellm.completion(stream=True, **ask))
        assert streamed == text, name


# ---- llm, the command-line program

@pytest.fixture
def llm(server, tmp_path):
    """The program with the model of docs/clients.md in a home of the test's own."""
    page = (ROOT / "docs/clients.md").read_text()
    config = re.search(r"```yaml\n(.*?)```", page, re.DOTALL).group(1)
    (tmp_path / "extra-openai-models.yaml").write_text(config.replace("http://127.0.0.1:8080", server.base))
    program = pathlib.Path(sys.executable).with_name("llm")

    def run(*words, **options):
        done = subprocess.run([program, *words], capture_output=True, text=True, timeout=120,
                              env={**os.environ, "LLM_USER_PATH": str(tmp_path)}, **options)
        assert done.returncode == 0, done
        return done.stdout

    return run


def test_llm_answers_goes_on_and_logs_usage(llm):
    ask = ["-m", "pagewise", "-o", "max_tokens", "8", "-o", "temperature", "0"]
    streamed = llm(*ask, CAPITAL)
    assert streamed.strip() and llm(*ask, "--no-stream", CAPITAL) == streamed
    assert llm(*ask, "-c", "And of Spain?").strip()
    assert llm(*ask, "-s", "Be brief.", input="What is a cache?").strip()
    logged = json.loads(llm("logs", "list", "--json", "-n", "1"))[0]
    assert logged["model"] == "pagewise" and logged["input_tokens"] > 5 and logged["output_tokens"] <= 8


# ---- what the page says

def test_the_page_names_what_the_server_answers_to(server):
    page = (ROOT / "docs/clients.md").read_text()
    for client in ("Claude Code", "aider", "litellm", "LangChain", "llm", "openai", "anthropic"):
        assert client in page
    names = set(re.findall(r"\b(?:claude|gpt)-local\b", page))
    assert names == {"claude-local", "gpt-local"}
    for name in names:
        found = server.http.get(f"/v1/models/{name}").json()
        assert found["id"] == name and NAME in found["display_name"]
