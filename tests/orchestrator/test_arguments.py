"""What Python gives at the door: a mistake is one line that names the argument, and nobody has been asked anything."""

import inspect
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mixseek
from mixseek.config.schema import OrchestratorSettings, PromptBuilderSettings, TeamSettings
from mixseek.errors import ConfigurationError
from mixseek.events import Event
from mixseek.llm import Backoff
from mixseek.orchestrator import Orchestrator, load_orchestrator_settings
from mixseek.orchestrator.compete import Limits
from mixseek.orchestrator.single import TeamAlone
from mixseek.records import MemberSubmission, RoundState
from mixseek.testing import Match, ModelCall, scripted, write_workspace

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


@pytest.fixture
def settings(tmp_path: Path) -> OrchestratorSettings:
    return load_orchestrator_settings(write_workspace(tmp_path, teams=1, max_rounds=1), tmp_path)


def team(**more: Any) -> dict[str, Any]:
    return {"team_id": "a", "team_name": "A", "leader": {"model": "scripted:leader-a"}, **more}


def given(**more: Any) -> dict[str, Any]:
    parts = {"teams": [team()], "evaluator": LENGTH, "judgment": {"model": "none"}, "max_rounds": 1}
    return {**parts, **more}


async def _async(*_: Any) -> None:
    raise AssertionError("nobody calls it")


class _AsyncObject:
    async def __call__(self, event: Event) -> None: ...


