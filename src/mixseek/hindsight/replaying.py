"""A finished execution played again with no provider at all: every call is answered from its journal.

The competition itself is the real one: teams, metrics and judgment work as they did, and only what models, members and
tools said is read from the record, failures included. Nothing is written and nobody is called, so no key is needed. A
call that was given up because time ran out lets that time run out at once, so that whoever waited for it goes the same
way as before.
"""

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, pairwise
from pathlib import Path
from typing import Any, Final, NoReturn, Self

from pydantic import JsonValue

from mixseek import errors, plugins
from mixseek.amounts import command_to_copy, without_file_words
from mixseek.config.manager import ConfigurationManager, RunSettings, redactor_of
from mixseek.config.schema import ProvidersSettings
from mixseek.errors import BudgetExhaustedError, ConfigurationError, ModelError, Problem, RunError
from mixseek.events import Event, EventBus, RoundFailed, RoundFinished, RunStarted
from mixseek.llm import ModelHub, Scope
from mixseek.llm.patience import let_time_run_out
from mixseek.orchestrator.fingerprint import Reach, changes, reach_of
from mixseek.orchestrator.orchestrator import play_again
from mixseek.records import ExitReason, LeaderBoardEntry, Record
from mixseek.round_controller.run import Run
from mixseek.storage.journal import (
    CallLine,
    CallScope,
    Journal,
    JournalEvent,
    ModelCall,
    Request,
    RoundPrompt,
    ToolResult,
)
from mixseek.storage.journal_writer import Line, Row
from mixseek.workspace import Workspace

__all__ = ["Replay", "ReplayedTeam", "replay"]

_NO_KEY: Final = "not-needed"
_A_MOMENT: Final = 5.0
_EMPTY: Final = "the purse was empty here"
_ANSWERED: Final = "answered"
_GIVEN_UP: Final = asyncio.CancelledError.__name__
_TEAM, _SUBMISSION, _JUDGMENT = 0, 1, -1
"""The places of time limits around a call, from the outermost."""


class ReplayedTeam(Record):
    """A team on the leader board of a replay."""

    rank: int
    team_id: str
    team_name: str
    score: float | None
    round_number: int
    exit_reason: ExitReason | None


class Replay(Record):
    """What came of playing an execution again, and where that is not what is recorded."""

    execution_id: str
    user_prompt: str
    equal: bool
    """Whether the replay came to the leader board of the record, round by round."""
    teams: tuple[ReplayedTeam, ...]
    failed_teams: tuple[str, ...]
    taken_out: tuple[str, ...] = ()
    """Teams that were taken out when the execution was resumed: they are not in the file, and do not play again."""
    places_of_taken_out: Mapping[str, int] = {}
    """Where those of them stand that are on the leader board of the record: no other team is given these places."""
    with_earlier_settings: Mapping[str, int] = {}
    """Teams that cannot be replayed, with the last round that each began before a change the execution was resumed
    with: by the present settings it does not come to the same. They are not in ``teams``, ``failed_teams``,
    ``differences`` and ``missing_calls``; but where the change can only alter how a team ends, what differs in rounds
    that both have is in ``differences``."""
    differences: tuple[str, ...] = ()
    missing_calls: tuple[str, ...] = ()
    """Calls that the journal does not have."""
    tries_taken_as_failed: tuple[str, ...] = ()
    """Tries that had failed while calls were on their way, and would not now, as by a metric that was mended since:
    what these calls would have been answered nobody knows. The try after them counts, as it did."""
    changes: tuple[str, ...] = ()
    """What of the configuration is not what the execution was begun with, or resumed with the last time."""
    resumed_with: tuple[str, ...] = ()
    """What was changed when the execution was resumed: rounds before were played by what was there before."""
    calls: int
    """How many recorded calls were answered as they were, each once; those of a member whose result was used too."""
    calls_cut_off: int = 0
    """Recorded calls without an answer: those that failed, and fail again where they are made, or that were cut off,
    those included that were on their way when a process was killed."""
    calls_of_taken_out: int = 0
    """Recorded calls of teams that were taken out."""
    calls_not_asked_for: int = 0
    """Other recorded calls that nobody made this time, as those before a change that the execution was resumed with."""
    seconds: float


