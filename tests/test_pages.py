"""The pages on prompts and on results: what their examples do, and that they leave nothing out."""

import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import get_args

import duckdb
import pytest

from mixseek.orchestrator import Orchestrator, load_orchestrator_settings
from mixseek.prompt_builder import Jinja2PromptBuilder
from mixseek.prompt_builder.models import LeaderboardEntry, SubmissionRecord
from mixseek.records import EvaluationResult, ExitReason, MetricScore, Record
from mixseek.templating.variables import PROMPT_FILTERS, VARIABLES_BY_TEMPLATE
from mixseek.testing import scripted, write_workspace
from soak import forked

DOCS = Path(__file__).parent.parent / "docs"
PROMPTS = (DOCS / "prompts.md").read_text(encoding="utf-8")
RESULTS = (DOCS / "results.md").read_text(encoding="utf-8")


def _blocks(page: str, language: str) -> list[str]:
    found = re.findall(rf"^([ ]*)```{language}\n(.*?)^\1```", page, re.DOTALL | re.MULTILINE)
    return [dedent(block) for _, block in found]


# --- prompts --------------------------------------------------------------------------------------------------------


@pytest.fixture
def described(tmp_path: Path) -> Path:
    """A workspace with every file the page on prompts shows."""
    for text in [*_blocks(PROMPTS, "jinja"), *_blocks(PROMPTS, "toml")]:
        name = re.findall(r"configs/\S+", text.splitlines()[0])[0]
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_the_templates_of_the_page_on_prompts_show_the_past(described: Path) -> None:
    builder = Jinja2PromptBuilder(described / "configs" / "prompt_templates")
    assert builder.build_initial_prompt("Why?", "a", {"team_name": "Team A"}).split("\n\n")[1] == (
        "This is round 1. You are Team A."
    )
    evaluation = EvaluationResult(metrics=[MetricScore(metric_name="Coverage", score=81.5)], overall_score=81.5)
    standing = LeaderboardEntry(
        rank=1, team_id="a", team_name="Team A", best_score=81.5, latest_round=1, total_rounds=1
    )
    prompt = builder.build_continuation_prompt(
        "Why?", 2, "a", [SubmissionRecord(round_number=1, content="Because.", score=0)], [evaluation], [standing], 1
    )
    for line in ("## Round 1: 81.5/100", "Because.", "- Coverage: 81.5", "🥇 Team A 81.5/100 (you)"):
        assert line in prompt.splitlines()


def test_the_page_on_prompts_names_every_variable_with_its_type() -> None:
    for name, variables in VARIABLES_BY_TEMPLATE.items():
        assert f"`{name}" in PROMPTS
        for variable, kind in variables.items():
            assert f"| `{variable}` | {kind} |" in PROMPTS
    for filter_ in PROMPT_FILTERS:
        assert f"`{filter_}" in PROMPTS


@pytest.mark.parametrize("record", [SubmissionRecord, EvaluationResult, MetricScore, LeaderboardEntry])
def test_the_page_on_prompts_names_every_field_of_a_record(record: type[Record]) -> None:
    name = "LeaderboardEntry" if record is LeaderboardEntry else record.__name__
    [row] = [line for line in PROMPTS.splitlines() if line.startswith(f"| `{name}`")]
    assert [field for field in [*record.model_fields, *record.template_properties] if f"`{field}`" not in row] == []


# --- results --------------------------------------------------------------------------------------------------------


@pytest.fixture
async def played(tmp_path: Path) -> Path:
    """A workspace in which two teams have played two rounds."""
    file = write_workspace(tmp_path, teams=2, members=1, max_rounds=2)
    with scripted():
        await Orchestrator(load_orchestrator_settings(file, tmp_path)).execute("Name the capital of Japan.")
    return tmp_path


def test_the_page_on_results_names_every_column_with_its_type(played: Path) -> None:
    with duckdb.connect(str(played / "mixseek.db"), read_only=True) as db:
        columns = db.sql(
            "SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE NOT internal"
        ).fetchall()
    tables: dict[str, set[tuple[str, str]]] = {}
    for table, column, kind in columns:
        tables.setdefault(table, set()).add((column, kind))
    view = tables.pop("leader_board_scored")
    assert view - tables["leader_board"] == {("score_normalized", "DOUBLE")}
    assert {name for name, _ in tables.pop("mixseek_schema")} == {"version", "name", "applied_at"}
    told = {
        section.split("\n")[0]: set(re.findall(r"^\| `(\w+)` \| (\w+) \|", section, re.MULTILINE))
        for section in RESULTS.split("\n### ")[1:]
    }
    assert told == tables


def test_the_page_on_results_names_every_reason_to_stop() -> None:
    assert [reason for reason in get_args(ExitReason) if f"`{reason}`" not in RESULTS] == []


def test_the_retry_of_the_page_on_results_waits_for_the_one_who_has_the_file(played: Path) -> None:
    retry, *_ = _blocks(RESULTS, "python")
    with duckdb.connect(str(played / "mixseek.db")):
        waiting = forked.Popen([sys.executable, "-c", retry + "assert rows\n"], cwd=played)
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(1)
    assert waiting.wait(60) == 0
