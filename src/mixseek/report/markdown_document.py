"""One execution as a Markdown document.

What models and people wrote stands in fenced blocks whose fence is longer than any in the text; names and comments
stand on one line, with every letter escaped that Markdown could take for its own. So nothing in them can end a block,
make a heading or a link, or split a row of a table.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from math import isfinite

from mixseek.amounts import cost_words, counted, number, tokens_words, usd, usd_digits
from mixseek.records import known_cost
from mixseek.report.record import ExecutionRecord, MemberCall, RoundRecord, TeamRecord
from mixseek.report.summing import by_team_role_and_model, lost_words

__all__ = ["render"]

_MARKUP = re.compile(r"([\\`*_{}\[\]<>#|~!&$^])")
# What begins a list, or underlines a heading, at the start of a line.
_LIST_MARK = re.compile(r"^(\d*)([-+=.)])")
# What many programs make a link of, without any mark.
_ADDRESS = re.compile(r"(?<=\w)(:)(?=//)|(?<=www)(\.)|(?<=[\w.+-])(@)(?=[\w-])", re.IGNORECASE)
_FENCE = re.compile(r"`{3,}")
# Letters that steer a terminal or turn the direction of writing; tabs and line breaks are no such letters here.
_CODES = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def render(record: ExecutionRecord) -> str:
    """The whole document."""
    parts = [
        f"# Execution {_inline(record.execution_id)}",
        _facts(record),
        f"## Task\n\n{_block(record.user_prompt)}",
        _answer(record),
        f"## Leader board\n\n{_board(record)}",
        *map(_team, record.teams),
        f"## Bill\n\n{_bill(record)}" if record.bill or record.lost else "",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


# --- parts ------------------------------------------------------------------------------------------------------------


def _facts(record: ExecutionRecord) -> str:
    usage, cost = record.usage, cost_words(record.cost_usd, known_cost(record.bill))
    facts = [
        f"Status: {_words(record.status)}",
        f"Started: {_moment(record.started_at)}",
        f"Time: {_seconds(record.seconds)}",
        f"Model calls: {number(usage.requests)}, {tokens_words(usage)}, {cost}",
        *(
            f"Attachment: {_inline(one.name)} ({_inline(one.media_type)}, {counted(one.size, 'byte')})"
            for one in record.attachments
        ),
    ]
    return "\n".join(f"- {fact}" for fact in facts)


def _answer(record: ExecutionRecord) -> str:
    best = record.best
    if best is None or best.final is None:
        return "## Best answer\n\nNo team has a result."
    head = f"{_inline(best.team_name)}, round {best.final.round_number}, score {_score(best.final.score)}"
    return f"## Best answer\n\n{head}\n\n{_submission(best.final)}"


def _board(record: ExecutionRecord) -> str:
    rows = [
        (
            "-" if team.rank is None else str(team.rank),
            _inline(team.team_name),
            _score(team.best_score),
            "-" if team.best_round is None else str(team.best_round),
            " → ".join(_score(one.score) for one in team.rounds),
            _inline(team.error) if team.error else _words(team.exit_reason or "-"),
        )
        for team in record.teams
    ]
    return _table(("#", "Team", "Score >", "Round >", "Scores by round", "Ended"), rows)


def _bill(record: ExecutionRecord) -> str:
    names = {team.team_id: team.team_name for team in record.teams}
    lines = by_team_role_and_model(record.bill)
    digits = usd_digits(line.cost_usd for line in lines)
    rows = [
        (
            _inline(names.get(line.team_id, line.team_id)),
            line.role,
            _inline(line.model),
            number(line.requests),
            number(line.input_tokens),
            number(line.output_tokens),
            usd(line.cost_usd, digits),
        )
        for line in lines
    ]
    table = _table(("Team", "Role", "Model", "Calls >", "Tokens in >", "Tokens out >", "USD >"), rows)
    lost = lost_words(record.lost)
    return table if lost is None else f"{table}\n\n{lost}"


# --- teams and rounds -------------------------------------------------------------------------------------------------


def _team(team: TeamRecord) -> str:
    failed = f"Failed: {_inline(team.error)}" if team.error else ""
    ended = f"Ended: {_inline(team.shortage)}" if team.shortage else ""
    parts = [f"## {_inline(team.team_name)} ({_inline(team.team_id)})", failed, ended, *map(_round, team.rounds)]
    return "\n\n".join(part for part in parts if part)


def _round(one: RoundRecord) -> str:
    parts = [
        f"### Round {one.round_number}: {_score(one.score)}",
        "\n".join(f"- {line}" for line in _round_facts(one)),
        _submission(one),
        *map(_member, one.members),
    ]
    return "\n\n".join(part for part in parts if part)


def _round_facts(one: RoundRecord) -> Iterator[str]:
    if one.failure:
        yield f"Not scored: {_inline(one.failure)}"
    for metric in one.metrics:
        comment = f": {_inline(metric.evaluator_comment)}" if metric.evaluator_comment else ""
        yield f"{_inline(metric.metric_name)} {_score(metric.score)}{comment}"
    if one.flags:
        yield f"Flags: {', '.join(map(_inline, one.flags))}"
    if one.judgment:
        verdict = "go on" if one.judgment.should_continue else "stop"
        yield f"Judgment: {verdict} ({one.judgment.confidence_score:.2f}): {_inline(one.judgment.reasoning)}"
    for used in one.tools:
        yield _inline(used.whole_words)
    if one.seconds is not None:
        yield f"Time: {_seconds(one.seconds)}"


def _submission(one: RoundRecord) -> str:
    if one.submission is None:
        return "No submission."
    return _block(one.submission, "json" if one.submission_format == "json" else "markdown")


def _member(call: MemberCall) -> str:
    task = "" if call.task is None else f"Task:\n\n{_block(call.task)}\n\n"
    result = _inline(call.error_message or "no reason given") if call.status == "ERROR" else ""
    told = f"Failed: {result}" if result else _block(call.content)
    return f"#### Member {_inline(call.agent_name)}, {_seconds(call.seconds)}\n\n{task}{told}"


# --- Markdown ---------------------------------------------------------------------------------------------------------


def _inline(text: str) -> str:
    """One line in which Markdown finds nothing of its own."""
    escaped = _MARKUP.sub(r"\\\1", " ".join(_harmless(text).split()))
    escaped = _ADDRESS.sub(r"\\\g<0>", escaped)
    return _LIST_MARK.sub(r"\1\\\2", escaped)


def _block(text: str, language: str = "text") -> str:
    """The text as it is, in a fence that it cannot close."""
    harmless = _harmless(text.replace("\r\n", "\n").replace("\r", "\n"))
    fence = "`" * (max(map(len, _FENCE.findall(harmless)), default=2) + 1)
    return f"{fence}{language}\n{harmless}\n{fence}"


def _harmless(text: str) -> str:
    return _CODES.sub(lambda code: code[0].encode("unicode_escape").decode("ascii"), text)


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A title that ends in ``>`` is of a column of numbers."""
    head = "| " + " | ".join(title.removesuffix(" >") for title in titles) + " |"
    rule = "| " + " | ".join("---:" if title.endswith(">") else "---" for title in titles) + " |"
    return "\n".join([head, rule, *("| " + " | ".join(row) + " |" for row in rows)])


def _words(name: str) -> str:
    return name.replace("_", " ")


def _score(score: float | None) -> str:
    return "-" if score is None or not isfinite(score) else f"{score:.2f}"


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.1f} s"


def _moment(moment: datetime | None) -> str:
    return "-" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
