"""An execution as one HTML file that needs nothing else and asks nobody for anything.

All texts in it were written by models, users or strangers. Each goes through one of two doors: Jinja's escaping, which
holds for every value of the templates, or :class:`~mixseek.report.markdown.MarkdownRenderer`. A Content-Security-Policy
stands behind both: the file may use its own style sheet, known by its hash, and nothing else.

What takes a browser long in a large report is making half a million elements of rounds that are folded. There each
round waits inside a ``noscript``: one text for a browser that runs scripts, the round itself for one that does not. The
only script, known by its hash too, makes a round of the text when somebody opens it and before printing, and of all
others whenever the browser is idle, so that a search in the page finds what is folded. It makes what the parser would
have made of the same file and so opens no third door. A report that opens quickly without it has no script.
"""

import asyncio
import json
import re
from base64 import b64encode
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup

from mixseek import __version__
from mixseek.amounts import usd, usd_digits
from mixseek.errors import StorageError
from mixseek.records import ModelUsage
from mixseek.report.chart import chart_of, shorten, show_score
from mixseek.report.markdown import MarkdownRenderer, plain, readable
from mixseek.report.reading import load_execution
from mixseek.report.record import ExecutionRecord, RoundRecord, TeamRecord
from mixseek.report.summing import lost_words
from mixseek.whole_file import write_whole
from mixseek.workspace import Workspace

__all__ = ["render", "report_path", "save_report", "write_report"]

_MAX_TEXT = 1_000_000
_LARGE = 1_000_000
"""Characters in the texts of rounds; with fewer a browser makes all elements in a fraction of a second."""
_WIDE, _NARROW = 860, 340


def render(record: ExecutionRecord) -> str:
    """The whole page."""
    style, script = _file("page.css"), _file("page.js")
    return (
        _environment()
        .get_template("page.html.jinja")
        .render(
            record=record,
            style=Markup(style),  # noqa: S704 - ours, and hashed as it stands
            style_hash=_hash(style),
            script=Markup(script),  # noqa: S704 - ours, and hashed as it stands
            script_hash=_hash(script),
            is_large=_is_large(record),
            version=__version__,
            charts={"wide": chart_of(record, _WIDE), "narrow": chart_of(record, _NARROW)},
            last_round=_last_round(record),
            spent=_Spent(record.bill),
            lost=lost_words(record.lost),
            prose=_Prose(MarkdownRenderer()),
        )
    )


def _hash(text: str) -> str:
    return b64encode(sha256(text.encode()).digest()).decode()


def _is_large(record: ExecutionRecord) -> bool:
    return sum(_characters(each) for team in record.teams for each in team.rounds) > _LARGE


def _characters(played: RoundRecord) -> int:
    return len(played.submission or "") + sum(len(call.content) + len(call.task or "") for call in played.members)


def _last_round(record: ExecutionRecord) -> int:
    finished = (each.round_number for team in record.teams for each in team.rounds if each.is_finished)
    return max(finished, default=0)


