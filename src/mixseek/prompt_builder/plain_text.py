"""The prompt strategy that needs no template: fixed text with the past filled in."""

from collections.abc import Mapping, Sequence
from typing import Any

from mixseek.config.schema import RoundPromptConfig
from mixseek.prompt_builder.budget import fit
from mixseek.prompt_builder.formatters import Detail, score_trend
from mixseek.prompt_builder.models import LeaderboardEntry, SubmissionRecord
from mixseek.prompt_builder.strategy import narrowed, with_evaluations
from mixseek.records import EvaluationResult
from mixseek.templating import JAPANESE, Texts

__all__ = ["PlainTextPromptBuilder", "build_round_prompt"]


class PlainTextPromptBuilder:
    """Prompts as plain text; without a configuration there is no limit to what they show."""

    def __init__(self, config: RoundPromptConfig | None = None, *, texts: Texts = JAPANESE) -> None:
        self._config = config
        self._texts = texts

    def build_initial_prompt(
        self,
        user_query: str,
        team_id: str,
        metadata: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt of round 1: the task alone."""
        prompt = self._texts.plain.initial.format(query=user_query)
        return fit(lambda _: prompt, self._config, f"the prompt of round 1 for team {team_id!r}")

    def build_continuation_prompt(
        self,
        user_query: str,
        round_number: int,
        team_id: str,
        submission_history: Sequence[SubmissionRecord],
        evaluation_feedback: Sequence[EvaluationResult],
        leaderboard_ranking: Sequence[LeaderboardEntry],
        current_team_rank: int | None,
        metadata: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt of a later round: the task, the team's past and its place."""
        records = with_evaluations(submission_history, evaluation_feedback)

        def render(detail: Detail) -> str:
            shown, teams = narrowed(records, leaderboard_ranking, team_id, detail, self._texts)
            trend = score_trend([record.score for record in records], self._texts) if detail.trend else ""
            history = _history_text(shown, trend, detail, self._texts)
            ranking = _ranking_text(teams, current_team_rank, team_id, self._texts)
            return _continuation_text(user_query, history, ranking, current_team_rank, self._texts)

        what = f"the prompt of round {round_number} for team {team_id!r}"
        return fit(render, self._config, what, rounds=len(records), teams=len(leaderboard_ranking))


def build_round_prompt(
    user_query: str,
    round_number: int,
    team_id: str,
    submission_history: Sequence[SubmissionRecord],
    evaluation_feedback: Sequence[EvaluationResult],
    leaderboard_ranking: Sequence[LeaderboardEntry],
    current_team_rank: int | None,
) -> str:
    """The plain-text prompt of any round, without limits."""
    builder = PlainTextPromptBuilder()
    if round_number == 1:
        return builder.build_initial_prompt(user_query, team_id)
    return builder.build_continuation_prompt(
        user_query,
        round_number,
        team_id,
        submission_history,
        evaluation_feedback,
        leaderboard_ranking,
        current_team_rank,
    )


def _continuation_text(user_query: str, history: str, ranking: str, rank: int | None, texts: Texts) -> str:
    place = "" if rank is None else texts.plain.place.format(rank=rank)
    return texts.plain.continuation.format(query=user_query, history=history, ranking=ranking, place=place)


def _history_text(records: Sequence[SubmissionRecord], trend: str, detail: Detail, texts: Texts) -> str:
    rounds = [_round_text(record, detail, texts) for record in records]
    return "\n\n".join(filter(None, [*rounds, trend])) or texts.plain.no_history


def _round_text(record: SubmissionRecord, detail: Detail, texts: Texts) -> str:
    plain = texts.plain
    lines = [plain.round.format(number=record.round_number)]
    if detail.submissions:
        lines.append(plain.submission.format(submission=record.content))
    score = texts.unscored if record.score is None else f"{record.score:.1f}/100"
    lines.append(plain.score.format(score=score))
    if record.feedback:
        lines.append(plain.feedback.format(feedback=record.feedback))
    return "\n".join(lines)


def _ranking_text(teams: Sequence[LeaderboardEntry], rank: int | None, team_id: str, texts: Texts) -> str:
    plain = texts.plain
    lines = [plain.ranking]
    for entry in teams:
        mark = plain.own_team if entry.team_id == team_id else ""
        score = f"{entry.best_score:.1f}"
        lines.append(plain.ranking_line.format(rank=entry.rank, name=entry.team_name, score=score) + mark)
    place = plain.no_place if rank is None else plain.place_in_ranking.format(rank=rank)
    return "\n".join([*lines, "", plain.own_place.format(place=place)])
