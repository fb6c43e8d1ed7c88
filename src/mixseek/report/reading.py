"""Executions as the stores of a workspace tell of them: the results from DuckDB, what else is known from the journal.

Reading changes nothing: no file is made or brought up to date, and a run that goes on is not held up. Either store may
be missing, and the summary too; then what the other one knows is all there is.
"""

import logging
from collections import defaultdict
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar, get_args

from mixseek.amounts import command_to_copy, command_to_go_on
from mixseek.errors import ConfigurationError, NotResumableError, StorageError, would_fail_again
from mixseek.records import (
    LAST,
    AttachmentInfo,
    EvaluationResult,
    ExecutionStatus,
    ExitReason,
    ImprovementJudgment,
    LeaderBoardEntry,
    LostUsage,
    ModelUsage,
    RoundState,
    Standing,
    Usage,
    cost_of,
    order_standings,
    seconds_between,
)
from mixseek.report.players import played_by
from mixseek.report.record import (
    ExecutionLine,
    ExecutionRecord,
    MemberCall,
    RoundRecord,
    Status,
    TeamRecord,
    ToolsUsed,
)
from mixseek.storage.beginning import BEGINNINGS
from mixseek.storage.executions import ExecutionRows, StoredBest, StoredExecution, StoredExecutions
from mixseek.storage.journal import Journal, JournalEvent, StartedRun, ToolResult
from mixseek.storage.naming import executions_meant, words_of_several
from mixseek.storage.playing import is_playing
from mixseek.storage.rows import member_submission
from mixseek.workspace import Workspace

__all__ = [
    "LAST",
    "best_results",
    "find_execution",
    "find_unfinished",
    "list_executions",
    "load_execution",
    "nothing_played",
]

logger = logging.getLogger(__name__)

T = TypeVar("T")
_Place = tuple[str, int]
"""A team and a round."""

_ENDS = ("RunFinished", "RunInterrupted")
_CLOCKS_DIFFER_SECONDS = 1.0
_SIGNS_OF_PLAY = ("TeamStarted", "RoundStarted", "ModelCalled", "RoundFinished", "RoundFailed")


async def list_executions(workspace: Workspace, *, lock_wait_seconds: float = 60) -> list[ExecutionLine]:
    """Every execution of the workspace, the newest first."""
    results = StoredExecutions(workspace.database, lock_wait_seconds=lock_wait_seconds)
    stored = {one.execution_id: one for one in await results.all()}
    async with Journal(workspace.journal, wait_seconds=lock_wait_seconds) as journal:
        runs = await _if_readable(journal.started_runs(), None)
        started = {run.execution_id: run for run in runs or ()}
        # A journal that cannot be read is told of once, not once for each execution.
        readable = None if runs is None else journal
        ids = {**stored, **started}
        lines = [await _line(workspace, readable, each, stored.get(each), started.get(each)) for each in ids]
    return _newest_first(lines, started)


async def find_execution(workspace: Workspace, wanted: str) -> str:
    """The id of the execution that is meant by its whole id, by the beginning of it, or by ``last``."""
    ids = [line.execution_id for line in await list_executions(workspace)]
    if not ids:
        raise ConfigurationError(nothing_played(workspace))
    meant = executions_meant(wanted, ids)
    if len(meant) != 1:
        raise ConfigurationError(words_of_several(wanted, meant) if meant else _not_found(wanted))
    return meant[0]


async def find_unfinished(workspace: Workspace, given: Path | None = None) -> str:
    """The id of the newest execution that did not come to its end and that nobody plays, if possible with a file.

    ``given`` is the workspace as the command line names it, for the command that is told where there is none.
    """
    lines = await list_executions(workspace)
    if not lines:
        raise NotResumableError(nothing_played(workspace))
    # The newest that names a file; where none does, whoever asks is told why the newest of the others cannot go on.
    for line in sorted(lines, key=lambda line: line.names_no_file):
        if line.is_open or line.lacks_end:
            return line.execution_id
    if playing := [line.execution_id for line in lines if line.is_running]:
        by = await _if_readable(played_by(workspace, playing[0]), "")
        raise NotResumableError(
            f"execution {playing[0]} is being played{by}, and no other is unfinished: wait until it is over"
        )
    named = [line for line in lines if not line.names_no_file]
    failed = [line.execution_id for line in named if line.status in ("partial_failure", "failed")]
    able = await _first_that_can_go_on(workspace, failed, given)
    more = (
        ": mixseek history lists all there are"
        if able is None
        else f"; teams of {able[0]} failed, {able[1]} lets them go on"
    )
    raise NotResumableError(f"no execution in {str(workspace.root)!r} is unfinished{more}")


