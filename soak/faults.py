"""Every fault of a model at every place where it can strike, and what comes of it.

All kinds strike in one competition: each team is hit by a fault of its own in its second round, one team by none. What
becomes of a team so shows what its fault does, and that the faults of the others do nothing to it.
``python -m soak.faults`` adds storms: random faults at random calls, many times over.
"""

import argparse
import asyncio
import logging
import random
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, get_args

from mixseek.testing import FAULT_KINDS, ModelServer
from mixseek.testing.server.faults import FaultKind
from soak.arena import Arena, Played, Team

__all__ = ["CALM", "HANGING", "PLACES", "Place", "expected", "storm", "strike"]

Row = dict[str, Any]
Place = Literal["leader", "member", "evaluator", "judgment"]
PLACES: Final[tuple[Place, ...]] = get_args(Place)
CALM = "calm"
BOUND_SECONDS: Final = 120.0

HANGING: Final = frozenset({"hang_before_headers", "hang_in_body", "drip"})
_REFUSED = frozenset({"400", "401", "402", "403", "404", "413", "422", "spend_limit", "huge_answer"})
"""Answers that would be the same again: one attempt is made."""
_HARMLESS = frozenset({"missing_usage", "wrong_content_type"})
_UNUSABLE = frozenset(
    {
        "null_content",
        "empty_answer",
        "wrong_tool",
        "malformed_arguments",
        "score_150",
        "wrong_types",
        "length",
        "content_filter",
    }
)
"""Complete answers that are not what was asked for: asked again, then no result of that role."""
_STRUCTURED = frozenset({"malformed_arguments", "score_150", "wrong_types"})
_ENDING: Final[dict[Place, str]] = {
    "leader": "disqualified",
    "member": "told to the leader",
    "evaluator": "disqualified, submission kept",
    "judgment": "goes on",
}


def expected(kind: str, place: Place, *, lasting: bool) -> str:
    """What the documents say becomes of a team that is struck; once is retried and leaves no trace in the results."""
    if kind in _HARMLESS or _finds_nothing_to_break(kind, place):
        return "unharmed"
    if not lasting and kind not in _REFUSED and not _takes_all_the_time(kind, place):
        return "unharmed"
    if place == "leader" and kind in _UNUSABLE:
        return "failed round"
    return _ENDING[place]


def _finds_nothing_to_break(kind: str, place: Place) -> bool:
    if place == "member":
        # A plain text has no numbers or arguments, and half of one is still a text.
        return kind in _STRUCTURED | {"length", "content_filter"}
    return place == "leader" and kind == "score_150"


def _takes_all_the_time(kind: str, place: Place) -> bool:
    """A member's time is for its whole task, so an attempt that hangs leaves none for another."""
    return place == "member" and kind in HANGING


async def strike(place: Place, *, lasting: bool, kinds: Sequence[FaultKind] = FAULT_KINDS) -> dict[str, str]:
    """What becomes of each kind's team, and of the calm one."""
    limits = "max_retries = 1\n" + ("timeout_seconds = 3\n" if HANGING & set(kinds) else "")
    members = 1 if place in ("leader", "member") else 0
    teams = [Team(f"x_{kind}", members=members, leader=limits, member=limits) for kind in kinds]
    teams.append(Team(f"x_{CALM}", members=members))
    with tempfile.TemporaryDirectory() as directory:
        async with ModelServer(keep_bodies=False) as server:
            arena = Arena(
                Path(directory),
                server.base_url,
                teams,
                orchestrator="max_rounds = 2\nmin_rounds = 1\nmax_retries_per_team = 0\nmax_concurrent_teams = 100\n",
                top_of_evaluator=limits,
                judgment=f"{limits}judge_on_final_round = false\n",
            )
            arena.script(server)
            for kind in kinds:
                _arm(server, kind, place, count=None if lasting else 1)
            played = await asyncio.wait_for(arena.play(), BOUND_SECONDS)
        kept = {table: arena.rows(table) for table in ("leader_board", "round_history", "round_status")}
        return {team.word.removeprefix("x_"): _outcome(team, kept, played) for team in teams}


def _arm(server: ModelServer, kind: FaultKind, place: Place, count: int | None) -> None:
    word = f"x_{kind}"
    model, text = {
        "leader": (f"leader-{word}", f"{word} answer of round 1"),
        "member": (f"member-{word}", f"{word} task of round 2"),
        "evaluator": ("judge", f"{word} answer of round 2"),
        "judgment": ("judgment", f"{word} answer of round 1"),
    }[place]
    server.fault(kind, model=model, contains=text, count=count)


# --- what came of it --------------------------------------------------------------------------------------------------


