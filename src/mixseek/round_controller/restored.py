"""What the journal has of an execution, as the values a run goes on from.

The journal alone is the truth here: ``mixseek.db`` is written again with equal rows. Few statements read it, however
many teams there are, and none of them reads what models were asked or answered; answers are looked up by their keys
when a round is played again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Self

from pydantic import JsonValue, TypeAdapter

from mixseek.events import HistoryKept, RoundJudged, RunStarted
from mixseek.records import (
    ExitReason,
    LeaderBoardEntry,
    MemberSubmission,
    MetricScore,
    ModelUsage,
    RoundState,
    Usage,
)
from mixseek.storage.beginning import BEGINNINGS, beginning_in
from mixseek.storage.journal import Journal, JournalEvent

__all__ = ["RestoredRound", "RestoredRun", "RestoredSubmission", "RestoredTeam", "restore_run"]

_RAN_OUT: ExitReason = "budget_exhausted"
_TAKEN_OUT: ExitReason = "taken_out"


@dataclass(frozen=True)
class RestoredRound:
    """A finished round, and what was decided after it, if anything was."""

    state: RoundState
    entry: LeaderBoardEntry
    usage: tuple[ModelUsage, ...]
    verdict: RoundJudged | None = None


@dataclass(frozen=True)
class RestoredSubmission:
    """A submission that was made and not scored."""

    round_number: int
    content: str
    started_at: datetime
    history: HistoryKept | None = None
    known: tuple[MetricScore, ...] = ()
    """What metrics said of it before others failed."""

    @property
    def members(self) -> list[MemberSubmission]:
        """What its members did."""
        return self.history.record.submissions if self.history else []

    @property
    def messages(self) -> list[JsonValue]:
        """What leader and members said."""
        return self.history.message_history if self.history else []


@dataclass(frozen=True)
class RestoredTeam:
    """How far one team came."""

    attempt: int = 1
    first_attempt: int = 1
    """Where its retries are counted from: a team that failed for good has all of them again."""
    rounds: tuple[RestoredRound, ...] = ()
    submission: RestoredSubmission | None = None
    unfinished: HistoryKept | None = None
    """What leader and members said in a round that did not end."""
    best: LeaderBoardEntry | None = None
    """The final submission of a team that finished; None: it goes on."""

    @property
    def ran_out(self) -> bool:
        """Whether it finished because its budget could not pay for more."""
        return self.best is not None and self.best.exit_reason == _RAN_OUT

    def with_more_to_spend(self) -> Self:
        """The team as it goes on where its budget ended it; any other as it is."""
        if not self.ran_out:
            return self
        undecided = [replace(one, verdict=None) if _ended_by_budget(one.verdict) else one for one in self.rounds]
        return replace(self, best=None, rounds=tuple(undecided))

    def without_scores(self, metrics: frozenset[str]) -> Self:
        """The team as it goes on where these metrics have to score its submission anew."""
        if self.submission is None:
            return self
        known = tuple(score for score in self.submission.known if score.metric_name not in metrics)
        return replace(self, submission=replace(self.submission, known=known))

    @property
    def entries(self) -> list[LeaderBoardEntry]:
        """Its rounds as they are on the leader board."""
        return [finished.entry for finished in self.rounds]

    @property
    def scores(self) -> dict[int, float | None]:
        """The scores of its rounds by their number; None: unscored."""
        return {entry.round_number: entry.score for entry in self.entries}


@dataclass(frozen=True)
class RestoredRun:
    """How far an execution came, and what it took."""

    started: RunStarted
    """As it was begun, or resumed the last time."""
    teams: Mapping[str, RestoredTeam]
    """All that ever played it, also those that were taken out when it was resumed before."""
    is_over: bool
    """Whether it came to an end; then only teams that failed may go on."""
    seconds: float
    """How long processes played it."""
    bill: tuple[ModelUsage, ...]
    usage: Usage
    tool_calls: Mapping[str, int]
    sequences: Mapping[str | None, int]
    """The last sequence number of each team's events, and under None of the run's own."""

    @property
    def is_whole(self) -> bool:
        """Whether nothing is left to be played, or not without a larger budget."""
        return self.is_over and all(team.best is not None for team in self._still_in)

    @property
    def ran_out(self) -> bool:
        """Whether a larger budget would let a team go on."""
        return any(team.ran_out for team in self._still_in)

    @property
    def _still_in(self) -> list[RestoredTeam]:
        return [team for team_id, team in self.teams.items() if team_id in self.started.team_names]


async def restore_run(journal: Journal, execution_id: str) -> RestoredRun | None:
    """How far the execution came; None if the journal does not know it."""
    events, damaged = await journal.whole_events(execution_id, kinds=_KINDS)
    started = beginning_in(events)
    if started is None:
        return None
    latest = map(_history_in, await journal.latest_events(execution_id, "HistoryKept"))
    histories = {history.team_id: history for history in latest if history.team_id not in damaged}
    by_team = _by_team(events)
    teams = {team_id: _team(own, histories.get(team_id)) for team_id, own in by_team.items()}
    return RestoredRun(
        started=started,
        teams=teams,
        is_over=[event.kind for event in events if event.kind in (*BEGINNINGS, "RunFinished")][-1] == "RunFinished",
        seconds=(await journal.played_seconds(execution_id)).get(None, 0.0),
        bill=tuple(await journal.bill(execution_id)),
        usage=await journal.usage(execution_id),
        tool_calls=await journal.tool_calls(execution_id),
        sequences=await journal.last_sequences(execution_id),
    )


_KINDS = (
    *BEGINNINGS,
    "RunFinished",
    "TeamStarted",
    "TeamFinished",
    "TeamFailed",
    "SubmissionMade",
    "SubmissionUnscored",
    "RoundFinished",
    "RoundFailed",
    "RoundJudged",
)


def _told(event: JournalEvent) -> dict[str, Any]:
    return event.payload if isinstance(event.payload, dict) else {}


def _by_team(events: Sequence[JournalEvent]) -> dict[str, list[JournalEvent]]:
    """The events of each team, in order, among them those with which it was given more to spend."""
    begun = [_told(event) for event in events if event.kind in BEGINNINGS]
    by_team: dict[str, list[JournalEvent]] = {team_id: [] for told in begun for team_id in told.get("team_names", ())}
    for event in events:
        concerned = [event.team_id] if event.kind != "RunResumed" else _told(event).get("reopened", ())
        for team_id in concerned:
            if team_id in by_team:
                by_team[team_id].append(event)
    return by_team


# --- one team ---------------------------------------------------------------------------------------------------------


@dataclass
class _Known:
    """What the events of a team told so far."""

    attempt: int = 1
    first_attempt: int = 1
    rounds: dict[int, RestoredRound] = field(default_factory=dict)
    verdicts: dict[int, RoundJudged] = field(default_factory=dict)
    """What was decided after each round; a later word on the same round holds."""
    made: JournalEvent | None = None
    known: tuple[MetricScore, ...] = ()
    """What metrics said of what was made last."""
    end: JournalEvent | None = None
    """How it finished; None: it goes on."""

    def hear(self, event: JournalEvent) -> None:
        told = _told(event)
        match event.kind:
            case "TeamStarted":
                self.attempt, self.end = int(told["attempt"]), None
            case "SubmissionMade":
                self.made, self.known = event, ()
            case "SubmissionUnscored":
                self.known = tuple(map(MetricScore.model_validate, told.get("known", ())))
            case "RoundFinished" | "RoundFailed":
                finished = _round(told)
                self.rounds[finished.state.round_number] = finished
            case "RoundJudged":
                judged = RoundJudged.model_validate(_whole(event))
                self.verdicts[judged.round_number] = judged
            case "TeamFinished":
                # Where a team that was taken out is there again, it goes on.
                self.end = None if told["best"]["exit_reason"] == _TAKEN_OUT else event
            case "TeamFailed":
                self.first_attempt, self.end = self.attempt, None
            case "RunResumed":
                self.end = None
                self.verdicts = {
                    number: judged for number, judged in self.verdicts.items() if not _ended_by_budget(judged)
                }


def _ended_by_budget(verdict: RoundJudged | None) -> bool:
    return verdict is not None and verdict.exit_reason == _RAN_OUT


def _team(events: Sequence[JournalEvent], history: HistoryKept | None) -> RestoredTeam:
    known = _Known()
    for event in events:
        known.hear(event)
    best = None if known.end is None else _told(known.end)["best"]
    rounds = [_judged(known.rounds[number], known.verdicts.get(number)) for number in sorted(known.rounds)]
    return RestoredTeam(
        attempt=known.attempt,
        first_attempt=known.first_attempt,
        rounds=tuple(_with_messages(rounds, history)),
        submission=_submission(known, history),
        unfinished=None if history is None or history.record.round_number in known.rounds else history,
        best=None if best is None else LeaderBoardEntry.model_validate(best),
    )


def _round(told: Mapping[str, Any]) -> RestoredRound:
    return RestoredRound(
        state=RoundState.model_validate(told["state"]),
        entry=LeaderBoardEntry.model_validate(told["entry"]),
        usage=tuple(_USAGE.validate_python(told["usage"])),
    )


_USAGE: TypeAdapter[list[ModelUsage]] = TypeAdapter(list[ModelUsage])


def _judged(finished: RestoredRound, verdict: RoundJudged | None) -> RestoredRound:
    if verdict is None:
        return finished
    return RestoredRound(
        state=finished.state.model_copy(update={"improvement_judgment": verdict.judgment}),
        entry=finished.entry,
        usage=(*finished.usage, *verdict.usage),
        verdict=verdict,
    )


def _submission(known: _Known, history: HistoryKept | None) -> RestoredSubmission | None:
    """What was submitted in a round that did not end."""
    if known.made is None or int(_told(known.made)["round_number"]) in known.rounds:
        return None
    told = _told(known.made)
    return RestoredSubmission(
        round_number=told["round_number"],
        content=told["submission_content"],
        started_at=_moment(told.get("round_started_at")) or known.made.at,
        history=_if_of_round(told["round_number"], history),
        known=known.known,
    )


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _with_messages(rounds: list[RestoredRound], history: HistoryKept | None) -> list[RestoredRound]:
    """Only the latest round has its messages, as in a run that was never left."""
    if not rounds:
        return []
    *earlier, latest = rounds
    own = _if_of_round(latest.state.round_number, history)
    # A round that failed or was not scored keeps none.
    kept = own.message_history if own is not None and latest.state.evaluation_score is not None else []
    state = latest.state.model_copy(update={"message_history": kept})
    return [*earlier, replace(latest, state=state)]


def _if_of_round(round_number: int, history: HistoryKept | None) -> HistoryKept | None:
    return history if history is not None and history.record.round_number == round_number else None


def _history_in(event: JournalEvent) -> HistoryKept:
    return HistoryKept.model_validate(_whole(event))


def _whole(event: JournalEvent) -> dict[str, Any]:
    """What the event told, with what is kept beside it."""
    return {**_told(event), "execution_id": event.execution_id, "team_id": event.team_id, "at": event.at}
