"""What a prompt is built from, and the names under which the prompt strategies know their records."""

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from mixseek.records import (
    EvaluationResult,
    RankingSource,
    Record,
    RoundState,
    Standing,
    SubmissionRecord,
)
from mixseek.templating import TEMPLATE_VARIABLES

__all__ = [
    "TEMPLATE_VARIABLES",
    "EvaluationResult",
    "EvaluatorPromptContext",
    "LeaderboardEntry",
    "RoundContext",
    "RoundPromptContext",
    "SubmissionRecord",
]

LeaderboardEntry = Standing
"""The prompt strategies' name for a standing."""


def _not_empty(value: str, info: ValidationInfo) -> str:
    if not value.strip():
        raise ValueError(f"{info.field_name} cannot be empty")
    return value


NotEmpty = Annotated[str, AfterValidator(_not_empty)]


class RoundPromptContext(BaseModel):
    """All a team's or a judgment's prompt needs to know; ``store`` is where the ranking is read from, if anywhere."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    user_prompt: NotEmpty
    round_number: int
    round_history: list[RoundState]
    team_id: NotEmpty
    team_name: NotEmpty
    execution_id: NotEmpty
    store: RankingSource | None = None

    @field_validator("round_number")
    @classmethod
    def _from_one_on(cls, value: int) -> int:
        if value < 1:
            raise ValueError("round_number must be >= 1")
        return value


class EvaluatorPromptContext(BaseModel):
    """What a judge's prompt shows: the original question and the submission, not whose it is, and maybe a reference."""

    model_config = ConfigDict(frozen=True)

    user_query: NotEmpty
    submission: str
    reference: str | None = None


class RoundContext(Record):
    """What a prompt strategy is given for one round of a team."""

    round_number: int
    submission_history: list[SubmissionRecord] = Field(default_factory=list)
    evaluation_feedback: list[EvaluationResult] = Field(default_factory=list)
    leaderboard_ranking: list[LeaderboardEntry] = Field(default_factory=list)
    current_team_rank: int | None = None
