"""What Python gives at the door: a mistake is one line that names the argument, and nobody has been asked anything."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mixseek
from mixseek.config.schema import PromptBuilderSettings, TeamSettings
from mixseek.errors import ConfigurationError
from mixseek.testing import Match, ModelCall, scripted

HALF = "holds half a surrogate pair, which can neither be sent nor kept: write the whole character"
LENGTH = {"metrics": [{"name": "Length", "options": {"maximum": 2000}}]}


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def asked() -> Iterator[list[str]]:
    """The models that were asked, in their order."""
    models: list[str] = []

    def note(call: ModelCall) -> None:
        models.append(call.model)

    with scripted() as script:
        script.on(Match(), note)
        yield models


def team(**more: Any) -> dict[str, Any]:
    return {"team_id": "a", "team_name": "A", "leader": {"model": "scripted:leader-a"}, **more}


def given(**more: Any) -> dict[str, Any]:
    parts = {"teams": [team()], "evaluator": LENGTH, "judgment": {"model": "none"}, "max_rounds": 1}
    return {**parts, **more}


# --- halves of surrogate pairs ----------------------------------------------------------------------------------------

CUT = "cut \ud83d"
MEMBER = {"name": "m", "type": "plain", "model": "scripted:m"}


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        ({"teams": [team(team_id=CUT)]}, "teams[0]: team_id"),
        ({"teams": [team(team_name=CUT)]}, "teams[0]: team_name"),
        (
            {"teams": [team(leader={"model": "scripted:a", "system_instruction": CUT})]},
            "teams[0]: leader.system_instruction",
        ),
        ({"teams": [team(leader={"model": "scripted:a\ud83d"})]}, "teams[0]: leader.model"),
        ({"teams": [team(members=[{**MEMBER, "name": CUT, "tool_name": "m"}])]}, "teams[0]: members[0].name"),
        (
            {"teams": [team(members=[{**MEMBER, "metadata": {"a": [CUT]}}])]},
            "teams[0]: members[0].metadata.a",
        ),
        ({"teams": [team(members=[{**MEMBER, "metadata": {CUT: 1}}])]}, "teams[0]: members[0].metadata"),
        ({"evaluator": {"default_model": "scripted:j", "metrics": [{"name": CUT, "type": "Coverage"}]}}, "metrics[0]"),
        ({"judgment": {"model": "scripted:j", "system_instruction": CUT}}, "judgment: system_instruction"),
        ({"prompt_builder": {"team_user_prompt": CUT}}, "prompt_builder: team_user_prompt"),
        ({"reference": CUT}, "arguments: reference"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("is_stored", [False, True], ids=["without a workspace", "in a workspace"])
async def test_half_a_character_in_settings_is_named_before_anybody_is_asked(
    tmp_path: Path, asked: list[str], wrong: dict[str, Any], place: str, is_stored: bool
) -> None:
    with pytest.raises(ConfigurationError) as raised:
        await mixseek.arun("task", **given(**wrong, workspace=tmp_path if is_stored else None))
    assert str(raised.value).endswith(HALF)
    assert place in str(raised.value)
    assert asked == []


def test_settings_that_are_made_by_hand_cannot_hold_half_a_character() -> None:
    with pytest.raises(ValueError, match=HALF):
        TeamSettings.model_validate(team(team_name=CUT))
    with pytest.raises(ValueError, match=HALF):
        PromptBuilderSettings(team_user_prompt=CUT)


async def test_half_a_character_in_a_variable_is_told_with_its_name(
    asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIXSEEK_TEAM_USER_PROMPT", CUT.replace("\ud83d", "\udcff"))
    with pytest.raises(ConfigurationError, match=f"MIXSEEK_TEAM_USER_PROMPT: {HALF}"):
        await mixseek.arun("task", **given())
    assert asked == []
