"""What ``mixseek.db`` holds of executions, read as it is.

Looking brings no file up to date: a file of mixseek-core 0.1 and one that nobody may write are read as well as a new
one, while other processes play. What an older file has no table for is empty. Only a file that is missing or broken,
though the journal beside it tells of executions, is made from that.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar, cast, get_args

import duckdb
from pydantic import ValidationError

from mixseek.errors import DatabaseReadError, StorageError
from mixseek.records import (
    AttachmentInfo,
    ExecutionStatus,
    MemberSubmission,
    ModelUsage,
    Record,
    standing_key,
)
from mixseek.storage.database import CannotOpenError, DamagedError, explained, is_damage
from mixseek.storage.lease import Call, Connection, Look, worker_for
from mixseek.storage.rebuilding import journal_beside
from mixseek.storage.remedies import remedied
from mixseek.storage.rows import as_dicts, submissions_record

__all__ = ["ExecutionRows", "StoredBest", "StoredExecution", "StoredExecutions", "execution_ids"]

logger = logging.getLogger(__name__)

T = TypeVar("T")


class StoredExecution(Record):
    """One execution in a few values; what the file does not tell is None."""

    execution_id: str
    user_prompt: str | None = None
    status: ExecutionStatus | None = None
    """None: there is no summary."""
    started_at: datetime | None = None
    seconds: float | None = None
    total_teams: int = 0
    best_team: str | None = None
    best_score: float | None = None
    cost_usd: float | None = None


class StoredBest(Record):
    """The best round of one team in one execution."""

    execution_id: str
    team_id: str
    team_name: str
    round_number: int
    score: float
    exit_reason: str | None = None


@dataclass(frozen=True)
class ExecutionRows:
    """All rows of one execution."""

    summary: Mapping[str, Any] | None = None
    board: tuple[Mapping[str, Any], ...] = ()
    statuses: tuple[Mapping[str, Any], ...] = ()
    members: Mapping[tuple[str, int], tuple[MemberSubmission, ...]] = field(default_factory=dict)
    """The members' work by team and round, without their messages."""
    bill: tuple[ModelUsage, ...] = ()
    attachments: tuple[AttachmentInfo, ...] = ()

    @property
    def found(self) -> bool:
        """Whether there is any."""
        return bool(self.summary or self.board or self.statuses or self.members or self.bill or self.attachments)


class StoredExecutions:
    """The executions in one database file; without the file there are none."""

    def __init__(self, path: Path, *, lock_wait_seconds: float = 60.0) -> None:
        self._path = path
        self._lock_wait_seconds = lock_wait_seconds

    async def all(self) -> list[StoredExecution]:
        """Every execution, in no order."""
        return await self._look(_executions, [])

    async def rows_of(self, execution_id: str, *, members: bool = True) -> ExecutionRows:
        """The rows of one execution; the members' work, which may be large, only if asked for."""
        return await self._look(lambda file: _rows(file, execution_id, members=members), ExecutionRows())

    async def bills(self) -> list[ModelUsage]:
        """The lines of every execution's bill, in no order."""
        return await self._look(_bills, list[ModelUsage]())

    async def best(self, limit: int | None = None) -> list[StoredBest]:
        """Each team's best round in each execution, the best ``limit`` of them, in the one order of teams."""
        found = await self._look(_best, list[StoredBest](), is_all=True)
        return found[:limit]

    async def _look(self, work: Callable[["_File"], T], nothing: T, *, is_all: bool = False) -> T:
        """What the file gives; ``is_all`` where nobody looks into the journal for what it does not."""
        is_there = self._path.exists() and self._path.stat().st_size > 0
        if not is_there and not await self._made_from_journal(is_needed=is_all):
            return nothing
        try:
            return await self._read(work)
        except DatabaseReadError as error:
            if not await self._was_mended(error.__cause__, work):
                raise
        return await self._read(work)

    async def _was_mended(self, cause: BaseException | None, work: Callable[["_File"], T]) -> bool:
        """Whether a file that is damaged was made anew."""
        if is_damage(cause):
            # A look changes nothing; whoever may write meets the damage once more, and so has the file made anew.
            with contextlib.suppress(duckdb.Error, StorageError, CannotOpenError, OSError):
                meeting = Call(lambda connection: work(_File(connection)), self._lock_wait_seconds)
                await worker_for(self._path).do(meeting)
        return (is_damage(cause) or isinstance(cause, DamagedError)) and await self._made_from_journal()

    async def _made_from_journal(self, *, is_needed: bool = False) -> bool:
        """Whether the file is there, now that somebody asked for it who may write it.

        Where it ``is_needed``, one that the journal could give and that cannot be made is an error.
        """
        try:
            if await asyncio.to_thread(journal_beside, self._path) is None:
                return False
            await worker_for(self._path).do(Call(lambda _: None, self._lock_wait_seconds))
        except (StorageError, CannotOpenError, duckdb.Error, OSError) as error:
            why = f"{str(self._path)!r} could not be made from the journal: {remedied(error)}"
            if is_needed:
                raise DatabaseReadError(why) from error
            logger.warning("%s", why)
            return False
        return True

    async def _read(self, work: Callable[["_File"], T]) -> T:
        worker = worker_for(self._path)
        try:
            found = await worker.do(Look(lambda connection: work(_File(connection)), self._lock_wait_seconds))
        except StorageError:
            raise
        except CannotOpenError as error:
            raise DatabaseReadError(str(error)) from error
        except (duckdb.Error, OSError, ValidationError, ValueError) as error:
            raise DatabaseReadError(f"cannot read {str(self._path)!r}: {explained(error)}") from error
        return cast("T", found)


