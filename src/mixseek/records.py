"""The values that pass between modules: frozen, and ignorant of databases and models.

Every record is a pydantic model, so that a record read back from JSON is checked as it enters. Usage has the field
names of pydantic-ai's ``RunUsage``, and messages are JSON values: nothing here imports pydantic-ai. The one function
that orders teams, :func:`order_standings`, stands here too, beneath everything that shows or uses a ranking.
"""

import operator
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from functools import cached_property
from hashlib import sha256
from math import fsum, isfinite, nan
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, Self, runtime_checkable
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, JsonValue, computed_field, model_validator

__all__ = [
    "LAST",
    "AgentType",
    "Attachment",
    "AttachmentInfo",
    "EvaluationRequest",
    "EvaluationResult",
    "ExecutionStatus",
    "ExecutionSummary",
    "ExitReason",
    "FailedTeamInfo",
    "ImprovementJudgment",
    "LeaderBoardEntry",
    "LostUsage",
    "MemberAgentResult",
    "MemberSubmission",
    "MemberSubmissionsRecord",
    "MetricScore",
    "ModelUsage",
    "OrchestratorTask",
    "RankingSource",
    "Record",
    "ResultStatus",
    "RoundResult",
    "RoundState",
    "Standing",
    "SubmissionRecord",
    "TeamStatus",
    "Usage",
    "cost_of",
    "known_cost",
    "order_standings",
    "seconds_between",
    "standing_key",
    "utc_now",
]

ExitReason = Literal[
    "max_rounds_reached",
    "no_improvement_expected",
    "partial_failure",
    "partial_failure_timeout",
    "target_score_reached",
    "score_plateau",
    "budget_exhausted",
    "taken_out",
]
ExecutionStatus = Literal["completed", "partial_failure", "failed"]
ModelRole = Literal["leader", "member", "evaluator", "judgment"]

LAST = "last"
"""What stands for the id of the execution that was started last."""


def utc_now() -> datetime:
    """The present moment; time is UTC everywhere inside, only the prompt's clock follows ``TZ``."""
    return datetime.now(UTC)


def seconds_between(started_at: datetime, ended_at: datetime) -> float:
    """How long it took; nothing when the clock was set back meanwhile."""
    return max(0.0, (ended_at - started_at).total_seconds())


