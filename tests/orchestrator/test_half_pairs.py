"""Answers cut in the middle of a character: half a surrogate pair can neither be sent nor kept, and costs no team."""

from pathlib import Path
from typing import Any

import pytest

from mixseek.testing import ModelCall, ModelServer, ToolCall
from soak.arena import Arena, Team


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
