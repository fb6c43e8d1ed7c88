"""What happens in a run, as frozen values, and the bus that hands them to whoever listens.

Events are the only way the command line, the page and the logs learn of progress. Those of one team come in the order
they happened. A listener is called at once on the event loop, so it must be quick; what it raises is logged and stops
nothing.
"""

import logging
from collections.abc import Callable
from datetime import datetime
from typing import ClassVar

from pydantic import Field, JsonValue, SkipValidation
from pydantic_core import PydanticSerializationError

from mixseek.amounts import limit_words
from mixseek.records import (
    AttachmentInfo,
    ExecutionSummary,
    ExitReason,
    ImprovementJudgment,
    LeaderBoardEntry,
    MemberSubmission,
    MemberSubmissionsRecord,
    MetricScore,
    ModelUsage,
    Record,
    RoundState,
    utc_now,
)
from mixseek.redaction import MadeJson

__all__ = [
    "AttachmentsKept",
    "BudgetLow",
    "Event",
    "EventBus",
    "HistoryKept",
    "Listener",
    "MemberCalled",
    "MemberFinished",
    "ModelCalled",
    "RoundFailed",
    "RoundFinished",
    "RoundJudged",
    "RoundStarted",
    "RunFinished",
    "RunInterrupted",
    "RunResumed",
    "RunStarted",
    "SubmissionEvaluated",
    "SubmissionMade",
    "SubmissionUnscored",
    "TeamFailed",
    "TeamFinished",
    "TeamStarted",
    "ToolCalled",
    "ToolFinished",
]

logger = logging.getLogger(__name__)


class Event(Record):
    """Something that happened in an execution; ``team_id`` is None for what concerns all teams."""

    execution_id: str
    team_id: str | None = None
    at: datetime = Field(default_factory=utc_now)

    @property
    def kind(self) -> str:
        """The name of what happened."""
        return type(self).__name__

    _beside: ClassVar[dict[str, bool | set[str]]] = {"execution_id": True, "team_id": True, "at": True}
    """What is no part of the payload."""
    _holds_long_texts: ClassVar = False
    """Whether it holds texts that live on: the quick way to JSON leaves each text a second copy, in UTF-8."""

    def payload(self) -> dict[str, JsonValue]:
        """All that this kind of event adds, as JSON."""
        return self.model_dump(mode="json", exclude=self._beside)

    def kept_payload(self) -> dict[str, JsonValue] | MadeJson:
        """The payload for a journal: written as JSON already where that is quick, and UTF-8 can hold it."""
        if self._holds_long_texts:
            return self.payload()
        try:
            return MadeJson(self.model_dump_json(exclude=self._beside).encode())
        except PydanticSerializationError:
            return self.payload()


class RunStarted(Event):
    """A run begins."""

    user_prompt: str
    team_names: dict[str, str]
    max_rounds: int
    attachments: tuple[AttachmentInfo, ...] = ()
    reference: str | None = None
    configuration: JsonValue = None
    """The settings in effect, secrets masked."""
    fingerprint: dict[str, str] = Field(default_factory=dict)
    """A hash of each part of what the run depends on; one that is resumed has to depend on the same."""
    config_file: str | None = None
    """The orchestrator file; None for settings that were made in Python."""
    overrides: dict[str, JsonValue] = Field(default_factory=dict)
    """Settings of the orchestrator file that were given beside it, on the command line for example."""
    timeout_seconds: int | None = None
    """The time of each team, where it was given with the task."""
    has_own_reference: bool = False
    """Whether the reference answer was given with the task, and not by the settings."""


class RunResumed(RunStarted):
    """A run goes on in another process, or after its end with the teams that had failed."""

    scores: dict[str, dict[int, float | None]] = Field(default_factory=dict)
    """For each team the scores of its finished rounds by their number; None: unscored."""
    finished: tuple[str, ...] = ()
    """The teams that are done; the others go on."""
    reopened: tuple[str, ...] = ()
    """The teams that a budget had ended and that go on with another one."""


class RunFinished(Event):
    """A run is over; the summary is whole."""

    summary: ExecutionSummary

    _holds_long_texts: ClassVar = True


class RunInterrupted(Event):
    """A run was stopped; the summary holds what there was."""

    summary: ExecutionSummary

    _holds_long_texts: ClassVar = True


class TeamStarted(Event):
    """A team begins, or begins again after a failure."""

    team_name: str
    attempt: int = 1
    """The how-many-eth try of the team in the whole execution, whoever played it."""
    retry: int = 0
    """The how-many-eth of the retries that ``max_retries_per_team`` allows; one that failed and is resumed has all of
    them again. 0: it begins or goes on."""


class TeamFinished(Event):
    """A team is done; ``best`` is its final submission.

    Where a budget ended it in the middle of a round, ``reason`` says what was short, and ``usage`` is the bill of all
    rounds.
    """

    team_name: str
    best: LeaderBoardEntry
    reason: str | None = None
    usage: list[ModelUsage] = Field(default_factory=list)

    @property
    def words(self) -> str:
        """Why it ended, for people."""
        return str(self.best.exit_reason) if self.reason is None else f"{self.best.exit_reason}: {self.reason}"


class TeamFailed(Event):
    """A team cannot go on; ``best`` is its best finished round, if there is one, ``usage`` the bill of all rounds."""

    team_name: str
    reason: str
    best: LeaderBoardEntry | None = None
    usage: list[ModelUsage] = Field(default_factory=list)