async def _first_that_can_go_on(
    workspace: Workspace, execution_ids: Sequence[str], given: Path | None
) -> tuple[str, str] | None:
    """The first of them whose calls were not pruned, and with a team that may fare better; and how it goes on."""
    async with Journal(workspace.journal) as journal:
        for each in execution_ids:
            kept = await _if_readable(_read_journal(journal, each, members=False), _Kept())
            reasons = [reason for reason in kept.failures.values() if not would_fail_again(reason)]
            may_fare_better = reasons or not kept.failures
            if may_fare_better and await _if_readable(journal.pruned_at(each), None) is None:
                return each, command_to_go_on(command_to_copy("resume", each, given), reasons)
    return None


def nothing_played(workspace: Workspace) -> str:
    """What to say where there is no execution at all."""
    return (
        f"nothing was played in {str(workspace.root)!r} yet: mixseek exec plays a competition, "
        "--workspace DIR names another workspace"
    )


async def load_execution(workspace: Workspace, execution_id: str) -> ExecutionRecord:
    """All that is known of an execution, by its whole id."""
    async with Journal(workspace.journal) as journal:
        kept = await _if_readable(_read_journal(journal, execution_id), _Kept())
        stored = await StoredExecutions(workspace.database).rows_of(execution_id, members=kept.started is None)
        if kept.is_open:
            # What it came to before is not how it stands.
            stored = replace(stored, summary=None)
        is_running = is_playing(workspace.database, execution_id)
        lost = await _if_readable(_read_lost(journal, execution_id, is_running=is_running), ())
        kept = replace(kept, lost=lost)
        # What was told at the end holds: a tool that was cut off was used, and gave nothing that the journal has.
        told = (kept.summary or {}).get("usage")
        of_teams: dict[str, Usage] = await _if_readable(journal.usage_by_team(execution_id), {})
        usage = sum(of_teams.values(), start=Usage()) if told is None else Usage.model_validate(told)
        kept = replace(kept, usage=usage, of_teams=of_teams)
        if kept.was_resumed:
            kept = replace(kept, played=await _if_readable(_read_played(journal, execution_id), {}))
        if not stored.found:
            # Only the journal can have it: what cannot be read must not be told as if there were nothing.
            kept = await _read_open_rounds(journal, execution_id, kept)
            stored = await _with_told_rounds(journal, execution_id, stored)
        elif stored.summary is None and not kept.is_over:
            kept = await _if_readable(_read_open_rounds(journal, execution_id, kept), kept)
            stored = await _if_readable(_with_told_rounds(journal, execution_id, stored), stored)
        stored = await _if_readable(_with_known_costs(journal, execution_id, stored), stored)
    if not stored.found and not kept.found:
        raise ConfigurationError(_not_found(execution_id))
    return _record(execution_id, stored, kept, is_running=is_running)


async def best_results(workspace: Workspace, limit: int | None = None) -> list[StoredBest]:
    """Each team's best round in each execution of the workspace, the best ones first."""
    return await StoredExecutions(workspace.database).best(limit)


def _not_found(wanted: str) -> str:
    return f"there is no execution {wanted!r} here: mixseek history lists those there are"


async def _if_readable(reading: Awaitable[T], otherwise: T) -> T:
    """What the journal gives; one that cannot be read costs only what it would have added."""
    try:
        return await reading
    except StorageError as error:
        logger.warning("%s; what cannot be read of it is left out", error)
        return otherwise


# --- the list ---------------------------------------------------------------------------------------------------------