async def replay(
    execution_id: str, workspace: Path | str | Workspace | None = None, *, config: Path | str | None = None
) -> Replay:
    """Play a finished execution again from its journal; ``config`` names another orchestrator file than its own."""
    started = time.monotonic()
    manager = ConfigurationManager(workspace)
    place = manager.workspace
    journal = _ReplayJournal(place.journal, redactor=redactor_of(manager.environ, manager.get_providers_settings()))
    async with journal:
        given = workspace.root if isinstance(workspace, Workspace) else workspace
        record = await _recorded(journal, execution_id, command_to_copy("resume", execution_id, given))
        await journal.load(execution_id, record)
        configured = await asyncio.to_thread(_settings, manager, record, config)
        answers, heard = _Answers(journal, record), _Heard()
        run = Run(execution_id, _hub(manager, configured), journal=journal, workspace=place, is_new=True, replays=True)
        run.events = EventBus(heard)
        run.meter.reuse_answers, run.meter.on_unanswered = True, answers.unanswered
        async with run:
            summary = await play_again(run, record.started, configured, record.last_tries)
    changed = tuple(map(str, changes(record.started, heard.begun))) if heard.begun else ()
    replayed = summary.model_dump(mode="json")
    # What has changed since may be the reason as well, and can be undone.
    by_settings = {} if changed else _with_earlier_settings(record, heard, replayed, answers)
    by_rules = {} if changed else _with_earlier_rules(record, heard, replayed, answers)
    earlier = dict(sorted((by_rules | by_settings).items()))
    # A rule of how a team ends makes no difference to a round that was played by both.
    excused = {
        place
        for place in _all_rounds(record, heard)
        if place[0] in by_settings or (place[0] in by_rules and _is_on_one_side(place, record, heard))
    }
    replayed = _only_others(replayed, earlier)
    differences = _differences(record.without(earlier, excused), heard.without(excused), replayed)
    missing = [named for scope, named in answers.missing if scope.team_id not in earlier]
    scopes = [*(line.scope for line in journal.lines), *(call.scope for call in journal.never_ended)]
    of_taken_out = sum(scope.team_id in record.taken_out for scope in scopes)
    left_behind = sum(call.scope.team_id not in record.taken_out for call in journal.never_ended)
    lines = [line for line in journal.lines if line.scope.team_id not in record.taken_out]
    # Whether what failed then is asked for again is a matter of moments: it depends on what fails beside it.
    cut_off = sum(line.outcome != _ANSWERED for line in lines)
    used = sum(line.outcome == _ANSWERED and line.call_id in journal.used for line in lines)
    return Replay(
        execution_id=execution_id,
        user_prompt=summary.user_prompt,
        equal=not differences and not missing and not earlier,
        teams=tuple(
            _team(rank, entry)
            for rank, entry in zip(
                _free_places(record, earlier),
                (entry for entry in summary.team_results if entry.team_id not in earlier),
                strict=False,
            )
        ),
        failed_teams=tuple(sorted(_failed_in(replayed))),
        taken_out=tuple(record.taken_out),
        places_of_taken_out=record.places_of_taken_out,
        with_earlier_settings=earlier,
        differences=tuple(differences),
        missing_calls=tuple(dict.fromkeys(missing)),
        tries_taken_as_failed=tuple(sorted(set(answers.taken_as_failed))),
        changes=changed,
        resumed_with=record.resumed_with,
        calls=used,
        calls_cut_off=cut_off + left_behind,
        calls_of_taken_out=of_taken_out,
        calls_not_asked_for=len(lines) - cut_off - used,
        seconds=time.monotonic() - started,
    )


def _free_places(record: "_Recorded", others: Collection[str]) -> Iterator[int]:
    """The places of the board in their order, without those of teams that do not play again."""
    taken = set(record.places_of_taken_out.values())
    free = (place for place in count(1) if place not in taken)
    places = {each["team_id"]: place for place, each in zip(free, record.summary["team_results"], strict=False)}
    taken |= {place for team_id, place in places.items() if team_id in others}
    return (place for place in count(1) if place not in taken)


def _team(rank: int, entry: LeaderBoardEntry) -> ReplayedTeam:
    return ReplayedTeam(
        rank=rank,
        team_id=entry.team_id,
        team_name=entry.team_name,
        score=entry.score,
        round_number=entry.round_number,
        exit_reason=entry.exit_reason,
    )


