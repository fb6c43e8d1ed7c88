"""The page on testing: its example runs, and it leaves nothing out."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import mixseek.testing
from mixseek.testing import FAULT_KINDS

PAGE = (Path(__file__).parents[2] / "docs" / "testing.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("example", re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE))
def test_every_example_runs(example: str, tmp_path: Path) -> None:
    (tmp_path / "example.py").write_text(example, encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "-W", "error", "example.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stderr) == (0, "")


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
