"""The estimate before a run, beside what short runs really take."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mixseek.config.manager import ConfigurationManager, RunSettings
from mixseek.events import Event, RoundFinished
from mixseek.llm import ModelHub
from mixseek.orchestrator import Orchestrator
from mixseek.orchestrator.estimate import Taken, estimate
from mixseek.testing import ModelServer, write_workspace

TASK = "Name three uses of bamboo."
# A member that its leader may leave alone.
MEMBER = '\n[[team.members]]\nname = "botanist"\ntype = "plain"\nmodel = "loopback:botanist"\ndescription = "knows"\n'
SHORTEST = 5
"""Few texts have fewer tokens than one for so many bytes."""


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        running.on("leader-a", ["Scaffolding, floors and also paper for letters."] * 9)
        running.on("judge", [{"evaluator_comment": "It names three uses, all of them right.", "score": 80}] * 9)
        running.on("judgment", [{"reasoning": "It says it all.", "should_continue": False, "confidence_score": 0.9}])
        yield running


def _settings(tmp_path: Path, server: ModelServer, judgment: str, language: str) -> RunSettings:
    file = write_workspace(
        tmp_path, teams=1, max_rounds=5, base_url=server.base_url, orchestrator="min_rounds = 2", judgment=judgment
    )
    with (tmp_path / "configs/agents/team-a.toml").open("a") as team:
        team.write(MEMBER)
    (tmp_path / "configs/prompt_builder.toml").write_text(f'[prompt_builder]\nlanguage = "{language}"\n')
    return ConfigurationManager(tmp_path).load_run_settings(file)


async def _low(settings: RunSettings) -> Taken:
    async with ModelHub(settings.providers) as hub:
        return estimate(settings, len(TASK), hub).low


@pytest.mark.parametrize("language", ["en", "ja"])
@pytest.mark.parametrize("judgment", ["", "target_score = 80\n"])
async def test_a_run_that_stops_as_soon_as_it_may_with_short_answers_takes_no_less_than_the_low_estimate(
    tmp_path: Path, server: ModelServer, judgment: str, language: str
) -> None:
    settings = _settings(tmp_path, server, judgment, language)
    low = await _low(settings)
    summary = await Orchestrator(settings, save_db=False).execute(TASK)
    assert summary.team_results[0].round_number <= 2
    taken = server.bill.total
    assert low.calls == taken.requests
    read = sum(len(message["content"].encode()) for one in server.requests for message in one.body["messages"])
    assert read / 10 < low.input_tokens * SHORTEST < read, "low, and not idle"
    assert taken.output_tokens / 3 < low.output_tokens <= taken.output_tokens


@pytest.mark.parametrize(
    ("budget", "fewest"), [("max_tokens = 15000", 1), ("max_tokens = 25000", 2), ("max_tokens = 50000", 3)]
)
async def test_a_run_whose_answers_are_as_long_as_they_may_be_has_the_rounds_of_the_worst_case(
    tmp_path: Path, budget: str, fewest: int
) -> None:
    longest = "word " * 240  # three hundred tokens of four bytes
    async with ModelServer() as server:
        server.on("leader-a", [longest] * 9)
        server.on("judge", [{"evaluator_comment": longest[:1000], "score": 80}] * 9)
        going_on = {"reasoning": longest[:1000], "should_continue": True, "confidence_score": 0.9}
        server.on("judgment", [going_on] * 9)
        file = write_workspace(tmp_path, teams=1, max_rounds=3, base_url=server.base_url)
        file.write_text(f"{file.read_text()}\n[budget]\n{budget}\nmax_output_tokens = 300\n")
        settings = ConfigurationManager(tmp_path).load_run_settings(file)
        async with ModelHub(settings.providers) as hub:
            [told] = estimate(settings, len(TASK), hub).against_budget
        rounds = f"{fewest} rounds of every team" if fewest == 3 else f"in the worst case after {fewest} of 3 rounds"
        assert rounds in told
        played: list[Event] = []
        await Orchestrator(settings, save_db=False, listeners=[played.append]).execute(TASK)
        assert sum(isinstance(event, RoundFinished) for event in played) >= fewest