# --- the settings -----------------------------------------------------------------------------------------------------


def _settings(manager: ConfigurationManager, record: "_Recorded", config: Path | str | None) -> RunSettings:
    begun = record.started
    file = config or begun.config_file
    if file is None:
        raise ConfigurationError(
            "the execution was played from Python or by mixseek team, and names no orchestrator file: "
            "give one with --config"
        )
    overrides = {"orchestrator": begun.overrides} if begun.overrides else None
    configured = ConfigurationManager(manager.workspace, overrides=overrides).load_run_settings(file)
    played, there = set(begun.team_names), {team.team_id for team in configured.teams}
    if played != there:
        words = _other_teams(played - there, there - played, record.taken_out)
        if played - there or there - played - record.taken_out.keys():
            words += f": {_file_remedy(manager.workspace, config, begun.config_file)}"
        raise ConfigurationError(Problem(words, str(file)))
    return configured


def _file_remedy(workspace: Workspace, given: Path | str | None, begun_with: str | None) -> str:
    if given is None or begun_with is None or workspace.find(given) == workspace.resolve(begun_with):
        return "undo that, or give a file with its teams by --config"
    return f"give the file that it was played with, {begun_with}"


def _other_teams(gone: set[str], new: set[str], taken_out: Mapping[str, int]) -> str:
    strangers = new - taken_out.keys()
    faults = [f"{_all_of(gone)} played and {_are(gone)} not in it"] if gone else []
    faults += [f"{_all_of(strangers)} {_are(strangers)} in it and did not play"] if strangers else []
    faults += [
        f"{team_id} is in it again, but was taken out when the execution was resumed, "
        f"{_rounds_words(taken_out[team_id])}: take it out, or give another file with --config"
        for team_id in sorted(new & taken_out.keys())
    ]
    return f"has other teams than the execution: {'; '.join(faults)}"


def _all_of(teams: Iterable[str]) -> str:
    *first, last = sorted(teams)
    return f"{', '.join(first)} and {last}" if first else last


def _are(teams: Collection[str]) -> str:
    return "is" if len(teams) == 1 else "are"


def _rounds_words(last: int) -> str:
    """How far a team had come."""
    if not last:
        return "before it had finished a round"
    return "after it had played round 1" if last == 1 else f"after it had played rounds 1 to {last}"


def _hub(manager: ConfigurationManager, configured: RunSettings) -> ModelHub:
    environ = {**_any_key(configured.providers), **manager.environ}
    return ModelHub(configured.providers, configured.orchestrator.prices, environ=environ, root=manager.workspace.root)


def _any_key(servers: ProvidersSettings) -> dict[str, str]:
    """Models are made, though never asked: whatever key they want, they have it."""
    own = [server.api_key_env for server in servers.providers.values() if server.api_key_env]
    known = [name for prefix in plugins.providers for name in plugins.providers.get(prefix).key_variables]
    return dict.fromkeys([*known, *own], _NO_KEY)


# --- the record -------------------------------------------------------------------------------------------------------

_Place = tuple[str, int]


