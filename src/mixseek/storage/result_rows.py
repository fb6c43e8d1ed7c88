"""Rows of ``mixseek.db`` made of what happened: by a run as it happens, and again from the journal.

Both make the same row of the same event, times included: a row is stamped with the time of what it tells of, not with
that of its writing.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar, get_args

from pydantic import JsonValue

from mixseek.records import (
    AttachmentInfo,
    ExecutionStatus,
    ImprovementJudgment,
    LeaderBoardEntry,
    MemberSubmissionsRecord,
    ModelUsage,
    utc_now,
)
from mixseek.storage.tables import (
    ATTACHMENTS,
    EXECUTION_SUMMARY,
    LEADER_BOARD,
    MODEL_USAGE,
    ROUND_HISTORY,
    ROUND_STATUS,
    Row,
    Table,
)
from mixseek.storage.values import finite, integer, json_text, moment, one_of, text

__all__ = [
    "attachment_rows",
    "history_row",
    "leader_board_row",
    "optional",
    "round_key",
    "round_rows",
    "round_status_row",
    "stamp",
    "summary_row",
    "usage_row",
]

T = TypeVar("T")


def stamp(at: datetime | None) -> datetime:
    """A time as the tables hold it; without one it is now."""
    return moment("at", at or utc_now())


def optional(check: Callable[[str, object], T], column: str, value: object) -> T | None:
    """A value that was checked, or none."""
    return None if value is None else check(column, value)


def round_key(execution_id: str, team_id: str, round_number: int) -> dict[str, Any]:
    """The columns that name a round."""
    return {
        "execution_id": text("execution_id", execution_id),
        "team_id": text("team_id", team_id),
        "round_number": integer("round_number", round_number, least=1, bits=32),
    }


def _row(table: Table, at: datetime | None = None, *, likely_there: bool = False, **values: Any) -> Row:
    now = stamp(at)
    stamped = {"created_at": now, "updated_at": now, **values}
    return Row(table, tuple(stamped[name] for name in table.columns), likely_there)


def history_row(
    execution_id: str,
    record: MemberSubmissionsRecord,
    message_history: Sequence[JsonValue],
    *,
    at: datetime | None = None,
) -> Row:
    """What leader and members of a round said."""
    return _row(
        ROUND_HISTORY,
        at,
        **round_key(execution_id, record.team_id, record.round_number),
        team_name=text("team_name", record.team_name),
        message_history=json_text("message_history", list(message_history)),
        member_submissions_record=json_text("member_submissions_record", record),
    )


def round_rows(
    entry: LeaderBoardEntry,
    *,
    started_at: datetime | str,
    ended_at: datetime | str,
    judgment: ImprovementJudgment | None = None,
    usage: Sequence[ModelUsage] = (),
) -> list[Row]:
    """A round that is on the leader board: its row there, its status and its bill."""
    board = entry.model_dump(exclude={"id", "created_at", "updated_at"})
    who = {name: board[name] for name in ("execution_id", "team_id", "team_name", "round_number")}
    status = round_status_row(
        **who,
        should_continue=judgment.should_continue if judgment else None,
        reasoning=judgment.reasoning if judgment else None,
        confidence_score=judgment.confidence_score if judgment else None,
        round_started_at=started_at,
        round_ended_at=ended_at,
        at=entry.updated_at,
    )
    return [leader_board_row(**board, at=entry.updated_at), status, *map(usage_row, usage)]


def leader_board_row(
    *,
    execution_id: str,
    team_id: str,
    team_name: str,
    round_number: int,
    submission_content: str,
    submission_format: str,
    score: float | None,
    score_details: Mapping[str, JsonValue] | None,
    final_submission: bool,
    exit_reason: str | None,
    at: datetime | None = None,
) -> Row:
    """A round on the leader board."""
    return _row(
        LEADER_BOARD,
        at,
        **round_key(execution_id, team_id, round_number),
        team_name=text("team_name", team_name),
        submission_content=text("submission_content", submission_content),
        submission_format=text("submission_format", submission_format),
        score=finite("score", score),
        score_details=json_text("score_details", dict(score_details or {})),
        final_submission=bool(final_submission),
        exit_reason=optional(text, "exit_reason", exit_reason),
    )


def round_status_row(
    *,
    execution_id: str,
    team_id: str,
    team_name: str,
    round_number: int,
    should_continue: bool | None,
    reasoning: str | None,
    confidence_score: float | None,
    round_started_at: datetime | str | None,
    round_ended_at: datetime | str | None,
    at: datetime | None = None,
) -> Row:
    """How a round stands, and what was decided after it."""
    return _row(
        ROUND_STATUS,
        at,
        # A verdict follows the row that the finished round has written.
        likely_there=should_continue is not None,
        **round_key(execution_id, team_id, round_number),
        team_name=text("team_name", team_name),
        should_continue=None if should_continue is None else bool(should_continue),
        reasoning=optional(text, "reasoning", reasoning),
        confidence_score=finite("confidence_score", confidence_score),
        round_started_at=optional(moment, "round_started_at", round_started_at),
        round_ended_at=optional(moment, "round_ended_at", round_ended_at),
    )


def attachment_rows(execution_id: str, attachments: Sequence[AttachmentInfo]) -> list[Row]:
    """What came with the task, in its order."""
    return [_attachment_row(execution_id, position, one) for position, one in enumerate(attachments, 1)]


def _attachment_row(execution_id: str, position: int, attachment: AttachmentInfo) -> Row:
    return _row(
        ATTACHMENTS,
        execution_id=text("execution_id", execution_id),
        position=position,
        name=text("name", attachment.name),
        media_type=text("media_type", attachment.media_type),
        size=integer("size", attachment.size),
        sha256=attachment.sha256,
    )


def usage_row(line: ModelUsage) -> Row:
    """A line of the bill."""
    return _row(
        MODEL_USAGE,
        **round_key(line.execution_id, line.team_id, line.round_number),
        role=text("role", line.role),
        agent_name=text("agent_name", line.agent_name),
        model=text("model", line.model),
        requests=integer("requests", line.requests),
        input_tokens=integer("input_tokens", line.input_tokens),
        output_tokens=integer("output_tokens", line.output_tokens),
        cost_usd=finite("cost_usd", line.cost_usd),
    )


def summary_row(
    *,
    execution_id: str,
    user_prompt: str,
    status: ExecutionStatus,
    team_results: Sequence[JsonValue],
    total_teams: int,
    best_team_id: str | None,
    best_score: float | None,
    total_execution_time_seconds: float | None,
    at: datetime | None = None,
) -> Row:
    """The outcome of an execution."""
    return _row(
        EXECUTION_SUMMARY,
        at,
        execution_id=text("execution_id", execution_id),
        user_prompt=text("user_prompt", user_prompt),
        status=one_of("status", status, get_args(ExecutionStatus)),
        team_results=json_text("team_results", list(team_results)),
        total_teams=integer("total_teams", total_teams, bits=32),
        best_team_id=optional(text, "best_team_id", best_team_id),
        best_score=finite("best_score", best_score),
        total_execution_time_seconds=finite("total_execution_time_seconds", total_execution_time_seconds),
        completed_at=stamp(at),
    )