async def _line(
    workspace: Workspace,
    journal: Journal | None,
    execution_id: str,
    stored: StoredExecution | None,
    run: StartedRun | None,
) -> ExecutionLine:
    known = stored or StoredExecution(execution_id=execution_id)
    status: Status | None = known.status
    seconds, cost_usd = known.seconds, known.cost_usd
    was_resumed = run is not None and run.was_resumed
    if journal is not None and (status != "completed" or was_resumed):
        # The last write may have failed, and an interrupted run has none; the journal then still has the end. One that
        # ended with teams that failed, or at its budget, may have been gone on with.
        kept = await _if_readable(_read_journal(journal, execution_id, members=False), _Kept())
        if status is None or kept.is_open:
            status, seconds = kept.status, kept.seconds
            # The tables have no line yet of a round that did not end.
            bill = await _if_readable(journal.bill(execution_id), [])
            cost_usd = cost_of(bill) if bill or run is not None else cost_usd
    return ExecutionLine(
        execution_id=execution_id,
        user_prompt=known.user_prompt or (run.user_prompt if run else ""),
        status=status or "unfinished",
        is_running=status is None and is_playing(workspace.database, execution_id),
        started_at=run.started_at if run else known.started_at,
        seconds=seconds,
        # The summary knows it; a run that goes on may have other teams than it had.
        total_teams=run.total_teams if run is not None and known.status is None else known.total_teams,
        best_team=known.best_team,
        best_score=known.best_score,
        cost_usd=cost_usd,
        names_no_file=run is not None and run.config_file is None,
        lacks_end=run is not None
        and not run.has_ended
        and known.status is not None
        and not is_playing(workspace.database, execution_id),
    )


def _newest_first(lines: Sequence[ExecutionLine], started: Mapping[str, StartedRun]) -> list[ExecutionLine]:
    """By when they began, as the journal numbers its events; those whose time nobody knows stand at the end."""
    moments = {line.execution_id: line.started_at.timestamp() for line in lines if line.started_at is not None}
    latest = float("-inf")
    for run in sorted(started.values(), key=lambda run: run.position):
        # What began after another is not older for a clock that was set back in between.
        latest = moments[run.execution_id] = max(latest, moments[run.execution_id])
    positions = {run.execution_id: run.position for run in started.values()}

    def order(line: ExecutionLine) -> tuple[bool, float, int, str]:
        named = line.execution_id
        return named not in moments, -moments.get(named, 0.0), -positions.get(named, 0), named

    return sorted(lines, key=order)


def _status_of(summary: Mapping[str, Any]) -> ExecutionStatus:
    if not summary["team_results"]:
        return "failed"
    return "partial_failure" if summary["failed_teams_info"] else "completed"


# --- what the journal adds --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Kept:
    """What the journal has of an execution."""

    started: JournalEvent | None = None
    begun: Mapping[str, Any] = field(default_factory=dict)
    """What it was to do, by which settings; what it was gone on with holds from then on."""
    ever_named: Mapping[str, str] = field(default_factory=dict)
    """The names of all teams that ever took part, those included that were taken out."""
    summary: Mapping[str, Any] | None = None
    """Of a run that came to its end or was interrupted."""
    is_open: bool = False
    """Whether it was gone on with or interrupted after its last end, if it had any, and has no other end yet."""
    was_resumed: bool = False
    """Whether it was ever gone on with."""
    failures: Mapping[str, str] = field(default_factory=dict)
    """Why teams failed."""
    shortages: Mapping[str, str] = field(default_factory=dict)
    """What budgets could not pay for that ended teams in the middle of a round."""
    members: Mapping[_Place, tuple[MemberCall, ...]] = field(default_factory=dict)
    tools: Mapping[_Place, tuple[ToolsUsed, ...]] = field(default_factory=dict)
    open_rounds: Mapping[_Place, RoundRecord] = field(default_factory=dict)
    """Rounds as far as they came: when they began, and what was submitted."""
    bill: tuple[ModelUsage, ...] = ()
    """What calls cost, where the tables may not have all of it yet."""
    lost: tuple[LostUsage, ...] = ()
    usage: Usage = field(default_factory=Usage)
    """What calls consumed beyond what a bill tells: uses of tools, tokens that were cached."""
    of_teams: Mapping[str, Usage] = field(default_factory=dict)
    """The same for each team."""
    played: Mapping[_Place, float] = field(default_factory=dict)
    """How long finished rounds were played, where several processes did."""

    @property
    def found(self) -> bool:
        return bool(self.started or self.summary or self.members)

    @property
    def is_over(self) -> bool:
        """Whether the run came to its end."""
        return self.status not in (None, "interrupted")

    @property
    def status(self) -> Status | None:
        """How the run ended; None: nobody told."""
        if self.summary is None:
            return None
        return "interrupted" if self.summary.get("interrupted") else _status_of(self.summary)

    @property
    def seconds(self) -> float | None:
        """How long the run took."""
        return (self.summary or {}).get("total_execution_time_seconds")