@dataclass(frozen=True)
class _Recorded:
    """How an execution went."""

    started: RunStarted
    """As it was begun, or resumed the last time."""
    resumed_with: tuple[str, ...]
    """What was different each time it was resumed."""
    taken_out: Mapping[str, int]
    """Teams that played before it was resumed and not after, with the last round that each of them finished, or 0."""
    places_of_taken_out: Mapping[str, int]
    """Where those of them stand that are on the leader board."""
    begun_earlier: Mapping[str, int]
    """The last round that each team began before the last change that can alter what its rounds come to."""
    begun_by_other_rules: Mapping[str, int]
    """The last round that each team began before the last change that can alter only how it ends."""
    summary: Mapping[str, Any]
    """How it ended, without those teams."""
    begun: frozenset[_Place]
    """Rounds that were begun, whether they were finished or not."""
    entries: Mapping[_Place, LeaderBoardEntry]
    without_submission_in_time: frozenset[_Place]
    judged: frozenset[_Place]
    judged_by_rule: frozenset[_Place]
    """Rounds after which no model was asked whether to go on."""
    last_tries: Mapping[str, int]
    """The last try of each team."""
    finished_in: Mapping[_Place, int]
    """The try that finished each round."""
    out_of_time: frozenset[str]
    """Teams whose time ran out, and that were not resumed since."""
    out_of_money: frozenset[str]
    """Teams that a budget ended, of money, of time or of anything else, and that were not resumed since."""

    def had_failed(self, scope: Scope) -> bool:
        """Whether this try came to its end in this round: another one finished the round, or began it again."""
        last = self.finished_in.get((scope.team_id, scope.round_number), self.last_tries.get(scope.team_id, 0))
        return scope.attempt < last

    def last_round(self, team_id: str) -> int:
        """The last round that a team came to the end of, or 0."""
        return max((number for team, number in self.entries if team == team_id), default=0)

    def without(self, teams: Collection[str], rounds: Collection[_Place]) -> Self:
        """The record of all other teams, and of all other rounds."""
        entries = {place: entry for place, entry in self.entries.items() if place not in rounds}
        return replace(self, summary=_only_others(self.summary, teams), entries=entries)

    def never_asked(self, scope: Scope) -> bool:
        """Whether there was nothing to ask: no such round, or a rule that decided after it in place of a model."""
        place = scope.team_id, scope.round_number
        return place not in self.begun or (scope.role == "judgment" and place in self.judged_by_rule)

    def first_try(self, team_id: str, rounds: int) -> int:
        """The try in which a team was when it had finished so many rounds."""
        return self.finished_in.get((team_id, rounds), 1)


async def _recorded(journal: Journal, execution_id: str, resume: str) -> _Recorded:
    if (pruned_at := await journal.pruned_at(execution_id)) is not None:
        raise ConfigurationError(
            f"execution {execution_id!r} was pruned on {pruned_at:%Y-%m-%d}: "
            "what its models answered is not kept any more; mixseek show still shows its results"
        )
    kinds = ("RunStarted", "RunResumed", "RunFinished", "RoundStarted", "RoundFinished", "RoundFailed", "RoundJudged")
    events = await journal.events(execution_id, kinds=(*kinds, "TeamStarted"))
    begun = [event for event in events if event.kind in ("RunStarted", "RunResumed")]
    finished = [event for event in events if event.kind == "RunFinished"]
    if not begun:
        raise ConfigurationError(f"the journal knows nothing of execution {execution_id!r}, so it cannot be replayed")
    beginnings = [_begun(event) for event in begun]
    started = beginnings[-1]
    resumed_with = [
        (after, changes(*both))
        for after, both in zip(begun[1:], pairwise(beginnings), strict=True)
        if both[0].fingerprint
    ]
    if [event.kind for event in events if event in (*begun, *finished)][-1] != "RunFinished":
        how = f", and {without_file_words()}" if started.config_file is None else f": {resume} goes on with it"
        raise ConfigurationError(f"execution {execution_id!r} did not come to its end{how}")
    rounds = [event for event in events if event.kind in ("RoundFinished", "RoundFailed")]
    taken_out = {team_id: 0 for one in beginnings for team_id in one.team_names if team_id not in started.team_names}
    for team_id, number in (_place(event) for event in rounds if event.team_id in taken_out):
        taken_out[team_id] = max(taken_out[team_id], number)
    events = [event for event in events if event.team_id is None or event.team_id in started.team_names]
    rounds = [event for event in rounds if event.team_id in started.team_names]
    summary = _told(finished[-1])["summary"]
    finals = [each for each in summary["team_results"] if each["team_id"] in started.team_names]
    last_tries: dict[str, int] = {}
    finished_in: dict[_Place, int] = {}
    for event in events:
        if event.kind == "TeamStarted":
            last_tries[str(event.team_id)] = int(_told(event)["attempt"])
        elif event.kind in ("RoundFinished", "RoundFailed"):
            finished_in[_place(event)] = last_tries.get(str(event.team_id), 1)
    judged: dict[_Place, bool] = {}
    for event in events:
        if event.kind == "RoundJudged":
            place = str(event.team_id), int(_told(event)["round_number"])
            judged[place] = bool(_told(event)["usage"]) or judged.get(place, False)
    return _Recorded(
        started=started,
        resumed_with=tuple(str(each) for _, changed in resumed_with for each in changed),
        taken_out=dict(sorted(taken_out.items())),
        places_of_taken_out={
            each["team_id"]: place
            for place, each in enumerate(summary["team_results"], 1)
            if each["team_id"] in taken_out
        },
        begun_earlier=_begun_earlier(events, resumed_with, "rounds"),
        begun_by_other_rules=_begun_earlier(events, resumed_with, "end"),
        summary={**summary, "team_results": finals},
        begun=frozenset(
            (str(event.team_id), int(_told(event)["round_number"])) for event in events if event.kind == "RoundStarted"
        ),
        entries={_place(event): LeaderBoardEntry.model_validate(_told(event)["entry"]) for event in rounds},
        without_submission_in_time=frozenset(
            _place(event) for event in rounds if str(_told(event).get("reason", "")).startswith("no submission within")
        ),
        judged=frozenset(judged),
        judged_by_rule=frozenset(place for place, asked in judged.items() if not asked),
        last_tries=last_tries,
        finished_in=finished_in,
        out_of_time=_failed_because(summary, "all rounds together took longer"),
        out_of_money=_failed_because(summary, "the run's budget ", "the team's budget ")
        | {each["team_id"] for each in finals if each["exit_reason"] == "budget_exhausted"},
    )


