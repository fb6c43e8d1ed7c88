"""What a run came to: the one door to ``mixseek.db``.

Every method is a coroutine that hands its work to the file's own thread (:mod:`mixseek.storage.lease`) and never
blocks the event loop. A write is checked before it begins, stored whole or not at all, and acknowledged by its return.
Times go in and come out as UTC, JSON columns as values.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, cast

import duckdb
from pydantic import JsonValue, ValidationError

from mixseek.errors import DatabaseReadError, DatabaseWriteError, StorageError
from mixseek.events import HistoryKept
from mixseek.records import (
    AttachmentInfo,
    EvaluationResult,
    ExecutionStatus,
    ImprovementJudgment,
    LeaderBoardEntry,
    MemberSubmissionsRecord,
    ModelUsage,
    RoundState,
    Standing,
    SubmissionRecord,
    standing_key,
)
from mixseek.redaction import Redactor
from mixseek.storage.database import CannotOpenError, explained, is_damage
from mixseek.storage.lease import Call, Claim, Connection, Worker, Write, worker_for
from mixseek.storage.places import HeldPlace, claim
from mixseek.storage.rebuilding import Rebuilt, journal_beside, rebuild_rows
from mixseek.storage.remedies import is_read_only, refused_writing, remedied
from mixseek.storage.result_rows import (
    attachment_rows,
    history_row,
    leader_board_row,
    optional,
    round_key,
    round_rows,
    round_status_row,
    stamp,
    summary_row,
    usage_row,
)
from mixseek.storage.rows import as_dicts, json_value, submissions_record
from mixseek.storage.tables import TABLES, FinalMark, Row, Table, put_back, transaction
from mixseek.storage.values import text
from mixseek.workspace import Workspace

__all__ = ["AggregationStore", "DatabaseReadError", "DatabaseWriteError"]

logger = logging.getLogger(__name__)

T = TypeVar("T")

RETRY_DELAYS_SECONDS = (1.0, 2.0, 4.0)


class AggregationStore:
    """The results of a workspace, or of the file ``db_path`` names, which wins; without either ``$MIXSEEK_WORKSPACE``.

    The file is held only while work is done, so any number of stores, threads and processes may share it. Waiting for
    another process is no failure until ``lock_wait_seconds`` have passed (``DatabaseLockedError``). A write that fails
    for IO or a conflict is tried again after each of ``retry_delays_seconds``. A ``redactor`` keeps secrets out.
    """

    def __init__(
        self,
        workspace: Path | str | None = None,
        db_path: Path | str | None = None,
        *,
        lock_wait_seconds: float = 60.0,
        retry_delays_seconds: Sequence[float] = RETRY_DELAYS_SECONDS,
        redactor: Redactor | None = None,
    ) -> None:
        self.db_path = (
            Path(db_path).expanduser().absolute() if db_path is not None else Workspace.locate(workspace).database
        )
        self._lock_wait_seconds = lock_wait_seconds
        self._retry_delays_seconds = tuple(retry_delays_seconds)
        self._worker: Worker = worker_for(self.db_path)
        self._redactor = redactor
        self._place: HeldPlace | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        if self._closed:
            self._worker, self._closed = worker_for(self.db_path), False
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of the file; a second call does nothing, any other is an error until the store is entered anew."""
        if not self._closed:
            self._closed = True
            await self._worker.release()

    def begin(self) -> None:
        """Take a file that is not there for one that never was; the first write makes it."""
        self._worker.is_first = True

    def refuse_unwritable(self) -> None:
        """Raise if the file, or one that DuckDB puts beside it, could not be written; one that is held may be."""
        for path in (self.db_path, self.db_path.with_name(f"{self.db_path.name}.wal"), self.db_path.parent):
            if refusal := refused_writing(path):
                raise DatabaseWriteError(f"cannot write {str(path)!r}: {remedied(refusal)}")

    async def go_by(self, place: HeldPlace) -> None:
        """Write only while ``place`` is held, and let nobody write any more who held it before."""
        self._place = place
        # Nobody held the first one before, so a new run writes nothing here.
        if place.place.epoch > 1:
            await self._try(lambda: Claim(lambda connection: claim(connection, place.place), self._lock_wait_seconds))

    # --- writes -------------------------------------------------------------------------------------------------------

    async def save_aggregation(
        self,
        execution_id: str,
        record: MemberSubmissionsRecord,
        message_history: Sequence[JsonValue],
        *,
        at: datetime | None = None,
    ) -> None:
        """Keep a round's messages and its members' work."""
        await self._write(lambda: [history_row(execution_id, record, message_history, at=at)])

    async def save_to_leader_board(
        self,
        execution_id: str,
        team_id: str,
        team_name: str,
        round_number: int,
        submission_content: str,
        submission_format: str = "md",
        score: float | None = None,
        score_details: Mapping[str, JsonValue] | None = None,
        final_submission: bool = False,
        exit_reason: str | None = None,
    ) -> None:
        """Put a round on the leader board; a score that is None, NaN or infinite is no score."""

        def rows() -> list[Row]:
            return [
                leader_board_row(
                    execution_id=execution_id,
                    team_id=team_id,
                    team_name=team_name,
                    round_number=round_number,
                    submission_content=submission_content,
                    submission_format=submission_format,
                    score=score,
                    score_details=score_details,
                    final_submission=final_submission,
                    exit_reason=exit_reason,
                )
            ]

        await self._write(rows)

    async def save_round_status(
        self,
        execution_id: str,
        team_id: str,
        team_name: str,
        round_number: int,
        should_continue: bool | None = None,
        reasoning: str | None = None,
        confidence_score: float | None = None,
        round_started_at: datetime | str | None = None,
        round_ended_at: datetime | str | None = None,
        *,
        usage: Sequence[ModelUsage] = (),
        at: datetime | None = None,
    ) -> None:
        """Keep how a round stands and what was decided after it, with what the decision cost, in one transaction."""

        def rows() -> list[Row]:
            status = round_status_row(
                execution_id=execution_id,
                team_id=team_id,
                team_name=team_name,
                round_number=round_number,
                should_continue=should_continue,
                reasoning=reasoning,
                confidence_score=confidence_score,
                round_started_at=round_started_at,
                round_ended_at=round_ended_at,
                at=at,
            )
            return [status, *map(usage_row, usage)]

        await self._write(rows)

    async def save_round(
        self,
        entry: LeaderBoardEntry,
        *,
        round_started_at: datetime | str,
        round_ended_at: datetime | str,
        judgment: ImprovementJudgment | None = None,
        usage: Sequence[ModelUsage] = (),
    ) -> None:
        """Keep a finished round in one transaction: its leader board row, its status and its usage, as of the entry."""

        def rows() -> list[Row]:
            return round_rows(
                entry, started_at=round_started_at, ended_at=round_ended_at, judgment=judgment, usage=usage
            )

        await self._write(rows)

    async def catch_up(
        self,
        rounds: Sequence[tuple[LeaderBoardEntry, RoundState, Sequence[ModelUsage]]],
        histories: Sequence[HistoryKept] = (),
    ) -> None:
        """:meth:`save_round` for those of these rounds of one execution that are not there, or as they were before.

        The same for :meth:`save_aggregation` and ``histories``.
        """

        def work(connection: Connection) -> None:
            execution_id = rounds[0][0].execution_id if rounds else histories[0].execution_id
            found = connection.execute(_WRITTEN_AT, [execution_id]).fetchall()
            written_at = {(team_id, number): at for team_id, number, at in found}
            rows = [
                row
                for entry, state, usage in rounds
                if _is_before(written_at.get((entry.team_id, entry.round_number)), entry)
                for row in round_rows(
                    entry, started_at=state.round_started_at, ended_at=state.round_ended_at, usage=usage
                )
            ]
            rows += [history_row(one.execution_id, one.record, one.message_history, at=one.at) for one in histories]
            put_back(connection, self._harmless(rows), only_missing=False)

        if rounds or histories:
            await self._change(work)

    async def save_model_usage(self, usage: Sequence[ModelUsage]) -> None:
        """Keep lines of the bill; a line that is there already is replaced."""
        if usage:
            await self._write(lambda: [usage_row(line) for line in usage])

    async def save_attachments(self, execution_id: str, attachments: Sequence[AttachmentInfo]) -> None:
        """Keep what came with the task of an execution, in its order."""
        if attachments:
            await self._write(lambda: attachment_rows(execution_id, attachments))

    async def save_execution_summary(
        self,
        execution_id: str,
        user_prompt: str,
        status: ExecutionStatus,
        team_results: Sequence[JsonValue],
        total_teams: int,
        best_team_id: str | None = None,
        best_score: float | None = None,
        total_execution_time_seconds: float | None = None,
        *,
        at: datetime | None = None,
    ) -> None:
        """Keep the outcome of an execution, which came to its end ``at``."""

        def rows() -> list[Row]:
            return [
                summary_row(
                    execution_id=execution_id,
                    user_prompt=user_prompt,
                    status=status,
                    team_results=team_results,
                    total_teams=total_teams,
                    best_team_id=best_team_id,
                    best_score=best_score,
                    total_execution_time_seconds=total_execution_time_seconds,
                    at=at,
                )
            ]

        await self._write(rows)

    async def mark_final_submission(
        self,
        execution_id: str,
        team_id: str,
        round_number: int,
        exit_reason: str | None,
        *,
        at: datetime | None = None,
    ) -> None:
        """Mark one round as the team's final submission, with the reason it stopped, and unmark any other."""
        key = round_key(execution_id, team_id, round_number)
        mark = FinalMark(**key, exit_reason=optional(text, "exit_reason", exit_reason), at=stamp(at))
        await self._try(lambda: Write(tuple, self._lock_wait_seconds, self._place, marks=[mark]))

    async def delete_execution(self, execution_id: str, attachments: Path) -> tuple[dict[str, int], tuple[str, ...]]:
        """Remove an execution from every table, and the files in ``attachments`` that no other execution names.

        Gives how many rows each table had, and the names of the files.
        """
        deleted: dict[str, int] = {}
        unused: list[str] = []

        def work(connection: Connection) -> None:
            deleted.update(_delete(connection, execution_id, unused))
            # While the database is held: whoever uses such a file again writes its row first, then the file.
            for name in unused:
                _remove(attachments / name)

        await self._change(work)
        return deleted, tuple(unused)

    async def rebuild(self) -> Rebuilt:
        """Make the rows of every execution of the journal beside the file anew; rows of others stay.

        What was made from the journal because the file was found missing or broken by this is counted by itself.
        """
        found: list[Rebuilt] = []

        def work(connection: Connection) -> None:
            _read_through(connection)
            journal = journal_beside(self._worker.path)
            rebuilt = Rebuilt() if journal is None else rebuild_rows(connection, self._worker.path, journal)
            made = self._worker.made_at_opening()
            found.append(replace(rebuilt, anew=made.added + made.changed))

        await self._change(work)
        return found[-1]

    # --- reads --------------------------------------------------------------------------------------------------------

    async def load_round_history(
        self, execution_id: str, team_id: str, round_number: int
    ) -> tuple[MemberSubmissionsRecord | None, list[JsonValue]]:
        """A round's members' work and messages; ``(None, [])`` if there is no such round."""
        key = [execution_id, team_id, round_number]

        def work(connection: Connection) -> tuple[MemberSubmissionsRecord | None, list[JsonValue]]:
            found = connection.execute(_ROUND_HISTORY, key).fetchone()
            if found is None:
                return None, []
            record, messages = (json_value(column) for column in found)
            return submissions_record(record), messages or []

        return await self._read(work)

    async def knows(self, execution_id: str) -> bool:
        """Whether there is any result of this execution."""
        return await self._read(lambda connection: any(_has_rows(connection, each, execution_id) for each in TABLES))

    async def get_leader_board(self, limit: int | None = 10) -> list[dict[str, Any]]:
        """The best rounds of all executions, unscored ones last, as dicts of all columns."""
        return await self._read(lambda connection: as_dicts(connection.execute(_LEADER_BOARD, [limit])))

    async def get_leader_board_ranking(self, execution_id: str) -> list[dict[str, Any]]:
        """The teams of an execution in order, each ``{"team_id", "team_name", "max_score", "total_rounds"}``."""
        return [
            {"team_id": team_id, "team_name": name, "max_score": best, "total_rounds": total}
            for team_id, name, best, _, total in await self._read(lambda connection: _ranking(connection, execution_id))
        ]

    async def get_leaderboard_ranking_by_execution(self, execution_id: str, limit: int | None = None) -> list[Standing]:
        """The teams of an execution in order, the first ``limit`` of them."""
        if limit is not None and limit < 0:
            raise DatabaseReadError(f"cannot read {str(self.db_path)!r}: a limit cannot be negative")
        return (await self._read(lambda connection: _standings(connection, execution_id)))[:limit]

    async def get_team_current_rank(self, execution_id: str, team_id: str) -> int | None:
        """A team's place, from 1; None if it is not on the board."""
        standings = await self.get_leaderboard_ranking_by_execution(execution_id)
        return next((standing.rank for standing in standings if standing.team_id == team_id), None)

    async def get_team_submission_history(
        self, execution_id: str, team_id: str, limit: int | None = None
    ) -> list[SubmissionRecord]:
        """A team's submissions by round, the newest ``limit`` of them."""

        def work(connection: Connection) -> list[SubmissionRecord]:
            found = connection.execute(_SUBMISSIONS, [execution_id, team_id, team_id, limit]).fetchall()
            return [
                SubmissionRecord(
                    round_number=number,
                    content=content or "",
                    score=score,
                    feedback=_feedback(score, json_value(details)),
                )
                for _, number, content, score, details in reversed(found)
            ]

        return await self._read(work)

    async def get_evaluation_results_by_execution(
        self, execution_id: str, team_id: str | None = None
    ) -> list[EvaluationResult]:
        """One result for each submission, by team and round; ``overall_score`` is None where a round is unscored."""

        def work(connection: Connection) -> list[EvaluationResult]:
            found = connection.execute(_SUBMISSIONS, [execution_id, team_id, team_id, None]).fetchall()
            by_team_and_round = sorted(found, key=lambda row: (row[0], row[1]))
            return [_evaluation(score, json_value(details)) for _, _, _, score, details in by_team_and_round]

        return await self._read(work)

    async def get_team_statistics(self, team_id: str) -> dict[str, Any]:
        """A team over all executions.

        Keys: ``team_id``, ``team_name`` (the latest), ``total_executions``, ``total_rounds``, ``scored_rounds``,
        ``best_score``, ``average_score`` (None without a scored round) and ``final_submissions``. An unknown team has
        zeros and Nones.
        """
        statistics = await self._read(lambda connection: as_dicts(connection.execute(_STATISTICS, [team_id])))
        return {"team_id": team_id, **statistics[0]}

    async def get_model_usage(self, execution_id: str, team_id: str | None = None) -> list[ModelUsage]:
        """The bill of an execution, by team, round, role, agent and model."""

        def work(connection: Connection) -> list[ModelUsage]:
            return [ModelUsage(**row) for row in as_dicts(connection.execute(_USAGE, [execution_id, team_id, team_id]))]

        return await self._read(work)

    # --- the way to the worker ----------------------------------------------------------------------------------------

    async def _read(self, work: Callable[[Connection], T]) -> T:
        self._check_open(DatabaseReadError)
        try:
            return cast("T", await self._do(lambda: Call(work, self._lock_wait_seconds)))
        except StorageError:
            raise
        except CannotOpenError as error:
            raise DatabaseReadError(str(error)) from error
        except (duckdb.Error, OSError, ValidationError, ValueError) as error:
            raise DatabaseReadError(f"cannot read {str(self.db_path)!r}: {explained(error)}") from error

    async def _write(self, make_rows: Callable[[], Sequence[Row]]) -> None:
        await self._try(lambda: Write(lambda: self._harmless(make_rows()), self._lock_wait_seconds, self._place))

    def _harmless(self, rows: Sequence[Row]) -> Sequence[Row]:
        return rows if self._redactor is None else [row.redacted(self._redactor) for row in rows]

    async def _change(self, work: Callable[[Connection], None]) -> None:
        await self._try(lambda: Call(work, self._lock_wait_seconds, self._place))

    async def _try(self, make_job: Callable[[], Write | Call]) -> None:
        self._check_open(DatabaseWriteError)
        for number, delay in enumerate((*self._retry_delays_seconds, None)):
            try:
                await self._do(make_job)
            except CannotOpenError as error:
                raise DatabaseWriteError(str(error)) from error
            except (duckdb.Error, OSError) as error:
                if delay is None or not _may_pass(error):
                    raise DatabaseWriteError(f"cannot write {str(self.db_path)!r}: {explained(error)}") from error
                level = logging.DEBUG if number else logging.WARNING
                logger.log(level, "writing %s failed and is tried again in %g s: %s", self.db_path, delay, error)
                await asyncio.sleep(delay)
            else:
                return

    async def _do(self, make_job: Callable[[], Write | Call]) -> Any:
        """Have a job done; where it met damage the next opening has made the file anew, if that can be."""
        try:
            return await self._worker.do(make_job())
        except duckdb.Error as error:
            if not is_damage(error):
                raise
        return await self._worker.do(make_job())

    def _check_open(self, kind: type[DatabaseReadError] | type[DatabaseWriteError]) -> None:
        if self._closed:
            raise kind(f"the store of {str(self.db_path)!r} is closed")