async def _read_journal(journal: Journal, execution_id: str, *, members: bool = True) -> _Kept:
    kinds = (*BEGINNINGS, *_ENDS, "TeamStarted", "TeamFinished", "TeamFailed")
    events = await journal.events(execution_id, kinds=kinds)
    by_kind = {event.kind: event for event in events}
    # A run that goes on after an interruption has an end again when it is told of one.
    ends = [event for event in events if event.kind in ("RunResumed", *_ENDS)]
    latest = ends[-1] if ends else None
    beginnings = [_told(event) for event in events if event.kind in BEGINNINGS]
    begun = {name: value for one in beginnings for name, value in one.items()}
    return _Kept(
        started=by_kind.get("RunStarted"),
        begun=begun,
        ever_named={team_id: name for one in beginnings for team_id, name in one.get("team_names", {}).items()},
        summary=_told(latest).get("summary") if latest else None,
        is_open=latest is not None and latest.kind != "RunFinished",
        was_resumed="RunResumed" in by_kind,
        failures=_reasons(events, "TeamFailed"),
        shortages=_reasons(events, "TeamFinished"),
        members=_by_place(await journal.member_calls(execution_id)) if members else {},
        tools=_tools_by_place(await journal.events(execution_id, kinds=("ToolFinished",))) if members else {},
    )


def _reasons(events: Iterable[JournalEvent], kind: str) -> dict[str, str]:
    """What was told when teams ended so that neither began again nor ended otherwise since."""
    reasons: dict[str, str] = {}
    for event in events:
        if event.team_id is not None:
            reasons.pop(event.team_id, None)
        if event.kind == kind and (reason := _told(event).get("reason")) is not None:
            reasons[str(event.team_id)] = reason
    return reasons


async def _read_lost(journal: Journal, execution_id: str, *, is_running: bool) -> tuple[LostUsage, ...]:
    """What attempts may have cost that nobody knows of, those included that were on their way when a process died."""
    begun = await journal.events(execution_id, kinds=BEGINNINGS) if is_running else []
    lines: dict[_LineKey, LostUsage] = {}
    for call in await journal.spending(execution_id, playing_since=begun[-1].at if begun else None):
        if call.lost_attempts:
            costs = {"attempts": call.lost_attempts, "tokens": call.lost_tokens, "cost_usd": call.lost_usd}
            line = LostUsage.model_validate({**call.scope.model_dump(), "model": call.model, **costs})
            known = lines.get(_line_key(line))
            lines[_line_key(line)] = line if known is None else known.plus(line)
    return tuple(lines[key] for key in sorted(lines))


async def _read_played(journal: Journal, execution_id: str) -> dict[_Place, float]:
    """How long rounds were played that several processes had a part in, without the pauses between these."""
    played: dict[_Place, float] = {}
    begun: dict[_Place, tuple[float, int]] = {}
    process = 0
    clocks: defaultdict[str, float] = defaultdict(float)  # how long each team was played so far
    latest: dict[str, datetime] = {}
    for event in await journal.events(execution_id, kinds=(*BEGINNINGS, *_SIGNS_OF_PLAY)):
        if event.team_id is None:
            latest, process = {}, process + 1
            continue
        clocks[event.team_id] += seconds_between(latest.get(event.team_id, event.at), event.at)
        latest[event.team_id] = event.at
        told = _told(event)
        if event.kind == "RoundStarted":
            begun.setdefault((event.team_id, int(told["round_number"])), (clocks[event.team_id], process))
        elif event.kind in ("RoundFinished", "RoundFailed"):
            place = event.team_id, int(told["entry"]["round_number"])
            since, first = begun.get(place, (0.0, process))
            if first != process:
                played[place] = clocks[event.team_id] - since
    return played