def _begun_earlier(
    events: Sequence[JournalEvent],
    resumed_with: Sequence[tuple[JournalEvent, Sequence[Problem]]],
    reach: Reach,
) -> dict[str, int]:
    """The last round that each team began before the last change to what it plays by that reaches just so far."""
    begun: dict[str, int] = {}
    for event in events:
        if event.kind == "RoundStarted" and any(
            reach_of(change) == reach and _touches(str(event.team_id), change)
            for after, changed in resumed_with
            if (event.position or 0) < (after.position or 0)
            for change in changed
        ):
            begun[str(event.team_id)] = int(_told(event)["round_number"])
    return dict(sorted(begun.items()))


def _touches(team_id: str, change: Problem) -> bool:
    """Whether what has changed is not another team's alone."""
    part = change.file or ""
    return not part.startswith("team ") or part == f"team {team_id}"


def _failed_because(summary: Mapping[str, Any], *beginnings: str) -> frozenset[str]:
    """Teams that failed in the end for a reason that begins like this; one that was resumed since did not."""
    failed = summary["failed_teams_info"]
    return frozenset(one["team_id"] for one in failed if one["error_message"].startswith(beginnings))


def _begun(event: JournalEvent) -> RunStarted:
    known = {name: value for name, value in _told(event).items() if name in RunStarted.model_fields}
    return RunStarted(**{"execution_id": event.execution_id, "at": event.at, **known})


def _place(event: JournalEvent) -> _Place:
    return str(event.team_id), int(_told(event)["entry"]["round_number"])


def _told(event: JournalEvent) -> dict[str, Any]:
    return event.payload if isinstance(event.payload, dict) else {}