def _may_pass(error: Exception) -> bool:
    """Whether another try could succeed: trouble with the disk or a conflict, not a statement that is wrong."""
    if isinstance(error, PermissionError) or is_read_only(error) or is_damage(error):
        return False
    return isinstance(error, OSError | duckdb.IOException | duckdb.TransactionException | duckdb.FatalException)


# --- changes that are more than rows ----------------------------------------------------------------------------------


def _is_before(written_at: datetime | None, entry: LeaderBoardEntry) -> bool:
    """Whether a row of that time, or none, tells less than ``entry``."""
    return written_at is None or written_at < stamp(entry.updated_at)


def _read_through(connection: Connection) -> None:
    """Meet every damaged block: what writes only a few rows does not look at the others."""
    for table in TABLES:
        connection.execute(f"SELECT max(hash(every)) FROM {table.name} AS every").fetchone()  # noqa: S608 our own names


def _delete(connection: Connection, execution_id: str, unused: list[str]) -> dict[str, int]:
    """Delete the rows of an execution in one transaction; ``unused`` gets the attachments that only it had."""
    with transaction(connection):
        found = connection.execute(_ATTACHED_HERE_ALONE, [execution_id, execution_id]).fetchall()
        unused[:] = [str(sha256) for (sha256,) in found]
        return {table: _delete_from(connection, table, execution_id) for table in _tables_of_executions(connection)}


