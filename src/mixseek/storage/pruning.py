"""Taking the bodies of old calls out of the journal: what was asked and answered, never what it came to or cost.

What commands show, what ``mixseek.db`` can be made of and the bill stay, and so do the answers of judges, which are
short: whoever judges again would pay for them once more. What goes is what only a resumed or replayed run would look
up, so an execution that was pruned says so to whoever wants one.
"""

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

from mixseek.records import Record, utc_now
from mixseek.storage.bodies import packed, value_of
from mixseek.storage.journal_file import (
    JournalConnection,
    begin,
    give_back_room,
    open_for_reading,
    open_for_writing,
    read_error,
    roll_back,
    write_error,
)

__all__ = ["Prunable", "drop_bodies", "prunable"]

_WAIT_SECONDS = 60.0


class Prunable(Record):
    """An execution that came to its end and still has the bodies of its calls."""

    execution_id: str
    ended_at: datetime
    calls: int
    size: int
    """Bytes that its bodies take."""


def prunable(journal: Path) -> list[Prunable]:
    """Executions whose bodies could be dropped, the one that began last first."""
    try:
        connection = open_for_reading(journal, _WAIT_SECONDS)
        if connection is None:
            return []
        with closing(connection):
            return [Prunable.model_validate(dict(row)) for row in connection.execute(_PRUNABLE)]
    except sqlite3.Error as error:
        raise read_error(journal, error) from error


def drop_bodies(journal: Path, executions: Sequence[str]) -> int:
    """Drop the bodies of these executions, and say by how many bytes the journal and its log are smaller."""
    before = _size(journal)
    try:
        with closing(open_for_writing(journal, _WAIT_SECONDS)) as connection:
            for execution_id in executions:
                _drop(connection, journal, execution_id)
            give_back_room(connection, journal, _WAIT_SECONDS)
    except sqlite3.Error as error:
        raise write_error(journal, error) from error
    return before - _size(journal)


def _drop(connection: JournalConnection, journal: Path, execution_id: str) -> None:
    begin(connection, journal, _WAIT_SECONDS)
    try:
        connection.execute(_DROP_BODIES, (execution_id,))
        connection.execute(
            "UPDATE tool_results SET result = NULL WHERE execution_id = ? AND role <> 'leader'", (execution_id,)
        )
        _shorten_members_results(connection, execution_id)
        connection.execute(_DROP_PROMPTS, (execution_id,))
        # The same judges are found again by the same words, which hold the time and the nonce of the first time.
        connection.execute("UPDATE prompts SET text = '\"\"' WHERE execution_id = ?", (execution_id,))
        now = utc_now().isoformat(timespec="microseconds")
        connection.execute("INSERT OR IGNORE INTO pruned VALUES (?, ?)", (execution_id, now))
        connection.execute("COMMIT")
    except BaseException:
        roll_back(connection)
        raise


def _shorten_members_results(connection: sqlite3.Connection, execution_id: str) -> None:
    """What members gave their leaders is shown; the messages behind it are not, and the rows of rounds have them."""
    found = connection.execute(_MEMBERS_RESULTS, (execution_id,)).fetchall()
    for number, result in found:
        connection.execute("UPDATE tool_results SET result = ? WHERE id = ?", (_without_messages(result), number))


def _without_messages(result: str | bytes | None) -> str | bytes | None:
    value: Any = value_of(result)
    if not isinstance(value, dict):
        return result
    value.pop("all_messages", None)
    return packed(json.dumps(value, ensure_ascii=False).encode())


def _size(journal: Path) -> int:
    files = (journal, journal.with_name(f"{journal.name}-wal"))
    return sum(file.stat().st_size for file in files if file.exists())


_DROP_BODIES = """
    UPDATE calls SET request = NULL, answer = CASE role WHEN 'evaluator' THEN answer END WHERE execution_id = ?"""
_DROP_PROMPTS = """
    DELETE FROM prompts WHERE execution_id = ? AND role NOT IN ('evaluator', 'evaluator_with_reference')"""
_MEMBERS_RESULTS = "SELECT id, result FROM tool_results WHERE execution_id = ? AND role = 'leader'"
# A later end counts: an execution that was resumed is as old as its last end, and has none while it goes on. Its place
# among the others is that of its beginning all the same, as everywhere.
_PRUNABLE = """
    SELECT e.execution_id, max(e.at) AS ended_at,
        (SELECT count(*) FROM calls AS c WHERE c.execution_id = e.execution_id) AS calls,
        (SELECT ifnull(sum(ifnull(length(request), 0) + iif(role = 'evaluator', 0, ifnull(length(answer), 0))), 0)
            FROM calls AS c WHERE c.execution_id = e.execution_id)
        + (SELECT ifnull(sum(ifnull(length(result), 0)), 0) FROM tool_results AS t
            WHERE t.execution_id = e.execution_id)
        + (SELECT ifnull(sum(length(text)), 0) FROM prompts AS p WHERE p.execution_id = e.execution_id) AS size
    FROM events AS e WHERE e.kind = 'RunFinished'
        AND NOT EXISTS (SELECT 1 FROM pruned AS p WHERE p.execution_id = e.execution_id)
        AND NOT EXISTS (SELECT 1 FROM events AS r WHERE r.execution_id = e.execution_id AND (r.team_id IS NULL) = 1
            AND ifnull(r.team_id, '') = '' AND r.kind = 'RunResumed' AND r.position > e.position)
    GROUP BY e.execution_id ORDER BY (
        SELECT s.position FROM events AS s WHERE s.execution_id = e.execution_id AND (s.team_id IS NULL) = 1
            AND ifnull(s.team_id, '') = '' AND s.kind = 'RunStarted') DESC, e.execution_id"""
