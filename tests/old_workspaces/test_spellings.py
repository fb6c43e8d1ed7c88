"""Workspaces written for mixseek-core 0.1, in every spelling such files use, played unchanged."""

import json
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import duckdb
import pytest

from mixseek.config import ConfigurationManager
from mixseek.config.schema import MemberAgentConfig
from mixseek.orchestrator import Orchestrator, load_orchestrator_settings
from mixseek.orchestrator.models import ExecutionSummary
from mixseek.testing import ModelServer

ORCHESTRATOR = """
[orchestrator]
timeout_per_team_seconds = 120
max_concurrent_teams = 2
max_rounds = 2
min_rounds = 1

[[orchestrator.teams]]
config = "configs/agents/team_inline.toml"

[[orchestrator.teams]]
config = "configs/agents/team_files.toml"
"""

# Members inline, by the older names of their keys.
TEAM_INLINE = """
[team]
team_id = "inline"
team_name = "Inline"
max_concurrent_members = 5

[team.leader]
model = "openai:leader-inline"
temperature = 0.7
max_tokens = 1000
system_instruction = "You lead."

[[team.members]]
agent_name = "analyst"
agent_type = "plain"
tool_description = "Analyses."
model = "openai-chat:analyst"
capabilities = ["analysis"]
[team.members.system_instruction]
text = "You analyse."
[team.members.metadata]
owner = "someone"

[[team.members]]
name = "by module"
type = "custom"
description = "From a module."
model = "openai:own"
[team.members.plugin]
agent_module = "old_agents"
agent_class = "OldAgent"
[team.members.metadata.tool_settings.own_tool]
depth = 3
"""

# Members in files of their own, beside which a tool may be named anew.
TEAM_FILES = """
[team]
team_id = "files"
team_name = "Files"

[team.leader]
model = "ollama:leader-files"
system_prompt = "You lead too."

[[team.members]]
config = "configs/agents/writer.toml"
tool_name = "ask_the_writer"
tool_description = "Writes."

[[team.members]]
config = "configs/agents/by_path.toml"
"""

WRITER = """
[agent]
name = "writer"
type = "plain"
model = "ollama:writer"
temperature = 0.2
max_retries = 1

[agent.instructions]
text = "You write."

[agent.tool_settings.web_search]
max_results = 5
include_raw_content = true

[agent.tool_settings.anything]
of = "one's own"
"""

BY_PATH = """
[agent]
agent_name = "調査"
agent_type = "custom"
model = "openai:own"
system_instruction = "You search."
plugin = {path = "plugins/old_agents.py", agent_class = "OldAgent"}

[agent.tool_settings.own_tool]
depth = 5
"""

EVALUATOR = """
default_model = "openai:judge"
max_retries = 2

[llm_default]
temperature = 0.0
timeout_seconds = 60

[[metrics]]
name = "ClarityCoherence"
weight = 0.2
[[metrics]]
name = "Coverage"
weight = 0.2
model = "openai-chat:judge-of-coverage"
[[metrics]]
name = "Relevance"
weight = 0.1
system_instruction = "Judge the relevance."
[[metrics]]
name = "Courage"
weight = 0.1
system_instruction = "Judge the courage."
[[metrics]]
name = "ByModule"
weight = 0.2
[[metrics]]
name = "ByPath"
weight = 0.2

[custom_metrics]
ByModule = {module = "old_metrics", class = "OldMetric"}
ByPath = {path = "plugins/old_metrics.py", class = "OldMetric"}
"""

JUDGMENT = """
model = "openai:judgment"
temperature = 0.0
max_retries = 2
timeout_seconds = 30
"""

AGENTS = """
from pydantic_ai import Agent

from mixseek.agents.member.base import BaseMemberAgent
from mixseek.agents.member.factory import MemberAgentFactory
from mixseek.core.auth import AuthenticationError, create_authenticated_model
from mixseek.models.member_agent import AgentType, MemberAgentConfig, MemberAgentResult, ResultStatus


class OldAgent(BaseMemberAgent):
    def __init__(self, config: MemberAgentConfig) -> None:
        super().__init__(config)
        self.ready = False

    async def initialize(self) -> None:
        self.agent = Agent(create_authenticated_model(self.config.model), instructions=self.config.system_instruction)
        self.ready = True

    async def execute(self, task, context=None, **kwargs):
        assert self.ready and AgentType.CUSTOM == self.config.type
        assert "custom" in MemberAgentFactory.get_supported_types()
        depth = self.config.tool_settings["own_tool"]["depth"]
        assert self.config.tool_settings.get("no_such_tool", {}) == {}
        try:
            result = await self.agent.run(task)
        except AuthenticationError as error:
            return MemberAgentResult.error(str(error), self.agent_name, self.agent_type)
        found = MemberAgentResult.success(
            f"depth {depth} in round {context['round_number']}: {result.output}",
            agent_name=self.agent_name,
            agent_type=self.agent_type,
            execution_time_ms=12,
            usage_info=result.usage,
            all_messages=result.all_messages(),
            metadata={"depth": depth},
        )
        assert found.status == ResultStatus.SUCCESS
        return found

    async def cleanup(self) -> None:
        self.ready = False
"""

