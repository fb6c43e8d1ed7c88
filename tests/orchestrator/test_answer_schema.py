"""Submissions that have to meet a JSON schema, with one more try for a leader whose answer does not."""

import json
from pathlib import Path
from typing import Any

import pytest

from mixseek.errors import ConfigurationError
from mixseek.testing import ModelServer, ToolCall
from soak.arena import Arena, Played, Team

CITY = """
[team.answer_schema]
type = "object"
required = ["city"]
additionalProperties = false
properties = { city = { type = "string" } }
"""
GOOD = '{"city": "Tokyo"}'
WRONG = '{"town": "Tokyo"}'


@pytest.fixture(autouse=True)
def _only_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIXSEEK_ONLY_LOOPBACK", "1")


async def played(
    root: Path, server: ModelServer, answers: list[Any], *, team: str = CITY, members: int = 0, rounds: int = 1
) -> tuple[Arena, Played]:
    """One team whose leader gives these answers in turn."""
    limits = f"max_rounds = {rounds}\nmin_rounds = {rounds}\nmax_retries_per_team = 0"
    arena = Arena(root, server.base_url, [Team("alpha", members=members, top=team)], orchestrator=limits)
    arena.script(server)
    server.on("leader-alpha", answers)
    server.on("judge", lambda _: {"evaluator_comment": "fine", "score": 50})
    return arena, await arena.play()


def asked(server: ModelServer, model: str = "leader-alpha") -> list[list[dict[str, Any]]]:
    return [request.body["messages"] for request in server.requests if request.model == model]


@pytest.mark.parametrize("given", [GOOD, f"```json\n{GOOD}\n```", f"\n{GOOD}\n"])
async def test_an_answer_that_meets_the_schema_is_submitted_as_bare_json(
    tmp_path: Path, server: ModelServer, given: str
) -> None:
    arena, came = await played(tmp_path, server, [given])
    [row] = arena.rows("leader_board")
    assert (row["submission_content"], row["submission_format"], row["score"]) == (GOOD, "json", 50)
    assert came.summary.team_results[0].submission_format == "json"
    [[*_, prompt]] = asked(server)
    [started] = came.told("RoundStarted")
    # The contract's prompt stays as it is; the schema stands after it.
    assert prompt["content"].startswith(started.prompt + "\n\n")
    assert '"required": ["city"]' in prompt["content"].removeprefix(started.prompt)
    assert '"required"' not in started.prompt


@pytest.mark.parametrize("members", [0, 1])
async def test_a_leader_whose_answer_does_not_meet_it_is_told_why_and_asked_once_more(
    tmp_path: Path, server: ModelServer, members: int
) -> None:
    first = [[ToolCall("delegate_to_m1", {"task": "alpha task"})]] if members else []
    arena, _ = await played(tmp_path, server, [*first, WRONG, GOOD], members=members)
    [row] = arena.rows("leader_board")
    assert (row["submission_content"], row["score"]) == (GOOD, 50)
    calls = asked(server)
    assert len(calls) == 2 + members
    *earlier, answer, told = calls[-1]
    assert earlier == calls[-2]
    assert (answer["role"], answer["content"]) == ("assistant", WRONG)
    assert told["role"] == "user"
    assert "'city' is a required property; the key 'town' is not allowed" in told["content"]
    [kept] = arena.rows("round_history")
    assert GOOD in json.dumps(kept["message_history"]).replace('\\"', '"')
    assert len(kept["member_submissions_record"]["submissions"]) == members


async def test_after_the_second_wrong_answer_the_round_has_failed_and_the_team_goes_on(
    tmp_path: Path, server: ModelServer
) -> None:
    arena, came = await played(tmp_path, server, ["It is Tokyo.", WRONG, GOOD], rounds=2)
    failed, fine = arena.rows("leader_board")
    reason = failed["score_details"]["reason"]
    assert reason.startswith("the answer did not meet the answer schema, nor did the one after it was told so: ")
    assert "'city' is a required property" in reason
    assert (failed["submission_content"], failed["score"], failed["submission_format"]) == ("", None, "json")
    assert (fine["submission_content"], fine["score"]) == (GOOD, 50)
    calls = asked(server)
    assert len(calls) == 3
    assert "the answer is not JSON" in calls[1][-1]["content"]
    assert f"理由: {reason}" in calls[2][-1]["content"]
    assert [event.reason for event in came.told("RoundFailed")] == [reason]
    assert came.summary.failed_teams_info == []
    # Nothing was there to be judged or scored in the failed round.
    assert len(asked(server, "judge")) == 1


async def test_the_teams_schema_wins_over_the_orchestrators(tmp_path: Path, server: ModelServer) -> None:
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "list.json").write_text('{"type": "array"}')
    teams = [Team("alpha", members=0, top=CITY), Team("beta", members=0), Team("gamma", members=0, top=CITY)]
    limits = 'answer_schema = "schemas/list.json"\nmax_rounds = 1'
    arena = Arena(tmp_path, server.base_url, teams, orchestrator=limits)
    arena.script(server)
    for team in teams:
        server.on(f"leader-{team.word}", ['["Tokyo"]', GOOD])
    await arena.play()
    rows = {row["team_id"]: row["submission_content"] for row in arena.rows("leader_board")}
    assert rows == {"alpha": GOOD, "beta": '["Tokyo"]', "gamma": GOOD}
    assert [len(asked(server, f"leader-{team.word}")) for team in teams] == [2, 1, 2]


async def test_a_pattern_that_never_ends_fails_the_round_and_not_the_run(tmp_path: Path, server: ModelServer) -> None:
    top = 'answer_schema = { pattern = "^(a|aa)+$" }'
    arena, _ = await played(tmp_path, server, [json.dumps("a" * 200 + "!")] * 2, team=top)
    [row] = arena.rows("leader_board")
    assert "could not be checked within 1 s" in row["score_details"]["reason"]


async def test_the_second_try_is_on_the_bill(tmp_path: Path, server: ModelServer) -> None:
    _, came = await played(tmp_path, server, [WRONG, GOOD])
    [line] = [line for line in came.summary.bill if line.role == "leader"]
    assert line.requests == 2


def test_a_schema_that_cannot_be_used_is_found_when_the_file_is_read(tmp_path: Path) -> None:
    with ModelServer() as server:
        arena = Arena(tmp_path, server.base_url, [Team("alpha", top='answer_schema = { type = "objekt" }')])
        with pytest.raises(ConfigurationError, match=r"agents/0.toml: team.answer_schema: is no JSON schema: type"):
            arena.build()
        assert server.requests == []


def test_a_schema_in_the_environment_is_read_as_json(
    tmp_path: Path, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    arena = Arena(tmp_path, server.base_url, [Team("alpha")])
    monkeypatch.setenv("MIXSEEK_ANSWER_SCHEMA", '{"$ref": "https://example.com/s.json"}')
    with pytest.raises(ConfigurationError, match="leads nowhere in the schema"):
        arena.build()
