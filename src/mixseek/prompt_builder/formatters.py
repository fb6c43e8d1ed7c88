"""Pure functions from records to the text that a team, an evaluator or a judgment reads.

``format_submission_history`` and ``format_ranking_table`` show everything, unless a :class:`Detail` says how much of it
a prompt with a token budget may show.
"""

import json
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from mixseek.clock import current_datetime
from mixseek.prompt_builder.fence import neutralised
from mixseek.records import EvaluationResult, RoundState
from mixseek.templating import JAPANESE, Texts

__all__ = [
    "EVERYTHING",
    "Detail",
    "format_ranking_table",
    "format_submission_history",
    "generate_position_message",
    "get_current_datetime_with_timezone",
    "one_line",
    "preview",
    "score_trend",
]

_LONGEST_NAME = 200


@dataclass(frozen=True)
class Detail:
    """How much of the history and the ranking is shown; None means all of it."""

    rounds: int | None = None
    """Newest rounds shown; the latest one is always among them."""
    teams: int | None = None
    """Leading teams shown; the own team is always among them, at its true place."""
    preview_chars: int | None = None
    submissions: bool = True
    scores: bool = True
    """The details of each score; where they are left out, the newest round's feedback takes their place."""
    feedback: bool = True
    trend: bool = False


EVERYTHING = Detail()


def format_submission_history(
    round_history: Sequence[RoundState], detail: Detail = EVERYTHING, texts: Texts = JAPANESE
) -> str:
    """A team's past rounds in their order, whatever order they come in."""
    if not round_history:
        return texts.no_history
    rounds = sorted(round_history, key=lambda state: state.round_number)
    shown = rounds if detail.rounds is None else rounds[-max(detail.rounds, 1) :]
    parts = [_format_round(state, detail, texts, newest=state is rounds[-1]) for state in shown]
    trend = score_trend([state.evaluation_score for state in rounds], texts) if detail.trend else ""
    return "\n\n".join(filter(None, [*parts, trend]))


def format_ranking_table(
    ranking: Sequence[dict[str, Any]],
    team_id: str,
    team_name: str | None = None,
    detail: Detail = EVERYTHING,
    texts: Texts = JAPANESE,
) -> str:
    """The leader board, a line for each team in the order given, the own team in bold."""
    if not ranking:
        return texts.no_ranking
    lines = []
    for rank, row in enumerate(ranking, 1):
        own = row["team_id"] == team_id
        if own or detail.teams is None or rank <= detail.teams:
            name = team_name if own and team_name else row["team_name"]
            lines.append(_ranking_line(rank, name, row, texts, own=own))
    return "\n".join(lines)


def generate_position_message(position: int, total_teams: int, texts: Texts = JAPANESE) -> str:
    """What a team is told about its place."""
    if total_teams < 1:
        raise ValueError("Invalid total_teams")
    if not 1 <= position <= total_teams:
        raise ValueError("Invalid position")
    if position == 1:
        return texts.first_place
    told = texts.high_place if position <= 3 else texts.place
    return told.format(total=total_teams, position=position)


def get_current_datetime_with_timezone() -> str:
    """The present moment in the zone of ``TZ`` (UTC when unset), in ISO 8601."""
    return current_datetime()


def score_trend(scores: Sequence[float | None], texts: Texts = JAPANESE) -> str:
    """How a team's scores went, from two scored rounds on."""
    scored = [f"{score:.2f}" for score in scores if score is not None]
    return texts.trend.format(scores=" → ".join(scored)) if len(scored) > 1 else ""


def preview(text: str, chars: int | None, texts: Texts = JAPANESE) -> str:
    """``text``, or its head and tail when it is longer than one and a half times ``chars``.

    >>> preview("あ" * 20, 10)
    'ああああああああああ...[中略]...あああああ'
    """
    if chars is None or len(text) <= chars + chars // 2:
        return text
    return f"{text[:chars]}{texts.cut}{text[len(text) - chars // 2 :]}"


@lru_cache(maxsize=1024)
def one_line(text: str) -> str:
    """``text`` as one harmless line: no hidden or line-breaking characters, no delimiter of ours, and not endless.

    >>> one_line("Alpha\\n# 新しい指示")
    'Alpha # 新しい指示'
    """
    line = " ".join("".join(char if _may_stand_in_a_line(char) else " " for char in text).split())
    longest = _LONGEST_NAME
    while True:
        shown = neutralised(line if len(line) <= longest else f"{line[:longest]}…")
        if len(shown) <= _LONGEST_NAME + 1:
            return shown
        # What is neutralised is told by more letters than it had.
        longest = min(longest, len(line)) * _LONGEST_NAME // len(shown)


def _may_stand_in_a_line(char: str) -> bool:
    # The zero-width joiner is the one format character kept: emoji are made with it.
    return unicodedata.category(char) not in {"Cc", "Cf", "Cs", "Zl", "Zp"} or char == "\u200d"


def _format_round(state: RoundState, detail: Detail, texts: Texts, *, newest: bool) -> str:
    lines = [texts.round.format(number=state.round_number)]
    if state.evaluation_score is None:
        reason = preview(_reason(state, texts), detail.preview_chars, texts)
        lines += [texts.score.format(score=texts.unscored), texts.reason.format(reason=reason)]
    else:
        lines.append(texts.score.format(score=f"{state.evaluation_score:.2f}/100"))
    if (details := _details(state)) is not None:
        if detail.scores:
            lines += [texts.score_details, json.dumps(details, ensure_ascii=False, indent=2)]
        elif newest and detail.feedback and (feedback := _feedback(state)):
            lines.append(texts.feedback.format(feedback=preview(feedback, detail.preview_chars, texts)))
    if detail.submissions:
        shown = preview(state.submission_content, detail.preview_chars, texts)
        lines.append(texts.submission.format(submission=shown))
    return "\n".join(lines)


def _details(state: RoundState) -> Mapping[str, Any] | None:
    """The details of a score; of an unscored round only those that tell what some of its metrics said."""
    if state.evaluation_score is not None:
        return state.score_details
    details = {name: value for name, value in state.score_details.items() if name != "reason"}
    return details if isinstance(details.get("metrics"), list) else None


def _reason(state: RoundState, texts: Texts) -> str:
    reason = state.score_details.get("reason") or state.evaluation_feedback
    return one_line(str(reason)) or texts.no_reason


def _feedback(state: RoundState) -> str:
    kept = EvaluationResult.from_score_details(state.score_details, state.evaluation_score)
    return state.evaluation_feedback or kept.feedback_summary


def _ranking_line(rank: int, name: str, row: Mapping[str, Any], texts: Texts, *, own: bool) -> str:
    if not own:
        return _line_of_team(texts.ranking_line, rank, name, row["max_score"], row["total_rounds"])
    return f"**{_line_of_team(texts.ranking_line, rank, name, row['max_score'], row['total_rounds'], texts.own_team)}**"


# With many teams every prompt shows lines that others have shown a moment before.
@lru_cache(maxsize=4096)
def _line_of_team(line: str, rank: int, name: str, score: float, rounds: int, own_team: str = "{name}") -> str:
    shown = own_team.format(name=one_line(name))
    return line.format(rank=rank, name=shown, score=f"{score:.2f}", rounds=rounds)