class _ReplayJournal(Journal):
    """A journal that is only read; of several prompts of one round, each is given when its turn comes."""

    async def load(self, execution_id: str, record: _Recorded) -> None:
        self._record = record
        self._behind: dict[_Place, int] = {}
        """How many tries less than then a team has needed until it had finished so many rounds."""
        self.used: set[str] = set()
        """The calls that were answered from here."""
        self.lines = await self.call_lines(execution_id)
        self.never_ended = await self.calls_never_ended(execution_id)
        self._of_members = [line for line in self.lines if line.scope.role == "member"]
        self._last_words = await _last_words(self, execution_id, record)
        self._in_order: dict[tuple[str, int, str], deque[RoundPrompt]] = defaultdict(deque)
        for prompt in await self.prompts(execution_id):
            self._in_order[prompt.team_id, prompt.round_number, prompt.role].append(prompt)

    def try_of(self, scope: CallScope, attempt: int) -> int:
        """The try of the record that this is: what failed then and does not now leaves a team in an earlier one."""
        rounds = scope.round_number if scope.role == "judgment" else scope.round_number - 1
        missing = max(0, self._record.first_try(scope.team_id, rounds) - attempt)
        return attempt + self._behind.setdefault((scope.team_id, rounds), missing)

    def request(self, scope: CallScope, *, attempt: int = 0, **asked: Any) -> Request:
        """The request as it was made, in the try in which it was."""
        return super().request(scope, attempt=self.try_of(scope, attempt), **asked)

    def tool_key(self, scope: CallScope, tool: str, arguments: JsonValue, *, attempt: int = 0, **asked: Any) -> str:
        """The use of a tool as it was, in the try in which it was."""
        return super().tool_key(scope, tool, arguments, attempt=self.try_of(scope, attempt), **asked)

    async def find_prompt(self, execution_id: str, team_id: str, round_number: int, role: str) -> RoundPrompt | None:
        """A team that was tried again was told something else the second time."""
        kept = self._in_order[team_id, round_number, role]
        return None if not kept else kept.popleft() if len(kept) > 1 else kept[0]

    async def find_call(self, key: str, occurrence: int) -> ModelCall | None:
        known = await super().find_call(key, occurrence)
        if known is not None:
            self.used.add(known.call_id)
        if known is not None and known.call_id in self._last_words:
            limit = self._last_words[known.call_id]
            if limit is None:
                raise BudgetExhaustedError(_EMPTY)
            let_time_run_out(limit)
            await asyncio.sleep(_A_MOMENT)
        return known

    async def find_tool_result(self, key: str, occurrence: int) -> ToolResult | None:
        known = await super().find_tool_result(key, occurrence)
        if known is not None:
            self.used.update(line.call_id for line in self._of_members if _was_made_for(known, line))
        return known

    async def _write(self, make_row: Callable[[], Row], line: Line | None) -> None:
        """Keep nothing."""

    def _write_later(self, make_row: Callable[[], Row], line: Line | None = None) -> None:
        """Keep nothing."""


def _was_made_for(result: ToolResult, call: CallLine) -> bool:
    """Whether a member made this call for this result, or for one beside it that is used as well.

    What it was answered in a process that ended before the member was done, it was given again in the next one.
    """
    is_of_the_round = (call.scope.team_id, call.scope.round_number) == (
        result.scope.team_id,
        result.scope.round_number,
    )
    given = result.result if isinstance(result.result, dict) else {}
    was_left_for_it = call.outcome == _ANSWERED and call.scope.agent_name == given.get("agent_name")
    began_in_time = result.started_at <= call.started_at or was_left_for_it
    return is_of_the_round and began_in_time and call.ended_at <= result.ended_at


async def _last_words(journal: Journal, execution_id: str, record: _Recorded) -> dict[str, int | None]:
    """Calls that were answered and came too late all the same, by their ids, with the limit that ran out then.

    Where a call was given up when time ran out, that call shows when it was; where none was, time ran out after the
    last answer. None is the limit of a budget: whether its time was over, or the next call too dear, comes to the same.
    """
    timed_out = {team_id for team_id, _ in record.without_submission_in_time} | record.out_of_time
    found: dict[str, int | None] = {}
    for team_id in timed_out | record.out_of_money:
        calls = await journal.calls(execution_id, team_id)
        rounds: dict[int, list[ModelCall]] = defaultdict(list)
        for call in calls:
            rounds[call.scope.round_number].append(call)
        for number, made in rounds.items():
            leader = [call for call in made if call.scope.role == "leader"]
            if (team_id, number) in record.without_submission_in_time and leader and not _was_given_up(made):
                found[leader[-1].call_id] = _SUBMISSION
        answered = [call for call in calls if call.failure is None]
        if team_id in record.out_of_time and answered and not _was_given_up(rounds[max(rounds)]):
            final = answered[-1]
            # A round that was finished after its last answer is to be finished again: time runs out at the next call.
            if final.scope.role == "judgment" or (team_id, final.scope.round_number) not in record.entries:
                found[final.call_id] = _TEAM
        if team_id in record.out_of_money and rounds and (team_id, last := max(rounds)) not in record.judged:
            found[rounds[last][-1].call_id] = None
    return found


def _was_given_up(calls: Sequence[ModelCall]) -> bool:
    """Whether one of them was given up and not answered later, when the run was resumed."""
    answered = {(call.key, call.occurrence) for call in calls if call.failure is None}
    given_up = [call for call in calls if call.failure is not None and call.failure.error == _GIVEN_UP]
    return any((call.key, call.occurrence) not in answered for call in given_up)


