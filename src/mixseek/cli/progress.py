"""A line on standard error for every event worth knowing."""

from collections.abc import Callable

from mixseek.amounts import counted
from mixseek.events import (
    BudgetLow,
    Event,
    Listener,
    MemberFinished,
    RoundFailed,
    RoundFinished,
    RoundJudged,
    RunFinished,
    RunInterrupted,
    RunResumed,
    RunStarted,
    TeamFailed,
    TeamFinished,
    TeamStarted,
    ToolFinished,
)
from mixseek.records import ExecutionSummary

__all__ = ["OVER_ALL_PROCESSES", "Progress", "words_of"]

OVER_ALL_PROCESSES = " over all processes"
"""What is said behind the seconds of an execution that was resumed."""

_LONGEST_REASON = 200
_LONGEST_TASK = 80


class Progress:
    """Listens to a run and tells of it; keeps its summary, which is whole before it is stored, and all scores.

    ``also`` hears every event before anything is told of it.
    """

    def __init__(self, tell: Callable[[str], None], *, also: Listener | None = None) -> None:
        self._tell = tell
        self._also = also
        self.execution_id: str | None = None
        self.is_resumed = False
        self.summary: ExecutionSummary | None = None
        self.scores: dict[str, dict[int, float | None]] = {}
        """For each team the scores of its finished rounds by their number; None: unscored."""

    def __call__(self, event: Event) -> None:
        """Tell of one event."""
        if self._also is not None:
            self._also(event)
        self._keep(event)
        words = words_of(event, longest_reason=None)
        if words and self.is_resumed and isinstance(event, RunFinished):
            words += OVER_ALL_PROCESSES
        if words:
            self._tell(f"{event.team_id}: {words}" if event.team_id is not None else words)

    def _keep(self, event: Event) -> None:
        self.execution_id = event.execution_id
        match event:
            case RunResumed():
                self.is_resumed = True
                self.scores = {team_id: dict(rounds) for team_id, rounds in event.scores.items() if rounds}
            case RunFinished() | RunInterrupted():
                self.summary = event.summary
            case RoundFinished() | RoundFailed():
                self.scores.setdefault(event.entry.team_id, {})[event.entry.round_number] = event.entry.score


def words_of(  # noqa: C901  # a table, one line for each kind
    event: Event, *, longest_reason: int | None = _LONGEST_REASON
) -> str | None:
    """One line about an event, without the team's name; None if there is nothing in it to tell.

    Reasons are cut for a terminal; with None for ``longest_reason`` they are whole, as a file or a pipe has them.
    """
    match event:
        case RunResumed():
            return f"execution {event.execution_id} goes on: {_task(event)}; finished so far: {_done(event)}"
        case RunStarted():
            count = len(event.team_names)
            teams = counted(count, "team")
            rounds = counted(event.max_rounds, "round")
            return f"execution {event.execution_id}: {teams}, at most {rounds}"
        case TeamStarted():
            if event.retry:
                return f"tries again, retry {event.retry}"
            return f"{'started' if event.attempt == 1 else 'goes on'} ({event.team_name})"
        case MemberFinished() | ToolFinished():
            return _words_of_member(event, longest_reason)
        case RoundFinished():
            return f"round {event.entry.round_number} finished, {_score(event.entry.score)}"
        case RoundFailed():
            return f"round {event.entry.round_number} failed: {_short(event.reason, longest_reason)}"
        case RoundJudged():
            separator = "; " if event.is_of_last_round else ": "
            return f"{event.words}{separator}{_short(event.reason, longest_reason)}"
        case TeamFailed():
            kept = "" if event.best is None else f"; its best finished round counts, {_score(event.best.score)}"
            return f"failed: {_short(event.reason, longest_reason)}{kept}"
        case TeamFinished():
            return f"finished, {_score(event.best.score)} in round {event.best.round_number}, {event.words}"
        case BudgetLow():
            return event.words
        case RunFinished():
            return f"finished in {event.summary.total_execution_time_seconds:.1f} s"
    return None


def _task(event: RunStarted) -> str:
    return f'"{_short(event.user_prompt, _LONGEST_TASK)}"'


def _done(event: RunResumed) -> str:
    teams, rounds = len(event.team_names), sum(map(len, event.scores.values()))
    return f"{len(event.finished)} of {counted(teams, 'team')}, {counted(rounds, 'round')}"


def _words_of_member(event: MemberFinished | ToolFinished, longest_reason: int | None) -> str | None:
    """Only what failed: all else of a member's work is for the journal."""
    match event:
        case MemberFinished(submission=submission) if submission.status == "ERROR":
            reason = submission.error_message or "no reason given"
            return f"member {submission.agent_name} failed: {_short(reason, longest_reason)}"
        case ToolFinished(error=str(error)):
            return f"tool {event.tool} of member {event.agent_name} failed: {_short(error, longest_reason)}"
    return None


def _score(score: float | None) -> str:
    return "unscored" if score is None else f"score {score:.2f}"


def _short(text: str, longest: int | None) -> str:
    words = " ".join(text.split())
    return words if longest is None or len(words) <= longest else f"{words[: longest - 3]}..."
