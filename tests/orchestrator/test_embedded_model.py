"""A whole competition on the embedded model: two teams, one with a member, scored in code, stopped by rules."""

from pathlib import Path

import pytest

from mixseek.config.manager import ConfigurationManager
from mixseek.embedded import FETCHABLE
from mixseek.errors import ConfigurationError
from mixseek.llm.local import fetch
from mixseek.orchestrator import Orchestrator

LEADER = """
[team]
team_id = "{name}"
team_name = "Team {name}"
[team.leader]
model = "local:smollm2-135m"
system_instruction = "Answer in one sentence."
max_tokens = 14
temperature = 0.0
seed = {seed}
"""
MEMBER = """
[[team.members]]
name = "guide"
type = "plain"
model = "local:smollm2-135m"
description = "Knows the city."
max_tokens = 8
seed = 3
"""
FILES = {
    "orchestrator.toml": """
[orchestrator]
max_rounds = 2
min_rounds = 1
[[orchestrator.teams]]
config = "configs/agents/one.toml"
[[orchestrator.teams]]
config = "configs/agents/two.toml"
""",
    "agents/one.toml": LEADER.format(name="one", seed=1),
    "agents/two.toml": LEADER.format(name="two", seed=2).replace("= 14", "= 50") + MEMBER,
    "evaluator.toml": '[[metrics]]\nname = "Length"\noptions = {minimum = 10, maximum = 60, unit = "words"}\n',
    "judgment.toml": 'model = "none"\ntarget_score = 1\n',
    "prompt_builder.toml": "[prompt_builder]\nteam_user_prompt = '{{ user_prompt }}'\n",
    "providers.toml": "[local]\nn_ctx = 512\n",
}


def write(root: Path, **changed: str) -> Path:
    for name, text in {**FILES, **changed}.items():
        path = root / "configs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root / "configs" / "orchestrator.toml"


@pytest.mark.long
async def test_two_teams_compete_on_it_with_a_member_as_tool_at_no_cost(tmp_path: Path) -> None:
    fetch(FETCHABLE["smollm2-135m"])
    settings = ConfigurationManager(tmp_path).load_run_settings(write(tmp_path), for_a_run=True)
    summary = await Orchestrator(settings).execute("Give a visitor a tip for a rainy day in Kyoto.")
    assert summary.failed_teams_info == []
    assert {entry.team_id for entry in summary.team_results} == {"one", "two"}
    assert all(entry.submission_content and entry.score is not None for entry in summary.team_results)
    assert summary.cost_usd == 0.0
    roles = {(line.team_id, line.role, line.requests) for line in summary.bill}
    assert {("one", "leader", 1), ("two", "leader", 2), ("two", "member", 1)} <= roles
    assert 0 < summary.usage.output_tokens <= 14 + 2 * 50 + 8


def test_what_is_wrong_with_weights_is_told_when_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "text.gguf").write_text("hello")
    one = FILES["agents/one.toml"].replace("local:smollm2-135m", "local:no/such.gguf")
    two = FILES["agents/two.toml"].replace("local:smollm2-135m", "local:text.gguf", 1)
    file = write(
        tmp_path, **{"agents/one.toml": one, "agents/two.toml": two, "judgment.toml": 'model = "local:smol"\n'}
    )
    with pytest.raises(ConfigurationError) as caught:
        ConfigurationManager(tmp_path).load_run_settings(file)
    assert [(problem.file, problem.key) for problem in caught.value.problems] == [
        ("configs/agents/one.toml", "team.leader.model"),
        ("configs/agents/two.toml", "team.leader.model"),
        ("configs/judgment.toml", "model"),
    ]
