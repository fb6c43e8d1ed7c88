"""What a prompt strategy is: two methods from plain records to a prompt. Anyone's may take the place of ours."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from mixseek.prompt_builder.models import LeaderboardEntry, RoundPromptContext, SubmissionRecord
from mixseek.records import EvaluationResult

__all__ = ["PromptBuilder", "TeamPromptBuilder"]


@runtime_checkable
class PromptBuilder(Protocol):
    """A prompt strategy."""

    def build_initial_prompt(self, user_query: str, team_id: str, metadata: Mapping[str, Any] | None = None) -> str:
        """The prompt of round 1."""
        ...

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
        """The prompt of any later round; ``current_team_rank`` is None while the team is not on the leader board."""
        ...


class TeamPromptBuilder(Protocol):
    """What a round needs: something that makes the team's prompt from its context."""

    async def build_team_prompt(self, context: RoundPromptContext) -> str:
        """The prompt a leader is given."""
        ...
