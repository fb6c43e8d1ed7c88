"""Go on or stop: rules first, the model last.

Below ``min_rounds`` a team goes on and at ``max_rounds`` it stops, whatever anyone thinks; a target that it reaches in
the last round is still why it stops. In between the rules on its scores are looked at (a target, a plateau), and only
then a model is asked whether another round is worth its money. A model that cannot be asked never ends a team: it goes
on, and the record says why. Where a budget cannot pay for another round there is none, and nobody is asked.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel, Field
from pydantic_ai import ModelSettings, UserContent
from pydantic_ai.models import Model

from mixseek.amounts import counted
from mixseek.config.schema import JudgmentSettings
from mixseek.errors import ModelError
from mixseek.llm import ModelHub, PatientTimeout, ask, described, model_settings, takes_temperature
from mixseek.records import ExitReason, ImprovementJudgment, RoundState
from mixseek.templating import JAPANESE, Texts

__all__ = [
    "DEFAULT_JUDGMENT_SYSTEM_INSTRUCTION",
    "Decision",
    "Judgment",
    "decide_by_rule",
    "go_on",
    "settle",
    "stop_for_want",
]

logger = logging.getLogger(__name__)

DEFAULT_JUDGMENT_SYSTEM_INSTRUCTION = JAPANESE.judgment_instruction


class _Opinion(BaseModel):
    """What the model is asked for; the reasoning comes before the verdict, so that the verdict follows from it."""

    reasoning: str
    should_continue: bool
    confidence_score: float = Field(ge=0, le=1)


@dataclass(frozen=True)
class Decision:
    """What was decided after a round, and, if the team stops, why."""

    judgment: ImprovementJudgment
    exit_reason: ExitReason | None = None


class Judgment:
    """Decides for a team after each of its rounds; ``beside`` comes with every prompt."""

    def __init__(
        self,
        settings: JudgmentSettings,
        hub: ModelHub,
        *,
        beside: Sequence[UserContent] = (),
        texts: Texts = JAPANESE,
    ) -> None:
        self.settings = settings
        self._instruction = settings.system_instruction or texts.judgment_instruction
        self._form = described(
            _Opinion,
            reasoning=texts.judgment_reasoning,
            should_continue=texts.judgment_should_continue,
            confidence_score=texts.judgment_confidence,
        )
        self._beside = beside
        self._model = None if settings.model == "none" else hub.model(settings.model)

    def asks_model(self, decision: Decision) -> bool:
        """Whether the model has a say after this rule's decision; after the last round only for the record."""
        if self._model is None:
            return False
        if decision.exit_reason == "max_rounds_reached":
            return self.settings.judge_on_final_round
        return decision is UNDECIDED

    async def ask(self, prompt: str, timeout_seconds: float) -> ImprovementJudgment:
        """The model's opinion, or "go on" with the reason why there is none."""
        assert self._model is not None  # noqa: S101  # asks_model() is asked first
        try:
            async with PatientTimeout(timeout_seconds):
                opinion = await ask(
                    self._model,
                    self._form,
                    prompt=prompt,
                    beside=self._beside,
                    instructions=self._instruction,
                    settings=self._model_settings(self._model),
                )
        except TimeoutError:
            return go_on(f"the judgment took longer than {timeout_seconds:g} s, so the team goes on")
        except ModelError as error:
            return go_on(f"the judgment failed, so the team goes on: {error}")
        return ImprovementJudgment(**opinion.model_dump())

    def _model_settings(self, model: Model) -> ModelSettings:
        """As they were set; a temperature that nobody asked for is left out where it would only be warned of."""
        settings = model_settings(self.settings)
        if "temperature" not in self.settings.model_fields_set and not takes_temperature(model):
            settings.pop("temperature", None)
        return settings


UNDECIDED = Decision(
    ImprovementJudgment(should_continue=True, reasoning="no rule stops the team", confidence_score=1.0)
)


def decide_by_rule(
    history: Sequence[RoundState],
    settings: JudgmentSettings,
    *,
    min_rounds: int,
    max_rounds: int,
    shortage: str | None = None,
) -> Decision:
    """What the rules say after the latest round; :data:`UNDECIDED` if they say nothing.

    ``shortage`` says why another round cannot be paid for: then there is none, below ``min_rounds`` too.
    """
    decision = _by_scores(history, settings, min_rounds, max_rounds)
    return stop_for_want(shortage) if shortage is not None and decision.exit_reason is None else decision


def stop_for_want(shortage: str) -> Decision:
    """No more rounds, because they cannot be paid for."""
    return _stop("budget_exhausted", shortage)


def _by_scores(history: Sequence[RoundState], settings: JudgmentSettings, min_rounds: int, max_rounds: int) -> Decision:
    latest = history[-1]
    if latest.round_number < min_rounds:
        return Decision(go_on(f"round {latest.round_number} of at least {min_rounds} (min_rounds)", confidence=1.0))
    # Before the count of rounds: a team that reaches its target in the last one has reached it.
    if reached := _reached_target(history, settings.target_score):
        return _stop("target_score_reached", reached)
    if latest.round_number >= max_rounds:
        return _stop("max_rounds_reached", f"round {latest.round_number} is the last of {max_rounds}")
    if latest.evaluation_score is None:
        return Decision(go_on("the round has no score, so the team goes on", confidence=1.0))
    if settings.plateau_rounds is not None and _on_a_plateau(
        history, settings.plateau_rounds, settings.plateau_min_gain
    ):
        gain = settings.plateau_min_gain or 0
        return _stop(
            "score_plateau", f"{counted(settings.plateau_rounds, 'round')} without a gain of more than {gain:g}"
        )
    return UNDECIDED


def _reached_target(history: Sequence[RoundState], target: float | None) -> str | None:
    """That a round has reached the target, maybe one in which it was too early to stop; None if none has."""
    scored = [(state.evaluation_score, state.round_number) for state in history if state.evaluation_score is not None]
    score, number = max(scored, default=(0.0, 0))
    if target is None or not scored or score < target:
        return None
    where = "" if number == history[-1].round_number else f" of round {number}"
    return f"score {score:.2f}{where} reaches the target {target:g}"


def settle(rule: Decision, opinion: ImprovementJudgment | None) -> Decision:
    """The rule's word where it ends the team or no model was asked, else the model's."""
    if opinion is None or rule.exit_reason is not None:
        return rule
    return Decision(opinion, None if opinion.should_continue else "no_improvement_expected")


def _on_a_plateau(history: Sequence[RoundState], rounds: int, min_gain: float | None) -> bool:
    scores = [state.evaluation_score for state in history if state.evaluation_score is not None]
    if len(scores) <= rounds:
        return False
    before, since = scores[:-rounds], scores[-rounds:]
    # Rounded as scores are: a gain of 0.2 may come out as 0.20000000000000284.
    return round(max(since) - max(before), 9) <= (min_gain or 0)


def _stop(reason: ExitReason, words: str) -> Decision:
    return Decision(ImprovementJudgment(should_continue=False, reasoning=words, confidence_score=1.0), reason)


def go_on(words: str, confidence: float = 0.0) -> ImprovementJudgment:
    """Another round, for want of an opinion."""
    return ImprovementJudgment(should_continue=True, reasoning=words, confidence_score=confidence)