class Record(BaseModel):
    """A frozen value. A template may read its fields and the properties in ``template_properties``, nothing else."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    template_properties: ClassVar[frozenset[str]] = frozenset()


# --- what a round is made of ----------------------------------------------------------------------------------------


class Usage(Record):
    """What model calls consumed, with the field names of pydantic-ai's ``RunUsage``."""

    requests: int = 0
    tool_calls: int = 0
    input_tokens: int = 0
    cache_write_tokens: int = 0
    cache_read_tokens: int = 0
    output_tokens: int = 0
    input_audio_tokens: int = 0
    cache_audio_read_tokens: int = 0
    output_audio_tokens: int = 0
    details: dict[str, int] = {}

    @property
    def total_tokens(self) -> int:
        """Tokens in and out."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: "Usage") -> "Usage":
        sums = {name: getattr(self, name) + getattr(other, name) for name in Usage.model_fields if name != "details"}
        keys = self.details.keys() | other.details.keys()
        details = {key: self.details.get(key, 0) + other.details.get(key, 0) for key in keys}
        return Usage(**sums, details=details)


class LostUsage(Record):
    """Attempts of one agent of which nobody knows what they cost: cut off, timed out, cancelled, killed.

    Under a budget with what was set aside for them. Where it limits money or tokens that is the most they cost; where
    it limits requests alone, no model is told how long its answer may be, and it may be more.
    """

    execution_id: str
    team_id: str
    round_number: int
    role: ModelRole
    agent_name: str
    model: str
    attempts: int = 0
    tokens: int | None = None
    """None where nothing was set aside for one of them."""
    cost_usd: float | None = None
    """None where the price is not known, or nothing was set aside."""

    def plus(self, other: "LostUsage") -> "LostUsage":
        """Both lines as one, which keeps the names of the first."""
        tokens, costs = (self.tokens, other.tokens), (self.cost_usd, other.cost_usd)
        return self.model_copy(
            update={
                "attempts": self.attempts + other.attempts,
                "tokens": None if None in tokens else sum(count for count in tokens if count is not None),
                "cost_usd": None if None in costs else sum(cost for cost in costs if cost is not None),
            }
        )


class ModelUsage(Record):
    """One line of the bill: what one agent of one team used of one model in one round."""

    execution_id: str
    team_id: str
    round_number: int = Field(ge=1)
    role: ModelRole
    agent_name: str
    model: str
    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    """None where the price is not known; never taken for zero."""
    known_usd: float = Field(default=0.0, exclude_if=operator.not_)
    """What is known of a cost that is not known in whole, as where one of several calls told no usage.

    The table of bills has no column for it: who reads one adds it by the calls in the journal.
    """

    @property
    def least_usd(self) -> float:
        """Its cost as far as it is known."""
        return self.known_usd if self.cost_usd is None else self.cost_usd

    def plus(self, other: "ModelUsage") -> "ModelUsage":
        """Both lines as one, which keeps the names of the first; its cost is known if both are."""
        unknown = self.cost_usd is None or other.cost_usd is None
        return self.model_copy(
            update={
                "requests": self.requests + other.requests,
                "input_tokens": self.input_tokens + other.input_tokens,
                "output_tokens": self.output_tokens + other.output_tokens,
                "cost_usd": None if unknown else (self.cost_usd or 0.0) + (other.cost_usd or 0.0),
                "known_usd": self.least_usd + other.least_usd if unknown else 0.0,
            }
        )


def cost_of(bill: Sequence[ModelUsage]) -> float | None:
    """The sum, or None where any price is not known: a part of the bill must not pass for the whole."""
    costs = [line.cost_usd for line in bill]
    # Whoever reads the bill later has it in another order: the sum must not depend on it.
    return None if None in costs else fsum(cost for cost in costs if cost is not None)


def known_cost(bill: Sequence[ModelUsage]) -> float:
    """The sum as far as it is known."""
    return fsum(line.least_usd for line in bill)


class ImprovementJudgment(Record):
    """Whether another round is worth its money, and why."""

    should_continue: bool
    reasoning: str
    confidence_score: float = Field(ge=0, le=1)


class RoundState(Record):
    """One round of a team, finished or failed."""

    round_number: int = Field(ge=1)
    submission_content: str
    evaluation_score: FiniteFloat | None
    """0 to 100; None when the round could not be scored, which is not a zero."""
    score_details: dict[str, JsonValue] = {}
    evaluation_feedback: str = ""
    improvement_judgment: ImprovementJudgment | None = None
    round_started_at: datetime
    round_ended_at: datetime
    message_history: list[JsonValue] = []


class SubmissionRecord(Record):
    """One past submission of a team, as the prompt strategies see it."""

    round_number: int = Field(ge=1)
    content: str
    score: float | None
    feedback: str = ""


# --- evaluation -----------------------------------------------------------------------------------------------------


class EvaluationRequest(Record):
    """What an evaluator is asked: the original question and the submission, and whose they are."""

    user_query: str
    submission: str
    execution_id: str | None = None
    team_id: str | None = None
    round_number: int | None = None
    reference: str | None = None
    """A reference answer, for the metrics and judges that ask for it."""


class MetricScore(Record):
    """What one metric says of a submission."""

    metric_name: str
    score: float
    evaluator_comment: str = ""

    @classmethod
    def read_back(cls, kept: dict[str, JsonValue]) -> Self | None:
        """The metric ``kept`` tells of, or None if it tells of none; JSON has no NaN and keeps null in its place."""
        score = kept.get("score")
        if isinstance(score, bool) or not isinstance(score, int | float | None) or "metric_name" not in kept:
            return None
        comment = kept.get("evaluator_comment") or ""
        number = nan if score is None else float(score)
        return cls(metric_name=str(kept["metric_name"]), score=number, evaluator_comment=str(comment))


class EvaluationResult(Record):
    """All metrics of one submission and their weighted mean; ``overall_score`` is None when it could not be scored."""

    template_properties = frozenset({"feedback_summary"})

    metrics: list[MetricScore]
    overall_score: float | None
    flags: list[str] = []
    """What is odd about the submission; no flag changes a score."""

    def to_score_details(self) -> dict[str, JsonValue]:
        """What a leader board row keeps of it, and what the team is shown; flags only where there are any."""
        metrics: list[JsonValue] = [
            {**metric.model_dump(), "score": metric.score if isfinite(metric.score) else None}
            for metric in self.metrics
        ]
        flags: dict[str, JsonValue] = {"flags": list(self.flags)} if self.flags else {}
        return {"overall_score": self.overall_score, "metrics": metrics, **flags}

    @classmethod
    def from_score_details(cls, details: dict[str, JsonValue], overall_score: float | None) -> Self:
        """Read back what a leader board row keeps; in details of another shape, every number counts as a metric."""
        kept = details.get("metrics")
        if not isinstance(kept, list):
            kept = [{"metric_name": name, "score": value} for name, value in details.items() if name != "overall_score"]
        metrics = [MetricScore.read_back(metric) for metric in kept if isinstance(metric, dict)]
        flags = details.get("flags")
        return cls(
            metrics=[metric for metric in metrics if metric],
            overall_score=overall_score,
            flags=[str(flag) for flag in flags] if isinstance(flags, list) else [],
        )

    @property
    def feedback_summary(self) -> str:
        """The metrics' comments in one line."""
        return " / ".join(f"{m.metric_name}: {m.evaluator_comment}" for m in self.metrics if m.evaluator_comment)


