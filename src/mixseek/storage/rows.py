"""Values on their way out of a table: JSON columns as values, times as UTC, and records an older version stored."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import duckdb

from mixseek.records import MemberSubmission, MemberSubmissionsRecord, Usage

__all__ = ["as_dicts", "json_value", "member_submission", "submissions_record"]


def as_dicts(result: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    """The rows of a query by the names of their columns."""
    columns = [(str(name), str(kind) == "JSON") for name, kind, *_ in result.description or ()]
    return [
        {
            name: json_value(value) if is_json else _aware(value)
            for (name, is_json), value in zip(columns, row, strict=True)
        }
        for row in result.fetchall()
    ]


def json_value(dumped: str | None) -> Any:
    """The value of a JSON column."""
    return None if dumped is None else json.loads(dumped)


def _aware(value: Any) -> Any:
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) else value


def submissions_record(stored: Any) -> MemberSubmissionsRecord | None:
    """The record of a round; what an older version stored beside our fields is left out."""
    if not isinstance(stored, dict):
        return None
    submissions = [member_submission(item) for item in stored.get("submissions") or ()]
    return MemberSubmissionsRecord.model_validate(
        {**_known(MemberSubmissionsRecord, stored), "submissions": submissions}
    )


def member_submission(stored: Mapping[str, Any]) -> MemberSubmission:
    """The record of one call of a member, in the same way."""
    usage = _known(Usage, stored.get("usage") or {})
    status = str(stored.get("status", "SUCCESS")).upper()
    return MemberSubmission.model_validate({**_known(MemberSubmission, stored), "usage": usage, "status": status})


def _known(
    record: type[MemberSubmission | MemberSubmissionsRecord | Usage], stored: Mapping[str, Any]
) -> dict[str, Any]:
    return {name: value for name, value in stored.items() if name in record.model_fields and value is not None}