METRICS = """
from mixseek.evaluator.metrics.base import BaseMetric
from mixseek.models.evaluation_request import EvaluationRequest
from mixseek.models.evaluation_result import EvaluationResult, MetricScore


class OldMetric(BaseMetric):
    async def evaluate(self, user_query, submission, execution_id=None, team_id=None, round_number=None):
        assert EvaluationRequest(user_query=user_query, submission=submission)
        assert EvaluationResult(metrics=[], overall_score=0.0)
        return MetricScore(metric_name=type(self).__name__, score=40.0 + round_number, evaluator_comment="an old one")
"""


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ModelServer]:
    async with ModelServer() as served:
        monkeypatch.setenv("OPENAI_BASE_URL", served.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "any")
        monkeypatch.setenv("OLLAMA_BASE_URL", served.base_url)
        yield served


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    files = {
        "configs/orchestrator.toml": ORCHESTRATOR,
        "configs/evaluator.toml": EVALUATOR,
        "configs/judgment.toml": JUDGMENT,
        "configs/agents/team_inline.toml": TEAM_INLINE,
        "configs/agents/team_files.toml": TEAM_FILES,
        "configs/agents/writer.toml": WRITER,
        "configs/agents/by_path.toml": BY_PATH,
        "plugins/old_agents.py": AGENTS,
        "plugins/old_metrics.py": METRICS,
        "modules/old_agents.py": AGENTS,
        "modules/old_metrics.py": METRICS,
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    yield tmp_path
    for module in ("old_agents", "old_metrics"):
        sys.modules.pop(module, None)


async def play(workspace: Path) -> ExecutionSummary:
    settings = load_orchestrator_settings(Path("configs/orchestrator.toml"), workspace=workspace)
    return await Orchestrator(settings).execute("What is new?")


async def test_a_workspace_in_every_spelling_plays_unchanged(workspace: Path, server: ModelServer) -> None:
    summary = await play(workspace)
    assert (summary.total_teams, summary.completed_teams, summary.failed_teams_info) == (2, 2, [])
    assert {entry.team_id for entry in summary.team_results} == {"inline", "files"}
    with duckdb.connect(str(workspace / "mixseek.db")) as database:
        records = database.execute(
            "SELECT team_id, member_submissions_record FROM round_history WHERE round_number = 1"
        ).fetchall()
        details = database.execute("SELECT round_number, score_details FROM leader_board").fetchall()
    members = {
        (team, each["agent_name"]): (each["status"], each["content"].partition(":")[0])
        for team, record in records
        for each in json.loads(record)["submissions"]
    }
    assert set(members) == {("inline", "analyst"), ("inline", "by module"), ("files", "writer"), ("files", "調査")}
    assert members["inline", "by module"] == ("SUCCESS", "depth 3 in round 1")
    assert members["files", "調査"] == ("SUCCESS", "depth 5 in round 1")
    for number, detail in details:
        scores = {metric["metric_name"]: metric["score"] for metric in json.loads(detail)["metrics"]}
        assert set(scores) == {"ClarityCoherence", "Coverage", "Relevance", "Courage", "ByModule", "ByPath"}
        assert scores["ByModule"] == scores["ByPath"] == 40.0 + number


async def test_what_the_files_say_reaches_the_models(workspace: Path, server: ModelServer) -> None:
    await play(workspace)
    told = {request.model: json.dumps(request.body, ensure_ascii=False) for request in server.requests}
    assert set(told) == {
        *("leader-inline", "leader-files", "analyst", "writer", "own"),
        *("judge", "judge-of-coverage", "judgment"),
    }
    assert "You analyse." in told["analyst"]
    assert "You write." in told["writer"]
    assert "You lead." in told["leader-inline"]
    assert "You lead too." in told["leader-files"]
    assert "ask_the_writer" in told["leader-files"]
    bodies = [request.body for request in server.requests if request.model == "judge"]
    assert any("Judge the courage." in json.dumps(body) for body in bodies)
    assert any("Judge the relevance." in json.dumps(body) for body in bodies)
    writer = next(request.body for request in server.requests if request.model == "writer")
    assert writer["temperature"] == 0.2


SAME = {
    "current names": 'name = "m"\ntype = "plain"\nsystem_instruction = "Help."\ndescription = "helps"\n',
    "older names": 'agent_name = "m"\nagent_type = "plain"\nsystem_instruction = "Help."\ndescription = "helps"\n',
    "instruction as a table": (
        'name = "m"\ntype = "plain"\ndescription = "helps"\n[agent.system_instruction]\ntext = "Help."\n'
    ),
    "instructions": 'name = "m"\ntype = "plain"\ndescription = "helps"\n[agent.instructions]\ntext = "Help."\n',
    "tool description alone": (
        'name = "m"\ntype = "plain"\nsystem_instruction = "Help."\ndescription = "helps"\ntool_description = "helps"\n'
    ),
}


def member(tmp_path: Path, text: str) -> MemberAgentConfig:
    file = tmp_path / "member.toml"
    file.write_text(f'[agent]\nmodel = "openai:m"\n{text}', encoding="utf-8")
    return ConfigurationManager(workspace=tmp_path).load_member_settings(file)


@pytest.mark.parametrize("spelling", SAME)
def test_every_spelling_of_a_member_file_means_the_same(spelling: str, tmp_path: Path) -> None:
    assert member(tmp_path, SAME[spelling]) == member(tmp_path, SAME["current names"])


@pytest.mark.parametrize("above", ["agent.tool_settings", "agent.metadata.tool_settings"])
def test_settings_of_tools_are_read_from_both_places(above: str, tmp_path: Path) -> None:
    text = (
        f'name = "m"\ntype = "web_search"\n[{above}.web_search]\nmax_results = 7\ntimeout = 20\n'
        f'[{above}.web_fetch]\nmax_uses = 3\nallowed_domains = ["example.com"]\n'
    )
    settings = member(tmp_path, text).tool_settings
    assert settings is not None
    assert settings.web_search is not None
    assert settings.web_fetch is not None
    assert (settings.web_search.max_results, settings.web_search.timeout) == (7, 20)
    assert (settings.web_fetch.max_uses, settings.web_fetch.allowed_domains) == (3, ["example.com"])