# --- members --------------------------------------------------------------------------------------------------------


class AgentType(StrEnum):
    """The built-in kinds of members; plugins register more under other names."""

    PLAIN = "plain"
    WEB_SEARCH = "web_search"
    WEB_FETCH = "web_fetch"
    CODE_EXECUTION = "code_execution"
    CUSTOM = "custom"


class ResultStatus(StrEnum):
    """How a member's work ended."""

    SUCCESS = "success"
    ERROR = "error"
    WARNING = "warning"


class MemberAgentResult(Record):
    """What a member gives back for one task. ``usage_info`` and ``all_messages`` may be pydantic-ai's own objects."""

    status: ResultStatus
    content: str
    agent_name: str
    agent_type: str
    timestamp: datetime = Field(default_factory=utc_now)
    execution_time_ms: float | None = None
    usage_info: Any = None
    error_message: str | None = None
    error_code: str | None = None
    warning_message: str | None = None
    retry_count: int = 0
    max_retries_exceeded: bool = False
    metadata: dict[str, Any] = {}
    all_messages: list[Any] | None = None

    # ``success`` and ``error`` are the names existing members call; pydantic has no fields of these names.
    @classmethod
    def success(cls, content: str, agent_name: str, agent_type: str, **more: Any) -> Self:
        """A result that can be used."""
        return cls(
            status=ResultStatus.SUCCESS, content=content, agent_name=agent_name, agent_type=str(agent_type), **more
        )

    @classmethod
    def error(cls, error_message: str, agent_name: str, agent_type: str, **more: Any) -> Self:
        """A failure, told in words; it reaches the leader as text and the record as it is."""
        fields: dict[str, Any] = {"content": "", **more}
        return cls(
            status=ResultStatus.ERROR,
            error_message=error_message,
            agent_name=agent_name,
            agent_type=str(agent_type),
            **fields,
        )


class MemberSubmission(Record):
    """One call of a member by its leader, as it is kept with the round."""

    agent_name: str
    agent_type: str
    content: str
    status: Literal["SUCCESS", "ERROR", "WARNING"]
    error_message: str | None = None
    usage: Usage = Usage()
    timestamp: datetime = Field(default_factory=utc_now)
    execution_time_ms: float | None = None
    all_messages: list[JsonValue] | None = None


