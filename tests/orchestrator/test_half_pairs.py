"""Answers cut in the middle of a character: half a surrogate pair can neither be sent nor kept, and costs no team."""

import logging
from pathlib import Path
from typing import Any

import pytest

from mixseek.testing import ModelCall, ModelServer, ToolCall
from soak.arena import TASK, Arena, Team


@pytest.fixture(autouse=True)
def _only_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIXSEEK_ONLY_LOOPBACK", "1")


def leader(task: str, answer: str) -> Any:
    return lambda call: answer if call.tool_results else ToolCall("delegate_to_m1", task)


@pytest.mark.parametrize("task", ['{"task": "look \ud83d"}', r'{"task": "look \ud83d"}'], ids=["as it is", "escaped"])
async def test_half_a_character_in_any_answer_costs_no_team_its_result(
    tmp_path: Path, server: ModelServer, task: str
) -> None:
    arena = Arena(tmp_path, server.base_url, [Team("alpha")], orchestrator="max_rounds = 2\nmin_rounds = 1")
    server.on("leader-alpha", leader(task, "an answer \ud83d"))
    asked: list[str] = []

    def member(call: ModelCall) -> str:
        asked.append(call.prompt)
        return "help \ud83d"

    server.on("member-alpha", member)
    server.on("judge", lambda _: {"evaluator_comment": "half \ud83d", "score": 50})
    judgment = {"should_continue": True, "reasoning": "half \ud83d", "confidence_score": 0.5}
    server.on("judgment", lambda _: judgment)
    played = await arena.play()
    assert played.summary.failed_teams_info == []
    assert asked == ["look \ufffd"] * 2
    assert [row["submission_content"] for row in arena.rows("leader_board")] == ["an answer \ufffd"] * 2
    [first, *_] = arena.rows("round_history")
    assert first["member_submissions_record"]["submissions"][0]["content"] == "help \ufffd"
    [metric] = arena.rows("leader_board")[0]["score_details"]["metrics"]
    assert metric["evaluator_comment"] == "half \ufffd"
    # Nothing was asked twice.
    requests = {model: bill.requests for model, bill in server.bill.models.items()}
    assert requests == {"leader-alpha": 4, "member-alpha": 2, "judge": 2, "judgment": 2}


METRIC = """
from mixseek.errors import EvaluationError
from mixseek.evaluator.metrics import BaseMetric


class Odd(BaseMetric):
    async def evaluate(self, user_query, submission, **context):
        raise {kind}("cannot read \\ud83d this")
"""


@pytest.fixture
def logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """A traceback tells the words of an error as they are, and the reports of test processes are sent in UTF-8."""
    caplog.set_level(logging.CRITICAL + 1, logger="mixseek")


@pytest.mark.usefixtures("logs_nothing")
@pytest.mark.parametrize("kind", ["RuntimeError", "EvaluationError"])
async def test_half_a_character_in_what_a_metric_raises_has_no_judge_beside_it_paid_again(
    tmp_path: Path, server: ModelServer, kind: str
) -> None:
    (tmp_path / "odd.py").write_text(METRIC.format(kind=kind))
    arena = Arena(
        tmp_path,
        server.base_url,
        [Team("alpha", members=0)],
        orchestrator="max_rounds = 1\nmax_retries_per_team = 0",
        evaluator=(
            '[[metrics]]\nname = "Quality"\nsystem_instruction = "How good is it?"\n'
            '[[metrics]]\nname = "Odd"\n[custom_metrics]\nOdd = { path = "odd.py", class = "Odd" }\n'
        ),
    )
    arena.script(server)
    played = await arena.build().execute(TASK, execution_id="half")
    resumed = await arena.build().resume("half")
    for summary in (played, resumed):
        [failed] = summary.failed_teams_info
        assert failed.error_message.endswith("cannot read \ufffd this")
    [row] = arena.rows("leader_board")
    assert row["score_details"]["reason"] == failed.error_message
    assert server.bill.models["judge"].requests == 1


@pytest.mark.usefixtures("logs_nothing")
@pytest.mark.parametrize("model", ["judge", "judgment", "leader-alpha"])
async def test_half_a_character_in_what_a_provider_refuses_with_is_told_and_kept_like_any_other(
    tmp_path: Path, server: ModelServer, model: str
) -> None:
    arena = Arena(
        tmp_path,
        server.base_url,
        [Team("alpha", members=0)],
        orchestrator="max_rounds = 2\nmin_rounds = 1\nmax_retries_per_team = 0",
    )
    arena.script(server)

    def refuse(call: ModelCall) -> Any:
        raise ValueError("cannot read \ud83d this")

    server.on(model, refuse)
    played = await arena.play()
    if model == "judgment":
        assert played.summary.failed_teams_info == []
        told = [row["reasoning"] for row in arena.rows("round_status", "round_number = 1")]
    else:
        told = [failed.error_message for failed in played.summary.failed_teams_info]
    assert len(told) == 1
    assert "cannot read \ufffd this" in told[0]


UNREADY = """
from mixseek.agents.member import BaseMemberAgent
from mixseek.errors import ConfigurationError


class Unready(BaseMemberAgent):
    async def initialize(self):
        raise ConfigurationError("cannot read \\ud83d this")

    async def execute(self, task, context=None, **kwargs):
        raise AssertionError
"""


@pytest.mark.usefixtures("logs_nothing")
async def test_half_a_character_in_why_a_member_is_not_ready_keeps_no_run_from_its_end(
    tmp_path: Path, server: ModelServer
) -> None:
    (tmp_path / "unready.py").write_text(UNREADY)
    unready = (
        '[[team.members]]\nname = "own"\ntype = "custom"\ndescription = "d"\n'
        'model = "loop:own-model"\nplugin = { path = "unready.py", agent_class = "Unready" }\n'
    )
    arena = Arena(tmp_path, server.base_url, [Team("alpha", members=0, extra=unready)])
    arena.script(server)
    played = await arena.play()
    assert played.failure("alpha") == "cannot read \ufffd this"
    async with arena.journal() as journal:
        kinds = [event.kind for event in await journal.events(played.summary.execution_id)]
    assert kinds[-2:] == ["TeamFailed", "RunFinished"]
