"""A finished execution played again from its journal: the same leader board, nobody asked, nothing written."""

import asyncio
import json
import re
import shutil
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from mixseek.cli import main
from mixseek.errors import ConfigurationError
from mixseek.events import Event, ModelCalled
from mixseek.hindsight.replaying import Replay, replay
from mixseek.llm import Backoff
from mixseek.orchestrator import Orchestrator
from mixseek.records import MemberSubmission, RoundState
from mixseek.storage.bodies import value_of
from mixseek.storage.journal import CallLine, Journal
from mixseek.testing import ModelServer
from soak.arena import Arena, Team

QUICK = "max_retries = 0\n"


def _played(root: Path) -> str:
    """Teams that win, are tried again, are refused, or run out of time; the server is gone afterwards."""
    teams = (
        Team("alpha", members=2),
        Team("beta", scores=(60, 65), leader=QUICK),
        Team("gamma", members=0, leader=QUICK),
        Team("delta", members=0),
        Team("omega", scores=(50, 90), members=1, member=QUICK),
    )
    orchestrator = (
        "max_rounds = 2\nmin_rounds = 1\nsubmission_timeout_seconds = 12\nmax_retries_per_team = 1\n"
        "max_concurrent_teams = 5\n"
    )
    with ModelServer() as server:
        arena = Arena(root, server.base_url, teams, orchestrator=orchestrator)
        with (root / "configs" / "providers.toml").open("a") as providers:
            providers.write('api_key_env = "A_KEY_FOR_PLAYING"\n')
        arena.script(server)
        server.fault(503, model="leader-beta", count=1)
        server.fault(401, model="leader-gamma")
        server.fault("hang_before_headers", model="leader-delta", count=1)
        server.fault(400, model="member-omega", count=1)
        server.fault(500, model="judgment")
        return asyncio.run(arena.play()).summary.execution_id


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    root = tmp_path_factory.mktemp("played")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("A_KEY_FOR_PLAYING", "a-key-that-nobody-has-later")
        return root, _played(root)


def _files(root: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in root.rglob("*") if file.is_file() and not file.match("*.db-*")}


def _replay(once: tuple[Path, str]) -> Replay:
    return asyncio.run(replay(once[1], once[0]))


def test_it_comes_to_the_same_without_a_server_or_a_key_and_writes_nothing(once: tuple[Path, str]) -> None:
    before, started = _files(once[0]), time.monotonic()
    told = _replay(once)
    assert (told.differences, told.missing_calls, told.changes) == ((), (), ())
    assert told.equal
    assert [(team.team_id, team.score) for team in told.teams][:2] == [("omega", 90), ("alpha", 80)]
    assert told.failed_teams == ("gamma",)
    assert told.calls + told.calls_cut_off == _recorded_calls(*once)
    assert told.calls == [line.outcome for line in _recorded_lines(*once)].count("answered")
    assert _files(once[0]) == before
    assert time.monotonic() - started < 60


def _recorded_calls(root: Path, execution_id: str) -> int:
    """All that were made, those of members too."""
    return len(_recorded_lines(root, execution_id))


def _recorded_lines(root: Path, execution_id: str) -> list[CallLine]:
    async def read() -> list[CallLine]:
        async with Journal(root / "journal.db") as journal:
            return await journal.call_lines(execution_id)

    return asyncio.run(read())


def test_the_command_ends_with_the_board_and_0_where_it_is_the_same(
    once: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["replay", "last", "-w", str(once[0])])
    out = capsys.readouterr().out
    assert end.value.code == 0
    assert "1  Team omega" in out
    assert "failed: gamma" in out
    assert "equal to the record: " in out
    assert "nobody was asked" in out


def test_a_team_that_was_resumed_until_its_model_answered_is_tried_as_often_again(tmp_path: Path) -> None:
    with ModelServer() as server:
        teams = (Team("alpha", leader=QUICK), Team("beta"))
        limits = "max_rounds = 2\nmin_rounds = 2\nmax_retries_per_team = 1\n"
        arena = Arena(tmp_path, server.base_url, teams, orchestrator=limits)
        arena.script(server)
        server.fault(503, model="leader-alpha")
        summary = asyncio.run(arena.play()).summary
        for _ in range(2):
            assert [team.team_id for team in summary.failed_teams_info] == ["alpha"]
            summary = asyncio.run(arena.build().resume(summary.execution_id))
        server.clear_faults()
        summary = asyncio.run(arena.build().resume(summary.execution_id))
        assert summary.failed_teams_info == []
    told = _replay((tmp_path, summary.execution_id))
    assert (told.differences, told.missing_calls, told.equal) == ((), (), True)


