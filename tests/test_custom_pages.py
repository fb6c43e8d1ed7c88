"""The pages on members and metrics of one's own: what their further examples do in an evaluation and in a round."""

import re
from pathlib import Path

import pytest

from mixseek.config.manager import ConfigurationManager
from mixseek.evaluator import EvaluationRequest, Evaluator
from mixseek.orchestrator import Orchestrator, load_orchestrator_settings
from mixseek.testing import ModelServer, ToolCall, write_workspace

DOCS = Path(__file__).parent.parent / "docs"


def write_files_of(page: str, root: Path) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    for name, content in re.findall(r"^```(?:python|toml)\n# (\S+)\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content, encoding="utf-8")


async def _evaluated(root: Path, file: str, submission: str) -> tuple[float | None, str]:
    write_files_of("custom-metrics.md", root)
    settings = ConfigurationManager(root).get_evaluator_settings(file)
    request = EvaluationRequest(user_query="Why?", submission=submission)
    result = await Evaluator(settings, workspace=root).evaluate(request)
    return result.overall_score, result.feedback_summary


async def test_the_plain_metric_takes_its_options(tmp_path: Path) -> None:
    result = await _evaluated(tmp_path, "configs/brevity-evaluator.toml", "x" * 210)
    assert result == (90, "Brevity: 10 characters too many")


async def test_the_judge_is_told_the_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with ModelServer() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        server.on("gpt-5-mini", [{"evaluator_comment": "a number without a source", "score": 85}])
        result = await _evaluated(tmp_path, "configs/style-evaluator.toml", "7 of 10 agree.")
        asked = str(server.requests[0].body)
    assert result == (85, "HouseStyle: a number without a source")
    assert "2. Numbers have a source." in asked


async def test_the_member_that_looks_twice_asks_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with ModelServer() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        file = write_workspace(tmp_path, teams=1, max_rounds=1, base_url=server.base_url)
        write_files_of("custom-members.md", tmp_path)
        team = tmp_path / "configs" / "agents" / "team-a.toml"
        team.write_text(team.read_text() + '\n[[team.members]]\nconfig = "configs/agents/second_look.toml"\n')
        server.on("leader-a", [ToolCall("delegate_to_writer", {"task": "Write."}), "the submission"])
        server.on("gpt-5-mini", ["a draft", "the final text"])
        summary = await Orchestrator(load_orchestrator_settings(file, tmp_path)).execute("task")
        heard = str([request.body for request in server.requests if request.model == "leader-a"][-1])
    assert "the final text" in heard
    assert {(line.agent_name, line.requests) for line in summary.bill if line.role == "member"} == {("writer", 2)}
