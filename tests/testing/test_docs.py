"""The page on testing: it leaves nothing out."""

from pathlib import Path

import mixseek.testing
from mixseek.config import ConfigurationManager
from mixseek.testing import FAULT_KINDS

PAGE = (Path(__file__).parents[2] / "docs" / "testing.md").read_text(encoding="utf-8")


def test_every_fault_is_told() -> None:
    assert [kind for kind in FAULT_KINDS if f"`{kind}`" not in PAGE] == []


def test_the_exports_are_these() -> None:
    assert mixseek.testing.__all__ == [
        "FAULT_KINDS",
        "SCRIPTED",
        "Answer",
        "AnswerLike",
        "Bill",
        "FakeClock",
        "Fault",
        "LoggedRequest",
        "Match",
        "Message",
        "ModelBill",
        "ModelCall",
        "ModelServer",
        "ModelServerProcess",
        "ObeyingModel",
        "OfferedTool",
        "OutputSchema",
        "Script",
        "ToolCall",
        "default_answer",
        "example_value",
        "scripted",
        "temporary_workspace",
        "tiny_team",
        "write_workspace",
    ]


def test_a_temporary_workspace_takes_what_one_that_stays_takes() -> None:
    with mixseek.testing.temporary_workspace(
        teams=1, orchestrator="min_rounds = 1", evaluator="max_retries = 0", judgment="target_score = 90"
    ) as workspace:
        settings = ConfigurationManager(workspace).load_run_settings("configs/orchestrator.toml")
    assert (settings.orchestrator.min_rounds, settings.evaluator.max_retries, settings.judgment.target_score) == (
        1,
        0,
        90,
    )