async def _read_open_rounds(journal: Journal, execution_id: str, kept: _Kept) -> _Kept:
    """What is known of rounds that did not end: a run that is over has none of them, and the most of these events."""
    rounds: dict[_Place, RoundRecord] = {}
    for event in await journal.events(execution_id, kinds=("RoundStarted", "SubmissionMade")):
        place = str(event.team_id), int(_told(event)["round_number"])
        rounds[place] = (rounds.get(place) or RoundRecord(round_number=place[1])).model_copy(update=_news(event))
    # A call that failed before it gave anything is on no bill.
    bill = tuple(line for line in await journal.bill(execution_id) if any(_size(line)))
    return replace(kept, open_rounds=rounds, bill=bill)


async def _with_told_rounds(journal: Journal, execution_id: str, stored: ExecutionRows) -> ExecutionRows:
    """The rows, and what the journal alone has of rounds and verdicts: rows are written a moment after it."""
    board, statuses = ({_place(row): row for row in rows} for rows in (stored.board, stored.statuses))
    for event in await journal.events(execution_id, kinds=("RoundFinished", "RoundFailed", "RoundJudged")):
        told = _told(event)
        if event.kind == "RoundJudged":
            place = str(event.team_id), told["round_number"]
            status = statuses.get(place)
            if status is not None and status["should_continue"] is None:
                statuses[place] = {**status, **told["judgment"]}
            continue
        entry, state = LeaderBoardEntry.model_validate(told["entry"]), RoundState.model_validate(told["state"])
        place = entry.team_id, entry.round_number
        # One that could not be scored at first is there as it was then.
        if place not in board or (board[place]["updated_at"] or entry.updated_at) < entry.updated_at:
            times = state.model_dump(include={"round_started_at", "round_ended_at"})
            board[place] = entry.model_dump()
            statuses[place] = {**entry.model_dump(), **times, "should_continue": None}
    return replace(stored, board=tuple(board.values()), statuses=tuple(statuses.values()))


async def _with_known_costs(journal: Journal, execution_id: str, stored: ExecutionRows) -> ExecutionRows:
    """The rows, and what is known of costs that are not known in whole, for which the table has no column."""
    if cost_of(stored.bill) is not None:
        return stored
    known = {_line_key(line): line.known_usd for line in await journal.bill(execution_id)}
    bill = tuple(line.model_copy(update={"known_usd": known.get(_line_key(line), 0.0)}) for line in stored.bill)
    return replace(stored, bill=bill)


def _told(event: JournalEvent) -> dict[str, Any]:
    return event.payload if isinstance(event.payload, dict) else {}


def _news(event: JournalEvent) -> dict[str, Any]:
    if event.kind == "RoundStarted":
        return {"started_at": event.at}
    return {"submission": _told(event)["submission_content"]}


def _by_place(results: Iterable[ToolResult]) -> dict[_Place, tuple[MemberCall, ...]]:
    places: dict[_Place, tuple[MemberCall, ...]] = {}
    for result in results:
        place = result.scope.team_id, result.scope.round_number
        places[place] = (*places.get(place, ()), _member_call(result))
    return places


def _tools_by_place(events: Iterable[JournalEvent]) -> dict[_Place, tuple[ToolsUsed, ...]]:
    used: dict[_Place, dict[str, ToolsUsed]] = {}
    for event in events:
        told = _told(event)
        name, error = str(told["agent_name"]), told.get("error")
        of_round = used.setdefault((str(event.team_id), int(told["round_number"])), {})
        known = of_round.get(name) or ToolsUsed(agent_name=name)
        more = {"calls": known.calls + 1, "failed": known.failed + (error is not None), "error": error or known.error}
        of_round[name] = known.model_copy(update=more)
    return {place: tuple(each.values()) for place, each in used.items()}


def _member_call(result: ToolResult) -> MemberCall:
    given = result.result if isinstance(result.result, dict) else {}
    task = result.arguments.get("task") if isinstance(result.arguments, dict) else None
    return MemberCall(
        **member_submission(given).model_dump(),
        task=None if task is None else str(task),
        started_at=result.started_at,
    )


# --- the bill ---------------------------------------------------------------------------------------------------------


def _bill(stored: Iterable[ModelUsage], kept: Iterable[ModelUsage]) -> tuple[ModelUsage, ...]:
    """The lines of the table, and those of the journal that it does not have yet; of two for the same, the larger."""
    lines = {_line_key(line): line for line in stored}
    for line in kept:
        known = lines.get(_line_key(line))
        if known is None or _size(known) < _size(line):
            lines[_line_key(line)] = line
    return tuple(lines[key] for key in sorted(lines))