TEAMS = "a list of TeamSettings, tables or paths of team files"


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"teams": None}, f"teams: must be {TEAMS}, not NoneType"),
        ({"teams": 3}, f"teams: must be {TEAMS}, not int"),
        ({"teams": [None]}, "teams[0]: must be TeamSettings, a table or the path of a team file, not NoneType"),
        ({"listeners": 3}, "listeners: must be functions of an event, in a list, not int"),
        ({"listeners": [print, 3]}, "listeners[1]: must be a function of an event, not int"),
        ({"listeners": [_async]}, "listeners[0]: is async, but nobody awaits it: write a plain def"),
        ({"listeners": [_AsyncObject()]}, "listeners[0]: is async, but nobody awaits it: write a plain def"),
        (
            {"on_round_complete": 3},
            "on_round_complete: must be a function of a RoundState and the round's member submissions, not int",
        ),
        ({"workspace": 3}, "workspace: must be the path of a directory, not int"),
        ({"workspace": "~nobody-of-this-name"}, "workspace '~nobody-of-this-name' is not the name of a directory"),
        ({"backoff": 4}, "backoff: must be a Backoff of mixseek.llm, not int"),
        ({"attachments": 4}, "attachments: must be paths or Attachment records, in a list, not int"),
        ({"attachments": b"x"}, "attachments: must be paths or Attachment records, in a list, not bytes"),
        ({"execution_id": 3}, "the execution id is no text but int: give some text"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
async def test_an_argument_of_another_kind_is_named_with_what_it_must_be(
    asked: list[str], wrong: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigurationError) as raised:
        await mixseek.arun("task", **given(**wrong))
    assert str(raised.value) == told
    assert asked == []


async def test_an_unknown_argument_is_told_with_every_argument_there_is(asked: list[str]) -> None:
    with pytest.raises(ConfigurationError) as raised:
        await mixseek.arun("task", **given(zzz=1, max_roundz=2))
    unlike, near = raised.value.problems
    assert str(near) == 'arguments: max_roundz: unknown key; did you mean "max_rounds"?'
    words, listed = str(unlike).split(" known are ")
    assert words == "arguments: zzz: unknown key;"
    named = [name for name in inspect.signature(mixseek.arun).parameters if name != "limits"]
    in_files = ["evaluator_config", "judgment_config", "prompt_builder_config"]
    assert listed.split(", ") == sorted({*named, *Limits.__annotations__, *in_files})
    assert asked == []


@pytest.mark.parametrize("wrong", [None, "configs/orchestrator.toml", {}])
def test_settings_of_another_kind_are_named_with_what_gives_the_right_ones(wrong: Any) -> None:
    with pytest.raises(ConfigurationError) as raised:
        Orchestrator(wrong)
    words = "settings: must be OrchestratorSettings, as load_orchestrator_settings(file, workspace) gives them"
    assert str(raised.value) == f"{words}, not {type(wrong).__name__}"


async def test_none_stands_for_nothing_and_one_listener_for_a_list_of_one(asked: list[str]) -> None:
    heard: list[Event] = []
    summary = await mixseek.arun("task", **given(attachments=None, listeners=heard.append))
    assert summary.completed_teams == 1
    assert asked == ["leader-a"]
    assert [event.kind for event in heard][-1] == "RunFinished"
    assert (await mixseek.arun("task", **given(listeners=None, backoff=None))).completed_teams == 1


async def test_a_hook_may_be_a_plain_function(asked: list[str], caplog: pytest.LogCaptureFixture) -> None:
    rounds: list[int] = []

    def hook(state: RoundState, submissions: list[MemberSubmission]) -> None:
        rounds.append(state.round_number)

    await mixseek.arun("task", **given(on_round_complete=hook, max_rounds=2))
    assert rounds == [1, 2]
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_a_team_alone_checks_its_listeners_and_its_backoff_too(tmp_path: Path) -> None:
    settings: Any = None
    with pytest.raises(ConfigurationError, match=r"listeners\[0\]: must be a function of an event, not int"):
        TeamAlone(settings, listeners=[3])  # type: ignore[list-item]
    with pytest.raises(ConfigurationError, match="settings: must be"):
        TeamAlone(settings, backoff=Backoff())


# --- what execute() is asked for --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"reference": 4}, "the reference answer is no text but int: give some text"),
        ({"reference": " "}, "the reference answer is empty: give some text"),
        ({"reference": "cut \ud83d"}, "the reference answer is not UTF-8 text"),
        ({"timeout_seconds": 0}, "timeout_seconds: 0 is not allowed: must be a whole number from 1 up"),
        ({"timeout_seconds": 1.5}, "timeout_seconds: 1.5 is not allowed: must be a whole number from 1 up"),
        ({"timeout_seconds": float("inf")}, "timeout_seconds: inf is not allowed: must be a whole number from 1 up"),
        ({"timeout_seconds": True}, "timeout_seconds: true is not allowed: must be a whole number from 1 up"),
        ({"timeout_seconds": "5"}, "timeout_seconds: '5' is not allowed: must be a whole number from 1 up"),
    ],
    ids=str,
)
async def test_what_a_run_cannot_be_asked_for_is_refused_before_anything_is_opened(
    tmp_path: Path, asked: list[str], settings: OrchestratorSettings, wrong: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigurationError) as raised:
        await Orchestrator(settings).execute("task", **wrong)
    assert str(raised.value) == told
    assert asked == []
    assert not (tmp_path / "journal.db").exists()


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("last", "stands for the newest execution"),
        ("-f", "begins like an option"),
        ("--help", "begins like an option"),
        ("a\nb", "holds a character that cannot be typed"),
        ("\x1b[31mred", "holds a character that cannot be typed"),
        ("a\u200bb", "holds a character that cannot be typed"),
        (" a", "begins or ends with a space"),
        ("a\n", "begins or ends with a space"),
        ("nightly~2", "holds '~', which stands before what belongs to another execution"),
    ],
)
async def test_an_id_that_no_command_could_name_is_refused(
    tmp_path: Path, asked: list[str], settings: OrchestratorSettings, name: str, why: str
) -> None:
    with pytest.raises(ConfigurationError) as raised:
        await Orchestrator(settings).execute("task", execution_id=name)
    assert str(raised.value) == f"the execution id {name!r} {why}, so no command could name it: give another"
    assert asked == []
    assert not (tmp_path / "journal.db").exists()


@pytest.mark.parametrize("name", ["mine", "2026-11-17 night", "実行一", "a/b", "lastly"])
async def test_any_other_id_is_taken(asked: list[str], settings: OrchestratorSettings, name: str) -> None:
    assert (await Orchestrator(settings).execute("task", execution_id=name)).execution_id == name


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


async def test_a_file_whose_name_is_not_utf8_is_told_by_its_name(tmp_path: Path, asked: list[str]) -> None:
    file = tmp_path / "cut \udcff.txt"
    file.write_text("text")
    with pytest.raises(ConfigurationError) as raised:
        await mixseek.arun("task", **given(attachments=[file.name]))
    assert str(raised.value) == f"attachment {file.name!r}: has a name that is not UTF-8: rename the file"
    assert asked == []


def test_a_mistake_is_not_told_as_a_consequence_of_something_else() -> None:
    with pytest.raises(ConfigurationError) as raised:
        mixseek.run("task", **given(teams=None))
    assert raised.value.__context__ is None


def test_a_file_of_a_team_that_does_not_exist_is_told_once(tmp_path: Path) -> None:
    write_workspace(tmp_path, teams=1)
    with pytest.raises(ConfigurationError) as told:
        mixseek.run("task", teams=["nope.toml"], workspace=tmp_path)
    assert str(told.value) == "nope.toml: does not exist in the current directory or the workspace"