def _outcome(team: Team, kept: Mapping[str, Sequence[Row]], played: Played) -> str:
    """The name of what became of a team; what has no name is told as it is."""
    own = {table: [row for row in rows if row["team_id"] == team.word] for table, rows in kept.items()}
    result, failure = played.result(team.word), played.failure(team.word)
    end = (result and result.round_number, result and result.exit_reason, failure is not None)
    scores, members = _scores(own["leader_board"]), _members(own["round_history"])
    words = str(own["round_status"][0]["reasoning"])
    well, partial, judged = (2, "max_rounds_reached", False), (1, "partial_failure", True), words == "more is to come"
    good = ["SUCCESS"] * team.members
    outcomes = {
        "unharmed": end == well and scores == ["70", "80"] and members == good * 2 and judged,
        "told to the leader": end == well and scores == ["70", "80"] and members == [*good, "ERROR"] and judged,
        "goes on": end == well and scores == ["70", "80"] and members == good * 2 and "so the team goes on" in words,
        "disqualified": end == partial and scores == ["70"] and members == good and judged,
        "disqualified, submission kept": end == partial and scores == ["70", "kept unscored"] and members == good * 2,
        "failed round": end == (1, "max_rounds_reached", False) and scores == ["70", "failed"] and judged,
    }
    named = [name for name, holds in outcomes.items() if holds]
    return named[0] if len(named) == 1 else repr((end, scores, members, words, failure))


def _scores(board: Sequence[Row]) -> list[str]:
    told = []
    for row in board:
        details = row["score_details"]
        reasoned = isinstance(details, dict) and bool(details.get("reason"))
        if row["score"] is not None:
            told.append(f"{row['score']:g}")
        elif reasoned:
            told.append("kept unscored" if row["submission_content"] else "failed")
        else:
            told.append("without a reason")
    return told


def _members(history: Sequence[Row]) -> list[str]:
    return [each["status"] for row in history for each in row["member_submissions_record"]["submissions"]]


# --- storms -----------------------------------------------------------------------------------------------------------

_QUICK: Final = tuple(kind for kind in FAULT_KINDS if kind not in HANGING and kind != "huge_answer")


async def storm(seed: int) -> str:
    """A competition in which a third of all calls is struck; returns what went wrong, or nothing."""
    drawn = random.Random(seed)
    teams = [Team(f"team{number}", members=number % 3) for number in range(6)]
    with tempfile.TemporaryDirectory() as directory:
        async with ModelServer(seed=seed) as server:
            arena = Arena(Path(directory), server.base_url, teams, orchestrator="max_rounds = 3\n")
            arena.script(server)
            for kind in drawn.sample(_QUICK, 8):
                server.fault(kind, share=0.05)
            played = await asyncio.wait_for(arena.play(), BOUND_SECONDS)
            return "; ".join(_wrong_with(played, arena, server, teams))


def _wrong_with(played: Played, arena: Arena, server: ModelServer, teams: Sequence[Team]) -> list[str]:
    summary, billed, wrong = played.summary, server.bill.total, list[str]()
    seen = {entry.team_id for entry in summary.team_results} | {each.team_id for each in summary.failed_teams_info}
    if seen != {team.word for team in teams}:
        wrong.append(f"teams without an outcome: {sorted({team.word for team in teams} - seen)}")
    if (summary.usage.input_tokens, summary.usage.output_tokens) != (billed.input_tokens, billed.output_tokens):
        wrong.append(f"usage {summary.usage} but the server billed {billed}")
    kept = arena.rows("model_usage")
    if sum(row["input_tokens"] for row in kept) != billed.input_tokens:
        wrong.append(f"model_usage has {sum(row['input_tokens'] for row in kept)} of {billed.input_tokens} tokens")
    finals = [row["team_id"] for row in arena.rows("leader_board", "final_submission")]
    if sorted(finals) != sorted(entry.team_id for entry in summary.team_results):
        wrong.append(f"final submissions of {finals}")
    return wrong


async def _all(storms: int) -> int:
    wrong = 0
    for place in PLACES:
        for lasting in (True, False):
            wrong += await _strike_and_tell(place, lasting)
    for seed in range(storms):
        if told := await storm(seed):
            wrong += 1
            print(f"storm {seed}: {told}", flush=True)
    print(f"{storms} storms; {wrong} wrong outcomes")
    return wrong


async def _strike_and_tell(place: Place, lasting: bool) -> int:
    began, wrong = time.monotonic(), 0
    quick = [kind for kind in FAULT_KINDS if kind not in HANGING]
    outcomes = await strike(place, lasting=lasting, kinds=quick)
    outcomes |= await strike(place, lasting=lasting, kinds=[kind for kind in FAULT_KINDS if kind in HANGING])
    for kind, outcome in outcomes.items():
        wanted = "unharmed" if kind == CALM else expected(kind, place, lasting=lasting)
        if outcome != wanted:
            wrong += 1
            print(f"{kind} at the {place}: {outcome}, but expected is: {wanted}")
    how = "lasting" if lasting else "once"
    print(f"{len(FAULT_KINDS)} kinds at the {place}, {how}: {time.monotonic() - began:.1f} s", flush=True)
    return wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--storms", type=int, default=40)
    logging.disable(logging.CRITICAL)
    sys.exit(1 if asyncio.run(_all(parser.parse_args().storms)) else 0)