def write_report(record: ExecutionRecord, path: Path) -> Path:
    """Write the page to a file, whole or not at all; directories are made."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, render(record))
    except OSError as error:
        raise StorageError(f"the report {str(path)!r} cannot be written: {error.strerror or error}") from error
    return path


def save_report(workspace: Workspace, execution_id: str, path: Path | None = None) -> Path:
    """Write the report of an execution as the stores know it, to ``path`` or to ``reports/`` of the workspace."""
    record = asyncio.run(load_execution(workspace, execution_id))
    return write_report(record, path or report_path(workspace, execution_id))


def report_path(workspace: Workspace, execution_id: str) -> Path:
    """Where the report of an execution is, unless somebody wants it elsewhere; any id is a harmless file name."""
    if re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}", execution_id):
        return workspace.reports / f"{execution_id}.html"
    return workspace.reports / f"{sha256(execution_id.encode(errors='surrogatepass')).hexdigest()}.html"


# --- the templates ----------------------------------------------------------------------------------------------------


@cache
def _environment() -> Environment:
    names = ("page.html.jinja", "chart.svg.jinja", "round.html.jinja")
    environment = Environment(
        loader=DictLoader({name: _file(name) for name in names}),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    environment.filters.update(
        clock=_clock,
        count=_count,
        json=_json,
        moment=_moment,
        played=_played,
        score=show_score,
        seconds=_seconds,
        shorten=shorten,
        usd=_usd,
        usd_digits=usd_digits,
        verbatim=_verbatim,
        words=lambda text: text.replace("_", " "),
    )
    return environment


def _file(name: str) -> str:
    return files("mixseek.report").joinpath("templates", name).read_text(encoding="utf-8")


def _finalize(value: Any) -> Any:
    return readable(value) if type(value) is str else value


class _Prose:
    """Markdown of the page's texts, rendered one after the other with what is left of the page's steps."""

    def __init__(self, renderer: MarkdownRenderer) -> None:
        self._renderer = renderer

    def __call__(self, text: str, text_format: str = "md") -> Markup:
        text = readable(_bounded(text))
        shown = self._renderer.render(text) if text_format == "md" else plain(text)
        return Markup(f"<div class=prose dir=auto>{shown}</div>")  # noqa: S704 - escaped by the renderer


def _verbatim(text: str) -> Markup:
    return Markup(plain(readable(_bounded(text))))  # noqa: S704 - escaped by plain


def _bounded(text: str) -> str:
    more = len(text) - _MAX_TEXT
    return text if more <= 0 else f"{text[:_MAX_TEXT]}\n… ({_count(more)} more characters are not shown)"


# --- numbers for people -----------------------------------------------------------------------------------------------


def _count(number: int) -> str:
    return f"{number:,}"


def _usd(cost: float | None, digits: int | None = None) -> str:
    return "not known" if cost is None else f"{usd(cost, digits)} USD"


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return "not known"
    return f"{seconds:.1f} s" if seconds < 120 else f"{int(seconds) // 60} min {int(seconds) % 60} s"


def _moment(moment: datetime | None) -> str:
    return "not known" if moment is None else f"{_in_utc(moment):%Y-%m-%d %H:%M:%S} UTC"


def _clock(moment: datetime) -> str:
    return f"{_in_utc(moment):%H:%M:%S}"


def _in_utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


def _played(team: TeamRecord, number: int) -> RoundRecord | None:
    return next((each for each in team.rounds if each.round_number == number), None)


# --- the bill ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spending:
    """What some lines of the bill come to; the cost is None if a price among them is not known."""

    requests: int
    input_tokens: int
    output_tokens: int
    cost_usd: float | None


class _Spent:
    """The bill, added up as the page tells it."""

    def __init__(self, bill: tuple[ModelUsage, ...]) -> None:
        self._by_team = _add_up(bill, lambda line: line.team_id)
        self.digits_by_team = usd_digits(each.cost_usd for each in self._by_team.values())
        """Those of the costs in a column of teams."""
        self.by_model = _add_up(bill, lambda line: (line.model, line.role))

    def by(self, team: TeamRecord) -> Spending:
        """All of a team."""
        return self._by_team.get(team.team_id) or _sum(())

    def in_round(self, played: RoundRecord) -> Spending:
        """All of one round."""
        return _sum(played.bill)


def _add_up(bill: Iterable[ModelUsage], key: Callable[[ModelUsage], Any]) -> dict[Any, Spending]:
    groups: dict[Hashable, list[ModelUsage]] = {}
    for line in bill:
        groups.setdefault(key(line), []).append(line)
    return {name: _sum(lines) for name, lines in sorted(groups.items())}


def _sum(lines: Iterable[ModelUsage]) -> Spending:
    listed = tuple(lines)
    costs = [line.cost_usd for line in listed]
    return Spending(
        requests=sum(line.requests for line in listed),
        input_tokens=sum(line.input_tokens for line in listed),
        output_tokens=sum(line.output_tokens for line in listed),
        cost_usd=None if None in costs else sum(cost for cost in costs if cost is not None),
    )
