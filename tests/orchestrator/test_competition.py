"""Five teams, three rounds, two members each: every row, every prompt and every token is accounted for."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mixseek.events import RoundFinished
from mixseek.records import LeaderBoardEntry, Standing, order_standings
from mixseek.storage.journal_records import JournalEvent, RoundPrompt
from mixseek.testing import ModelServer
from soak.arena import GO_ON, TASK, Arena, Played, Team

TEAMS = (
    Team("alpha", scores=(70, 80, 75), members=2),
    Team("beta", scores=(60, 65, 90), members=2),
    Team("gamma", scores=(80, 80, 10), members=2),
    Team("delta", scores=(30, 20, 10), members=2),
    Team("omega", scores=(1, 100, 2), members=2),
)
ROUNDS = 3
CALLS_OF_A_ROUND = {"leader": 2, "member": 2, "evaluator": 3, "judgment": 1}


@pytest.fixture(autouse=True)
def _only_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIXSEEK_ONLY_LOOPBACK", "1")


async def test_every_row_prompt_and_token_of_a_competition_is_accounted_for(
    tmp_path: Path, server: ModelServer
) -> None:
    arena = Arena(
        tmp_path,
        server.base_url,
        TEAMS,
        # Judgments are made after every round, the last one included.
        orchestrator="max_rounds = 3\nmin_rounds = 1\nmax_concurrent_teams = 3\n",
        evaluator="",
    )
    arena.script(server)
    played = await arena.play()
    assert [(each.team_id, each.round_number, each.score) for each in played.summary.team_results] == [
        ("omega", 2, 100),
        ("beta", 3, 90),
        ("alpha", 2, 80),
        ("gamma", 2, 80),
        ("delta", 1, 30),
    ]
    assert (played.summary.best_team_id, played.summary.best_score) == ("omega", 100)
    assert played.summary.failed_teams_info == []
    _rows_are_as_expected(arena, played)
    _every_token_is_on_all_bills(arena, played, server)
    async with arena.journal() as journal:
        prompts = await journal.prompts(played.summary.execution_id)
        events = await journal.events(played.summary.execution_id)
        calls = await journal.calls(played.summary.execution_id)
        helped = await journal.tool_results(played.summary.execution_id)
    _rankings_are_those_of_the_board(prompts, events)
    _prompts_are_the_ones_sent(prompts, server)
    _events_are_whole_and_in_order(events)
    assert Counter(call.scope.role for call in calls) == {
        role: count * len(TEAMS) * ROUNDS for role, count in CALLS_OF_A_ROUND.items()
    }
    assert len(helped) == 2 * len(TEAMS) * ROUNDS


def _rows_are_as_expected(arena: Arena, played: Played) -> None:
    keys = [(team.word, number) for team in sorted(TEAMS, key=lambda team: team.word) for number in (1, 2, 3)]
    board = arena.rows("leader_board")
    assert [(row["team_id"], row["round_number"]) for row in board] == keys
    by_word = {team.word: team for team in TEAMS}
    for row in board:
        team, number = by_word[row["team_id"]], row["round_number"]
        assert (row["score"], row["submission_content"]) == (team.worth(number), team.answer(number))
        assert row["team_name"] == f"Team {team.word}"
        assert row["submission_format"] == "md"
        assert [metric["metric_name"] for metric in row["score_details"]["metrics"]] == [
            "ClarityCoherence",
            "Coverage",
            "Relevance",
        ]
        assert row["score_details"]["overall_score"] == row["score"]
    finals = [(row["team_id"], row["round_number"], row["exit_reason"]) for row in board if row["final_submission"]]
    best = {"alpha": 2, "beta": 3, "delta": 1, "gamma": 2, "omega": 2}
    assert finals == [(team, number, "max_rounds_reached") for team, number in best.items()]
    assert all(row["exit_reason"] is None for row in board if not row["final_submission"])

    history = arena.rows("round_history")
    assert [(row["team_id"], row["round_number"]) for row in history] == keys
    for row in history:
        given = row["member_submissions_record"]["submissions"]
        assert sorted((each["agent_name"], each["status"]) for each in given) == [("m1", "SUCCESS"), ("m2", "SUCCESS")]
        assert all(each["usage"]["requests"] == 1 and each["usage"]["input_tokens"] > 0 for each in given)
        assert all(len(each["all_messages"]) == 2 for each in given)
        # The prompt, the calls of members, what they gave, the submission.
        assert len(row["message_history"]) == 4

    status = arena.rows("round_status")
    assert [(row["team_id"], row["round_number"]) for row in status] == keys
    assert {row["reasoning"] for row in status} == {GO_ON["reasoning"]}
    assert all(row["round_started_at"] <= row["round_ended_at"] for row in status)

    (summary,) = arena.rows("execution_summary")
    assert summary["status"] == "completed"
    assert (summary["user_prompt"], summary["total_teams"]) == (TASK, len(TEAMS))
    assert (summary["best_team_id"], summary["best_score"]) == ("omega", 100)
    kept = [LeaderBoardEntry.model_validate(entry) for entry in summary["team_results"]]
    assert kept == played.summary.team_results


def _every_token_is_on_all_bills(arena: Arena, played: Played, server: ModelServer) -> None:
    billed, summary = server.bill, played.summary
    assert billed.total.requests == billed.total.answered == sum(CALLS_OF_A_ROUND.values()) * len(TEAMS) * ROUNDS
    counted = (summary.usage.requests, summary.usage.input_tokens, summary.usage.output_tokens)
    assert counted == (billed.total.answered, billed.total.input_tokens, billed.total.output_tokens)
    rows = arena.rows("model_usage")
    # leader, two members, three metrics, judgment
    assert len(rows) == 7 * len(TEAMS) * ROUNDS
    assert _by_model(rows) == _by_model([line.model_dump() for line in summary.bill])
    assert _by_model(rows) == {
        f"loop:{model}": (books.answered, books.input_tokens, books.output_tokens)
        for model, books in billed.models.items()
    }


def _by_model(lines: list[dict[str, Any]]) -> dict[str, tuple[int, ...]]:
    sums: dict[str, Counter[str]] = {}
    for line in lines:
        counted = {name: line[name] for name in ("requests", "input_tokens", "output_tokens")}
        sums.setdefault(line["model"], Counter()).update(counted)
    return {model: (s["requests"], s["input_tokens"], s["output_tokens"]) for model, s in sums.items()}


def _rankings_are_those_of_the_board(prompts: list[RoundPrompt], events: list[JournalEvent]) -> None:
    """Each prompt shows the board as it was at one moment between the two events of its team around it."""
    finished = [event for event in events if event.kind == "RoundFinished"]
    boards = [_ranking(finished[:count]) for count in range(len(finished) + 1)]
    looked_at = 0
    for prompt in prompts:
        if prompt.role == "evaluator" or (prompt.role == "leader" and prompt.round_number == 1):
            assert prompt.ranking is None
            continue
        mine = [at for at, event in enumerate(finished, 1) if event.team_id == prompt.team_id]
        played_by_then = prompt.round_number if prompt.role == "judgment" else prompt.round_number - 1
        first = mine[played_by_then - 1]
        last = mine[played_by_then] if played_by_then < len(mine) else len(boards)
        # A round is on the board a moment before its event is told.
        assert prompt.ranking in [*boards[first:last], *_a_moment_early(finished, first, last, prompt.team_id)]
        assert isinstance(prompt.ranking, list)
        for place, row in enumerate(prompt.ranking, 1):
            assert isinstance(row, dict)
            assert f"#{place} {row['team_name']}" in prompt.text
        looked_at += 1
    assert looked_at == len(TEAMS) * (ROUNDS + ROUNDS - 1)


def _a_moment_early(finished: list[JournalEvent], first: int, last: int, team_id: str) -> list[list[dict[str, Any]]]:
    """Boards that hold, beside what was told by then, rounds of other teams that were stored but not told yet."""
    early = []
    for told in range(first, last):
        ahead = [event for event in finished[told : told + len(TEAMS)] if event.team_id != team_id]
        for choice in range(1, 2 ** len(ahead)):
            chosen = [event for at, event in enumerate(ahead) if choice >> at & 1]
            early.append(_ranking([*finished[:told], *chosen]))
    return early


def _ranking(finished: list[JournalEvent]) -> list[dict[str, Any]]:
    teams: dict[str, list[LeaderBoardEntry]] = {}
    for event in finished:
        assert isinstance(event.payload, dict)
        entry = LeaderBoardEntry.model_validate(event.payload["entry"])
        teams.setdefault(entry.team_id, []).append(entry)
    standings = order_standings(
        Standing(
            team_id=team_id,
            team_name=entries[-1].team_name,
            best_score=max(entry.score or 0 for entry in entries),
            latest_round=max(entry.round_number for entry in entries),
            total_rounds=len(entries),
        )
        for team_id, entries in teams.items()
    )
    return [
        {
            "team_id": each.team_id,
            "team_name": each.team_name,
            "max_score": each.best_score,
            "total_rounds": each.total_rounds,
        }
        for each in standings
    ]


def _prompts_are_the_ones_sent(prompts: list[RoundPrompt], server: ModelServer) -> None:
    sent = {str(message["content"]) for request in server.requests for message in request.body["messages"]}
    assert len(prompts) == 3 * len(TEAMS) * ROUNDS
    for prompt in prompts:
        assert prompt.text in sent
        assert prompt.clock in prompt.text
        assert prompt.nonce is None or prompt.nonce in prompt.text
        assert (prompt.nonce is None) == (prompt.role == "leader")


def _events_are_whole_and_in_order(events: list[JournalEvent]) -> None:
    of_the_run = [event.kind for event in events if event.team_id is None]
    assert of_the_run == ["RunStarted", "RunFinished"]
    of_a_round = [
        "RoundStarted",
        "ModelCalled",
        *["MemberCalled", "ModelCalled", "MemberFinished"] * 2,
        "ModelCalled",
        "HistoryKept",
        "SubmissionMade",
        *["ModelCalled"] * 3,
        "SubmissionEvaluated",
        "RoundFinished",
        "ModelCalled",
        "RoundJudged",
    ]
    steps = ["RoundStarted", "HistoryKept", "SubmissionMade", "SubmissionEvaluated", "RoundFinished", "RoundJudged"]
    for team in TEAMS:
        own = [event for event in events if event.team_id == team.word]
        assert [event.sequence for event in own] == list(range(len(own)))
        assert [event.at for event in own] == sorted(event.at for event in own)
        kinds = [event.kind for event in own]
        assert Counter(kinds) == Counter(["TeamStarted", *of_a_round * ROUNDS, "TeamFinished"])
        steady = [kind for kind in kinds if kind not in {"ModelCalled", "MemberCalled", "MemberFinished"}]
        assert steady == ["TeamStarted", *steps * ROUNDS, "TeamFinished"]


async def test_listeners_hear_what_the_journal_keeps(tmp_path: Path, server: ModelServer) -> None:
    arena = Arena(tmp_path, server.base_url)
    arena.script(server)
    played = await arena.play()
    async with arena.journal() as journal:
        kept = await journal.events(played.summary.execution_id)
    assert [(event.team_id, event.kind, event.payload) for event in kept] == [
        (event.team_id, event.kind, event.payload()) for event in played.events
    ]
    (told, *_) = [event for event in played.events if isinstance(event, RoundFinished)]
    assert {line.role for line in told.usage} == {"leader", "member", "evaluator"}
