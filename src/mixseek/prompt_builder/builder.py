"""The builder of all prompts: templates from the settings, filled with the formatted past of a team.

builder = UserPromptBuilder(Path("/srv/workspace"), store=AggregationStore(Path("/srv/workspace")))
prompt = await builder.build_team_prompt(context)
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mixseek.config.manager import read_prompt_builder_settings
from mixseek.config.schema import PromptBuilderSettings
from mixseek.prompt_builder.budget import fit
from mixseek.prompt_builder.fence import fenced, new_nonce
from mixseek.prompt_builder.formatters import (
    Detail,
    format_ranking_table,
    format_submission_history,
    generate_position_message,
    get_current_datetime_with_timezone,
)
from mixseek.prompt_builder.models import EvaluatorPromptContext, RoundPromptContext
from mixseek.records import RankingSource
from mixseek.templating import TEXTS, Texts, compile_template

__all__ = ["UserPromptBuilder"]

Ranking = Sequence[dict[str, Any]]


class UserPromptBuilder:
    """Makes the prompts of teams, evaluators and judgments.

    Give it a workspace, whose prompt builder file it reads, or settings, but not both. ``store`` is where rankings come
    from when a context brings none. ``clock`` and ``nonce`` may be replaced to make prompts repeatable.
    """

    def __init__(
        self,
        workspace: Path | str | PromptBuilderSettings | None = None,
        store: RankingSource | None = None,
        *,
        settings: PromptBuilderSettings | None = None,
        clock: Callable[[], str] = get_current_datetime_with_timezone,
        nonce: Callable[[], str] = new_nonce,
    ) -> None:
        if (workspace is None) == (settings is None):
            raise TypeError("UserPromptBuilder takes exactly one of workspace and settings")
        given = settings if workspace is None else workspace
        self.settings = (
            given if isinstance(given, PromptBuilderSettings) else read_prompt_builder_settings(Path(str(given)))
        )
        self.texts = TEXTS[self.settings.language]
        self.store = store
        self._clock = clock
        self._nonce = nonce

    async def build_team_prompt(self, context: RoundPromptContext) -> str:
        """The prompt a leader is given: the task alone in round 1, then with the team's past and its place."""
        first = context.round_number == 1
        ranking = None if first else await self._ranking(context)
        now = self._clock()

        def render(detail: Detail) -> str:
            history = (
                self.texts.no_history if first else format_submission_history(context.round_history, detail, self.texts)
            )
            table = self._ranking_table(context, ranking, detail)
            return self._render("team_user_prompt", self._round_values(context, now, ranking, history, table))

        return await self._within_budget(render, context, ranking)

    async def build_judgment_prompt(self, context: RoundPromptContext) -> str:
        """The prompt of a judgment: the history ends with the round just finished; it and the ranking are fenced."""
        ranking = await self._ranking(context)
        now, nonce = self._clock(), self._nonce()

        def render(detail: Detail) -> str:
            history = format_submission_history(context.round_history, detail, self.texts)
            table = self._ranking_table(context, ranking, detail)
            fenced_history = fenced(history, nonce, self.texts) if context.round_history else history
            fenced_table = fenced(table, nonce, self.texts) if ranking else table
            values = self._round_values(context, now, ranking, fenced_history, fenced_table)
            return self._render("judgment_user_prompt", values)

        return await self._within_budget(render, context, ranking)

    def build_evaluator_prompt(self, context: EvaluatorPromptContext) -> str:
        """The prompt of a judge: the question, and the submission and any reference answer as data in fences."""
        nonce = self._nonce()
        reference = "" if context.reference is None else fenced(context.reference, nonce, self.texts)
        values = {
            "user_prompt": context.user_query,
            "submission": fenced(context.submission, nonce, self.texts),
            "reference": reference,
            "current_datetime": self._clock(),
        }
        prompt = self._render("evaluator_user_prompt", values)
        # A template that was written without a thought of references still shows one to a judge that has to see it.
        if reference and prompt == self._render("evaluator_user_prompt", {**values, "reference": ""}):
            return f"{prompt.rstrip()}\n\n{self.texts.reference}\n{reference}\n"
        return prompt

    def _render(self, name: str, values: Mapping[str, object]) -> str:
        return compile_template(getattr(self.settings, name), name).render(values, self.texts)

    async def _ranking(self, context: RoundPromptContext) -> Ranking | None:
        store = context.store or self.store
        return None if store is None else await store.get_leader_board_ranking(context.execution_id)

    async def _within_budget(
        self, render: Callable[[Detail], str], context: RoundPromptContext, ranking: Ranking | None
    ) -> str:
        config = self.settings.round_prompt
        what = f"the prompt of round {context.round_number} for team {context.team_id!r}"
        if config is None:
            return fit(render, None, what)
        sizes = {"rounds": len(context.round_history), "teams": len(ranking or ())}
        # Loading the tokenizer's vocabulary takes long enough to hold up every other team.
        return await asyncio.to_thread(fit, render, config, what, **sizes)

    def _round_values(
        self, context: RoundPromptContext, now: str, ranking: Ranking | None, history: str, table: str
    ) -> dict[str, object]:
        return {
            "user_prompt": context.user_prompt,
            "round_number": context.round_number,
            "submission_history": history,
            "ranking_table": table,
            "team_position_message": _position_message(context.team_id, ranking or (), self.texts),
            "current_datetime": now,
        }

    def _ranking_table(self, context: RoundPromptContext, ranking: Ranking | None, detail: Detail) -> str:
        if ranking is None:
            return ""
        return format_ranking_table(ranking, context.team_id, context.team_name, detail, self.texts)


def _position_message(team_id: str, ranking: Ranking, texts: Texts) -> str:
    places = [place for place, row in enumerate(ranking, 1) if row["team_id"] == team_id]
    return generate_position_message(places[0], len(ranking), texts) if places else ""
