"""The prompts of one team's rounds, and what would make them differ a second time, for the journal."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import JsonValue
from pydantic_core import PydanticSerializationError, to_json

from mixseek.config.schema import PromptBuilderSettings, RoundPromptConfig
from mixseek.events import RunStarted
from mixseek.prompt_builder import (
    EvaluatorPromptContext,
    Jinja2PromptBuilder,
    PromptBuilder,
    RoundPromptContext,
    StrategyPromptBuilder,
    TeamPromptBuilder,
    UserPromptBuilder,
)
from mixseek.prompt_builder.fence import new_nonce
from mixseek.prompt_builder.formatters import get_current_datetime_with_timezone
from mixseek.records import EvaluationRequest, RankingSource, utc_now
from mixseek.redaction import MadeJson
from mixseek.storage.journal import Journal, RoundPrompt

__all__ = ["RoundPrompts", "outdated_prompts"]

Ranking = Sequence[dict[str, Any]]


class RoundPrompts:
    """Builds the prompts of a team and of its judgment; each is in the journal before it is used.

    While ``reuse`` holds, a prompt that the journal has is used again as it was: with another clock, ranking or nonce
    none of the answers to it could be found.
    """

    def __init__(
        self,
        settings: PromptBuilderSettings,
        *,
        strategy: PromptBuilder | TeamPromptBuilder | None = None,
        template_dir: Path | None = None,
        config: RoundPromptConfig | None = None,
        journal: Journal | None = None,
    ) -> None:
        if config is not None:
            settings = settings.model_copy(update={"round_prompt": config})
        self._clock, self._nonce = "", ""
        self._own = UserPromptBuilder(settings=settings, clock=self._tell_time, nonce=self._draw_nonce)
        self._team = _team_builder(self._own, strategy, template_dir)
        self._journal = journal
        self.reuse = False
        self.outdated: frozenset[str] = frozenset()
        """Whose prompts are made anew all the same."""

    async def team_prompt(self, context: RoundPromptContext) -> str:
        """What the leader is told."""
        if (known := await self._known("leader", context)) is not None:
            return known
        seen = _Seen(context.store)
        prompt = await self._team.build_team_prompt(context.model_copy(update={"store": seen.source}))
        await self._keep("leader", prompt, context, ranking=seen.ranking)
        return prompt

    async def judgment_prompt(self, context: RoundPromptContext) -> str:
        """What the judgment is told."""
        if (known := await self._known("judgment", context)) is not None:
            return known
        seen = _Seen(context.store)
        prompt = await self._own.build_judgment_prompt(context.model_copy(update={"store": seen.source}))
        await self._keep("judgment", prompt, context, ranking=seen.ranking, nonce=self._nonce)
        return prompt

    async def evaluator_prompt(self, request: EvaluationRequest, *, with_reference: bool = False) -> str:
        """What every judge of a submission is told, or what those are told that see the reference answer too."""
        role = "evaluator_with_reference" if with_reference else "evaluator"
        if (known := await self._known(role, request)) is not None:
            return known
        prompt = self._own.build_evaluator_prompt(
            EvaluatorPromptContext(
                user_query=request.user_query,
                submission=request.submission,
                reference=request.reference if with_reference else None,
            )
        )
        await self._keep(role, prompt, request, nonce=self._nonce)
        return prompt

    async def _known(self, role: str, about: RoundPromptContext | EvaluationRequest) -> str | None:
        if self._journal is None or not self.reuse or role in self.outdated:
            return None
        known = await self._journal.find_prompt(
            about.execution_id or "", about.team_id or "", about.round_number or 0, role
        )
        return None if known is None else known.text

    async def _keep(
        self,
        role: str,
        prompt: str,
        about: RoundPromptContext | EvaluationRequest,
        *,
        ranking: Ranking | None = None,
        nonce: str | None = None,
    ) -> None:
        if self._journal is None:
            return
        await self._journal.record_prompt(
            RoundPrompt(
                execution_id=about.execution_id or "",
                team_id=about.team_id or "",
                round_number=about.round_number or 0,
                role=role,
                text=prompt,
                clock=self._clock,
                ranking=None if ranking is None else _kept_ranking(ranking),
                nonce=nonce,
                made_at=utc_now(),
            )
        )

    def _tell_time(self) -> str:
        self._clock = get_current_datetime_with_timezone()
        return self._clock

    def _draw_nonce(self) -> str:
        self._nonce = new_nonce()
        return self._nonce


_MADE_BY = {
    "team_user_prompt": ("leader",),
    "evaluator_user_prompt": ("evaluator", "evaluator_with_reference"),
    "judgment_user_prompt": ("judgment",),
}


def outdated_prompts(before: RunStarted, now: RunStarted) -> frozenset[str]:
    """Whose prompts would be others by now: those of templates that have changed, or that show another reference."""
    old, new = (one.configuration if isinstance(one.configuration, dict) else {} for one in (before, now))
    templates: list[Any] = [one.get("prompt_builder") or {} for one in (old, new)]
    changed = [name for name in _MADE_BY if templates[0].get(name) != templates[1].get(name)]
    shown = ["evaluator_with_reference"] if before.reference != now.reference else []
    return frozenset([*shown, *(role for name in changed for role in _MADE_BY[name])])


class _Seen:
    """A ranking source that remembers what it showed."""

    def __init__(self, board: RankingSource | None) -> None:
        self._board = board
        self.ranking: Ranking | None = None

    @property
    def source(self) -> "_Seen | None":
        return None if self._board is None else self

    async def get_leader_board_ranking(self, execution_id: str) -> Ranking:
        assert self._board is not None  # noqa: S101  # source is None otherwise
        self.ranking = await self._board.get_leader_board_ranking(execution_id)
        return self.ranking


def _kept_ranking(ranking: Ranking) -> list[JsonValue] | MadeJson:
    """As JSON already: the whole board goes with every prompt, and with many teams its parts are many."""
    try:
        return MadeJson(to_json(ranking, inf_nan_mode="strings"))
    except PydanticSerializationError:
        return list(ranking)


def _team_builder(
    own: UserPromptBuilder,
    strategy: PromptBuilder | TeamPromptBuilder | None,
    template_dir: Path | None,
) -> TeamPromptBuilder:
    config = own.settings.round_prompt
    if isinstance(strategy, PromptBuilder):
        return StrategyPromptBuilder(strategy, config=config)
    if strategy is None and template_dir is not None:
        return StrategyPromptBuilder(Jinja2PromptBuilder(template_dir, config, texts=own.texts))
    return strategy or own
