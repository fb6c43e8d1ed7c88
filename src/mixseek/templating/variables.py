"""What a template may use: the variables of each kind of template, and the filters that are MixSeek's own."""

from collections.abc import Callable, Mapping
from math import isfinite
from types import MappingProxyType

from mixseek.templating.japanese import JAPANESE
from mixseek.templating.texts import Texts

__all__ = ["PROMPT_FILTERS", "TEMPLATE_VARIABLES", "VARIABLES_BY_TEMPLATE", "format_score"]

TEMPLATE_VARIABLES: dict[str, dict[str, str]] = {
    "initial": {
        "user_query": "str",
        "team_id": "str",
        "team_name": "str",
    },
    "continuation": {
        "user_query": "str",
        "round_number": "int",
        "team_id": "str",
        "team_name": "str",
        "submission_history": "list[SubmissionRecord]",
        "evaluation_feedback": "list[EvaluationResult]",
        "leaderboard_ranking": "list[LeaderboardEntry]",
        "current_team_rank": "int",
    },
}
"""The variables of the two template files of a workspace, with their types in words."""

_ROUND_VARIABLES = {
    "user_prompt": "str",
    "round_number": "int",
    "submission_history": "str",
    "ranking_table": "str",
    "team_position_message": "str",
    "current_datetime": "str",
}

VARIABLES_BY_TEMPLATE: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "team_user_prompt": _ROUND_VARIABLES,
        "evaluator_user_prompt": {
            "user_prompt": "str",
            "submission": "str",
            "reference": "str",
            "current_datetime": "str",
        },
        "judgment_user_prompt": _ROUND_VARIABLES,
        "initial_prompt": TEMPLATE_VARIABLES["initial"],
        "continuation_prompt": TEMPLATE_VARIABLES["continuation"],
    }
)
"""The variables of every template by the template's name, with their types in words."""

_MEDALS = {1: "🥇", 2: "🥈", 3: "🥉"}


def format_score(score: float | None, texts: Texts = JAPANESE) -> str:
    """A score as prompts show it."""
    return texts.unscored if score is None or not isfinite(score) else f"{score:.1f}/100"


def _summarize(text: str, max_len: int = 200) -> str:
    return text[:max_len] + "..." if len(text) > max_len else text


def _medal(rank: int) -> str:
    return _MEDALS.get(rank, str(rank))


PROMPT_FILTERS: Mapping[str, Callable[..., str]] = MappingProxyType(
    {"format_score": format_score, "summarize": _summarize, "medal": _medal}
)
"""MixSeek's own filters, which every template may use."""