def _size(line: ModelUsage) -> tuple[int, int]:
    return line.requests, line.input_tokens + line.output_tokens


_LineKey = tuple[str, int, str, str, str]


def _line_key(line: ModelUsage | LostUsage) -> _LineKey:
    return line.team_id, line.round_number, line.role, line.agent_name, line.model


# --- the record -------------------------------------------------------------------------------------------------------


def _record(execution_id: str, stored: ExecutionRows, kept: _Kept, *, is_running: bool) -> ExecutionRecord:
    summary, begun = stored.summary or {}, kept.begun
    status: Status = _known_status(summary.get("status")) or kept.status or "unfinished"
    bill = _bill(stored.bill, kept.bill)
    return ExecutionRecord(
        execution_id=execution_id,
        user_prompt=begun.get("user_prompt") or summary.get("user_prompt") or "",
        status=status,
        is_running=is_running and status == "unfinished",
        started_at=kept.started.at if kept.started else _first_moment(stored),
        seconds=summary.get("total_execution_time_seconds") or kept.seconds,
        was_resumed=kept.was_resumed,
        has_unknown_pauses=kept.started is None and _may_have_paused(stored),
        max_rounds=begun.get("max_rounds"),
        teams=_teams(stored, kept, bill),
        bill=bill,
        usage=_usage(bill, kept.usage),
        cost_usd=cost_of(bill) if bill or kept.started is not None else None,
        lost=kept.lost,
        attachments=stored.attachments or tuple(AttachmentInfo(**one) for one in begun.get("attachments", ())),
        reference=begun.get("reference"),
        configuration=begun.get("configuration"),
        config_file=begun.get("config_file"),
    )


def _known_status(word: object) -> ExecutionStatus | None:
    return next((status for status in get_args(ExecutionStatus) if status == word), None)


def _first_moment(stored: ExecutionRows) -> datetime | None:
    moments = [row["round_started_at"] for row in stored.statuses if row["round_started_at"]]
    moments = moments or [row["created_at"] for row in stored.board if row["created_at"]]
    return min(moments, default=(stored.summary or {}).get("created_at"))


def _may_have_paused(stored: ExecutionRows) -> bool:
    """Whether more time went by from the first moment to the end than was played, or nobody knows how much was."""
    summary = stored.summary or {}
    first, end, played = _first_moment(stored), summary.get("completed_at"), summary.get("total_execution_time_seconds")
    if first is None or end is None or played is None:
        return True
    return seconds_between(first, end) > float(played) + _CLOCKS_DIFFER_SECONDS


def _usage(bill: Iterable[ModelUsage], known: Usage) -> Usage:
    lines = (
        Usage(requests=line.requests, input_tokens=line.input_tokens, output_tokens=line.output_tokens) for line in bill
    )
    billed = sum(lines, start=Usage())
    counts = billed.model_dump(include={"requests", "input_tokens", "output_tokens"})
    return known.model_copy(update=counts)


# --- teams ------------------------------------------------------------------------------------------------------------


def _teams(stored: ExecutionRows, kept: _Kept, bill: Sequence[ModelUsage]) -> tuple[TeamRecord, ...]:
    rounds = _rounds(stored, kept, bill)
    names = {**_names(stored), **kept.begun.get("team_names", {})}
    ids = sorted({*names, *rounds, *kept.failures})
    names = {**kept.ever_named, **names}
    bills = {each: [line for line in bill if line.team_id == each] for each in ids}
    teams = [_team(each, names.get(each, each), rounds.get(each, {}), stored, kept, bills[each]) for each in ids]
    ranks = {standing.team_id: standing.rank for standing in order_standings(_standings(teams))}
    ranked = [team.model_copy(update={"rank": ranks.get(team.team_id)}) for team in teams]
    return tuple(sorted(ranked, key=lambda team: (team.rank is None, team.rank or 0, team.team_id)))


def _names(stored: ExecutionRows) -> dict[str, str]:
    """Each team's name in its latest round."""
    rows = sorted([*stored.statuses, *stored.board], key=lambda row: int(row["round_number"]))
    return {row["team_id"]: row["team_name"] for row in rows}