def test_a_call_that_the_journal_does_not_have_is_named(
    once: tuple[Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = _copy(once[0], tmp_path)
    with sqlite3.connect(root / "journal.db") as db:
        db.execute("DELETE FROM calls WHERE role = 'evaluator' AND team_id = 'alpha' AND round_number = 2")
    db.close()
    with pytest.raises(SystemExit) as end:
        main(["replay", once[1][:8], "-w", str(root), "-f", "json"])
    told = json.loads(capsys.readouterr().out)
    assert (end.value.code, told["equal"]) == (1, False)
    assert "evaluator 'Quality' (loop:judge) of team 'alpha' in round 2, try 1" in told["missing_calls"]
    assert any("alpha" in difference for difference in told["differences"])


def test_a_file_with_other_teams_is_refused_with_the_name_of_the_one_that_was_played_with(
    once: tuple[Path, str], tmp_path: Path
) -> None:
    root = _copy(once[0], tmp_path)
    file = root / "configs" / "orchestrator.toml"
    other = file.with_name("other.toml")
    other.write_text(file.read_text())
    for number, name in enumerate(("omicron", "pi")):
        team = root / "configs" / "agents" / f"{number}.toml"
        renamed = re.sub(r"(?m)^team_id = .*", f'team_id = "{name}"', team.read_text())
        team.with_name(f"{name}.toml").write_text(renamed)
        other.write_text(other.read_text().replace(f"agents/{number}.toml", f"agents/{name}.toml"))
    faults = "alpha and beta played and are not in it; omicron and pi are in it and did not play"
    words = f"other.toml: has other teams than the execution: {faults}: "
    with pytest.raises(ConfigurationError) as refused:
        asyncio.run(replay(once[1], root, config=other))
    assert str(refused.value).endswith(f"{words}give the file that it was played with, configs/orchestrator.toml")
    file.unlink()
    other.rename(file)
    with pytest.raises(ConfigurationError, match="did not play: undo that, or give a file with its teams by --config"):
        asyncio.run(replay(once[1], root, config=file))


def test_what_differs_is_told(once: tuple[Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = _copy(once[0], tmp_path)
    evaluator = root / "configs" / "evaluator.toml"
    evaluator.write_text(
        evaluator.read_text() + '[[metrics]]\nname = "Terms"\noptions = {required = ["nothing says this"]}\n'
    )
    with pytest.raises(SystemExit) as end:
        main(["replay", "last", "-w", str(root)])
    told = capsys.readouterr()
    assert end.value.code == 1
    assert "round 1 of team 'alpha' had score 70.00, has score 35.00" in told.out
    assert told.err.startswith("mixseek: changed since: evaluator: metrics[")
    assert "not what was recorded" in told.out
    assert "changed since: " in told.err


def test_nothing_is_to_be_written_and_so_nothing_is_lost(
    once: tuple[Path, str], caplog: pytest.LogCaptureFixture
) -> None:
    root, execution_id = once
    asyncio.run(replay(execution_id, root))
    assert "the journal lost" not in caplog.text


def test_what_did_not_end_is_not_replayed(once: tuple[Path, str], tmp_path: Path) -> None:
    root = _copy(once[0], tmp_path)
    with sqlite3.connect(root / "journal.db") as db:
        db.execute("DELETE FROM events WHERE kind = 'RunFinished'")
    db.close()
    resume = re.escape(f"mixseek resume {once[1]} -w {root}")
    with pytest.raises(ConfigurationError, match=f"did not come to its end: {resume} goes on with it"):
        asyncio.run(replay(once[1], root))
    with pytest.raises(ConfigurationError, match="the journal knows nothing of execution 'nobody'"):
        asyncio.run(replay("nobody", root))


def test_what_was_begun_from_python_and_did_not_end_goes_on_there_and_by_no_command(
    once: tuple[Path, str], tmp_path: Path
) -> None:
    root = _copy(once[0], tmp_path)
    with sqlite3.connect(root / "journal.db") as db:
        db.execute("DELETE FROM events WHERE kind = 'RunFinished'")
        [(position, payload)] = db.execute(
            "SELECT position, payload FROM events WHERE execution_id = ? AND kind = 'RunStarted'", (once[1],)
        ).fetchall()
        begun = json.dumps({**value_of(payload), "config_file": None})
        db.execute("UPDATE events SET payload = ? WHERE position = ?", (begun, position))
    db.close()
    with pytest.raises(ConfigurationError) as refused:
        asyncio.run(replay(once[1], root))
    assert "did not come to its end, and names no orchestrator file" in str(refused.value)
    assert re.search(r"from Python: the same mixseek\.run\(\.\.\., resume=ID\).* goes on", str(refused.value))
    assert "mixseek resume" not in str(refused.value)


def _copy(root: Path, place: Path) -> Path:
    return Path(shutil.copytree(root, place / "copy"))


def test_what_was_pruned_is_refused_in_one_line(
    once: tuple[Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = _copy(once[0], tmp_path)
    with sqlite3.connect(root / "journal.db") as db:
        db.execute("INSERT INTO pruned VALUES (?, '2026-01-01T00:00:00+00:00')", (once[1],))
    db.close()
    with pytest.raises(SystemExit) as end:
        main(["replay", "last", "-w", str(root)])
    told = capsys.readouterr()
    assert (end.value.code, told.out) == (2, "")
    words = "was pruned on 2026-01-01: what its models answered is not kept any more; mixseek show"
    assert words in told.err.splitlines()[-1]


# --- what ended before its time ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", ["max_requests = 6", "max_tokens = 9500", "max_seconds = 2"])
def test_what_a_budget_ended_ends_there_again(budget: str, tmp_path: Path) -> None:
    """Six calls are one round and a beginning, so many tokens no call at all, and time is over in the middle of one."""
    teams = Team("alpha"), Team("beta", scores=(60, 65)), Team("gamma", members=2)
    with ModelServer() as server:
        arena = Arena(tmp_path, server.base_url, teams, "max_rounds = 5\nmin_rounds = 5\n", f"[budget]\n{budget}\n")
        arena.script(server)
        server.set_latency(0.4 if "seconds" in budget else 0)
        summary = asyncio.run(arena.play()).summary
    told = asyncio.run(replay(summary.execution_id, tmp_path))
    assert (told.differences, told.missing_calls, told.equal) == ((), (), True)
    assert told.failed_teams == tuple(sorted(failed.team_id for failed in summary.failed_teams_info))
    ended = {team.team_id for team in told.teams if team.exit_reason == "budget_exhausted"} | set(told.failed_teams)
    assert ended == {"alpha", "beta", "gamma"}
    assert told.seconds < 5


def test_a_team_that_ran_out_of_time_after_a_round_does_so_again_and_at_once(tmp_path: Path) -> None:
    teams = Team("alpha", members=0), Team("beta", scores=(60, 65), members=0)
    with ModelServer() as server:
        arena = Arena(tmp_path, server.base_url, teams, "max_rounds = 2\nmin_rounds = 2\nmax_retries_per_team = 0\n")
        arena.script(server)

        async def hang(state: RoundState, _: list[MemberSubmission]) -> None:
            if state.submission_content.startswith("beta"):
                server.fault("hang_before_headers", model="leader-beta")

        summary = asyncio.run(arena.play(timeout_seconds=10, hook=hang)).summary
    assert [failed.team_id for failed in summary.failed_teams_info] == ["beta"]
    told = asyncio.run(replay(summary.execution_id, tmp_path))
    assert (told.differences, told.missing_calls, told.equal) == ((), (), True)
    board = [(team.team_id, team.round_number, team.exit_reason) for team in told.teams]
    assert board == [("alpha", 2, "max_rounds_reached"), ("beta", 1, "partial_failure_timeout")]
    assert told.failed_teams == ("beta",)
    assert told.seconds < 5


# --- what ran out of time and was gone on with ------------------------------------------------------------------------

TWO = Team("alpha", members=0), Team("beta", scores=(60, 65), members=0)
TWO_IDS = "alpha", "beta"
THREE_ROUNDS = "max_rounds = 3\nmin_rounds = 3\nmax_retries_per_team = 0\n"
OF_BOTH = {"model": "leader-*"}
OF_BETA = {"model": "leader-beta"}


def _boards_in_time(arena: Arena, server: ModelServer, *hanging: list[dict[str, Any]]) -> list[list[tuple[str, str]]]:
    """Play, resume, and so on, each time until calls that hang run out of time; what each came to is replayed."""
    boards: list[list[tuple[str, str]]] = []
    execution_id = ""
    for faults in hanging:
        server.clear_faults()
        for fault in faults:
            server.fault("hang_before_headers", **fault)
        built, seconds = arena.build(), 3 if faults else 60
        playing = built.resume(execution_id, seconds) if execution_id else built.execute("a task", seconds)
        summary = asyncio.run(playing)
        execution_id = summary.execution_id
        told = asyncio.run(replay(execution_id, arena.root))
        assert (told.differences, told.missing_calls, told.equal) == ((), (), True)
        assert told.failed_teams == tuple(sorted(failed.team_id for failed in summary.failed_teams_info))
        boards.append([(team.team_id, str(team.exit_reason)) for team in told.teams])
    return boards


LATE, DONE = "partial_failure_timeout", "max_rounds_reached"
BOTH_LATE, BOTH_DONE = [("alpha", LATE), ("beta", LATE)], [("alpha", DONE), ("beta", DONE)]
IN_ROUND_2 = {"contains": "answer of round 1"}
IN_ROUND_3 = {"contains": "answer of round 2"}


@pytest.mark.parametrize(
    ("hanging", "boards"),
    [
        pytest.param([[OF_BOTH | IN_ROUND_2]], [BOTH_LATE], id="once"),
        pytest.param([[OF_BOTH | IN_ROUND_2], [OF_BOTH | IN_ROUND_2]], [BOTH_LATE, BOTH_LATE], id="twice"),
        pytest.param([[OF_BOTH | IN_ROUND_2], [OF_BOTH | IN_ROUND_3]], [BOTH_LATE, BOTH_LATE], id="in two rounds"),
        pytest.param([[OF_BETA | IN_ROUND_2]], [[("alpha", DONE), ("beta", LATE)]], id="one team"),
    ],
)
def test_teams_that_ran_out_of_time_and_went_on_come_to_what_they_came_to_then(
    hanging: list[list[dict[str, Any]]], boards: list[list[tuple[str, str]]], tmp_path: Path
) -> None:
    with ModelServer() as server:
        arena = Arena(tmp_path, server.base_url, TWO, THREE_ROUNDS)
        arena.script(server)
        assert _boards_in_time(arena, server, *hanging, []) == [*boards, BOTH_DONE]


def test_submissions_that_came_too_late_before_and_after_a_team_ran_out_of_time_do_so_again(tmp_path: Path) -> None:
    with ModelServer() as server:
        limits = "max_rounds = 4\nmin_rounds = 4\nmax_retries_per_team = 0\nsubmission_timeout_seconds = 1\n"
        arena = Arena(tmp_path, server.base_url, TWO, limits)
        arena.script(server)
        boards = _boards_in_time(
            arena,
            server,
            [OF_BETA | {"count": 1}, {"model": "judge", "contains": "beta answer of round 2"}],
            [OF_BETA | IN_ROUND_3 | {"count": 1}],
        )
    # It had no submission in round 1, no score in round 2 when its time ran out, and then no submission in round 3.
    assert boards == [[("alpha", DONE)], BOTH_DONE]


HANGING = """
import asyncio
from pathlib import Path

from mixseek.evaluator.metrics import BaseMetric
from mixseek.models.evaluation_result import MetricScore


class Hanging(BaseMetric):
    async def evaluate(self, user_query, submission, **kwargs):
        if "beta answer of round 2" in submission and Path(__file__).with_name("hangs").exists():
            await asyncio.sleep(60)
        return MetricScore(metric_name="Hanging", score=50)
"""


def test_a_team_whose_time_ran_out_in_code_after_a_call_that_had_been_given_up_was_answered_ends_there_again(
    tmp_path: Path,
) -> None:
    (tmp_path / "hanging.py").write_text(HANGING)
    metric = '[[metrics]]\nname = "Hanging"\n[custom_metrics]\nHanging = {path = "hanging.py", class = "Hanging"}\n'
    with ModelServer() as server:
        arena = Arena(tmp_path, server.base_url, TWO, THREE_ROUNDS, evaluator=metric)
        arena.script(server)
        server.fault("hang_before_headers", model="leader-beta", contains="answer of round 1")
        execution_id = asyncio.run(arena.play(timeout_seconds=3)).summary.execution_id
        server.clear_faults()
        (tmp_path / "hangs").touch()
        summary = asyncio.run(arena.build().resume(execution_id, 3))
    (tmp_path / "hangs").unlink()
    assert [failed.team_id for failed in summary.failed_teams_info] == ["beta"]
    told = asyncio.run(replay(execution_id, tmp_path))
    assert (told.differences, told.missing_calls, told.equal) == ((), (), True)


def test_a_team_whose_time_ran_out_between_two_rounds_ends_there_again(tmp_path: Path) -> None:
    with ModelServer() as server:
        arena = Arena(tmp_path, server.base_url, TWO, THREE_ROUNDS)
        arena.script(server)

        async def hang(state: RoundState, _: list[MemberSubmission]) -> None:
            if state.submission_content.startswith("beta answer of round 2"):
                await asyncio.sleep(60)

        summary = asyncio.run(arena.play(timeout_seconds=3, hook=hang)).summary
    assert [(best.team_id, best.round_number) for best in summary.team_results] == [("alpha", 2), ("beta", 2)]
    assert [failed.team_id for failed in summary.failed_teams_info] == ["beta"]
    told = asyncio.run(replay(summary.execution_id, tmp_path))
    assert (told.differences, told.missing_calls, told.equal) == ((), (), True)


def _stopped_and_resumed(root: Path, model: str) -> str:
    """Stopped when the first call of this model was answered and nobody had used that; a second call hangs then."""
    with ModelServer() as server:
        arena = Arena(root, server.base_url, [Team("alpha", members=2)])
        arena.script(server)
        server.fault("hang_before_headers", model=model, at=2)
        server.set_latency(0.2)  # so that the second call has left when the first is answered
        built: list[Orchestrator] = []

        def stop(event: Event) -> None:
            if isinstance(event, ModelCalled) and event.model == f"loop:{model}":
                built[0].stop()

        built.append(arena.build(listeners=[stop]))
        stopped = asyncio.run(built[0].execute("a task"))
        assert stopped.interrupted
        server.clear_faults()
        server.set_latency(0)
        asyncio.run(arena.build().resume(stopped.execution_id))
    return stopped.execution_id


def test_an_answer_that_a_member_was_given_before_the_run_was_resumed_counts_and_a_call_that_was_cut_off_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    execution_id = _stopped_and_resumed(tmp_path, "member-alpha")
    told = asyncio.run(replay(execution_id, tmp_path))
    assert told.equal
    assert (told.calls, told.calls_cut_off, told.calls_not_asked_for) == (12, 1, 0)
    assert told.calls + told.calls_cut_off == _recorded_calls(tmp_path, execution_id)
    with pytest.raises(SystemExit):
        main(["replay", "last", "-w", str(tmp_path)])
    counted, left_out = capsys.readouterr().out.splitlines()[-2:]
    assert counted.startswith("equal to the record: 12 calls answered from the journal")
    assert left_out == "not among them: 1 call without an answer, cut off or failed"


def test_a_call_that_was_on_its_way_when_a_process_was_killed_is_told_among_those_without_an_answer(
    once: tuple[Path, str], tmp_path: Path
) -> None:
    before, root = _replay(once), _copy(once[0], tmp_path)
    with sqlite3.connect(root / "journal.db") as db:
        # The answer came from a call that was made again; of the one before there is the mark of its start alone.
        db.execute("""INSERT INTO started_calls (call_id, execution_id, team_id, round_number, role, agent_name, key,
            occurrence, model, started_at) SELECT 'killed', execution_id, team_id, round_number, role, agent_name, key,
            occurrence, model, started_at FROM started_calls WHERE team_id = 'alpha' LIMIT 1""")
    db.close()
    told = asyncio.run(replay(once[1], root))
    assert (told.equal, told.calls, told.calls_cut_off) == (True, before.calls, before.calls_cut_off + 1)


@pytest.mark.parametrize("is_text", [True, False])
def test_what_an_execution_was_resumed_with_is_told(
    is_text: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ModelServer() as server:
        arena = Arena(
            tmp_path, server.base_url, [Team("alpha", members=0)], "max_rounds = 2\nmax_retries_per_team = 0\n"
        )
        arena.script(server)
        server.fault(401, model="leader-alpha", at=2)
        execution_id = asyncio.run(arena.play()).summary.execution_id
        server.on("another", lambda _: "another answer, worth 90")
        file = tmp_path / "configs" / "agents" / "0.toml"
        file.write_text(file.read_text().replace("loop:leader-alpha", "loop:another"))
        asyncio.run(arena.build().resume(execution_id, accept_changes=True))
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main(["replay", "last", "-w", str(tmp_path), *([] if is_text else ["-f", "json"])])
    out, err = capsys.readouterr()
    words = "team alpha: leader.model: was 'loop:leader-alpha', is 'loop:another'"
    if is_text:
        assert f"mixseek: was resumed with a change: {words}" in err.splitlines()
        assert "changed since" not in err
    else:
        assert json.loads(out)["resumed_with"] == [words]


def _resumed_with(root: Path, file: str, old: str, new: str, **parts: Any) -> str:
    """A team failed in its second round, the other ended after its third, and then this was changed."""
    with ModelServer() as server:
        arena = Arena(root, server.base_url, TWO, THREE_ROUNDS, **parts)
        arena.script(server)
        server.fault(401, model="leader-alpha", at=2)
        execution_id = asyncio.run(arena.play()).summary.execution_id
        server.clear_faults()
        settings = root / "configs" / file
        settings.write_text(settings.read_text().replace(old, new, 1))
        asyncio.run(arena.build().resume(execution_id, accept_changes=True))
    return execution_id


LEADER = "agents/0.toml", '"loop:leader-alpha"', '"loop:leader-alpha"\ntemperature = 0.5'


@pytest.mark.parametrize(
    ("changed", "rounds", "board", "outcome"),
    [
        (LEADER, {"alpha": 2}, [(2, "beta")], "the rest is equal to the record"),
        # After its third round it would go on now.
        (
            ("orchestrator.toml", "max_rounds = 3", "max_rounds = 4"),
            {"beta": 3},
            [(1, "alpha")],
            "the rest is equal to the record",
        ),
        (
            ("evaluator.toml", '"How good is it?"', '"How good is it really?"'),
            {"alpha": 2, "beta": 3},
            [],
            "no team could be replayed",
        ),
    ],
)
def test_rounds_that_were_begun_before_an_accepted_change_are_told_in_one_line_and_as_no_failure(
    changed: tuple[str, str, str],
    rounds: dict[str, int],
    board: list[tuple[int, str]],
    outcome: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    told = asyncio.run(replay(_resumed_with(tmp_path, *changed), tmp_path))
    assert (told.equal, told.with_earlier_settings) == (False, rounds)
    assert (told.differences, told.missing_calls, told.failed_teams) == ((), (), ())
    assert [(team.rank, team.team_id) for team in told.teams] == board
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main(["replay", "last", "-w", str(tmp_path)])
    out = capsys.readouterr().out
    named = ", ".join(f"{team_id} (rounds 1 to {last})" for team_id, last in rounds.items())
    assert end.value.code == 2
    assert [line for line in out.splitlines() if "with earlier settings" in line] == [
        f"cannot be replayed: {named}: these rounds were begun with earlier settings, before a change that was "
        "accepted with --accept-changes; mixseek show shows what they came to"
    ]
    assert f"\n{outcome}: " in out
    assert ("Ended" in out) == bool(board)
    assert not re.search("not in the journal|had not failed|was played|leader board was|failed: ", out)


WORTH = """
from pathlib import Path

from mixseek.evaluator.metrics import BaseMetric
from mixseek.models.evaluation_result import MetricScore


class Worth(BaseMetric):
    async def evaluate(self, user_query, submission, **kwargs):
        return MetricScore(metric_name="Worth", score=float(Path(__file__).with_name("worth").read_text()))
"""
WORTH_ALONE = '[[metrics]]\nname = "Worth"\n[custom_metrics]\nWorth = {path = "worth.py", class = "Worth"}\n'
A_BUDGET = "orchestrator.toml", "[storage]", "[budget]\nmax_requests = 200\n[storage]"
ANOTHER_ROUND = "orchestrator.toml", "max_rounds = 3", "max_rounds = 4"


@pytest.mark.parametrize(
    "changed",
    [
        A_BUDGET,
        ("agents/0.toml", '"loop:leader-alpha"', '"loop:leader-alpha"\ntimeout_seconds = 77'),
        ("evaluator.toml", "[[metrics]]", "max_retries = 9\n[[metrics]]"),
        ("providers.toml", "base_url", "max_concurrency = 9\nbase_url"),
    ],
)
def test_what_cannot_alter_a_round_excuses_no_missing_call(
    changed: tuple[str, str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    execution_id = _resumed_with(tmp_path, *changed)
    assert asyncio.run(replay(execution_id, tmp_path)).equal
    _lose_a_call(tmp_path)
    told = asyncio.run(replay(execution_id, tmp_path))
    assert (told.with_earlier_settings, len(told.resumed_with)) == ({}, 1)
    assert told.missing_calls == ("evaluator 'Quality' (loop:judge) of team 'alpha' in round 1, try 1",)
    assert "round 1 of team 'alpha' was played, and is not now" in told.differences
    with pytest.raises(SystemExit) as end:
        main(["replay", "last", "-w", str(tmp_path)])
    assert end.value.code == 1
    assert "cannot be replayed" not in capsys.readouterr().out


def _lose_a_call(root: Path) -> None:
    with sqlite3.connect(root / "journal.db") as db:
        db.execute("DELETE FROM calls WHERE role = 'evaluator' AND team_id = 'alpha' AND round_number = 1")
    db.close()


@pytest.mark.parametrize(("changed", "rounds"), [(A_BUDGET, {}), (ANOTHER_ROUND, {"beta": 3})])
def test_what_leaves_played_rounds_as_they_are_excuses_no_other_score(
    changed: tuple[str, str, str], rounds: dict[str, int], tmp_path: Path
) -> None:
    (tmp_path / "worth.py").write_text(WORTH)
    (tmp_path / "worth").write_text("50")
    execution_id = _resumed_with(tmp_path, *changed, evaluator=WORTH_ALONE)
    (tmp_path / "worth").write_text("40")
    told = asyncio.run(replay(execution_id, tmp_path))
    others = [f"round {n} of team '{team}' had score 50.00, has score 40.00" for team in TWO_IDS for n in (1, 2, 3)]
    assert set(others) <= set(told.differences)
    assert not [difference for difference in told.differences if re.search("round 4 of team 'beta'", difference)]
    assert (told.with_earlier_settings, told.missing_calls) == (rounds, ())


def test_another_number_of_rounds_excuses_no_missing_call_of_a_round_that_was_begun(tmp_path: Path) -> None:
    execution_id = _resumed_with(tmp_path, *ANOTHER_ROUND)
    _lose_a_call(tmp_path)
    told = asyncio.run(replay(execution_id, tmp_path))
    assert told.with_earlier_settings == {"beta": 3}
    assert told.missing_calls == ("evaluator 'Quality' (loop:judge) of team 'alpha' in round 1, try 1",)
    assert "round 1 of team 'alpha' was played, and is not now" in told.differences


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "target_score = 60\n"),
        ("judge_on_final_round = false", "judge_on_final_round = true"),
    ],
)
def test_a_rule_that_was_changed_excuses_how_a_team_ended_by_the_earlier_one(
    before: str, after: str, tmp_path: Path
) -> None:
    top = f'model = "loop:judgment"\n{before}'
    changed = "judgment.toml", top, f'model = "loop:judgment"\n{after}'
    told = asyncio.run(replay(_resumed_with(tmp_path, *changed, judgment=before), tmp_path))
    assert (told.with_earlier_settings, told.differences, told.missing_calls) == ({"beta": 3}, (), ())


@pytest.mark.parametrize("budget", ["max_requests = 4", "max_tokens = 9500"])
def test_what_a_budget_ended_that_was_raised_then_is_equal_and_excuses_nothing(budget: str, tmp_path: Path) -> None:
    with ModelServer() as server:
        arena = Arena(tmp_path, server.base_url, TWO, THREE_ROUNDS, f"[budget]\n{budget}\n")
        arena.script(server)
        first = asyncio.run(arena.play()).summary
        assert asyncio.run(replay(first.execution_id, tmp_path)).equal
        file = tmp_path / "configs" / "orchestrator.toml"
        file.write_text(file.read_text().replace(budget, "max_requests = 100"))
        asyncio.run(arena.build().resume(first.execution_id, accept_changes=True))
    assert asyncio.run(replay(first.execution_id, tmp_path)).equal
    _lose_a_call(tmp_path)
    told = asyncio.run(replay(first.execution_id, tmp_path))
    assert (told.equal, told.with_earlier_settings, len(told.missing_calls)) == (False, {}, 1)


def test_what_differs_beside_rounds_with_earlier_settings_is_told_as_ever(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _resumed_with(tmp_path, *LEADER)
    with sqlite3.connect(tmp_path / "journal.db") as db:
        db.execute("DELETE FROM calls WHERE role = 'evaluator' AND team_id = 'beta' AND round_number = 2")
    db.close()
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main(["replay", "last", "-w", str(tmp_path)])
    out = capsys.readouterr().out
    assert end.value.code == 1
    assert "cannot be replayed: alpha (rounds 1 to 2): " in out
    assert "not in the journal: evaluator 'Quality' (loop:judge) of team 'beta' in round 2, try 1" in out
    assert "'alpha'" not in out


def test_rounds_after_an_accepted_change_are_compared_by_their_settings(tmp_path: Path) -> None:
    execution_id = _resumed_with(tmp_path, "evaluator.toml", '"Quality"', '"Quality"\nweight = 1')
    with sqlite3.connect(tmp_path / "journal.db") as db:
        db.execute("DELETE FROM calls WHERE role = 'evaluator' AND team_id = 'alpha' AND round_number = 3")
    db.close()
    told = asyncio.run(replay(execution_id, tmp_path))
    assert (told.equal, told.with_earlier_settings) == (False, {})
    assert [call for call in told.missing_calls if "team 'alpha' in round 3" in call]


def test_what_has_changed_since_is_told_before_earlier_settings_are_blamed(tmp_path: Path) -> None:
    execution_id = _resumed_with(tmp_path, "evaluator.toml", '"Quality"', '"Quality"\nweight = 1')
    file = tmp_path / "configs" / "agents" / "1.toml"
    file.write_text(file.read_text().replace("loop:leader-beta", "loop:another"))
    told = asyncio.run(replay(execution_id, tmp_path))
    assert (len(told.changes), told.with_earlier_settings) == (1, {})
    assert "round 1 of team 'beta' was played, and is not now" in told.differences


# --- what was given up because something beside it failed -------------------------------------------------------------

STRICT = """
import asyncio
from pathlib import Path

from mixseek.evaluator.metrics import BaseMetric
from mixseek.models.evaluation_result import MetricScore


class Strict(BaseMetric):
    async def evaluate(self, user_query, submission, **kwargs):
        if not Path(__file__).with_name("mended").exists():
            await asyncio.sleep(0.2)
            raise KeyError("the metric's own trouble")
        return MetricScore(metric_name="Strict", score=50)
"""


def _with_a_metric_that_raises(root: Path, server: ModelServer, rounds: int = 1) -> Arena:
    """The judges beside the metric wait for another try when it raises, and are given up then."""
    (root / "strict.py").write_text(STRICT)
    evaluator = "".join(
        f'[[metrics]]\nname = "{name}"\nweight = 0.25\nsystem_instruction = "How good is it?"\n'
        for name in ("Quality", "Relevance", "Clarity")
    )
    arena = Arena(
        root,
        server.base_url,
        [Team("alpha", members=0), Team("beta", scores=(60, 65), members=0)],
        f"max_rounds = {rounds}\nmax_retries_per_team = 2\n",
        evaluator=(
            f'{evaluator}[[metrics]]\nname = "Strict"\nweight = 0.25\n'
            '[custom_metrics]\nStrict = { path = "strict.py", class = "Strict" }\n'
        ),
        options={"backoff": Backoff()},
    )
    arena.script(server)
    server.fault(500, model="judge", retry_after=60)
    return arena


def test_calls_that_were_given_up_are_counted_as_cut_off_however_often_it_is_replayed(tmp_path: Path) -> None:
    with ModelServer() as server:
        arena = _with_a_metric_that_raises(tmp_path, server)
        execution_id = asyncio.run(arena.play()).summary.execution_id
    told = [asyncio.run(replay(execution_id, tmp_path)) for _ in range(3)]
    outcomes = [line.outcome for line in _recorded_lines(tmp_path, execution_id)]
    answered = outcomes.count("answered")
    assert len(outcomes) - answered > 2, "nothing was on its way"
    assert {(one.calls, one.calls_cut_off, one.calls_not_asked_for) for one in told} == {
        (answered, len(outcomes) - answered, 0)
    }
    assert all(one.equal for one in told)


def test_tries_that_failed_before_the_code_was_mended_are_told_and_are_no_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ModelServer() as server:
        arena = _with_a_metric_that_raises(tmp_path, server)
        execution_id = asyncio.run(arena.play()).summary.execution_id
        server.clear_faults()
        (tmp_path / "mended").touch()
        summary = asyncio.run(arena.build().resume(execution_id))
    assert len(summary.team_results) == 2
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main(["replay", "last", "-w", str(tmp_path)])
    *_, tries, outcome, left_out = capsys.readouterr().out.splitlines()
    assert end.value.code == 0
    assert tries == (
        "taken as failed, as they had, though they would go on now: try 1 of team 'alpha' in round 1, "
        "try 1 of team 'beta' in round 1, try 2 of team 'alpha' in round 1, try 2 of team 'beta' in round 1"
    )
    assert outcome.startswith("equal to the record: ")
    cut_off = sum(line.outcome != "answered" for line in _recorded_lines(tmp_path, execution_id))
    assert left_out == f"not among them: {cut_off} calls without an answer, cut off or failed"


def test_rounds_after_one_that_was_scored_only_when_a_metric_was_mended_are_found(tmp_path: Path) -> None:
    with ModelServer() as server:
        arena = _with_a_metric_that_raises(tmp_path, server, rounds=2)
        server.clear_faults()
        execution_id = asyncio.run(arena.play()).summary.execution_id
        (tmp_path / "mended").touch()
        summary = asyncio.run(arena.build().resume(execution_id))
    assert [entry.round_number for entry in summary.team_results] == [2, 2]
    told = asyncio.run(replay(execution_id, tmp_path))
    assert (told.differences, told.missing_calls, told.equal) == ((), (), True)
    assert told.calls_not_asked_for == 0
