"""A competition whose outcome is known beforehand: teams of a few scripted models on a loopback server.

Each team has a word of its own, and everything it says carries it: round 2 of the team ``alpha`` submits "alpha answer
of round 2, worth 80", and the judge gives what a submission says it is worth. A team's results so depend on nothing but
itself, and a test can tell whose call it sees and break exactly that one.
"""

import asyncio
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb

from mixseek.events import Event
from mixseek.llm import Backoff
from mixseek.orchestrator import Orchestrator, load_orchestrator_settings
from mixseek.records import ExecutionSummary, LeaderBoardEntry
from mixseek.round_controller import OnRoundCompleteCallback
from mixseek.storage.journal import Journal
from mixseek.testing import ModelCall, ModelServer, ToolCall

__all__ = ["GO_ON", "TASK", "Arena", "Played", "Team", "at_once", "round_of", "toml"]

TASK = "日本の首都はどこですか"
GO_ON = {"reasoning": "more is to come", "should_continue": True, "confidence_score": 1}
_ROUND = re.compile(r"^## ラウンド (\d+)$", re.MULTILINE)
_WORTH = re.compile(r"worth (-?\d+(?:\.\d+)?)")


class _Hurry:
    """A clock that goes on by itself and leaps over every sleep."""

    def __init__(self) -> None:
        self._skipped = 0.0

    async def sleep(self, seconds: float) -> None:
        self._skipped += seconds
        await asyncio.sleep(0)

    def __call__(self) -> float:
        return time.monotonic() + self._skipped


_hurry = _Hurry()
at_once = Backoff(sleep=_hurry.sleep, random=lambda: 0.0, clock=_hurry)
"""Retries without waiting."""


def toml(text: str) -> str:
    """``text`` as a TOML string, whatever is in it."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def round_of(call: ModelCall) -> int:
    """The round a leader is asked for: one more than the last of its history."""
    return max(map(int, _ROUND.findall(call.prompt)), default=0) + 1


@dataclass(frozen=True)
class Team:
    """A team and what its rounds are worth, the last one again and again."""

    word: str
    scores: Sequence[float] = (70, 80, 75)
    team_id: str | None = None
    name: str | None = None
    members: int = 1
    leader: str = ""
    """Lines added to the leader's table."""
    member: str = ""
    """Lines added to each member's table."""
    extra: str = ""
    """Tables added to the file, members of other kinds for example."""
    top: str = ""
    """Lines added to the team's table."""

    def worth(self, round_number: int) -> float:
        return self.scores[min(round_number, len(self.scores)) - 1]

    def answer(self, round_number: int) -> str:
        return f"{self.word} answer of round {round_number}, worth {self.worth(round_number):g}"

    def task(self, round_number: int) -> str:
        return f"{self.word} task of round {round_number}"

    def file(self) -> str:
        head = [
            "[team]",
            f"team_id = {toml(self.team_id or self.word)}",
            f"team_name = {toml(self.name or f'Team {self.word}')}",
            self.top,
            "[team.leader]",
            f'model = "loop:leader-{self.word}"',
            self.leader,
        ]
        members = [
            f'[[team.members]]\nname = "m{number}"\ntype = "plain"\nmodel = "loop:member-{self.word}"\n'
            f'description = "helps"\n{self.member}'
            for number in range(1, self.members + 1)
        ]
        return "\n".join([*head, *members, self.extra, ""])


@dataclass(frozen=True)
class Played:
    """A competition that is over: what was returned and what was told on the way."""

    summary: ExecutionSummary
    events: list[Event]

    def result(self, team_id: str) -> LeaderBoardEntry | None:
        return next((entry for entry in self.summary.team_results if entry.team_id == team_id), None)

    def failure(self, team_id: str) -> str | None:
        failed = self.summary.failed_teams_info
        return next((info.error_message for info in failed if info.team_id == team_id), None)

    def told(self, kind: str, team_id: str | None = None) -> list[Any]:
        return [e for e in self.events if e.kind == kind and team_id in (None, e.team_id)]


