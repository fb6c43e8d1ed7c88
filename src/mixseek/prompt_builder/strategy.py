"""What the prompt strategies share: which part of the past a :class:`Detail` leaves, and how they serve a round."""

from collections.abc import Sequence
from typing import Any, TypeVar

from mixseek.config.schema import RoundPromptConfig
from mixseek.prompt_builder.formatters import EVERYTHING, Detail, one_line, preview
from mixseek.prompt_builder.models import LeaderboardEntry, RoundContext, RoundPromptContext, SubmissionRecord
from mixseek.prompt_builder.protocol import PromptBuilder
from mixseek.records import EvaluationResult, RankingSource, RoundState
from mixseek.templating import JAPANESE, Texts

__all__ = ["StrategyPromptBuilder", "narrowed", "with_evaluations"]

T = TypeVar("T")


class StrategyPromptBuilder:
    """A prompt strategy in the place of the template builder: it makes team prompts from the same context.

    With a ``config`` it is given no more rounds and teams than that allows; lengths and tokens are the strategy's own.
    """

    def __init__(
        self, strategy: PromptBuilder, store: RankingSource | None = None, config: RoundPromptConfig | None = None
    ) -> None:
        self._strategy = strategy
        self._store = store
        self._detail = EVERYTHING if config is None else _most(config)

    async def build_team_prompt(self, context: RoundPromptContext) -> str:
        """The strategy's prompt for this round."""
        metadata = {"team_name": context.team_name}
        if context.round_number == 1:
            return self._strategy.build_initial_prompt(context.user_prompt, context.team_id, metadata)
        past = await self._past(context)
        return self._strategy.build_continuation_prompt(
            context.user_prompt,
            context.round_number,
            context.team_id,
            past.submission_history,
            past.evaluation_feedback,
            past.leaderboard_ranking,
            past.current_team_rank,
            metadata,
        )

    async def _past(self, context: RoundPromptContext) -> RoundContext:
        store = context.store or self._store
        rows = await store.get_leader_board_ranking(context.execution_id) if store else []
        ranking = [_standing(rank, row) for rank, row in enumerate(rows, 1)]
        rounds = _newest(sorted(context.round_history, key=lambda state: state.round_number), self._detail)
        return RoundContext(
            round_number=context.round_number,
            submission_history=[_submission(state) for state in rounds],
            evaluation_feedback=[_evaluation(state) for state in rounds],
            leaderboard_ranking=_leading(ranking, context.team_id, self._detail),
            current_team_rank=next((entry.rank for entry in ranking if entry.team_id == context.team_id), None),
        )


def with_evaluations(
    records: Sequence[SubmissionRecord], evaluations: Sequence[EvaluationResult]
) -> list[SubmissionRecord]:
    """The submissions with the scores and comments of their evaluations, in the order of their rounds.

    Evaluations come in the order of the history; where there are more of the one than of the other, the newest ones
    belong together.
    """
    ordered = sorted(records, key=lambda record: record.round_number)
    together = min(len(ordered), len(evaluations))
    alone = ordered[: len(ordered) - together]
    newest = zip(ordered[len(alone) :], evaluations[len(evaluations) - together :], strict=True)
    return alone + [_evaluated(record, evaluation) for record, evaluation in newest]


def narrowed(
    records: Sequence[SubmissionRecord],
    ranking: Sequence[LeaderboardEntry],
    team_id: str,
    detail: Detail = EVERYTHING,
    texts: Texts = JAPANESE,
) -> tuple[list[SubmissionRecord], list[LeaderboardEntry]]:
    """The part of history and ranking that ``detail`` shows; the latest round and the own team always stay."""
    teams = [
        entry.model_copy(update={"team_name": one_line(entry.team_name)})
        for entry in _leading(ranking, team_id, detail)
    ]
    return [_shortened(record, detail, texts) for record in _newest(records, detail)], teams


def _most(config: RoundPromptConfig) -> Detail:
    return Detail(rounds=config.max_submission_history_items, teams=config.max_leaderboard_display_teams)


def _newest(rounds: Sequence[T], detail: Detail) -> list[T]:
    return list(rounds) if detail.rounds is None else list(rounds[-max(detail.rounds, 1) :])


def _leading(ranking: Sequence[LeaderboardEntry], team_id: str, detail: Detail) -> list[LeaderboardEntry]:
    return [
        entry for entry in ranking if detail.teams is None or entry.rank <= detail.teams or entry.team_id == team_id
    ]


def _shortened(record: SubmissionRecord, detail: Detail, texts: Texts) -> SubmissionRecord:
    content = preview(record.content, detail.preview_chars, texts) if detail.submissions else ""
    feedback = preview(record.feedback, detail.preview_chars, texts) if detail.feedback else ""
    return record.model_copy(update={"content": content, "feedback": feedback})


def _evaluated(record: SubmissionRecord, evaluation: EvaluationResult) -> SubmissionRecord:
    feedback = evaluation.feedback_summary or record.feedback
    return record.model_copy(update={"score": evaluation.overall_score, "feedback": feedback})


def _submission(state: RoundState) -> SubmissionRecord:
    return SubmissionRecord(
        round_number=state.round_number,
        content=state.submission_content,
        score=state.evaluation_score,
        feedback=state.evaluation_feedback or str(state.score_details.get("reason") or ""),
    )


def _evaluation(state: RoundState) -> EvaluationResult:
    return EvaluationResult.from_score_details(state.score_details, state.evaluation_score)


def _standing(rank: int, row: dict[str, Any]) -> LeaderboardEntry:
    return LeaderboardEntry(
        rank=rank,
        team_id=row["team_id"],
        team_name=row["team_name"],
        best_score=row["max_score"],
        latest_round=row["total_rounds"],
        total_rounds=row["total_rounds"],
    )
