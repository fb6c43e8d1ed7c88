"""The rows of an execution made anew from what the journal has of it.

Each event stands for one write of the run, so the events are told again, in their order, to tables in memory: a row
that comes twice is replaced but for the time it was made, as in the database.
"""

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, fields
from datetime import datetime
from pathlib import Path
from typing import Any

from mixseek.records import (
    AttachmentInfo,
    ExecutionSummary,
    ImprovementJudgment,
    LeaderBoardEntry,
    MemberSubmissionsRecord,
    ModelUsage,
    RoundState,
)
from mixseek.storage.bodies import UnreadableBodyError, value_of, what_is_wrong
from mixseek.storage.journal_file import open_for_reading, read_error
from mixseek.storage.places import Place
from mixseek.storage.result_rows import (
    attachment_rows,
    history_row,
    round_key,
    round_rows,
    round_status_row,
    stamp,
    summary_row,
    usage_row,
)
from mixseek.storage.tables import LEADER_BOARD, ROUND_STATUS, Row, Table
from mixseek.storage.values import moment, text

__all__ = ["Retold", "executions_kept", "retold", "takeovers"]

_Key = tuple[Any, ...]
_WAIT_SECONDS = 60.0


@dataclass(frozen=True)
class Retold:
    """The rows of one team in one execution, or those of the execution itself, as the run wrote them."""

    execution_id: str
    rows: tuple[Row, ...]
    fault: str | None = None
    """Why they cannot be told: an event among those that tell of them is damaged."""


def executions_kept(journal: Path) -> list[str]:
    """The executions that the journal has rows of, in the order they began."""
    return list(_read(journal, _ids))


def retold(journal: Path) -> Iterator[Retold]:
    """Every execution of the journal, team by team: all of it at once could be more than fits in memory."""
    yield from _read(journal, _retold)


def takeovers(journal: Path) -> list[Place]:
    """Who took executions over from others, which those must find in the results as well."""
    return list(_read(journal, _takeovers))


def _takeovers(connection: sqlite3.Connection) -> Iterator[Place]:
    names = [each.name for each in fields(Place)]
    for row in connection.execute("SELECT * FROM places WHERE epoch > 1"):
        yield Place(**{name: row[name] for name in names})


def _read(journal: Path, work: Callable[[sqlite3.Connection], Iterator[Any]]) -> Iterator[Any]:
    try:
        connection = open_for_reading(journal, _WAIT_SECONDS)
        if connection is None:
            return
        with closing(connection):
            yield from work(connection)
    except sqlite3.Error as error:
        raise read_error(journal, error) from error


def _ids(connection: sqlite3.Connection) -> Iterator[str]:
    yield from (row["id"] for row in connection.execute(_IDS, _KINDS))


def _retold(connection: sqlite3.Connection) -> Iterator[Retold]:
    for execution_id in list(_ids(connection)):
        for (team_id,) in connection.execute(_TEAMS, (execution_id,)).fetchall():
            tables = _Tables(execution_id)
            try:
                for event in connection.execute(_EVENTS, (execution_id, team_id is None, team_id or "", *_KINDS)):
                    tables.tell(event["kind"], team_id or "", moment("at", event["at"]), value_of(event["payload"]))
            except (UnreadableBodyError, ValueError, TypeError, LookupError) as error:
                # What other events tell is not given either: a part of it could replace rows that are whole.
                whose = f"execution {execution_id}" + ("" if team_id is None else f", team {team_id!r}")
                yield Retold(execution_id, (), f"{whose}: {what_is_wrong(error)}")
            else:
                yield Retold(execution_id, tuple(tables.rows()))