def _delete_from(connection: Connection, table: str, execution_id: str) -> int:
    counted = connection.execute(f"DELETE FROM {table} WHERE execution_id = ?", [execution_id]).fetchone()  # noqa: S608 our own names
    return int(counted[0]) if counted else 0


def _has_rows(connection: Connection, table: Table, execution_id: str) -> bool:
    found = connection.execute(f"SELECT 1 FROM {table.name} WHERE execution_id = ? LIMIT 1", [execution_id])  # noqa: S608 our own names
    return found.fetchone() is not None


def _tables_of_executions(connection: Connection) -> list[str]:
    """Our tables that are there, also those in which a migration keeps what it set aside."""
    there = {str(name) for (name,) in connection.execute(_TABLES).fetchall()}
    names = [*(table.name for table in TABLES), "places"]
    return [name for name in (*names, *(f"{name}_before_v1" for name in names)) if name in there]


def _remove(file: Path) -> None:
    try:
        file.unlink(missing_ok=True)
    except OSError as error:
        logger.warning("the attachment %s could not be removed: %s", file, error.strerror)


# --- values on their way out ------------------------------------------------------------------------------------------


def _ranking(connection: Connection, execution_id: str) -> list[tuple[str, str, float, int, int]]:
    """Each team's id, name, best score, latest round and number of rounds, in order; every prompt asks for it."""
    found = connection.execute(_STANDINGS, [execution_id]).fetchall()
    return sorted(found, key=lambda row: standing_key(row[2], row[3], row[0]))


