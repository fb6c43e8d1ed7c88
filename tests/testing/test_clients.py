"""The server as the OpenAI clients of pydantic-ai see it."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from openai import AsyncOpenAI
from pydantic import BaseModel, Field
from pydantic_ai import Agent, ModelRetry, NativeOutput, ToolOutput
from pydantic_ai.messages import ModelResponse, ToolCallPart
from pydantic_ai.models import Model
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

from mixseek.testing import Answer, ModelCall, ModelServer, ToolCall

Make = Callable[[str], Model]


class Verdict(BaseModel):
    reason: str
    score: float = Field(ge=0, le=100)


class Improvement(BaseModel):
    should_continue: bool
    reasoning: str
    confidence_score: float = Field(ge=0, le=1)


@pytest.fixture(params=["chat", "responses"])
async def make(request: pytest.FixtureRequest, server: ModelServer) -> AsyncIterator[Make]:
    async with AsyncOpenAI(base_url=server.base_url, api_key="any", max_retries=0) as client:
        provider = OpenAIProvider(openai_client=client)
        kind = OpenAIChatModel if request.param == "chat" else OpenAIResponsesModel
        yield lambda name: kind(name, provider=provider)


def leader(model: Model, called: list[str]) -> Agent[None, str]:
    agent = Agent(model, instructions="You lead team A.")

    @agent.tool_plain
    def delegate_to_writer(task: str) -> str:
        called.append(f"writer: {task}")
        return "a draft"

    @agent.tool_plain
    def delegate_to_critic(task: str) -> str:
        called.append(f"critic: {task}")
        return "a critique"

    return agent


async def test_an_unscripted_member_answers_with_text(make: Make) -> None:
    result = await Agent(make("member-a")).run("What is the capital of Japan?")
    assert "member-a" in result.output
    assert "capital of Japan" in result.output


async def test_a_scripted_text_arrives_word_for_word(make: Make, server: ModelServer) -> None:
    server.on("member-a", ["東京です。\n\n😀 \x00 end"])
    assert (await Agent(make("member-a")).run("?")).output == "東京です。\n\n😀 \x00 end"


async def test_an_unscripted_leader_calls_each_member_once_in_parallel_and_then_answers(
    make: Make, server: ModelServer
) -> None:
    called: list[str] = []
    result = await leader(make("leader-a"), called).run("Write a poem.")
    first = result.all_messages()[1]
    assert isinstance(first, ModelResponse)
    assert [part.tool_name for part in first.parts if isinstance(part, ToolCallPart)] == [
        "delegate_to_writer",
        "delegate_to_critic",
    ]
    assert sorted(line.partition(":")[0] for line in called) == ["critic", "writer"]
    assert all("Write a poem." in line for line in called)
    assert "a draft" in result.output
    assert "a critique" in result.output
    assert [request.role for request in server.requests] == ["leader", "leader"]


async def test_a_leader_that_may_not_call_in_parallel_calls_one_member_after_the_other(
    make: Make, server: ModelServer
) -> None:
    called: list[str] = []
    await leader(make("leader-a"), called).run("Write.", model_settings={"parallel_tool_calls": False})
    assert len(called) == 2
    assert server.bill.total.answered == 3


async def test_scripted_tool_calls_are_made(make: Make, server: ModelServer) -> None:
    calls = [ToolCall("delegate_to_writer", {"task": "t1"}), ToolCall("delegate_to_writer", {"task": "t2"})]
    server.on("leader-a", [calls, "done"])
    called: list[str] = []
    assert (await leader(make("leader-a"), called).run("go")).output == "done"
    assert sorted(called) == ["writer: t1", "writer: t2"]


@pytest.mark.parametrize("wrap", [lambda kind: kind, NativeOutput, lambda kind: ToolOutput(kind, name="give_verdict")])
async def test_a_judge_gets_a_valid_value_in_every_output_mode(
    make: Make, server: ModelServer, wrap: Callable[[type], type]
) -> None:
    verdict = (await Agent(make("judge"), output_type=wrap(Verdict)).run("Score this.")).output
    assert isinstance(verdict, Verdict)
    improvement = (await Agent(make("judge"), output_type=wrap(Improvement)).run("Go on?")).output
    assert isinstance(improvement, Improvement)
    assert improvement.should_continue
    assert [request.role for request in server.requests] == ["evaluator", "judgment"]


@pytest.mark.parametrize("wrap", [lambda kind: kind, NativeOutput])
async def test_a_scripted_value_is_sent_in_the_form_asked_for(
    make: Make, server: ModelServer, wrap: Callable[[type], type]
) -> None:
    server.on("judge", [{"reason": "fine", "score": 81.5}])
    judge: Agent[None, Any] = Agent(make("judge"), output_type=wrap(Verdict))
    assert (await judge.run("?")).output == Verdict(reason="fine", score=81.5)


async def test_a_leader_with_structured_output_calls_its_tools_first(make: Make) -> None:
    called: list[str] = []
    agent = Agent(make("leader-a"), output_type=Verdict)

    @agent.tool_plain
    def delegate_to_writer(task: str) -> str:
        called.append(task)
        return "a draft"

    assert isinstance((await agent.run("go")).output, Verdict)
    assert len(called) == 1


async def test_text_tool_calls_and_values_are_streamed(make: Make, server: ModelServer) -> None:
    called: list[str] = []
    async with leader(make("leader-a"), called).run_stream("Write a poem.") as stream:
        pieces = [piece async for piece in stream.stream_text(delta=True, debounce_by=None)]
    assert len(pieces) > 1
    assert len(called) == 2
    assert "a critique" in "".join(pieces)
    async with Agent(make("judge"), output_type=Verdict).run_stream("Score.") as judged:
        assert isinstance(await judged.get_output(), Verdict)
    assert all(request.stream and request.outcome == "answered" for request in server.requests)


async def test_streamed_and_whole_answers_are_the_same(make: Make) -> None:
    whole = await Agent(make("member-a")).run("Say it.")
    async with Agent(make("member-a")).run_stream("Say it.") as stream:
        assert await stream.get_output() == whole.output
    assert stream.usage.output_tokens == whole.usage.output_tokens


async def test_the_usage_the_client_adds_up_is_the_bill(make: Make, server: ModelServer) -> None:
    result = await leader(make("leader-a"), []).run("Write a poem.")
    async with leader(make("leader-a"), []).run_stream("Write another.") as stream:
        await stream.get_output()
    books = server.bill.models["leader-a"]
    assert books.input_tokens == result.usage.input_tokens + stream.usage.input_tokens > 0
    assert books.output_tokens == result.usage.output_tokens + stream.usage.output_tokens > 0
    assert books.requests == books.answered == 4


async def test_given_token_counts_are_stated(make: Make, server: ModelServer) -> None:
    server.on("member-a", [Answer(text="x", input_tokens=1000, output_tokens=2000)])
    usage = (await Agent(make("member-a")).run("?")).usage
    assert (usage.input_tokens, usage.output_tokens) == (1000, 2000)


async def test_a_function_sees_the_call(make: Make, server: ModelServer) -> None:
    seen: list[ModelCall] = []

    def answer(call: ModelCall) -> str:
        seen.append(call)
        return f"answer {call.number}"

    server.on("member-*", answer)
    agent = Agent(make("member-a"), instructions="You are the critic.")
    assert [(await agent.run(f"Round {number}")).output for number in (1, 2)] == ["answer 1", "answer 2"]
    assert seen[1].system == "You are the critic."
    assert seen[1].prompt == "Round 2"
    assert seen[1].round_number == 2
    assert seen[1].role == "member"


async def test_a_tool_that_asks_to_retry_is_not_called_for_ever(make: Make) -> None:
    agent = Agent(make("leader-a"), retries=3)

    @agent.tool_plain
    def delegate_to_writer(task: str) -> str:
        raise ModelRetry("not now")

    assert "not now" in (await agent.run("go")).output


async def test_both_apis_give_the_same_answer_and_bill(server: ModelServer) -> None:
    async with AsyncOpenAI(base_url=server.base_url, api_key="any", max_retries=0) as client:
        provider = OpenAIProvider(openai_client=client)
        chat = await leader(OpenAIChatModel("m", provider=provider), []).run("Write a poem.")
        responses = await leader(OpenAIResponsesModel("m", provider=provider), []).run("Write a poem.")
    assert chat.output == responses.output
    assert chat.usage.input_tokens == responses.usage.input_tokens
    assert chat.usage.output_tokens == responses.usage.output_tokens


async def test_models_are_listed(server: ModelServer) -> None:
    server.on("leader-a", ["x"])
    server.on("judge-*", ["x"])
    async with AsyncOpenAI(base_url=server.base_url, api_key="any") as client:
        await client.chat.completions.create(model="member-a", messages=[{"role": "user", "content": "?"}])
        assert [model.id async for model in client.models.list()] == ["leader-a", "member-a"]
        assert (await client.models.retrieve("leader-a")).id == "leader-a"