@dataclass
class _Answers:
    """What becomes of calls that were not answered."""

    journal: _ReplayJournal
    record: _Recorded
    missing: list[tuple[Scope, str]] = field(default_factory=list)
    taken_as_failed: list[str] = field(default_factory=list)

    async def unanswered(self, scope: Scope, model: str, key: str, occurrence: int) -> NoReturn:
        """Fail as the call failed, or let its time run out."""
        call = await self.journal.find_failed_call(key, occurrence)
        scope = scope.model_copy(update={"attempt": self.journal.try_of(scope, scope.attempt)})
        if call is None or call.failure is None:
            if self._came_too_late(scope):
                let_time_run_out(_TEAM)
                await asyncio.sleep(_A_MOMENT)
            self._refuse(scope, model)
        if call.failure.error == _GIVEN_UP:
            await self._given_up(scope, model)
        kind = getattr(errors, call.failure.error, RunError)
        if isinstance(kind, type) and issubclass(kind, ModelError):
            raise kind(call.failure.message, status=call.failure.status, retryable=call.failure.retryable)
        raise RunError(call.failure.message)

    def _refuse(self, scope: Scope, model: str) -> NoReturn:
        if scope.team_id in self.record.out_of_money:
            raise BudgetExhaustedError(_EMPTY)
        named = f"{scope.role} {scope.agent_name!r} ({model}) of team {scope.team_id!r} in round {scope.round_number}"
        self.missing.append((scope, f"{named}, try {scope.attempt}"))
        raise RunError(f"the journal does not have this call: {named}")

    def _came_too_late(self, scope: Scope) -> bool:
        """Whether the team's time had run out before this call, after its last round: none like it was ever made."""
        place = scope.team_id, scope.round_number, scope.role
        made = {(line.scope.team_id, line.scope.round_number, line.scope.role) for line in self.journal.lines}
        is_last = scope.round_number >= self.record.last_round(scope.team_id)
        return scope.team_id in self.record.out_of_time and is_last and place not in made

    async def _given_up(self, scope: Scope, model: str) -> NoReturn:
        """Whoever waited gave the call up: because its time was up, or because something beside it failed."""
        place = scope.team_id, scope.round_number
        if scope.role in ("leader", "member") and place in self.record.without_submission_in_time:
            let_time_run_out(_SUBMISSION)
        elif scope.role == "judgment" and place in self.record.judged:
            let_time_run_out(_JUDGMENT)
        elif scope.team_id in self.record.out_of_time:
            let_time_run_out(_TEAM)
        elif scope.team_id in self.record.out_of_money:
            raise BudgetExhaustedError(_EMPTY)
        await asyncio.sleep(_A_MOMENT)
        if self.record.had_failed(scope):
            # What failed beside it does so no more, as a metric that was mended: how the try had ended is known.
            failed = f"try {scope.attempt} of team {scope.team_id!r} in round {scope.round_number}"
            self.taken_as_failed.append(failed)
            raise RunError(f"{failed} had failed while this call was on its way")
        self._refuse(scope, model)


# --- is it the same? --------------------------------------------------------------------------------------------------


@dataclass
class _Heard:
    """What the replay told."""

    begun: RunStarted | None = None
    entries: dict[_Place, LeaderBoardEntry] = field(default_factory=dict)

    def __call__(self, event: Event) -> None:
        if isinstance(event, RunStarted):
            self.begun = event
        elif isinstance(event, RoundFinished | RoundFailed):
            self.entries[event.entry.team_id, event.entry.round_number] = event.entry

    def without(self, rounds: Collection[_Place]) -> Self:
        """What it told of all other rounds."""
        return replace(self, entries={place: one for place, one in self.entries.items() if place not in rounds})