def _standings(connection: Connection, execution_id: str) -> list[Standing]:
    return [
        Standing(rank=rank, team_id=team_id, team_name=name, best_score=best, latest_round=latest, total_rounds=total)
        for rank, (team_id, name, best, latest, total) in enumerate(_ranking(connection, execution_id), 1)
    ]


def _evaluation(score: float | None, details: Any) -> EvaluationResult:
    return EvaluationResult.from_score_details(details if isinstance(details, dict) else {}, score)


def _feedback(score: float | None, details: Any) -> str:
    reason = details.get("reason") if score is None and isinstance(details, dict) else None
    return _evaluation(score, details).feedback_summary or (reason if isinstance(reason, str) else "")


# --- SQL --------------------------------------------------------------------------------------------------------------

_WRITTEN_AT = "SELECT team_id, round_number, updated_at FROM leader_board WHERE execution_id = ?"
_ROUND_HISTORY = """
    SELECT member_submissions_record, message_history FROM round_history
    WHERE execution_id = ? AND team_id = ? AND round_number = ?"""
_LEADER_BOARD = """
    SELECT * FROM leader_board
    ORDER BY score DESC NULLS LAST, round_number DESC, team_id, execution_id LIMIT ?"""
_STANDINGS = """
    SELECT team_id, arg_max(team_name, round_number), max(score), max(round_number), count(*)
    FROM leader_board WHERE execution_id = ? GROUP BY team_id HAVING max(score) IS NOT NULL"""
_SUBMISSIONS = """
    SELECT team_id, round_number, submission_content, score, score_details FROM leader_board
    WHERE execution_id = ? AND (team_id = ? OR ? IS NULL) ORDER BY round_number DESC LIMIT ?"""
_STATISTICS = """
    SELECT arg_max(team_name, id) AS team_name, count(DISTINCT execution_id) AS total_executions,
        count(*) AS total_rounds, count(score) AS scored_rounds, max(score) AS best_score, avg(score) AS average_score,
        count(*) FILTER (final_submission) AS final_submissions
    FROM leader_board WHERE team_id = ?"""
_USAGE = """
    SELECT * FROM model_usage WHERE execution_id = ? AND (team_id = ? OR ? IS NULL)
    ORDER BY team_id, round_number, role, agent_name, model"""
_ATTACHED_HERE_ALONE = """
    SELECT DISTINCT sha256 FROM attachments WHERE execution_id = ?
    AND sha256 NOT IN (SELECT sha256 FROM attachments WHERE execution_id <> ?) ORDER BY sha256"""
_TABLES = "SELECT table_name FROM duckdb_tables() WHERE schema_name = 'main'"