@dataclass
class _Tables:
    """The tables of one execution, in memory."""

    execution_id: str
    _rows: dict[tuple[Table, _Key], Row] = field(default_factory=dict)

    def rows(self) -> Iterator[Row]:
        yield from self._rows.values()

    def tell(self, kind: str, team_id: str, at: datetime, told: Mapping[str, Any]) -> None:
        """Do to the tables what the run did when this happened."""
        _WRITES[kind](self, team_id, at, told)

    # --- what is written with each kind of event ---

    def begun(self, _: str, __: datetime, told: Mapping[str, Any]) -> None:
        self._put(*attachment_rows(self.execution_id, [AttachmentInfo(**one) for one in told["attachments"]]))

    def history(self, _: str, at: datetime, told: Mapping[str, Any]) -> None:
        record = MemberSubmissionsRecord.model_validate(told["record"])
        self._put(history_row(self.execution_id, record, told["message_history"], at=at))

    def on_board(self, _: str, __: datetime, told: Mapping[str, Any]) -> None:
        entry, state = LeaderBoardEntry.model_validate(told["entry"]), RoundState.model_validate(told["state"])
        usage = _usage(told["usage"])
        self._put(*round_rows(entry, started_at=state.round_started_at, ended_at=state.round_ended_at, usage=usage))

    def judged(self, team_id: str, at: datetime, told: Mapping[str, Any]) -> None:
        key = tuple(round_key(self.execution_id, team_id, told["round_number"]).values())
        self._put(*map(usage_row, _usage(told["usage"])))
        before = self._rows.get((ROUND_STATUS, key))
        if before is None:
            return  # a journal that was lost while it was in use begins in the middle
        judgment = ImprovementJudgment.model_validate(told["judgment"])
        times = {name: before[name] for name in ("team_name", "round_started_at", "round_ended_at")}
        who = {"execution_id": self.execution_id, "team_id": team_id, "round_number": told["round_number"]}
        self._put(round_status_row(**who, **times, **judgment.model_dump(), at=at))

    def ended(self, team_id: str, _: datetime, told: Mapping[str, Any]) -> None:
        if told["best"] is not None:
            self._mark_final(team_id, LeaderBoardEntry.model_validate(told["best"]))
        self._put(*map(usage_row, _usage(told.get("usage", ()))))

    def billed(self, _: str, __: datetime, told: Mapping[str, Any]) -> None:
        self._put(*map(usage_row, _summary(told).bill))

    def finished(self, _: str, __: datetime, told: Mapping[str, Any]) -> None:
        summary = _summary(told)
        self._put(
            summary_row(
                execution_id=summary.execution_id,
                user_prompt=summary.user_prompt,
                status=summary.status,
                team_results=[entry.model_dump(mode="json") for entry in summary.team_results],
                total_teams=summary.total_teams,
                best_team_id=summary.best_team_id,
                best_score=summary.best_score,
                total_execution_time_seconds=summary.total_execution_time_seconds,
                at=summary.created_at,
            ),
            *map(usage_row, summary.bill),
        )

    # --- rows ---

    def _put(self, *rows: Row) -> None:
        for row in rows:
            before = self._rows.get((row.table, row.key))
            self._rows[row.table, row.key] = row if before is None else row.over(before)

    def _mark_final(self, team_id: str, best: LeaderBoardEntry) -> None:
        """Mark one round and unmark any other, as one UPDATE does in the database."""
        for (table, key), row in self._rows.items():
            if table is not LEADER_BOARD or row["team_id"] != team_id:
                continue
            is_final = row["round_number"] == best.round_number
            if is_final or row["final_submission"]:
                reason = best.exit_reason if is_final else None
                self._rows[table, key] = row.changed(
                    final_submission=is_final,
                    exit_reason=None if reason is None else text("exit_reason", reason),
                    updated_at=stamp(best.updated_at),
                )


def _usage(lines: Any) -> list[ModelUsage]:
    return [ModelUsage.model_validate(line) for line in lines]


def _summary(told: Mapping[str, Any]) -> ExecutionSummary:
    """The summary without what is computed of the rest."""
    kept = {name: value for name, value in told["summary"].items() if name in ExecutionSummary.model_fields}
    return ExecutionSummary.model_validate(kept)


_WRITES: Mapping[str, Callable[[_Tables, str, datetime, Mapping[str, Any]], None]] = {
    "RunStarted": _Tables.begun,
    "RunResumed": _Tables.begun,
    "AttachmentsKept": _Tables.begun,
    "HistoryKept": _Tables.history,
    "RoundFinished": _Tables.on_board,
    "RoundFailed": _Tables.on_board,
    "SubmissionUnscored": _Tables.on_board,
    "RoundJudged": _Tables.judged,
    "TeamFinished": _Tables.ended,
    "TeamFailed": _Tables.ended,
    "RunInterrupted": _Tables.billed,
    "RunFinished": _Tables.finished,
}
_KINDS = tuple(_WRITES)
_OF_KINDS = f"kind IN ({', '.join('?' * len(_KINDS))})"
_IDS = f"SELECT execution_id AS id FROM events WHERE {_OF_KINDS} GROUP BY execution_id ORDER BY min(position)"  # noqa: S608 marks
# The execution itself comes last: its bill replaces no line by an older one.
_TEAMS = "SELECT DISTINCT team_id FROM events WHERE execution_id = ? ORDER BY team_id IS NULL, team_id"
_EVENTS = f"""
    SELECT kind, at, payload FROM events
    WHERE execution_id = ? AND (team_id IS NULL) = ? AND ifnull(team_id, '') = ? AND {_OF_KINDS}
    ORDER BY position"""  # noqa: S608 marks
