import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, ModelSettings
from pydantic_ai.models import Model, infer_model, override_allow_model_requests
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.providers.openai import OpenAIProvider

from mixseek.llm.openai_bodies import send_as_given
from mixseek.testing import ModelServer


@pytest.fixture(autouse=True)
def bare_models_may_speak() -> Iterator[None]:
    """The models here stand outside the wrapper that holds all others to this machine; they know no other address."""
    with override_allow_model_requests(True):
        yield


class Verdict(BaseModel):
    reason: str
    score: float


def look_up(word: str) -> str:
    """What a word means."""
    return f"{word} means nothing"


def model_of(api: str, server: ModelServer, client: httpx2.AsyncClient) -> Model:
    provider = OpenAIProvider(base_url=server.base_url, api_key="any", http_client=client)
    made = OpenAIChatModel if api == "chat" else OpenAIResponsesModel
    return made("leader", provider=provider)


async def bodies(model: Model, server: ModelServer, settings: ModelSettings, *, stream: bool) -> list[dict[str, Any]]:
    agent = Agent(model, tools=[look_up], output_type=[str, Verdict], instructions="指示", system_prompt="system")
    before = len(server.requests)
    if stream:
        async with agent.run_stream("質問 \u2028 <question>", model_settings=settings) as answer:
            await answer.get_output()
    else:
        await agent.run("質問 \u2028 <question>", model_settings=settings)
    return [request.body for request in server.requests[before:]]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_the_server_is_sent_what_the_sdk_would_have_sent(api: str, stream: bool) -> None:
    settings = ModelSettings(temperature=0.5, max_tokens=100, extra_body={"own": [1, 2]})
    async with ModelServer() as server, httpx2.AsyncClient() as client:
        as_given = model_of(api, server, client)
        send_as_given(as_given)
        theirs = await bodies(model_of(api, server, client), server, settings, stream=stream)
        ours = await bodies(as_given, server, settings, stream=stream)
    assert len(ours) > 1
    assert _without_ids(ours) == _without_ids(theirs)


async def test_an_extra_body_of_the_user_wins() -> None:
    async with ModelServer() as server, httpx2.AsyncClient() as client:
        model = model_of("chat", server, client)
        send_as_given(model)
        replaced = [{"role": "user", "content": "something else"}]
        await Agent(model).run("a question", model_settings=ModelSettings(extra_body={"messages": replaced}))
        assert server.requests[-1].body["messages"] == replaced


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}, (100, 10)),
        ({"prompt_tokens": "100", "completion_tokens": "10", "total_tokens": "110"}, (100, 10)),
        (None, (0, 0)),
        ({"total_tokens": 110}, (0, 0)),
        ({"prompt_tokens": 100, "completion_tokens": None, "total_tokens": 100}, (0, 0)),
        ({"prompt_tokens": 100, "completion_tokens": -1, "total_tokens": 99}, (0, 0)),
        ({"prompt_tokens": 100.5, "completion_tokens": 10, "total_tokens": 110}, (0, 0)),
        ("110", (0, 0)),
        ([], (0, 0)),
    ],
)
async def test_a_whole_answer_is_taken_whatever_is_told_of_its_tokens(usage: Any, tokens: tuple[int, int]) -> None:
    message = {"role": "assistant", "content": "Tokyo."}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    body = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": choices, "usage": usage}
    transport = httpx2.MockTransport(lambda _: httpx2.Response(200, json=body))
    async with httpx2.AsyncClient(transport=transport) as client:
        provider = OpenAIProvider(base_url="http://127.0.0.1:9/v1", api_key="any", http_client=client)
        model = OpenAIChatModel("m", provider=provider)
        send_as_given(model)
        answered = await Agent(model).run("a question")
    assert answered.output == "Tokyo."
    assert (answered.usage.input_tokens, answered.usage.output_tokens) == tokens


async def test_what_is_said_beside_the_body_goes_where_the_sdk_puts_it() -> None:
    beside = {"extra_headers": {"x-own": "yes"}, "extra_query": {"own": "1"}, "extra_body": None, "timeout": None}
    async with ModelServer() as server, httpx2.AsyncClient() as client:
        as_given, theirs = (model_of("chat", server, client) for _ in range(2))
        send_as_given(as_given)
        sent: list[httpx2.Request] = []
        client.event_hooks["request"].append(_noting(sent))
        for model in (as_given, theirs):
            assert isinstance(model, OpenAIChatModel)
            create: Any = model.client.chat.completions.create
            asked = {"model": "leader", "messages": [{"role": "user", "content": "a question"}]}
            await create(**asked, **beside)
            await create(**asked, extra_headers=None, extra_query=None)
    ours, sdks = sent[:2], sent[2:]
    assert [request.url for request in ours] == [request.url for request in sdks]
    assert [dict(request.headers) for request in ours] == [dict(request.headers) for request in sdks]
    assert [request.extensions["timeout"] for request in ours] == [each.extensions["timeout"] for each in sdks]
    assert [request.url.query for request in ours] == [b"own=1", b""]


def test_a_chat_model_does_not_import_what_the_sdk_needs_for_responses() -> None:
    code = """
import sys
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from mixseek.llm.openai_bodies import send_as_given
model = OpenAIChatModel("leader", provider=OpenAIProvider(base_url="http://localhost", api_key="any"))
send_as_given(model)
print("create_as_given" in repr(model.client.chat.completions.create.__code__))
print("openai.resources.responses.responses" in sys.modules)
"""
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert ran.stdout.split() == ["True", "False"]


def test_a_model_of_another_kind_is_left_alone() -> None:
    model = infer_model(TestModel())
    before = dict(vars(model))
    send_as_given(model)
    assert vars(model) == before


def _noting(sent: list[httpx2.Request]) -> Any:
    async def note(request: httpx2.Request) -> None:
        sent.append(request)

    return note


def _without_ids(value: Any) -> Any:
    """Ids are drawn anew for every run."""
    if isinstance(value, dict):
        return {
            name: _without_ids(each) for name, each in value.items() if name not in ("id", "call_id", "tool_call_id")
        }
    return [_without_ids(each) for each in value] if isinstance(value, list) else value
