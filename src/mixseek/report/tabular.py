"""Tables for spreadsheets and programs: CSV in which nothing is a formula and nothing steers a terminal.

A spreadsheet takes a cell that begins with ``=``, ``+``, ``-`` or ``@`` for a formula, also one that some program split
off at a semicolon. Names and reasons come from models and files; so such a text gets an apostrophe before it, which
spreadsheets read as "this is text". Numbers are written as numbers and stay numbers.
"""

import csv
import io
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from math import isfinite

from mixseek.report.record import ExecutionRecord, RoundRecord, TeamRecord
from mixseek.report.summing import total

__all__ = ["Cell", "csv_text", "round_table"]

Cell = str | int | float | bool | datetime | None

_CODES = re.compile("[\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]+")
_FORMULA = re.compile(r"(^|;)(\s*)(?=[=+\-@＝＋－＠])")

_BEFORE_METRICS = ("execution_id", "rank", "team_id", "team_name", "round", "final", "score")
_AFTER_METRICS = (
    "flags",
    "failure",
    "requests",
    "input_tokens",
    "output_tokens",
    "cost_usd",
    "seconds",
    "started_at",
    "ended_at",
    "should_continue",
    "exit_reason",
)


def csv_text(header: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """A table as CSV with one line of names first.

    >>> csv_text(["team", "score"], [["=1+1", -2.5], ["a;@b", None]])
    "team,score\\r\\n'=1+1,-2.5\\r\\na;'@b,\\r\\n"
    """
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerows([_written(cell) for cell in row] for row in (header, *rows))
    return text.getvalue()


def _written(cell: Cell) -> str | int | float | None:
    if isinstance(cell, str):
        return _FORMULA.sub(r"\1\2'", _CODES.sub(" ", cell).strip())
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, float):
        return _rounded(cell)
    return cell.isoformat() if isinstance(cell, datetime) else cell


def _rounded(number: float) -> float | None:
    return round(number, 9) if isfinite(number) else None


# --- rounds -----------------------------------------------------------------------------------------------------------


def round_table(record: ExecutionRecord) -> tuple[list[str], list[list[Cell]]]:
    """One row for each round of each team, and the names of the columns: a column for each metric among them."""
    rounds = [(team, one) for team in record.teams for one in team.rounds]
    metrics = list(dict.fromkeys(metric.metric_name for _, one in rounds for metric in one.metrics))
    header = [*_BEFORE_METRICS, *_metric_titles(metrics), *_AFTER_METRICS]
    return header, [_round_row(record, team, one, metrics) for team, one in rounds]


def _metric_titles(metrics: Sequence[str]) -> list[str]:
    """A metric may have any name, also that of another column."""
    taken = {*_BEFORE_METRICS, *_AFTER_METRICS}
    # Those that can keep their names do, whatever others are to be called.
    titles = {name: name for name in metrics if name not in taken}
    for name in metrics:
        title = name
        while title in taken or (title != name and title in titles):
            title = f"metric {title}"
        titles[name] = title
    return [titles[name] for name in metrics]


def _round_row(record: ExecutionRecord, team: TeamRecord, one: RoundRecord, metrics: Sequence[str]) -> list[Cell]:
    scores = {metric.metric_name: metric.score for metric in one.metrics}
    bill = total(one.bill)
    return [
        record.execution_id,
        team.rank,
        team.team_id,
        team.team_name,
        one.round_number,
        one.round_number == team.best_round,
        one.score,
        *(scores.get(name) for name in metrics),
        " ".join(one.flags),
        one.failure,
        *((bill.requests, bill.input_tokens, bill.output_tokens, bill.cost_usd) if bill else (None,) * 4),
        None if one.seconds is None else round(one.seconds, 3),
        one.started_at,
        one.ended_at,
        one.judgment.should_continue if one.judgment else None,
        team.exit_reason if one.round_number == team.best_round else None,
    ]
