"""The prompt strategy that needs no template: fixed Japanese text with the past filled in."""

from collections.abc import Mapping, Sequence
from typing import Any

from mixseek.config.schema import RoundPromptConfig
from mixseek.prompt_builder.budget import fit
from mixseek.prompt_builder.formatters import UNSCORED, Detail, score_trend
from mixseek.prompt_builder.models import LeaderboardEntry, SubmissionRecord
from mixseek.prompt_builder.strategy import narrowed, with_evaluations
from mixseek.records import EvaluationResult

__all__ = ["PlainTextPromptBuilder", "build_round_prompt"]

_NO_HISTORY = "（過去のSubmissionはありません）"


class PlainTextPromptBuilder:
    """Prompts as plain text; without a configuration there is no limit to what they show."""

    def __init__(self, config: RoundPromptConfig | None = None) -> None:
        self._config = config

    def build_initial_prompt(
        self,
        user_query: str,
        team_id: str,
        metadata: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt of round 1: the task alone."""
        prompt = f"ユーザのクエリに対して、最良の回答を提供してください。\n\nクエリ:\n{user_query}"
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
            shown, teams = narrowed(records, leaderboard_ranking, team_id, detail)
            trend = score_trend([record.score for record in records]) if detail.trend else ""
            history = _history_text(shown, trend, detail)
            ranking = _ranking_text(teams, current_team_rank, team_id)
            return _continuation_text(user_query, history, ranking, current_team_rank)

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


def _continuation_text(user_query: str, history: str, ranking: str, rank: int | None) -> str:
    place = "" if rank is None else f"（{rank}位）"
    return (
        "ユーザのクエリに対して、継続的に改善した回答を提供してください。\n\n"
        f"元のクエリ:\n{user_query}\n\n"
        f"これまでのあなたのSubmission履歴と評価結果:\n{history}\n\n"
        f"チーム全体のランキング:\n{ranking}\n\n"
        "このラウンドでの改善点:\n"
        "- 前回の評価フィードバックに基づいて改善してください\n"
        f"- 自分たちの現在順位{place}を念頭に、品質向上に注力してください"
    )


def _history_text(records: Sequence[SubmissionRecord], trend: str, detail: Detail) -> str:
    rounds = [_round_text(record, detail) for record in records]
    return "\n\n".join(filter(None, [*rounds, trend])) or _NO_HISTORY


def _round_text(record: SubmissionRecord, detail: Detail) -> str:
    lines = [f"ラウンド {record.round_number}:"]
    if detail.submissions:
        lines.append(f"- Submission: {record.content}")
    lines.append(f"- スコア: {UNSCORED if record.score is None else f'{record.score:.1f}/100'}")
    if record.feedback:
        lines.append(f"- フィードバック: {record.feedback}")
    return "\n".join(lines)


def _ranking_text(teams: Sequence[LeaderboardEntry], rank: int | None, team_id: str) -> str:
    lines = ["全チーム最高スコアランキング:"]
    for entry in teams:
        mark = " ← あなたのチーム" if entry.team_id == team_id else ""
        lines.append(f"  {entry.rank}位: {entry.team_name} (スコア: {entry.best_score:.1f}/100){mark}")
    place = "まだありません" if rank is None else f"{rank}位"
    return "\n".join([*lines, "", f"あなたのチームの現在順位: {place}"])