class MemberSubmissionsRecord(Record):
    """All members' work in one round of a team."""

    execution_id: str
    team_id: str
    team_name: str
    round_number: int = Field(ge=1)
    submissions: list[MemberSubmission] = []

    @property
    def successful_submissions(self) -> list[MemberSubmission]:
        """Those that can be used, warnings included."""
        return [submission for submission in self.submissions if submission.status != "ERROR"]

    @property
    def failed_submissions(self) -> list[MemberSubmission]:
        """Those that ended in an error."""
        return [submission for submission in self.submissions if submission.status == "ERROR"]

    @property
    def total_count(self) -> int:
        """How many calls there were."""
        return len(self.submissions)

    @property
    def success_count(self) -> int:
        """How many of them can be used."""
        return len(self.successful_submissions)

    @property
    def failure_count(self) -> int:
        """How many of them failed."""
        return len(self.failed_submissions)

    @property
    def total_usage(self) -> Usage:
        """What all of them consumed together."""
        return sum((submission.usage for submission in self.submissions), start=Usage())


# --- the leader board -----------------------------------------------------------------------------------------------


class LeaderBoardEntry(Record):
    """One round of one team on the leader board."""

    id: int | None = Field(default=None, exclude_if=lambda number: number is None)
    execution_id: str
    team_id: str
    team_name: str
    round_number: int = Field(ge=1)
    submission_content: str
    submission_format: str = "md"
    score: FiniteFloat | None
    score_details: dict[str, JsonValue] = {}
    final_submission: bool = False
    exit_reason: ExitReason | None = None
    created_at: datetime = Field(default_factory=utc_now)
    updated_at: datetime = Field(default_factory=utc_now)


class Standing(Record):
    """A team's place in one execution."""

    rank: int = Field(default=1, ge=1)
    team_id: str
    team_name: str
    best_score: float
    latest_round: int
    total_rounds: int


def standing_key(best_score: float, latest_round: int, team_id: str) -> tuple[float, int, str]:
    """What :func:`order_standings` sorts by, for whoever has no standings but rows."""
    return (-best_score, -latest_round, team_id)


def order_standings(standings: Iterable[Standing]) -> list[Standing]:
    """The one order of teams: best score, then the later round, then the team's id; ranks are numbered anew.

    >>> a, b = (Standing(team_id=t, team_name=t, best_score=80, latest_round=2, total_rounds=2) for t in "ab")
    >>> [(s.rank, s.team_id) for s in order_standings([b, a])]
    [(1, 'a'), (2, 'b')]
    """
    ordered = sorted(standings, key=lambda s: standing_key(s.best_score, s.latest_round, s.team_id))
    return [standing.model_copy(update={"rank": rank}) for rank, standing in enumerate(ordered, 1)]


@runtime_checkable
class RankingSource(Protocol):
    """Anything that knows the leader board of an execution: the store, or a run that keeps none."""

    async def get_leader_board_ranking(self, execution_id: str) -> Sequence[dict[str, Any]]:
        """Teams in order, each ``{"team_id", "team_name", "max_score", "total_rounds"}``."""
        ...


# --- a run ----------------------------------------------------------------------------------------------------------


_TEXTS = re.compile(
    r"text/.+|.+\+(?:json|xml|yaml)"
    r"|application/(?:json|xml|yaml|x-yaml|toml|javascript|x-javascript|sql|x-sh|x-python|x-ndjson|ld\+json)"
)


class AttachmentInfo(Record):
    """What stores and events tell of an attachment; its content is kept by the hash."""

    name: str
    media_type: str
    size: int
    sha256: str


class Attachment(Record):
    """A file that comes with a task: what the leaders see, as far as their models can."""

    name: str = Field(min_length=1)
    media_type: str = Field(min_length=1)
    data: bytes = Field(repr=False)

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return len(self.data)

    @cached_property
    def sha256(self) -> str:
        """The hash of its content, by which it is kept."""
        return sha256(self.data).hexdigest()

    @property
    def is_text(self) -> bool:
        """Whether its type says that it is one to be read."""
        return _TEXTS.fullmatch(self.media_type.partition(";")[0].strip().lower()) is not None

    @property
    def info(self) -> AttachmentInfo:
        """All that is told of it."""
        return AttachmentInfo(name=self.name, media_type=self.media_type, size=self.size, sha256=self.sha256)

    def decoded(self) -> str | None:
        """Its content as text, without a byte order mark; None if it is none."""
        try:
            text = self.data.decode("utf-8-sig")
        except UnicodeDecodeError:
            return None
        return None if "\0" in text else text


