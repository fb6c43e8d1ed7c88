"""The report that ``mixseek exec`` writes when it is asked for."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from mixseek.testing import ModelServer, write_workspace
from tests.commands import Ran, run_here

TASK = "Name three uses of <bamboo>."


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Path]:
    with ModelServer() as server:
        server.on("leader-*", lambda call: "**Scaffolds**, <i>paper</i>." if call.tool_results else None)
        write_workspace(tmp_path, teams=1, members=1, max_rounds=1, base_url=server.base_url)
        yield tmp_path


def play(workspace: Path, *arguments: str, **variables: str) -> Ran:
    command = ["exec", TASK, "-w", str(workspace), "-f", "json", *arguments]
    return run_here(*command, cwd=workspace, variables=variables)


def test_report_writes_a_page_into_the_workspace_and_says_where(workspace: Path) -> None:
    played = play(workspace, "--report")
    assert played.returncode == 0
    execution = json.loads(played.stdout)
    file = workspace / "reports" / f"{execution['execution_id']}.html"
    assert played.stderr.splitlines()[-1] == f"the report is in {file}"
    page = file.read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    for told in (
        "Name three uses of &lt;bamboo&gt;.",
        "<strong>Scaffolds</strong>, &lt;i&gt;paper&lt;/i&gt;.",
        f"{execution['best_score']:.2f}",
        "max rounds reached",
        "<h4>Member calls</h4>",
        "<h4>Judgment</h4>",
        ":leader-a</bdi>",
        '"max_rounds": 1',
    ):
        assert told in page


def test_a_report_may_be_written_anywhere_and_is_not_written_unasked(workspace: Path) -> None:
    played = play(workspace, "--report-file", "told.html")
    assert played.stderr.splitlines()[-1] == f"the report is in {workspace / 'told.html'}"
    assert (workspace / "told.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert "report" not in play(workspace).stderr
    assert not (workspace / "reports").exists()


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (("--report",), "a dry run writes no report"),
        (("--output", "a.md", "--report-file", "r.html"), "a dry run writes no answer and no report"),
        (("--output", "a.md"), "a dry run writes no answer"),
    ],
)
def test_a_dry_run_tells_that_it_writes_nothing_of_what_is_asked_for(
    asked: tuple[str, ...], told: str, workspace: Path
) -> None:
    tried = play(workspace, *asked, "--dry-run")
    assert (tried.returncode, f"mixseek: {told}\n" in tried.stderr) == (0, True), tried.stderr
    assert not list(workspace.glob("*.md")) + list(workspace.glob("*.html")) + list(workspace.glob("reports"))
    assert "a dry run writes" not in play(workspace, "--dry-run").stderr


def test_a_place_where_nothing_can_be_written_is_told_before_a_model_is_called(workspace: Path) -> None:
    played = play(workspace, "--report-file", "nowhere/told.html")
    assert played.returncode == 2
    [problem] = json.loads(played.stdout)["error"]["problems"]
    assert problem["file"] == "--report-file 'nowhere/told.html'"
    assert "there is no directory" in problem["message"]
    assert not (workspace / "mixseek.db").exists()


def test_a_file_in_the_place_of_the_reports_is_told_before_a_model_is_called(workspace: Path) -> None:
    (workspace / "reports").write_text("a file where a directory should be")
    played = play(workspace, "--report")
    assert played.returncode == 2
    [problem] = json.loads(played.stdout)["error"]["problems"]
    assert problem["file"] == str(workspace / "reports")
    assert "needs a directory there: move it away" in problem["message"]
    assert not (workspace / "mixseek.db").exists()


def test_a_report_that_cannot_be_written_costs_no_result(workspace: Path) -> None:
    (workspace / "reports").symlink_to(workspace / "nowhere" / "to be found")
    played = play(workspace, "--report")
    assert played.returncode == 1
    assert json.loads(played.stdout)["best_score"] > 0
    assert "cannot be written" in played.stderr.splitlines()[-1]
