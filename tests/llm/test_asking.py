"""One question with an answer of a given form."""

from typing import Any

import pytest
from pydantic import BaseModel, Field

from mixseek.errors import ModelOutputError, ModelRefusedError
from mixseek.llm import Meter, ModelHub, Scope, ask, calling
from mixseek.testing import Answer, ModelServer, ToolCall

SCOPE = Scope(execution_id="e", team_id="a", round_number=1, role="evaluator", agent_name="Coverage")
apis = pytest.mark.parametrize("api", ["chat", "responses"])


class Verdict(BaseModel):
    """What a judge says."""

    reason: str
    score: float = Field(ge=0, le=100)


GOOD = {"reason": "clear", "score": 80}


async def judge(hub: ModelHub, api: str = "chat", **settings: Any) -> Verdict:
    return await ask(
        hub.model(f"{api}:m"),
        Verdict,
        instructions="You judge.",
        prompt="Judge this.",
        settings=settings,  # type: ignore[arg-type]
    )


@apis
async def test_an_answer_by_the_offered_tool_is_read(api: str, hub: ModelHub, server: ModelServer) -> None:
    server.on("m", [ToolCall("final_result", GOOD)])
    assert await judge(hub, api, temperature=0.0) == Verdict(reason="clear", score=80)
    (request,) = server.requests
    assert "You judge." in str(request.body)
    assert request.body["temperature"] == 0.0
    assert request.body["tool_choice"] == "required"


@apis
@pytest.mark.parametrize("text", ['{"reason": "clear", "score": 80}', '```json\n{"reason": "clear", "score": 80}\n```'])
async def test_an_answer_in_json_text_is_read_too(api: str, text: str, hub: ModelHub, server: ModelServer) -> None:
    server.on("m", [Answer(text=text)])
    assert (await judge(hub, api)).score == 80


@apis
@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (ToolCall("final_result", {"reason": "clear", "score": 150}), "less than or equal to 100"),
        (ToolCall("final_result", {"score": 80}), "reason: Field required"),
        (ToolCall("final_result", '{"reason": "cl'), "Invalid JSON"),
        (ToolCall("other_tool", GOOD), "there is no tool 'other_tool'"),
        ((ToolCall("a", {}), ToolCall("b", {})), "there is no tool 'a'"),
        (Answer(text="I like it."), "Invalid JSON"),
        (Answer(text=""), "the answer was empty"),
    ],
)
async def test_a_wrong_answer_is_asked_for_again_with_what_is_wrong(
    wrong: Any, told: str, api: str, hub: ModelHub, server: ModelServer
) -> None:
    server.on("m", [wrong, ToolCall("final_result", GOOD)])
    meter = Meter()
    with calling(SCOPE, meter):
        assert (await judge(hub, api)).score == 80
    first, second = server.requests
    assert told not in str(first.body)
    assert told in str(second.body)
    (line,) = meter.bill()
    assert (line.requests, line.output_tokens) == (2, server.bill.total.output_tokens)
    assert line.input_tokens == server.bill.total.input_tokens


@apis
async def test_an_answer_that_stays_wrong_is_an_error_after_the_retries(
    api: str, hub: ModelHub, server: ModelServer
) -> None:
    server.fault("score_150")
    with pytest.raises(ModelOutputError, match="less than or equal to 100") as raised:
        await judge(hub, api, max_retries=2)
    assert server.bill.total.requests == raised.value.attempts == 3
    assert raised.value.model == f"{api}:m"


async def test_zero_retries_are_one_question(hub: ModelHub, server: ModelServer) -> None:
    server.fault("score_150")
    with pytest.raises(ModelOutputError):
        await judge(hub, max_retries=0)
    assert server.bill.total.requests == 1


async def test_a_failed_call_is_not_asked_again_here(hub: ModelHub, server: ModelServer) -> None:
    server.fault(400)
    with pytest.raises(ModelRefusedError):
        await judge(hub)
    assert server.bill.total.requests == 1


async def test_a_fallback_answers_in_the_form_too(hub: ModelHub, server: ModelServer) -> None:
    server.fault(400, model="first")
    model = hub.model("chat:first", fallback_models=["responses:second"])
    assert isinstance(await ask(model, Verdict, prompt="Judge this."), Verdict)
