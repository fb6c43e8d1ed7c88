"""A whole competition without an API key: three teams with two members each, three rounds, on a scripted model server.

The answers and scores are made up; everything else is real: the teams' files, HTTP, prompts, tools, metrics, judgment,
leader board, database, journal and bill.

    python examples/competition.py
"""

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from mixseek.events import Event, RoundFinished, TeamFinished
from mixseek.orchestrator import Orchestrator, load_orchestrator_settings
from mixseek.records import ExecutionSummary
from mixseek.testing import ModelCall, ModelServer, write_workspace

TASK = "Name the first three steps for a small company that wants to use generative AI."

# For each team and round: what its leader answers once its members have reported, and the score the judges give it.
SCRIPT = {
    "a": [
        ("Take stock of the work, try something small, then widen it.", 71),
        ("Take stock (say, of meeting minutes), try it for two weeks, then widen it.", 79),
        ("Take stock, try it for two weeks at $300 a month, measure what it saves, then widen it.", 84),
    ],
    "b": [
        ("Write house rules, train everyone, start.", 76),
        ("Write house rules, train everyone, start with a figure to watch.", 83),
        ("Rules, training, start.", 82),
    ],
    "c": [
        ("Ask an expert.", 38),
        ("Ask, compare offers, sign.", 52),
        ("Pick one problem, try a free tool on it, buy only if it helps.", 74),
    ],
}


def script(server: ModelServer) -> None:
    """Tell the server what leaders and judges say; whatever is not said here, it makes up."""
    for team, rounds in SCRIPT.items():
        server.on(f"leader-{team}", leader([answer for answer, _ in rounds]))
    scores = {answer: score for rounds in SCRIPT.values() for answer, score in rounds}

    def judge(call: ModelCall) -> dict[str, object]:
        score = next(score for answer, score in scores.items() if answer in call.prompt)
        return {"evaluator_comment": "Concrete." if score >= 80 else "More detail would help.", "score": score}

    server.on("judge", judge)


def leader(answers: list[str]) -> Callable[[ModelCall], str | None]:
    """Asks its members first, which is the server's own idea and left to it, and then gives the next answer."""
    return lambda call: answers.pop(0) if call.tool_results else None


def show_progress(event: Event) -> None:
    """A line for each thing worth knowing."""
    match event:
        case RoundFinished(state=state):
            print(f"  team {event.team_id}, round {state.round_number}: {state.evaluation_score:.2f}")
        case TeamFinished(best=best):
            print(f"  team {event.team_id} is done: its best is round {best.round_number} ({best.exit_reason})")


def show_summary(summary: ExecutionSummary) -> None:
    """The leader board, the best answer and the bill."""
    board = Table("place", "team", "score", "round", title="Leader board", title_justify="left")
    for place, entry in enumerate(summary.team_results, 1):
        board.add_row(str(place), entry.team_name, f"{entry.score:.2f}", str(entry.round_number))
    Console().print("", board)
    print(f"Best answer ({summary.team_results[0].team_name}):\n  {summary.team_results[0].submission_content}")
    usage = summary.usage
    print(f"{usage.requests} calls, {usage.input_tokens} tokens in, {usage.output_tokens} out")


async def main() -> None:
    """Play in a workspace that is gone afterwards."""
    with tempfile.TemporaryDirectory() as directory:
        async with ModelServer() as server:
            script(server)
            file = write_workspace(Path(directory), teams=3, members=2, max_rounds=3, base_url=server.base_url)
            settings = load_orchestrator_settings(file, directory)
            print(f"Task: {TASK}")
            summary = await Orchestrator(settings, listeners=[show_progress]).execute(TASK)
        show_summary(summary)


if __name__ == "__main__":
    asyncio.run(main())
