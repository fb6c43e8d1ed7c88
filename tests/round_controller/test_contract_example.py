# ruff: noqa: T201  # the example prints
"""The example of the round controller's contract, changed only in its workspace and wrapped in a function."""

from collections.abc import AsyncIterator
from pathlib import Path
from textwrap import dedent

import duckdb
import pytest
from pydantic import ValidationError

from mixseek.agents.leader.models import MemberSubmission
from mixseek.config.manager import ConfigurationManager
from mixseek.orchestrator.models import OrchestratorTask
from mixseek.records import LeaderBoardEntry
from mixseek.round_controller import RoundController, RoundState
from mixseek.testing import ModelServer


@pytest.fixture(autouse=True)
def _only_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIXSEEK_ONLY_LOOPBACK", "1")


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer() as running:
        yield running


@pytest.fixture
def workspace(tmp_path: Path, server: ModelServer) -> Path:
    files = {
        "configs/providers.toml": f'[providers.loop]\nbase_url = "{server.base_url}"\n',
        "configs/evaluator.toml": 'default_model = "loop:judge"\n',
        "configs/judgment.toml": 'model = "loop:judgment"\n',
        "team.toml": """
            [team]
            team_id = "research"
            team_name = "Research"
            [team.leader]
            model = "loop:leader"
            [[team.members]]
            name = "analyst"
            type = "plain"
            model = "loop:analyst"
            description = "analyses"
            """,
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text), encoding="utf-8")
    return tmp_path


async def example(workspace: Path) -> LeaderBoardEntry:
    config_manager = ConfigurationManager(workspace=workspace)
    evaluator_settings = config_manager.get_evaluator_settings()
    judgment_settings = config_manager.get_judgment_settings()
    prompt_builder_settings = config_manager.get_prompt_builder_settings()

    # OrchestratorTask作成
    task = OrchestratorTask(
        user_prompt="...",
        team_configs=[Path("team.toml")],
        timeout_seconds=600,
        max_rounds=3,
        min_rounds=1,
    )

    # コールバック定義（オプション）
    async def on_round_complete(
        round_state: RoundState,
        member_submissions: list[MemberSubmission],
    ) -> None:
        print(f"Round {round_state.round_number} completed with score {round_state.evaluation_score}")

    # RoundController初期化
    controller = RoundController(
        team_config_path=Path("team.toml"),
        workspace=workspace,
        task=task,
        evaluator_settings=evaluator_settings,
        judgment_settings=judgment_settings,
        prompt_builder_settings=prompt_builder_settings,
        save_db=True,
        on_round_complete=on_round_complete,
    )

    # マルチラウンド実行
    result = await controller.run_round(
        user_prompt="最新のAI技術トレンドを調査してください",
        timeout_seconds=600,
    )

    print(f"Execution ID: {result.execution_id}")
    print(f"Team: {result.team_name}")
    print(f"Best Round: {result.round_number}")
    print(f"Score: {result.score}")  # 0-100スケール
    print(f"Submission: {result.submission_content}")
    print(f"Exit Reason: {result.exit_reason}")
    return result


async def test_the_example_of_the_contract_plays_and_prints(
    workspace: Path, server: ModelServer, capsys: pytest.CaptureFixture[str]
) -> None:
    result = await example(workspace)
    printed = capsys.readouterr().out.splitlines()
    assert [line.split(" with")[0] for line in printed[:3]] == [f"Round {n} completed" for n in (1, 2, 3)]
    scores = [float(line.rpartition(" ")[2]) for line in printed[:3]]
    assert result.score == max(scores)
    assert f"Score: {max(scores)}" in printed
    assert "Team: Research" in printed
    assert "Exit Reason: max_rounds_reached" in printed
    asked = [request.body["messages"] for request in server.requests if request.model == "leader"]
    assert all("最新のAI技術トレンドを調査してください" in str(messages) for messages in asked)
    with duckdb.connect(workspace / "mixseek.db", read_only=True) as connection:
        kept = connection.execute("SELECT round_number, score FROM leader_board ORDER BY round_number").fetchall()
    assert kept == list(enumerate(scores, 1))


def controller_of(workspace: Path, path: str) -> RoundController:
    manager = ConfigurationManager(workspace=workspace)
    return RoundController(
        Path(path),
        workspace,
        OrchestratorTask(user_prompt="q", team_configs=[Path(path)], timeout_seconds=60),
        manager.get_evaluator_settings(),
        manager.get_judgment_settings(),
        manager.get_prompt_builder_settings(),
    )


async def test_a_missing_team_file_is_told_when_the_controller_is_made(workspace: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere\.toml"):
        controller_of(workspace, "nowhere.toml")


async def test_an_invalid_team_file_is_told_when_the_controller_is_made(workspace: Path) -> None:
    (workspace / "wrong.toml").write_text('[team]\nteam_id = "x"\nteam_name = "X"\nmax_concurrent_members = 0\n')
    with pytest.raises(ValidationError, match="max_concurrent_members"):
        controller_of(workspace, "wrong.toml")


async def test_a_controller_tells_its_team(workspace: Path) -> None:
    controller = controller_of(workspace, "team.toml")
    assert (controller.get_team_id(), controller.get_team_name()) == ("research", "Research")


async def test_run_round_with_timeout_adds_what_the_team_consumed(workspace: Path, server: ModelServer) -> None:
    controller = controller_of(workspace, "team.toml")
    result = await controller.run_round_with_timeout("q", 60)
    billed = server.bill.total
    assert (result.usage.input_tokens, result.usage.output_tokens) == (billed.input_tokens, billed.output_tokens)
    assert result.usage.requests == billed.answered
    assert result.evaluation_score is not None
    assert result.evaluation_feedback
    assert result.execution_time_seconds > 0