def _with_earlier_settings(
    record: _Recorded, heard: _Heard, summary: Mapping[str, Any], answers: _Answers
) -> dict[str, int]:
    """Teams that come to something else by a round that they began with earlier settings, with the last such round.

    Where a team began no other, how it ended was decided by these settings too.
    """
    places = {place for place in _all_rounds(record, heard) if _round_differs(place, record, heard)}
    places |= {(scope.team_id, scope.round_number) for scope, _ in answers.missing}
    ends = set(_board(record.summary)) ^ set(_board(summary))
    end_otherwise = {team_id for team_id, *_ in ends} | (_failed_in(record.summary) ^ _failed_in(summary))
    places |= {(team_id, record.last_round(team_id) + 1) for team_id in end_otherwise}
    found = {}
    for team_id, last in record.begun_earlier.items():
        first = min((number for team, number in places if team == team_id), default=None)
        if first is not None and (first <= last or record.last_round(team_id) <= last):
            found[team_id] = last
    return found


def _with_earlier_rules(
    record: _Recorded, heard: _Heard, summary: Mapping[str, Any], answers: _Answers
) -> dict[str, int]:
    """Teams that only end otherwise, after a round that they began by earlier rules, with the last such round."""
    places = {place for place in _all_rounds(record, heard) if _is_on_one_side(place, record, heard)}
    ends = _ends(record.summary) ^ _ends(summary)
    places |= {(team_id, record.last_round(team_id) + 1) for team_id, _ in ends}
    broke_off = {scope.team_id for scope, _ in answers.missing if not record.never_asked(scope)}
    # Whether there was a round after the last such one was decided by these rules too.
    return {
        team_id: last
        for team_id, last in record.begun_by_other_rules.items()
        if team_id not in broke_off and any(team == team_id and number <= last + 1 for team, number in places)
    }


def _only_others(summary: Mapping[str, Any], teams: Collection[str]) -> dict[str, Any]:
    """A summary without these teams."""
    lists = ("team_results", "failed_teams_info")
    return {**summary, **{name: [one for one in summary[name] if one["team_id"] not in teams] for name in lists}}


def _failed_in(summary: Mapping[str, Any]) -> set[str]:
    return {one["team_id"] for one in summary["failed_teams_info"]}


def _all_rounds(record: _Recorded, heard: _Heard) -> list[_Place]:
    return sorted({*record.entries, *heard.entries})


def _is_on_one_side(place: _Place, record: _Recorded, heard: _Heard) -> bool:
    return (place in record.entries) != (place in heard.entries)


def _round_differs(place: _Place, record: _Recorded, heard: _Heard) -> bool:
    return _in_round(place, record.entries.get(place), heard.entries.get(place)) is not None


def _differences(record: _Recorded, heard: _Heard, summary: Mapping[str, Any]) -> list[str]:
    told = [
        _in_round(place, record.entries.get(place), heard.entries.get(place)) for place in _all_rounds(record, heard)
    ]
    was, now = _board(record.summary), _board(summary)
    if was != now:
        told.append(f"the leader board was {_shown(was)}, is {_shown(now)}")
    failed, fails = _failed_in(record.summary), _failed_in(summary)
    told += [f"team {team_id!r} had failed, and does not" for team_id in sorted(failed - fails)]
    told += [f"team {team_id!r} had not failed, and does" for team_id in sorted(fails - failed)]
    return [each for each in told if each]


def _in_round(place: _Place, was: LeaderBoardEntry | None, now: LeaderBoardEntry | None) -> str | None:
    where = f"round {place[1]} of team {place[0]!r}"
    if was is None or now is None:
        return f"{where} was {'not ' if was is None else ''}played, and is {'not ' if now is None else ''}now"
    if was.score != now.score:
        return f"{where} had {_score(was.score)}, has {_score(now.score)}"
    return None if was.submission_content == now.submission_content else f"{where} has another submission"


def _board(summary: Mapping[str, Any]) -> list[tuple[str, int, float | None, str | None]]:
    return [(one["team_id"], one["round_number"], one["score"], one["exit_reason"]) for one in summary["team_results"]]


def _ends(summary: Mapping[str, Any]) -> set[tuple[str, str | None]]:
    """How teams ended, whatever they came to."""
    return {(one["team_id"], one["exit_reason"]) for one in summary["team_results"]} | {
        (team_id, "failed") for team_id in _failed_in(summary)
    }


def _shown(board: list[tuple[str, int, float | None, str | None]]) -> str:
    shown = (f"{team} with {_score(score)} (round {number}, {reason})" for team, number, score, reason in board)
    return ", ".join(shown) or "empty"


def _score(score: float | None) -> str:
    return "no score" if score is None else f"score {score:.2f}"
