"""A team that is taken out of the orchestrator file before a run goes on: what it was paid for is not lost."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mixseek.cli import main
from mixseek.errors import ConfigurationError, NotResumableError
from mixseek.events import Event, RoundStarted
from mixseek.hindsight.replaying import replay
from mixseek.report.reading import load_execution
from mixseek.storage.aggregation_store import AggregationStore
from mixseek.testing import ModelServer
from mixseek.workspace import Workspace
from soak.arena import TASK, Arena, Team

ID = "taken-out"


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer() as running:
        yield running


async def _begun(root: Path, server: ModelServer, *failing: str, rounds: int = 2) -> Arena:
    """Two teams that play; those that are named fail in their second round, or in the first."""
    settings = f"max_rounds = {rounds}\nmin_rounds = 1\nmax_retries_per_team = 0\n"
    arena = Arena(root, server.base_url, [Team("alpha"), Team("beta", scores=(90, 85))], orchestrator=settings)
    arena.script(server)
    for name in failing:
        word, _, number = name.partition(" ")
        server.fault(401, model=f"leader-{word}", at=1 if number == "1" else 3)
    await arena.build().execute(TASK, execution_id=ID)
    server.clear_faults()
    return arena


def _take_out(arena: Arena, team: int) -> str:
    """Take a team out of the orchestrator file, and say what stood there before."""
    file = arena.root / "configs/orchestrator.toml"
    before = file.read_text()
    file.write_text(re.sub(rf'\[\[orchestrator.teams]]\nconfig = "configs/agents/{team}.toml"\n', "", before))
    return before


@pytest.mark.parametrize(
    ("failing", "reason", "rounds"), [(["alpha"], "max_rounds_reached", 2), (["alpha", "beta"], "taken_out", 1)]
)
async def test_a_team_that_is_taken_out_stays_in_the_summary_with_its_best_round(
    failing: list[str], reason: str, rounds: int, tmp_path: Path, server: ModelServer
) -> None:
    arena = await _begun(tmp_path, server, *failing)
    _take_out(arena, 1)
    asked = server.bill.models["leader-beta"].requests
    summary = await arena.build().resume(ID, accept_changes=True)
    assert server.bill.models["leader-beta"].requests == asked
    told = [(entry.team_id, entry.round_number, entry.score, entry.exit_reason) for entry in summary.team_results]
    assert told == [("beta", 1, 90, reason), ("alpha", 2, 80, "max_rounds_reached")]
    assert (summary.best_team_id, summary.failed_teams_info, summary.total_teams) == ("beta", [], 2)
    record = await load_execution(Workspace(tmp_path), ID)
    [beta] = [team for team in record.teams if team.team_id == "beta"]
    assert (beta.rank, beta.best_round, beta.exit_reason, beta.finished_rounds) == (1, 1, reason, rounds)
    assert (beta.error, record.status) == (None, "completed")
    finals = [row for row in arena.rows("leader_board") if row["final_submission"]]
    assert [(row["team_id"], row["exit_reason"]) for row in finals] == [
        ("alpha", "max_rounds_reached"),
        ("beta", reason),
    ]


async def test_teams_that_go_on_still_see_the_place_of_one_that_is_taken_out(
    tmp_path: Path, server: ModelServer
) -> None:
    arena = await _begun(tmp_path, server, "alpha", "beta", rounds=3)
    _take_out(arena, 1)
    asked = len(server.requests)
    await arena.build().resume(ID, accept_changes=True)
    latest = [each for each in server.requests[asked:] if each.model == "leader-alpha"][-1]
    assert "ラウンド 2" in str(latest.body)
    assert "Team beta" in str(latest.body)


async def test_a_team_that_is_taken_out_without_a_result_is_not_in_the_summary(
    tmp_path: Path, server: ModelServer
) -> None:
    arena = await _begun(tmp_path, server, "alpha", "beta 1")
    _take_out(arena, 1)
    summary = await arena.build().resume(ID, accept_changes=True)
    assert [entry.team_id for entry in summary.team_results] == ["alpha"]
    assert summary.failed_teams_info == []


async def test_the_database_that_is_made_anew_has_the_result_of_a_team_that_was_taken_out(
    tmp_path: Path, server: ModelServer
) -> None:
    arena = await _begun(tmp_path, server, "alpha", "beta")
    _take_out(arena, 1)
    await arena.build().resume(ID, accept_changes=True)
    names = ("team_id", "round_number", "final_submission", "exit_reason")
    before = [[row[name] for name in names] for row in arena.rows("leader_board")]
    async with AggregationStore(tmp_path) as store:
        await store.rebuild()
    assert [[row[name] for name in names] for row in arena.rows("leader_board")] == before


async def test_what_is_whole_without_a_team_that_was_taken_out_is_not_resumed(
    tmp_path: Path, server: ModelServer
) -> None:
    arena = await _begun(tmp_path, server, "alpha", "beta")
    _take_out(arena, 1)
    await arena.build().resume(ID, accept_changes=True)
    with pytest.raises(NotResumableError, match="nothing to resume"):
        await arena.build().resume(ID)


async def test_a_team_that_is_put_back_goes_on_where_it_was(tmp_path: Path, server: ModelServer) -> None:
    arena = await _begun(tmp_path, server, "alpha", "beta")
    before = _take_out(arena, 1)
    server.fault(401, model="leader-alpha")
    await arena.build().resume(ID, accept_changes=True)
    server.clear_faults()
    (tmp_path / "configs/orchestrator.toml").write_text(before)
    events: list[Event] = []
    summary = await arena.build(listeners=[events.append]).resume(ID, accept_changes=True)
    played = {(event.team_id, event.round_number) for event in events if isinstance(event, RoundStarted)}
    assert played == {("alpha", 2), ("beta", 2)}
    assert [(entry.team_id, entry.exit_reason) for entry in summary.team_results] == [
        ("beta", "max_rounds_reached"),
        ("alpha", "max_rounds_reached"),
    ]


@pytest.mark.parametrize("failing", [["alpha"], ["alpha", "beta"]])
async def test_a_replay_without_a_team_that_was_taken_out_comes_to_the_same(
    failing: list[str], tmp_path: Path, server: ModelServer
) -> None:
    arena = await _begun(tmp_path, server, *failing)
    _take_out(arena, 1)
    await arena.build().resume(ID, accept_changes=True)
    told = await replay(ID, tmp_path)
    assert (told.differences, told.missing_calls) == ((), ())
    assert told.equal
    assert [team.team_id for team in told.teams] == ["alpha"]
    assert told.taken_out == ("beta",)


async def test_a_replay_leaves_the_place_of_a_team_that_was_taken_out_to_it_and_its_calls_aside(
    tmp_path: Path, server: ModelServer, capsys: pytest.CaptureFixture[str]
) -> None:
    arena = await _begun(tmp_path, server, "alpha", "beta")
    _take_out(arena, 1)
    await arena.build().resume(ID, accept_changes=True)
    async with arena.journal() as journal:
        lines = await journal.call_lines(ID)
    of_beta = sum(line.scope.team_id == "beta" for line in lines)
    with pytest.raises(SystemExit) as end:
        await asyncio.to_thread(main, ["replay", ID, "-w", str(tmp_path)])
    out = capsys.readouterr().out.splitlines()
    assert end.value.code == 0
    assert [line.split("  ")[:2] for line in out[1:2]] == [["2", "Team alpha"]]
    assert "taken out when the execution was resumed, and not played again: beta (place 1)" in out
    assert (
        out[-1]
        == f"not among them: 1 call without an answer, cut off or failed, {of_beta} calls of teams that were taken out"
    )
    told = await replay(ID, tmp_path)
    assert told.calls + told.calls_cut_off + told.calls_of_taken_out == len(lines)


@pytest.mark.parametrize(
    ("failing", "how_far"),
    [
        ("beta 1", "before it had finished a round"),
        ("beta", "after it had played round 1"),
        ("alpha", "after it had played rounds 1 to 2"),
    ],
)
async def test_a_replay_says_of_a_team_that_is_in_the_file_again_that_it_was_taken_out_and_how_far_it_had_played(
    failing: str, how_far: str, tmp_path: Path, server: ModelServer
) -> None:
    arena = await _begun(tmp_path, server, *{"alpha", failing})
    before = _take_out(arena, 1)
    await arena.build().resume(ID, accept_changes=True)
    (tmp_path / "configs/orchestrator.toml").write_text(before)
    words = f"beta is in it again, but was taken out when the execution was resumed, {how_far}: take it out"
    with pytest.raises(ConfigurationError, match=words) as refused:
        await replay(ID, tmp_path)
    assert "did not play" not in str(refused.value)


async def test_the_calls_of_a_team_that_was_taken_out_are_still_listed(
    tmp_path: Path, server: ModelServer, capsys: pytest.CaptureFixture[str]
) -> None:
    arena = await _begun(tmp_path, server, "alpha", "beta")
    _take_out(arena, 1)
    await arena.build().resume(ID, accept_changes=True)
    command = ["journal", "calls", ID, "--team", "beta", "-w", str(tmp_path)]
    with pytest.raises(SystemExit) as end:
        await asyncio.to_thread(main, command)
    assert (end.value.code, "leader-beta" in capsys.readouterr().out) == (0, True)


async def test_a_team_that_was_taken_out_before_it_finished_a_round_is_shown_with_its_name(
    tmp_path: Path, server: ModelServer, capsys: pytest.CaptureFixture[str]
) -> None:
    arena = await _begun(tmp_path, server, "alpha", "beta 1")
    _take_out(arena, 1)
    await arena.build().resume(ID, accept_changes=True)
    record = await load_execution(Workspace(tmp_path), ID)
    assert {team.team_id: team.team_name for team in record.teams} == {"alpha": "Team alpha", "beta": "Team beta"}
    with pytest.raises(SystemExit):
        await asyncio.to_thread(main, ["show", ID, "-w", str(tmp_path)])
    assert "Team beta failed" in capsys.readouterr().out
