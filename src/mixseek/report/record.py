"""All that is known of one execution, in the order in which it is told: teams by rank, each with its rounds.

It is put together from the stores, also of a run that was interrupted or goes on, and of one that an older version
kept; what is not known is None or empty.
"""

from datetime import datetime
from typing import Literal

from pydantic import JsonValue

from mixseek.amounts import counted, limit_in, number
from mixseek.errors import would_fail_again
from mixseek.records import (
    AttachmentInfo,
    ExecutionStatus,
    ExitReason,
    ImprovementJudgment,
    LostUsage,
    MemberSubmission,
    MetricScore,
    ModelUsage,
    Record,
    Usage,
    seconds_between,
)

__all__ = [
    "ExecutionLine",
    "ExecutionRecord",
    "MemberCall",
    "RoundRecord",
    "Status",
    "TeamRecord",
    "ToolsUsed",
    "has_ended",
]

Status = ExecutionStatus | Literal["interrupted", "unfinished"]
"""``interrupted``: it was stopped; ``unfinished``: nobody told of an end, since the run goes on or was killed."""


def has_ended(status: Status) -> bool:
    """Whether an execution came to its end, well or not."""
    return status not in ("interrupted", "unfinished")


class MemberCall(MemberSubmission):
    """One call of a member by its leader; without their messages, which the stores keep."""

    task: str | None = None
    """What the leader asked for; None: not kept."""
    started_at: datetime | None = None

    @property
    def seconds(self) -> float | None:
        """How long it took."""
        return None if self.execution_time_ms is None else self.execution_time_ms / 1000


class ToolsUsed(Record):
    """How the tools of one member fared in a round: its answer looks the same where none of them worked."""

    agent_name: str
    calls: int = 0
    failed: int = 0
    error: str | None = None
    """Why the last one failed that did."""

    @property
    def words(self) -> str:
        """How many there were, and how many of them failed."""
        failed = f", {number(self.failed)} failed" if self.failed else ""
        return f"{counted(self.calls, 'tool call')}{failed}"

    @property
    def whole_words(self) -> str:
        """The same with the member and the reason, in one line."""
        reason = f": {' '.join(self.error.split())}" if self.error else ""
        return f"member {self.agent_name}: {self.words}{reason}"


class RoundRecord(Record):
    """One round of a team."""

    round_number: int
    is_finished: bool = True
    """Whether it came to its end, with a score or without."""
    submission: str | None = None
    """None: the round gave no submission, or has none yet."""
    submission_format: str = "md"
    score: float | None = None
    """None: not scored; ``failure`` says why, if anything does."""
    metrics: tuple[MetricScore, ...] = ()
    flags: tuple[str, ...] = ()
    failure: str | None = None
    judgment: ImprovementJudgment | None = None
    members: tuple[MemberCall, ...] = ()
    """Every call of a member, in their order."""
    tools: tuple[ToolsUsed, ...] = ()
    """How the tools of each member fared that used any."""
    bill: tuple[ModelUsage, ...] = ()
    started_at: datetime | None = None
    ended_at: datetime | None = None
    played_seconds: float | None = None
    """How long all processes together played it; None where there was only one."""

    @property
    def seconds(self) -> float | None:
        """How long the round took, without pauses between processes."""
        if self.played_seconds is not None:
            return self.played_seconds
        if self.started_at is None or self.ended_at is None:
            return None
        return seconds_between(self.started_at, self.ended_at)


class TeamRecord(Record):
    """One team in an execution."""

    team_id: str
    team_name: str
    rank: int | None = None
    """Its place on the leader board; None: it has no scored round."""
    best_score: float | None = None
    best_round: int | None = None
    exit_reason: ExitReason | None = None
    error: str | None = None
    """Why the team failed, if it did."""
    shortage: str | None = None
    """What its budget could not pay for, if that ended it in the middle of a round."""
    usage: Usage = Usage()
    rounds: tuple[RoundRecord, ...] = ()

    @property
    def finished_rounds(self) -> int:
        """How many rounds came to their end."""
        return sum(each.is_finished for each in self.rounds)

    @property
    def latest_round(self) -> int:
        """The last round on the leader board, which decides a tie; 0: there is none."""
        return max((each.round_number for each in self.rounds if each.is_finished), default=0)

    @property
    def final(self) -> RoundRecord | None:
        """The round whose submission counts."""
        return next((each for each in self.rounds if each.round_number == self.best_round), None)


class ExecutionRecord(Record):
    """One execution."""

    execution_id: str
    user_prompt: str
    status: Status
    is_running: bool = False
    """Whether a process is known to play it at this moment."""
    started_at: datetime | None = None
    seconds: float | None = None
    was_resumed: bool = False
    """Whether more than one process played it, so that there were pauses."""
    has_unknown_pauses: bool = False
    """Whether it had pauses, or may have had some, of which only a journal that is gone could tell how long they were:
    the moments of rounds do not tell then how long these were played."""
    max_rounds: int | None = None
    teams: tuple[TeamRecord, ...] = ()
    """By rank; after them those without one, by id."""
    bill: tuple[ModelUsage, ...] = ()
    usage: Usage = Usage()
    cost_usd: float | None = None
    """None: a price is not known."""
    lost: tuple[LostUsage, ...] = ()
    """What may have been paid beyond the bill: attempts that broke off or told no usage."""
    attachments: tuple[AttachmentInfo, ...] = ()
    reference: str | None = None
    configuration: JsonValue = None
    """The settings it was played with, secrets masked; None: not kept."""
    config_file: str | None = None
    """The orchestrator file, without which no command can go on with it."""

    @property
    def ended_by_budget(self) -> bool:
        """Whether a team stopped because a round, its first one included, could not be paid for."""
        return any(
            team.exit_reason == "budget_exhausted" or (team.error is not None and limit_in(team.error) is not None)
            for team in self.teams
        )

    @property
    def can_go_on(self) -> bool:
        """Whether there is something left to play, and a file to play it by."""
        if self.status == "completed" or self.is_running or self.config_file is None:
            return False
        failures = [team.error for team in self.teams if team.error is not None]
        return not has_ended(self.status) or not failures or not all(map(would_fail_again, failures))

    @property
    def best(self) -> TeamRecord | None:
        """The winner; where nothing was scored, the first team whose submission counts all the same."""
        answered = (team for team in self.teams if team.final is not None and team.final.submission is not None)
        return next((team for team in self.teams if team.rank == 1), next(answered, None))


class ExecutionLine(Record):
    """One execution in a list of executions."""

    execution_id: str
    user_prompt: str
    status: Status
    is_running: bool = False
    started_at: datetime | None = None
    seconds: float | None = None
    total_teams: int = 0
    best_team: str | None = None
    """The winner's name."""
    best_score: float | None = None
    cost_usd: float | None = None
    names_no_file: bool = False
    """Whether it is known to have been played without an orchestrator file: no command can go on with it then."""
    lacks_end: bool = False
    """Whether it has a result and its process was killed before the journal had the end of the run."""

    @property
    def is_open(self) -> bool:
        """Whether it did not come to its end and nobody plays it."""
        return not has_ended(self.status) and not self.is_running