class RoundStarted(Event):
    """A team has its prompt; the journal keeps that by itself."""

    round_number: int
    prompt: str

    _beside: ClassVar = Event._beside | {"prompt": True}


class MemberCalled(Event):
    """A leader hands a task to a member."""

    round_number: int
    agent_name: str
    task: str


class MemberFinished(Event):
    """A member is done, well or not; the journal keeps its messages with what the member gave its leader."""

    round_number: int
    submission: MemberSubmission

    _beside: ClassVar = Event._beside | {"submission": {"all_messages"}}
    _holds_long_texts: ClassVar = True


class ToolCalled(Event):
    """A member uses a tool."""

    round_number: int
    agent_name: str
    tool: str
    call_id: str
    arguments: JsonValue


class ToolFinished(Event):
    """A member's tool is done; ``error`` says why it failed. What it gave is in the journal."""

    round_number: int
    agent_name: str
    tool: str
    call_id: str
    seconds: float
    error: str | None = None


class AttachmentsKept(Event):
    """What came with the task of a team that plays by itself; a competition tells it with ``RunStarted``."""

    attachments: tuple[AttachmentInfo, ...]


class SubmissionMade(Event):
    """A leader gave its answer."""

    round_number: int
    submission_content: str
    round_started_at: datetime | None = None

    _holds_long_texts: ClassVar = True


class HistoryKept(Event):
    """What a round was made of, as it is stored: the members' work, and all messages between leader and members."""

    record: MemberSubmissionsRecord
    message_history: SkipValidation[list[JsonValue]]

    _holds_long_texts: ClassVar = True


class SubmissionEvaluated(Event):
    """A submission was scored, or could not be."""

    round_number: int
    score: float | None
    metrics: list[MetricScore]
    flags: list[str] = Field(default_factory=list)


_WITHOUT_MESSAGES = Event._beside | {"state": {"message_history"}}
""":class:`HistoryKept` has them."""


class RoundFinished(Event):
    """A round is over and on the leader board."""

    state: RoundState
    entry: LeaderBoardEntry
    usage: list[ModelUsage]

    _beside: ClassVar = _WITHOUT_MESSAGES
    _holds_long_texts: ClassVar = True


class RoundFailed(Event):
    """A round gave no submission; the team may go on."""

    state: RoundState
    entry: LeaderBoardEntry
    reason: str
    usage: list[ModelUsage]

    _beside: ClassVar = _WITHOUT_MESSAGES
    _holds_long_texts: ClassVar = True


class SubmissionUnscored(Event):
    """A submission could not be scored: it is on the leader board without a score, and the team's try ends."""

    state: RoundState
    entry: LeaderBoardEntry
    reason: str
    usage: list[ModelUsage]
    known: list[MetricScore] = Field(default_factory=list)
    """What metrics said of it all the same; they are not asked again."""

    _beside: ClassVar = _WITHOUT_MESSAGES
    _holds_long_texts: ClassVar = True


class RoundJudged(Event):
    """What was thought of another round, and, if the team stops, why; after the last round it stops in any case."""

    round_number: int
    judgment: ImprovementJudgment
    exit_reason: ExitReason | None = None
    usage: list[ModelUsage]

    @property
    def is_of_last_round(self) -> bool:
        """Whether the team stops since there are no more rounds, whatever was thought of this one."""
        return self.exit_reason == "max_rounds_reached"

    @property
    def words(self) -> str:
        """Whether the team goes on, for people."""
        verdict = "goes on" if self.exit_reason is None else f"stops ({self.exit_reason})"
        return f"{verdict} after round {self.round_number}{', the last one' if self.is_of_last_round else ''}"

    @property
    def reason(self) -> str:
        """What was thought of the round; after the last one with the verdict, which then decided nothing."""
        if not self.is_of_last_round:
            return self.judgment.reasoning
        return f"judgment: {'go on' if self.judgment.should_continue else 'stop'}, {self.judgment.reasoning}"


class ModelCalled(Event):
    """A model answered, or failed for good; what it cost."""

    round_number: int
    role: str
    agent_name: str
    model: str
    seconds: float
    attempts: int
    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    error: str | None = None


class BudgetLow(Event):
    """Four fifths of a budget are used: the run's, or that of the team."""

    limit: str
    """Which one: ``max_cost_usd``, ``max_tokens``, ``max_requests`` or ``max_seconds``."""
    used: float
    allowed: float

    @property
    def words(self) -> str:
        """How far it is used, for people."""
        whose = "the run's budget" if self.team_id is None else "its budget"
        how_much = limit_words(self.limit, self.allowed, self.used)
        return f"{100 * self.used / self.allowed:.0f} % of {whose} is used: {how_much}"


Listener = Callable[[Event], None]


class EventBus:
    """Hands each event to every listener."""

    def __init__(self, *listeners: Listener) -> None:
        self._listeners = list(listeners)

    def subscribe(self, listener: Listener) -> None:
        """Let ``listener`` hear all that follows."""
        self._listeners.append(listener)

    def emit(self, event: Event) -> None:
        """Tell everyone."""
        for listener in self._listeners:
            try:
                listener(event)
            except KeyboardInterrupt:
                raise
            except BaseException:  # a listener shows a run and must never be able to end it
                logger.exception("a listener failed on %s", event.kind)
