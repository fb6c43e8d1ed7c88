"""``mixseek journal``: what happened as it was kept: events as they come, calls with their cost, and a check of it."""

import asyncio
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

import typer

from mixseek.amounts import cost_words, counted, number, usd, usd_digits
from mixseek.cli.completion import complete_execution
from mixseek.cli.output import (
    Format,
    FormatOption,
    WorkspaceOption,
    print_document,
    print_json,
    print_line,
    rounded,
    use_format,
    warn,
)
from mixseek.cli.stored import IdArgument, Place, duration, open_place
from mixseek.cli.tables import Column, print_table
from mixseek.errors import ConfigurationError, StorageError
from mixseek.records import Usage
from mixseek.report.reading import LAST, nothing_played
from mixseek.report.tabular import csv_text
from mixseek.storage.beginning import BEGINNINGS, beginning_in
from mixseek.storage.executions import StoredExecutions
from mixseek.storage.journal import DERIVED, CallLine, Journal, JournalEvent, ModelCall, StartedCall, derived_id
from mixseek.storage.journal_checks import JournalCheck, check_journal, refuse_damaged
from mixseek.storage.playing import is_playing

__all__ = ["app"]

EXIT_FAULTS = 1

app = typer.Typer(
    help="""Look into the journal: what happened, call by call.

    \b
    Examples:
      mixseek journal tail --follow
      mixseek journal calls last --role leader
      mixseek journal verify
    """,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

_LOOK_SECONDS = 0.5
_ENDS = frozenset({"RunFinished", "RunInterrupted"})


# --- tail -------------------------------------------------------------------------------------------------------------


@app.command("tail")
def tail(
    execution: Annotated[
        str | None,
        typer.Argument(
            metavar="ID",
            help="Only this execution: its id, the beginning of it, or last.",
            show_default=False,
            autocompletion=complete_execution,
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what happens; of one execution, until it ends.")
    ] = False,
    count: Annotated[int, typer.Option("--lines", "-n", min=0, help="So many events that happened before.")] = 20,
    output: Annotated[Format, typer.Option("--format", help="How to answer; json is one document for each event.")] = (
        Format.TEXT
    ),
    workspace: WorkspaceOption = None,
) -> None:
    """Print the newest events of the workspace or of one execution, also while a run goes on in another process.

    A line has the time in UTC, the beginning of the execution's id, the team and what happened.

    \b
    Examples:
      mixseek journal tail
      mixseek journal tail last --follow
      mixseek journal tail 3f2a -n 100 --format json
    """
    use_format(output)
    place = open_place(workspace)
    asyncio.run(_tail(place, None if execution is None else place.find(execution), count, follow, output))


async def _tail(place: Place, execution_id: str | None, count: int, follow: bool, output: Format) -> None:
    async with Journal(place.workspace.journal) as journal:
        # One more than is shown: without any there would be no position to go on from.
        newest = await journal.last_events(execution_id, count=max(count, 1))
        _print_events(place, newest[-count:] if count else [], output)
        await asyncio.to_thread(_tell_of_damage, place)
        while follow:
            # Asked before the last look, so that nothing which came meanwhile is missed.
            is_over = _is_over(place, execution_id, newest)
            news = await journal.events(execution_id, after=newest[-1].position or 0 if newest else 0)
            _print_events(place, news, output)
            newest = news or newest
            if is_over:
                break
            await asyncio.sleep(_LOOK_SECONDS)
    if newest:
        return
    if execution_id is not None:
        raise ConfigurationError(_nothing_of(execution_id))
    warn(f"mixseek: {await _why_nothing_is_told(place)}")


def _tell_of_damage(place: Place) -> None:
    """Warn where pages make no sense: what is printed may be less than what was kept."""
    try:
        refuse_damaged(place.workspace.journal)
    except StorageError as error:
        warn(f"mixseek: {error}; what is told here may lack some of it")


async def _why_nothing_is_told(place: Place) -> str:
    # What was played without a journal was played all the same.
    stored = await StoredExecutions(place.workspace.database).all()
    return _without_journal(len(stored)) if stored else nothing_played(place.workspace)


def _nothing_of(execution_id: str) -> str:
    why = "it was played without one, or its journal was removed"
    if DERIVED in execution_id:
        why = "nobody was asked by this id"
    return f"the journal has nothing of execution {execution_id}: {why}"


def _without_journal(executions: int) -> str:
    """Of executions that only mixseek.db has."""
    is_not, it_was, its = ("is", "it was", "its") if executions == 1 else ("are", "they were", "their")
    return (
        f"{counted(executions, 'execution')} in mixseek.db {is_not} not in the journal: {it_was} played without one, "
        f"or by another program, or {its} journal was removed"
    )


def _is_over(place: Place, execution_id: str | None, newest: Sequence[JournalEvent]) -> bool:
    """Whether nothing more comes: nobody plays the execution, which is not known everywhere, or it has ended."""
    if execution_id is None or is_playing(place.workspace.database, execution_id):
        return False
    return sys.platform == "linux" or any(event.kind in _ENDS for event in newest)


def _print_events(place: Place, events: Sequence[JournalEvent], output: Format) -> None:
    for event in events:
        if output is Format.JSON:
            print_document(_one_line(place.redactor.value(event.model_dump(mode="json"))) + "\n")
        else:
            print_line(place.redactor.text(_event_line(event)))


def _one_line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True, default=str)


def _event_line(event: JournalEvent) -> str:
    told = event.payload if isinstance(event.payload, dict) else {}
    words = [
        f"{name.removesuffix('_name')} {_short(told[name])}" for name in _WORTH_TELLING if told.get(name) is not None
    ]
    rest = f"  {', '.join(words)}" if words else ""
    return f"{event.at:%Y-%m-%d %H:%M:%S}  {event.execution_id[:8]}  {event.team_id or '-'}  {event.kind}{rest}"


_WORTH_TELLING = (
    "round_number",
    "attempt",
    "role",
    "agent_name",
    "tool",
    "model",
    "score",
    "seconds",
    "input_tokens",
    "output_tokens",
    "cost_usd",
    "exit_reason",
    "reason",
    "error",
    "task",
    "submission_content",
    "user_prompt",
)
_LONGEST_WORD = 60


def _short(value: Any) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else " ".join(str(value).split())
    return text if len(text) <= _LONGEST_WORD else f"{text[: _LONGEST_WORD - 1]}…"


# --- calls ------------------------------------------------------------------------------------------------------------


class Role(StrEnum):
    """Who makes calls."""

    LEADER = "leader"
    MEMBER = "member"
    EVALUATOR = "evaluator"
    JUDGMENT = "judgment"


class CallsFormat(StrEnum):
    """How calls are listed."""

    TEXT = "text"
    JSON = "json"
    CSV = "csv"


_COLUMNS = (
    Column("Team", elastic=True),
    Column("Round", right=True),
    Column("Role"),
    Column("Agent", elastic=True),
    Column("Model", elastic=True),
    Column("Outcome"),
    Column("Tries", right=True),
    Column("In", right=True),
    Column("Out", right=True),
    Column("USD", right=True),
    Column("Time", right=True),
)
_OUTCOMES = {"CancelledError": "interrupted"}
"""Outcomes in plainer words than the name of the error."""
_LEFT, _ON_ITS_WAY = "never ended", "on its way"
"""Outcomes of calls that did not come to an end: whether the process that made them is gone."""
_FIELDS = (
    "call_id",
    "execution_id",
    "team_id",
    "round",
    "role",
    "agent",
    "model",
    "outcome",
    "message",
    "attempts",
    "lost_attempts",
    "requests",
    "input_tokens",
    "output_tokens",
    "cost_usd",
    "seconds",
    "started_at",
    "ended_at",
)


@app.command("calls")
def calls(
    execution: IdArgument = LAST,
    team: Annotated[str | None, typer.Option("--team", metavar="ID", help="Only calls of this team.")] = None,
    number: Annotated[int | None, typer.Option("--round", metavar="N", min=1, help="Only calls of this round.")] = None,
    role: Annotated[Role | None, typer.Option("--role", help="Only calls of this role.")] = None,
    bodies: Annotated[
        bool, typer.Option("--bodies", help="With what was asked and answered; for -f json and -f csv.")
    ] = False,
    output: Annotated[CallsFormat, typer.Option("--format", "-f", help="How to answer.")] = CallsFormat.TEXT,
    workspace: WorkspaceOption = None,
) -> None:
    """List the model calls of one execution in the order they ended: whose, which model, what came of it, its cost.

    Calls that did not come to an end are counted in the last line; -f json and -f csv list them after the others. Calls
    that were made about an execution later have an id of their own, which mixseek rejudge -f json tells as journal_id.

    \b
    Examples:
      mixseek journal calls
      mixseek journal calls 3f2a --team analysts --round 2 --role evaluator
      mixseek journal calls last -f json --bodies
    """
    use_format(Format.JSON if output is CallsFormat.JSON else Format.TEXT)
    if bodies and output is CallsFormat.TEXT:
        raise ConfigurationError("--bodies goes with -f json or -f csv: a table has no room for them")
    place = open_place(workspace)
    try:
        found = asyncio.run(_calls(place, _whose_calls(place, execution), team, number, role, bodies=bodies))
    except ConfigurationError:
        _tell_of_damage(place)  # what is not there may be what is damaged
        raise
    ended = [line for line in found if line["ended_at"] is not None]
    if output is CallsFormat.JSON:
        print_json(place.redactor.value(rounded(found)))
    elif output is CallsFormat.CSV:
        names = (*_FIELDS, *(("request", "answer") if bodies else ()))
        rows = [[_cell(line.get(name), place) for name in names] for line in found]
        print_document(csv_text(names, rows))
    else:
        digits = usd_digits(line["cost_usd"] for line in ended)
        print_table(_COLUMNS, [[place.redactor.text(cell) for cell in _cells(line, digits)] for line in ended])
        print_line(", ".join([_total_line(ended), *_on_their_way(found)]))
    _tell_of_damage(place)


def _whose_calls(place: Place, given: str) -> str:
    """An execution, or those that were asked about it later, whose id is its own with a name after it."""
    execution, _, name = given.partition(DERIVED)
    execution_id = place.find(execution)
    return derived_id(execution_id, name) if name else execution_id


async def _calls(
    place: Place, execution_id: str, team: str | None, number: int | None, role: Role | None, *, bodies: bool
) -> list[dict[str, Any]]:
    async with Journal(place.workspace.journal) as journal:
        await _refuse_unknown(journal, execution_id, team, number)
        lines = await journal.call_lines(execution_id, team_id=team, round_number=number, role=role)
        whole = {call.call_id: call for call in await journal.calls(execution_id, team)} if bodies else {}
        begun = await _begun_by_who_plays(place, journal, execution_id)
        never_ended = [
            _fields_of_started(call, is_left=begun is None or call.started_at < begun)
            for call in await journal.calls_never_ended(execution_id)
            if all(one in (None, its) for one, its in zip((team, number, role), _whose(call), strict=True))
        ]
    return [*({**_fields(line), **_bodies(whole.get(line.call_id))} for line in lines), *never_ended]


def _whose(call: StartedCall) -> tuple[str, int, str]:
    return call.scope.team_id, call.scope.round_number, call.scope.role


async def _begun_by_who_plays(place: Place, journal: Journal, execution_id: str) -> datetime | None:
    """When the process began that plays the execution; None: nobody plays it."""
    if _is_over(place, execution_id, await journal.last_events(execution_id, count=1)):
        return None
    begun = await journal.events(execution_id, kinds=BEGINNINGS)
    # Whoever asks about an execution later tells of no beginning.
    return begun[-1].at if begun else datetime.min.replace(tzinfo=UTC)


async def _refuse_unknown(journal: Journal, execution_id: str, team: str | None, number: int | None) -> None:
    """An empty table would say that nothing was asked, where nothing is known or a name is wrong."""
    begun = await journal.events(execution_id, kinds=BEGINNINGS)
    if not begun and not await journal.call_lines(execution_id) and not await journal.calls_in_flight(execution_id):
        raise ConfigurationError(_nothing_of(execution_id))
    # One that was taken out when the execution was resumed has played as well.
    teams = {team_id for event in begun if (one := beginning_in([event])) for team_id in one.team_names}
    if team is not None and teams and team not in teams:
        raise ConfigurationError(f"no team {team!r} played: --team takes one of {', '.join(sorted(teams))}")
    if number is not None:
        scopes = [line.scope for line in await journal.call_lines(execution_id)]
        scopes += [call.scope for call in await journal.calls_never_ended(execution_id)]
        rounds = sorted({scope.round_number for scope in scopes if team in (None, scope.team_id)})
        if rounds and number not in rounds:
            of = "" if team is None else f" of team {team!r}"
            known = ", ".join(map(str, rounds))
            raise ConfigurationError(f"no call was made in round {number}{of}: --round takes one of {known}")


def _fields(line: CallLine) -> dict[str, Any]:
    # Of a call that broke off nobody knows what it took, which is not nothing.
    is_known = not line.lost_attempts or line.usage.total_tokens > 0
    return {
        "call_id": line.call_id,
        "execution_id": line.scope.execution_id,
        "team_id": line.scope.team_id,
        "round": line.scope.round_number,
        "role": line.scope.role,
        "agent": line.scope.agent_name,
        "model": line.model,
        "outcome": line.outcome,
        "message": line.message,
        "attempts": line.attempts,
        "lost_attempts": line.lost_attempts,
        "requests": line.usage.requests,
        "input_tokens": line.usage.input_tokens if is_known else None,
        "output_tokens": line.usage.output_tokens if is_known else None,
        "cost_usd": line.cost_usd if is_known else None,
        "seconds": (line.ended_at - line.started_at).total_seconds(),
        "started_at": line.started_at.isoformat(),
        "ended_at": line.ended_at.isoformat(),
    }


def _fields_of_started(call: StartedCall, *, is_left: bool) -> dict[str, Any]:
    """A call of which nothing is known but that it was made."""
    known = CallLine(
        call_id=call.call_id,
        scope=call.scope,
        model=call.model,
        outcome=_LEFT if is_left else _ON_ITS_WAY,
        usage=Usage(),
        cost_usd=None,
        attempts=1,
        lost_attempts=1,
        started_at=call.started_at,
        ended_at=call.started_at,
    )
    return {**_fields(known), "seconds": None, "ended_at": None}


def _bodies(call: ModelCall | None) -> dict[str, Any]:
    return {} if call is None else {"request": call.request, "answer": call.answer, "pruned": call.pruned}


def _cell(value: Any, place: Place) -> Any:
    text = _one_line(value) if isinstance(value, dict | list) else value
    return place.redactor.text(text) if isinstance(text, str) else text


def _cells(line: dict[str, Any], digits: int) -> list[str]:
    return [
        line["team_id"],
        str(line["round"]),
        line["role"],
        line["agent"],
        line["model"],
        _OUTCOMES.get(line["outcome"], line["outcome"]),
        str(line["attempts"]),
        _count(line["input_tokens"]),
        _count(line["output_tokens"]),
        usd(line["cost_usd"], digits),
        duration(line["seconds"]),
    ]


def _count(tokens: int | None) -> str:
    return "-" if tokens is None else number(tokens)


def _total_line(lines: Sequence[dict[str, Any]]) -> str:
    # As on the bill, which has nothing of a call that broke off.
    costs = [line["cost_usd"] for line in lines if line["requests"] or not line["lost_attempts"]]
    known = sum(cost for cost in costs if cost is not None)
    cost = None if None in costs else known
    spent = number(sum((line["input_tokens"] or 0) + (line["output_tokens"] or 0) for line in lines))
    lost = sum(line["lost_attempts"] for line in lines)
    left_out = f" without {counted(lost, 'attempt')} that broke off or told no usage" if lost else ""
    # Bills count those that gave an answer.
    unanswered = sum(line["outcome"] != "answered" for line in lines)
    without = f" ({unanswered} without an answer)" if unanswered else ""
    return f"{counted(len(lines), 'call')}{without}, {spent} tokens, {cost_words(cost, known)}{left_out}"


def _on_their_way(lines: Sequence[dict[str, Any]]) -> Iterator[str]:
    outcomes = [line["outcome"] for line in lines if line["ended_at"] is None]
    if left := outcomes.count(_LEFT):
        words = "was on its way when its process ended" if left == 1 else "were on their way when their process ended"
        yield f"and {number(left)} that {words}"
    if going := outcomes.count(_ON_ITS_WAY):
        yield f"and {number(going)} that {'is on its way' if going == 1 else 'are on their way'} now"


# --- verify -----------------------------------------------------------------------------------------------------------

_MOST_FAULTS = 50


@app.command("verify")
def verify(output: FormatOption = Format.TEXT, workspace: WorkspaceOption = None) -> None:
    """Check the journal: the file, every body, keys, starts of calls, gaps between events, and bills.

    Exit codes: 0 nothing is wrong, 1 something is, which is told, 2 a mistake, or a file that cannot be read at all.

    \b
    Examples:
      mixseek journal verify
      mixseek journal verify -w my-workspace -f json
    """
    use_format(output)
    place = open_place(workspace)
    check = asyncio.run(_verified(place))
    if output is Format.JSON:
        print_json(place.redactor.value({**asdict(check), "faults": list(check.faults), "ok": not check.faults}))
    else:
        for line in _check_lines(check):
            print_line(place.redactor.text(line))
    if check.faults:
        raise typer.Exit(EXIT_FAULTS)


async def _verified(place: Place) -> JournalCheck:
    results = StoredExecutions(place.workspace.database)
    bills, stored = await results.bills(), {one.execution_id for one in await results.all()}
    return await asyncio.to_thread(check_journal, place.workspace.journal, bills, stored)


def _check_lines(check: JournalCheck) -> list[str]:
    counts = ((check.executions, "execution"), (check.calls, "call"), (check.events, "event"))
    looked = ", ".join(counted(*each) for each in counts)
    others = [_without_journal(check.not_in_journal)] if check.not_in_journal else []
    if not check.faults:
        empty = "the journal is empty" if others else "the journal is empty: nothing was kept in it yet"
        return [f"the journal is whole: {looked}" if check.events else empty, *others]
    faults = counted(len(check.faults), "fault")
    if check.is_broken:
        # Pages that make no sense all say the same, and are not counted to their end.
        more = [f"and at least {len(check.faults) - 1} more"] if len(check.faults) > 1 else []
        return [check.faults[0], *more, f"at least {faults} in {looked}", *others]
    hidden = len(check.faults) - _MOST_FAULTS
    rest = [f"and {hidden} more; -f json tells all"] if hidden > 0 else []
    return [*check.faults[:_MOST_FAULTS], *rest, f"{faults} in {looked}", *others]