def _team(
    team_id: str,
    name: str,
    rounds: Mapping[int, RoundRecord],
    stored: ExecutionRows,
    kept: _Kept,
    bill: Sequence[ModelUsage],
) -> TeamRecord:
    rows = [row for row in stored.board if row["team_id"] == team_id]
    scored = [(row["score"], row["round_number"]) for row in rows if row["score"] is not None]
    final = next((row["round_number"] for row in rows if row["final_submission"]), None)
    best_score, best_round = max(scored, default=(None, None))
    return TeamRecord(
        team_id=team_id,
        team_name=name,
        best_score=best_score,
        best_round=final or best_round,
        exit_reason=next(filter(None, (_exit_reason(row["exit_reason"]) for row in rows)), None),
        error=kept.failures.get(team_id),
        shortage=kept.shortages.get(team_id),
        usage=_usage(bill, kept.of_teams.get(team_id, Usage())),
        rounds=tuple(rounds[number] for number in sorted(rounds)),
    )


def _exit_reason(word: object) -> ExitReason | None:
    return next((reason for reason in get_args(ExitReason) if reason == word), None)


def _standings(teams: Iterable[TeamRecord]) -> list[Standing]:
    return [
        Standing(
            team_id=team.team_id,
            team_name=team.team_name,
            best_score=team.best_score,
            latest_round=team.latest_round,
            total_rounds=team.finished_rounds,
        )
        for team in teams
        if team.best_score is not None
    ]


# --- rounds -----------------------------------------------------------------------------------------------------------


def _rounds(stored: ExecutionRows, kept: _Kept, bill: Iterable[ModelUsage]) -> dict[str, dict[int, RoundRecord]]:
    board = {_place(row): row for row in stored.board}
    statuses = {_place(row): row for row in stored.statuses}
    members = {place: tuple(MemberCall(**one.model_dump()) for one in calls) for place, calls in stored.members.items()}
    members.update(kept.members)
    bills: dict[_Place, list[ModelUsage]] = {}
    for line in bill:
        bills.setdefault((line.team_id, line.round_number), []).append(line)
    rounds: dict[str, dict[int, RoundRecord]] = {}
    for place in {**board, **statuses, **members, **kept.open_rounds, **bills}:
        known = kept.open_rounds.get(place) or RoundRecord(round_number=place[1])
        news = {**_scored(board.get(place)), **_judged(statuses.get(place))}
        more = {
            "is_finished": place in board,
            "members": members.get(place, ()),
            "tools": kept.tools.get(place, ()),
            "bill": tuple(bills.get(place, ())),
            "played_seconds": kept.played.get(place),
        }
        rounds.setdefault(place[0], {})[place[1]] = known.model_copy(update={**news, **more})
    return rounds


def _place(row: Mapping[str, Any]) -> _Place:
    return row["team_id"], row["round_number"]


def _scored(row: Mapping[str, Any] | None) -> dict[str, Any]:
    """What a row of the leader board tells of a round."""
    if row is None:
        return {}
    details = row["score_details"] if isinstance(row["score_details"], dict) else {}
    evaluation = EvaluationResult.from_score_details(details, row["score"])
    reason = details.get("reason")
    return {
        # A round without a submission has a row with an empty one.
        "submission": row["submission_content"] or None,
        "submission_format": row["submission_format"] or "md",
        "score": row["score"],
        "metrics": tuple(evaluation.metrics),
        "flags": tuple(evaluation.flags),
        "failure": reason if row["score"] is None and isinstance(reason, str) else None,
    }


def _judged(row: Mapping[str, Any] | None) -> dict[str, Any]:
    """What a row of the rounds' status tells of a round."""
    if row is None:
        return {}
    times = {"started_at": row["round_started_at"], "ended_at": row["round_ended_at"]}
    told = {name: moment for name, moment in times.items() if moment is not None}
    return told if row["should_continue"] is None else {**told, "judgment": _judgment(row)}


def _judgment(row: Mapping[str, Any]) -> ImprovementJudgment:
    confidence = row["confidence_score"] or 0.0
    return ImprovementJudgment(
        should_continue=row["should_continue"],
        reasoning=row["reasoning"] or "",
        confidence_score=min(max(confidence, 0.0), 1.0),
    )
