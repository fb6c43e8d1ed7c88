"""Fitting a prompt into a token budget by showing less, in the order of what a team can do without.

Level 1 is always shown: the task, the fixed text of the template, the team's own place, the score of its latest round.
Level 2 goes only when level 3 is gone: the feedback on the latest round, the three leading teams, the trend of scores.
Level 3 goes first: older rounds, the details of scores, the submissions, all other teams.

The budget is for the whole rendered prompt. Each step shows a part of what the step before it showed, so the first step
that fits is found by halving. If even level 1 does not fit, it is sent as it is and the excess is logged: cutting the
task itself would answer another question.
"""

import logging
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace
from functools import cache

from mixseek.config.schema import RoundPromptConfig
from mixseek.prompt_builder.formatters import EVERYTHING, Detail
from mixseek.prompt_builder.tokens import count_tokens

__all__ = ["detail_steps", "fit"]

logger = logging.getLogger(__name__)

_LEADING_TEAMS = 3


def fit(
    render: Callable[[Detail], str], config: RoundPromptConfig | None, what: str, *, rounds: int = 0, teams: int = 0
) -> str:
    """The fullest prompt that ``render`` can give of so many rounds and teams within ``config``; all without one."""
    if config is None:
        return render(EVERYTHING)
    steps = detail_steps(config, rounds, teams)
    rendered = cache(render)
    tokens = cache(lambda step: count_tokens(rendered(steps[step])))
    budget = config.estimated_prompt_tokens
    if tokens(0) <= budget:
        # Without a look at the others: a template of somebody's own may fail on what they leave out.
        return rendered(steps[0])
    chosen = bisect_left(range(len(steps) - 1), True, key=lambda step: tokens(step) <= budget)
    if tokens(chosen) > budget:
        logger.warning(
            "%s needs %d tokens, over the budget of %d (round_prompt.estimated_prompt_tokens): the task, the template "
            "itself, the own place and the latest score alone exceed it, so nothing more was cut",
            what,
            tokens(chosen),
            budget,
        )
    return rendered(steps[chosen])


def detail_steps(config: RoundPromptConfig, rounds: int, teams: int) -> list[Detail]:
    """What to show, from all that ``config`` allows down to level 1 alone."""
    full = Detail(
        rounds=min(rounds, config.max_submission_history_items),
        teams=min(teams, config.max_leaderboard_display_teams),
        preview_chars=config.submission_preview_chars,
        trend=config.enable_trend_analysis,
    )
    steps = [full]

    def leave_out(**parts: object) -> None:
        steps.append(replace(steps[-1], **parts))  # type: ignore[arg-type]

    for older in range((full.rounds or 1) - 1, 0, -1):
        leave_out(rounds=older)
    for fewer in range((full.teams or 0) - 1, _LEADING_TEAMS - 1, -1):
        leave_out(teams=fewer)
    leave_out(scores=False)
    leave_out(submissions=False)
    leave_out(trend=False)
    leave_out(teams=0)
    leave_out(feedback=False)
    return steps
