"""The manual's examples run, and what it says of variables is so."""

import re
from pathlib import Path

import pytest

from mixseek.agents.member import MemberAgentFactory
from mixseek.config.environment import variable_names
from mixseek.config.kinds import KINDS
from mixseek.config.manager import ConfigurationManager
from mixseek.config.shape import allowed, field_at
from mixseek.evaluator import Evaluator
from mixseek.models.evaluation_request import EvaluationRequest
from mixseek.workspace import Workspace

MANUAL = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text(encoding="utf-8")


@pytest.fixture
def written(workspace: Path) -> ConfigurationManager:
    """A workspace with every file the manual shows."""
    for name, text in re.findall(r"^```(?:python|toml)\n# (\S+)\n(.*?)^```", MANUAL, re.DOTALL | re.MULTILINE):
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).write_text(text, encoding="utf-8")
    return ConfigurationManager(workspace, environ={})


async def test_the_metric_of_the_manual_scores(written: ConfigurationManager) -> None:
    evaluator = Evaluator(written.get_evaluator_settings(), workspace=written.workspace.root)
    request = EvaluationRequest(user_query="Why?", submission="x" * 210)
    result = await evaluator.evaluate(request)
    assert result.overall_score == 90
    assert result.metrics[0].evaluator_comment == "10 characters too many"


async def test_the_member_of_the_manual_works(written: ConfigurationManager) -> None:
    settings = written.load_member_settings("configs/agents/clock.toml")
    member = MemberAgentFactory.create_agent(settings, workspace=Workspace(written.workspace.root))
    result = await member.execute("What time is it?")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d", result.content)


def test_the_manual_names_the_variables_that_hold_json() -> None:
    before_the_tables, _, _ = MANUAL.partition("<!-- reference -->")
    for kind in KINDS.values():
        for path, name in variable_names(kind.model, kind.variables).items() if kind.variables else ():
            field = field_at(kind.model, path)
            assert field is not None
            holds_json = re.match(r"(text or )?a (list|table)", allowed(field)) is not None
            assert not holds_json or f"`{name}`" in before_the_tables or f"`{name}=" in before_the_tables