class OrchestratorTask(Record):
    """One task for all teams, with the limits they play under."""

    execution_id: str = Field(default_factory=lambda: str(uuid4()))
    user_prompt: str
    team_configs: list[Path] = Field(min_length=1)
    created_at: datetime = Field(default_factory=utc_now)
    timeout_seconds: int = Field(gt=0)
    max_rounds: int = Field(default=5, ge=1, le=10)
    min_rounds: int = Field(default=2, ge=1)
    submission_timeout_seconds: int = Field(default=300, gt=0)
    judgment_timeout_seconds: int = Field(default=60, gt=0)
    attachments: tuple[Attachment, ...] = Field(default=(), repr=False, exclude=True)
    """What comes with the task; the orchestrator reads and checks it."""
    reference: str | None = None
    """A reference answer, for metrics and judges alone: no team is shown it."""

    @model_validator(mode="before")
    @classmethod
    def _min_rounds_follow_max_rounds(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("min_rounds") is None and isinstance(data.get("max_rounds", 5), int):
            return {**data, "min_rounds": min(2, data.get("max_rounds", 5))}
        return data

    @model_validator(mode="after")
    def _min_rounds_within_max_rounds(self) -> Self:
        if self.min_rounds > self.max_rounds:
            raise ValueError(f"min_rounds ({self.min_rounds}) must be <= max_rounds ({self.max_rounds})")
        return self


class TeamStatus(Record):
    """Where a team stands in a run."""

    team_id: str
    team_name: str
    status: Literal["pending", "running", "completed", "failed", "timeout", "interrupted"] = "pending"
    current_round: int = 0
    started_at: datetime | None = None
    completed_at: datetime | None = None
    error_message: str | None = None


class RoundResult(Record):
    """The best round of a team, with what the team consumed."""

    execution_id: str
    team_id: str
    team_name: str
    round_number: int = Field(ge=1)
    submission_content: str
    evaluation_score: float | None
    evaluation_feedback: str = ""
    usage: Usage = Usage()
    execution_time_seconds: float
    completed_at: datetime = Field(default_factory=utc_now)


class FailedTeamInfo(Record):
    """A team that failed, and why."""

    team_id: str
    team_name: str
    error_message: str


class ExecutionSummary(Record):
    """The outcome of an execution. A team that failed after a finished round is among results and failures: partial."""

    execution_id: str
    user_prompt: str
    team_results: list[LeaderBoardEntry]
    best_team_id: str | None = None
    best_score: float | None = None
    total_execution_time_seconds: float
    failed_teams_info: list[FailedTeamInfo] = []
    created_at: datetime = Field(default_factory=utc_now)
    usage: Usage = Usage()
    cost_usd: float | None = None
    bill: list[ModelUsage] = []
    lost: list[LostUsage] = []
    """What may have been paid beyond the bill: attempts that broke off or told no usage."""
    interrupted: bool = False
    """Whether it was stopped: then teams that had not ended are among the failures, with their best round so far."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def total_teams(self) -> int:
        """How many teams took part."""
        return len(self._with_result | self._failed)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def completed_teams(self) -> int:
        """How many teams have a result, partial ones included."""
        return len(self._with_result)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def failed_teams(self) -> int:
        """How many teams failed, partial ones included."""
        return len(self._failed)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def partial_team_ids(self) -> list[str]:
        """Teams that failed but have a finished round."""
        return sorted(self._with_result & self._failed)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def partial_teams(self) -> int:
        """How many such teams there are."""
        return len(self.partial_team_ids)

    @property
    def status(self) -> ExecutionStatus:
        """How it went, in a word; for one that came to its end."""
        if not self.team_results:
            return "failed"
        return "partial_failure" if self.failed_teams_info else "completed"

    @property
    def _with_result(self) -> set[str]:
        return {entry.team_id for entry in self.team_results}

    @property
    def _failed(self) -> set[str]:
        return {team.team_id for team in self.failed_teams_info}