def execution_ids(connection: Connection) -> frozenset[str]:
    """Every execution that a file tells anything of."""
    return frozenset(one.execution_id for one in _executions(_File(connection)))


class _File:
    """A file of any version: a table it does not have is empty."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        found = connection.execute("SELECT table_name FROM duckdb_tables() WHERE schema_name = 'main'").fetchall()
        self._tables = {str(name) for (name,) in found}

    def rows(self, table: str, sql: str, *values: Any) -> list[dict[str, Any]]:
        return as_dicts(self._connection.execute(sql, list(values))) if table in self._tables else []

    def by_execution(self, table: str, sql: str) -> dict[str, dict[str, Any]]:
        return {row["execution_id"]: row for row in self.rows(table, sql)}


# --- all executions ---------------------------------------------------------------------------------------------------


def _executions(file: _File) -> list[StoredExecution]:
    summaries = file.by_execution("execution_summary", _SUMMARIES)
    boards = file.by_execution("leader_board", _BOARDS)
    winners = {best.execution_id: best for best in reversed(_best(file))}
    times = file.by_execution("round_status", _TIMES)
    costs = file.by_execution("model_usage", _COSTS)
    begun = file.by_execution("round_history", _BEGUN)
    attached = file.by_execution("attachments", _ATTACHED)
    ids = {**summaries, **boards, **times, **costs, **begun, **attached}
    parts = (summaries, boards, times, costs, begun)
    return [_execution(each, winners.get(each), *(part.get(each, {}) for part in parts)) for each in ids]


def _execution(
    execution_id: str,
    winner: StoredBest | None,
    summary: Mapping[str, Any],
    board: Mapping[str, Any],
    times: Mapping[str, Any],
    costs: Mapping[str, Any],
    begun: Mapping[str, Any],
) -> StoredExecution:
    seconds = summary.get("total_execution_time_seconds")
    return StoredExecution(
        execution_id=execution_id,
        user_prompt=summary.get("user_prompt"),
        status=_status(summary.get("status")),
        started_at=_first_known(
            times.get("started_at"),
            _before(summary.get("completed_at"), seconds),
            begun.get("created_at"),
            board.get("created_at"),
        ),
        seconds=seconds,
        total_teams=summary.get("total_teams") or board.get("teams") or begun.get("teams") or 0,
        best_team=winner.team_name if winner else None,
        best_score=winner.score if winner else None,
        cost_usd=costs.get("cost_usd"),
    )


def _status(word: object) -> ExecutionStatus | None:
    return cast("ExecutionStatus", word) if word in get_args(ExecutionStatus) else None


def _first_known(*moments: datetime | None) -> datetime | None:
    return next((moment for moment in moments if moment is not None), None)


def _before(ended_at: datetime | None, seconds: float | None) -> datetime | None:
    return None if ended_at is None else ended_at - timedelta(seconds=seconds or 0)


def _best(file: _File) -> list[StoredBest]:
    found = file.rows("leader_board", _BEST)
    ordered = sorted(
        found, key=lambda row: (*standing_key(row["score"], row["latest"], row["team_id"]), row["execution_id"])
    )
    return [StoredBest.model_validate({name: row[name] for name in StoredBest.model_fields}) for row in ordered]


def _bills(file: _File) -> list[ModelUsage]:
    return [ModelUsage(**row) for row in file.rows("model_usage", "SELECT * FROM model_usage")]


# --- one execution ----------------------------------------------------------------------------------------------------


def _rows(file: _File, execution_id: str, *, members: bool) -> ExecutionRows:
    summaries = file.rows("execution_summary", _SUMMARY, execution_id)
    history = file.rows("round_history", _HISTORY, execution_id) if members else []
    usage = file.rows("model_usage", _USAGE, execution_id)
    attachments = file.rows("attachments", _ATTACHMENTS, execution_id)
    return ExecutionRows(
        summary=summaries[0] if summaries else None,
        board=tuple(file.rows("leader_board", _BOARD, execution_id)),
        statuses=tuple(file.rows("round_status", _ROUND_STATUS, execution_id)),
        members={(row["team_id"], row["round_number"]): _members(row["record"]) for row in history},
        bill=tuple(ModelUsage(**row) for row in usage),
        attachments=tuple(AttachmentInfo(**row) for row in attachments),
    )


def _members(stored: Any) -> tuple[MemberSubmission, ...]:
    record = submissions_record(stored)
    submissions = record.submissions if record else []
    return tuple(each.model_copy(update={"all_messages": None}) for each in submissions)


# --- SQL --------------------------------------------------------------------------------------------------------------

# By way of its text: a FLOAT of an older file that says 85.57 is 85.57, not the DOUBLE nearest to it; NaN is no score.
_SCORE = "CASE WHEN isfinite(score) THEN CAST(CAST(score AS VARCHAR) AS DOUBLE) END"
_SUMMARIES = """
    SELECT execution_id, user_prompt, status, total_teams, total_execution_time_seconds, completed_at
    FROM execution_summary"""
_BOARDS = """
    SELECT execution_id, count(DISTINCT team_id) AS teams, min(created_at) AS created_at
    FROM leader_board GROUP BY execution_id"""
_TIMES = "SELECT execution_id, min(round_started_at) AS started_at FROM round_status GROUP BY execution_id"
_COSTS = """
    SELECT execution_id, CASE WHEN count(*) = count(cost_usd) THEN fsum(cost_usd) END AS cost_usd
    FROM model_usage GROUP BY execution_id"""
_BEGUN = """
    SELECT execution_id, count(DISTINCT team_id) AS teams, min(created_at) AS created_at
    FROM round_history GROUP BY execution_id"""
_ATTACHED = "SELECT DISTINCT execution_id FROM attachments"
_BEST = f"""
    SELECT execution_id, team_id, arg_max(team_name, round_number) AS team_name, max(points) AS score,
        max(round_number) AS latest, arg_max(round_number, (points, round_number)) AS round_number,
        max(exit_reason) AS exit_reason
    FROM (SELECT *, {_SCORE} AS points FROM leader_board)
    GROUP BY execution_id, team_id HAVING max(points) IS NOT NULL"""  # noqa: S608 our own words
_SUMMARY = "SELECT * FROM execution_summary WHERE execution_id = ?"
_BOARD = f"SELECT * REPLACE ({_SCORE} AS score) FROM leader_board WHERE execution_id = ? ORDER BY team_id, round_number"  # noqa: S608
_ROUND_STATUS = """
    SELECT * REPLACE (CAST(CAST(confidence_score AS VARCHAR) AS DOUBLE) AS confidence_score)
    FROM round_status WHERE execution_id = ?"""
_HISTORY = """
    SELECT team_id, round_number, member_submissions_record AS record FROM round_history
    WHERE execution_id = ? ORDER BY team_id, round_number"""
_USAGE = """
    SELECT * FROM model_usage WHERE execution_id = ? ORDER BY team_id, round_number, role, agent_name, model"""
_ATTACHMENTS = "SELECT name, media_type, size, sha256 FROM attachments WHERE execution_id = ? ORDER BY position"
