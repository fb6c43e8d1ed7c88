"""Members: the plain kind, kinds of one's own, and what is kept of their work."""

from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import ModelRequest, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.usage import RunUsage

from mixseek.agents.member import BaseMemberAgent, MemberAgentFactory
from mixseek.agents.member.results import as_submission
from mixseek.config.schema import MemberAgentConfig
from mixseek.errors import PluginError
from mixseek.models.member_agent import MemberAgentResult
from mixseek.records import Usage
from mixseek.testing import Match, ModelCall, scripted
from mixseek.workspace import Workspace

CUSTOM = """
from mixseek.agents.member.base import BaseMemberAgent
from mixseek.models.member_agent import MemberAgentResult

class Echo(BaseMemberAgent):
    async def execute(self, task, context=None, **kwargs):
        return MemberAgentResult.success(f"{task}{context['round_number']}", self.agent_name, self.agent_type)
"""


def config(**fields: Any) -> MemberAgentConfig:
    return MemberAgentConfig.model_validate({"name": "m", "type": "plain", "model": "scripted:m", **fields})


async def test_a_plain_member_answers_with_its_model() -> None:
    heard: list[ModelCall] = []

    def answer(call: ModelCall) -> str:
        heard.append(call)
        return "調べました"

    with scripted() as script:
        script.on(Match("m"), answer)
        member = MemberAgentFactory.create_agent(config(system_instruction="調査員です", system_prompt="簡潔に"))
        await member.initialize()
        result = await member.execute("調べて")
    assert (result.status, result.content, result.agent_name, result.agent_type) == (
        "success",
        "調べました",
        "m",
        "plain",
    )
    assert result.usage_info.requests == 1
    assert result.all_messages is not None
    assert len(result.all_messages) == 2
    assert heard[0].prompt == "調べて"
    assert "調査員です" in heard[0].system
    assert "簡潔に" in heard[0].system


async def test_a_member_of_ones_own_comes_from_a_file_of_the_workspace(tmp_path: Path) -> None:
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "echo.py").write_text(CUSTOM)
    plugin = {"path": "agents/echo.py", "agent_class": "Echo"}
    member = MemberAgentFactory.create_agent(config(type="custom", plugin=plugin), workspace=Workspace(tmp_path))
    assert (await member.execute("こだま", context={"round_number": 2})).content == "こだま2"


def test_a_registered_type_is_made_by_its_name() -> None:
    class Oracle(BaseMemberAgent):
        async def execute(self, task: str, context: dict[str, Any] | None = None, **kwargs: Any) -> MemberAgentResult:
            return MemberAgentResult.success("42", self.agent_name, self.agent_type)

    MemberAgentFactory.register_agent("oracle", Oracle)
    assert isinstance(MemberAgentFactory.create_agent(config(type="oracle")), Oracle)
    assert {"custom", "oracle", "plain"} <= set(MemberAgentFactory.get_supported_types())


def test_an_unknown_type_is_told_with_the_known_ones() -> None:
    with pytest.raises(PluginError, match=r"unknown member type 'wizard': known are .*plain"):
        MemberAgentFactory.create_agent(config(type="wizard"))


def test_what_pydantic_ai_gives_is_kept_as_records() -> None:
    messages = [ModelRequest(parts=[UserPromptPart("問い")]), ModelResponse(parts=[TextPart("答え")])]
    result = MemberAgentResult.success(
        "答え", "m", "custom", usage_info=RunUsage(requests=2, input_tokens=7), all_messages=messages
    )
    kept = as_submission(result, seconds=1.5)
    assert kept.usage == Usage(requests=2, input_tokens=7)
    assert kept.all_messages is not None
    assert [message["kind"] for message in kept.all_messages if isinstance(message, dict)] == ["request", "response"]
    assert (kept.status, kept.execution_time_ms) == ("SUCCESS", 1500)


def test_usage_and_messages_of_another_make_are_kept_as_far_as_they_are_understood() -> None:
    result = MemberAgentResult.error(
        "down",
        "m",
        "custom",
        usage_info={"requests": 1, "mood": "bad"},
        all_messages=["text", {"a": {1}}],
        execution_time_ms=3,
    )
    kept = as_submission(result, seconds=9)
    assert kept.usage == Usage(requests=1)
    assert kept.all_messages == ["text", {"a": [1]}]
    assert (kept.status, kept.error_message, kept.execution_time_ms) == ("ERROR", "down", 3)