@dataclass
class Arena:
    """A workspace for these teams, and the server they play on."""

    root: Path
    base_url: str
    teams: Sequence[Team] = (Team("alpha"), Team("beta", scores=(60, 65)))
    orchestrator: str = "max_rounds = 2\nmin_rounds = 1\n"
    storage: str = ""
    evaluator: str = '[[metrics]]\nname = "Quality"\nsystem_instruction = "How good is it?"\n'
    top_of_evaluator: str = ""
    judgment: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the orchestrator."""

    def __post_init__(self) -> None:
        files = {f"agents/{number}.toml": team.file() for number, team in enumerate(self.teams)}
        listed = "".join(f'[[orchestrator.teams]]\nconfig = "configs/{name}"\n' for name in files)
        files["orchestrator.toml"] = f"[orchestrator]\n{self.orchestrator}\n{listed}\n[storage]\n{self.storage}\n"
        files["evaluator.toml"] = f'default_model = "loop:judge"\n{self.top_of_evaluator}\n{self.evaluator}\n'
        files["judgment.toml"] = f'model = "loop:judgment"\n{self.judgment}\n'
        files["providers.toml"] = f'[providers.loop]\nbase_url = "{self.base_url}"\n'
        for name, text in files.items():
            path = self.root / "configs" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    def script(self, server: ModelServer) -> None:
        """Tell the server what each model of these teams says."""
        for team in self.teams:
            server.on(f"leader-{team.word}", _leader(team))
            server.on(f"member-{team.word}", lambda call: f"help for: {call.prompt}")
        server.on("judge", _judge)
        server.on("judgment", lambda _: GO_ON)

    def build(self, **options: Any) -> Orchestrator:
        settings = load_orchestrator_settings("configs/orchestrator.toml", self.root)
        return Orchestrator(settings, **{"backoff": at_once, **self.options, **options})

    async def play(
        self, *, timeout_seconds: int | None = None, hook: OnRoundCompleteCallback | None = None, **options: Any
    ) -> Played:
        events: list[Event] = []
        built = self.build(listeners=[events.append], on_round_complete=hook, **options)
        return Played(await built.execute(TASK, timeout_seconds), events)

    # --- what is kept -------------------------------------------------------------------------------------------------

    def rows(self, table: str, where: str = "true", *values: Any) -> list[dict[str, Any]]:
        """Rows of the database, texts of JSON columns read, in a steady order."""
        order = {
            "attachments": "1, 2",
            "execution_summary": "1",
            "model_usage": "team_id, round_number, role, agent_name, model",
        }
        statement = f"SELECT * FROM {table} WHERE {where} ORDER BY {order.get(table, 'team_id, round_number')}"
        with duckdb.connect(self.root / "mixseek.db", read_only=True) as connection:
            found = connection.execute(statement, values)
            names = [column[0] for column in found.description or ()]
            kinds = [str(column[1]) for column in found.description or ()]
            return [
                {
                    name: json.loads(value) if kind == "JSON" and value is not None else value
                    for name, kind, value in zip(names, kinds, row, strict=True)
                }
                for row in found.fetchall()
            ]

    def journal(self) -> Journal:
        return Journal(self.root / "journal.db")


def _leader(team: Team) -> Callable[[ModelCall], Any]:
    def answer(call: ModelCall) -> Any:
        number = round_of(call)
        # A call that was made wrongly is made again: only what a member gave, or could not give, counts.
        heard = sum("help for" in result or "failed" in result for result in call.tool_results)
        if missing := call.tools[heard:]:
            return [ToolCall(tool.name, {"task": team.task(number)}) for tool in missing]
        return team.answer(number)

    return answer


def _judge(call: ModelCall) -> Any:
    worth = _WORTH.search(call.text)
    return {"evaluator_comment": "says what it is worth", "score": float(worth[1]) if worth else 0.0}
