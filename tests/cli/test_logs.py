"""What is logged of a whole competition, and a log file that many processes share."""

import json
import logging
import multiprocessing
import os
import re
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import pytest
import typer

from mixseek.cli import logs, main
from mixseek.cli.log_file import SharedLogFile
from mixseek.cli.logs import LogFormat, LogLevel, LogOptions, takes_log_options
from mixseek.errors import DatabaseLockedError
from mixseek.redaction import Redactor
from mixseek.testing import Match, ToolCall, scripted, write_workspace
from mixseek.workspace import Workspace

CANARIES = {
    "prompt": "canary-of-the-prompt",
    "task": "canary-of-a-task",
    "member": "canary-of-a-member",
    "answer": "canary-of-an-answer",
    "comment": "canary-of-a-comment",
    "reasoning": "canary-of-a-reasoning",
}
METRIC = """
[[metrics]]
name = "Relevance"
[[metrics]]
name = "Quoting"
[custom_metrics.Quoting]
path = "quoting.py"
class = "Quoting"
"""
QUOTING = """
from pydantic import TypeAdapter
from mixseek.evaluator.metrics.base import BaseMetric
from mixseek.models.evaluation_result import MetricScore

class Quoting(BaseMetric):
    async def evaluate(self, user_query, submission, **context):
        if "unscorable" in submission:
            TypeAdapter(int).validate_python(submission)
        return MetricScore(metric_name="Quoting", score=50, evaluator_comment="")
"""


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    levels = logging.root.level, logging.getLogger("mixseek").level
    yield
    logs._exchange([])
    logging.root.setLevel(levels[0])
    logging.getLogger("mixseek").setLevel(levels[1])


def _play(workspace: Path, *options: str) -> int | str | None:
    """A competition in which one team does well, one gives no answers, and the answers of a third cannot be scored."""
    rules = "min_rounds = 1\nmax_retries_per_team = 0"
    write_workspace(workspace, teams=3, members=1, max_rounds=2, orchestrator=rules, evaluator=METRIC)
    (workspace / "quoting.py").write_text(QUOTING)
    with scripted() as script:
        script.on(
            Match("judgment"),
            lambda call: {"reasoning": CANARIES["reasoning"], "should_continue": True, "confidence_score": 1},
        )
        script.on(Match("judge"), lambda call: {"evaluator_comment": CANARIES["comment"], "score": 50})
        script.on(Match("leader-*"), lambda call: _lead(call.model, call.tool_results))
        script.on(Match("member-*"), lambda call: CANARIES["member"])
        with pytest.raises(SystemExit) as ended:
            main(["exec", CANARIES["prompt"], "-c", "configs/orchestrator.toml", "-w", str(workspace), *options])
    return ended.value.code


def _lead(model: str, results: object) -> ToolCall | str:
    if not results:
        return ToolCall("delegate_to_member-1", {"task": CANARIES["task"]})
    if model == "leader-b":
        return ""
    return f"{CANARIES['answer']} {'unscorable' if model == 'leader-c' else ''}"


def _log(workspace: Path) -> str:
    return (workspace / "logs" / "mixseek.log").read_text(encoding="utf-8")


# --- what is logged ---------------------------------------------------------------------------------------------------


def test_no_word_of_a_prompt_or_an_answer_is_logged_above_debug(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _play(tmp_path, "--log-level", "info") == 1
    log = _log(tmp_path)
    assert "a: round 2 finished, score 50.00" in log
    assert "team 'c' failed: " in log
    assert "Traceback" in log
    assert not [canary for canary in CANARIES.values() if canary in log]
    console = [line for line in capsys.readouterr().err.splitlines() if line.startswith(("INFO", "WARNING", "ERROR"))]
    assert console
    assert not [canary for canary in CANARIES.values() if canary in "".join(console)]


def test_at_debug_the_words_are_logged_too(tmp_path: Path) -> None:
    assert _play(tmp_path, "--log-level", "debug", "--no-log-console") == 1
    log = _log(tmp_path)
    assert not [canary for canary in CANARIES.values() if canary not in log]


def test_a_json_line_tells_the_execution_the_team_and_the_round(tmp_path: Path) -> None:
    _play(tmp_path, "--log-format", "json", "--no-log-console")
    lines = [json.loads(line) for line in _log(tmp_path).splitlines()]
    (execution,) = {line["execution_id"] for line in lines if "execution_id" in line}
    (evaluated,) = [line for line in lines if line["message"] == "a: round 2 evaluated, score 50.00"]
    assert (evaluated["execution_id"], evaluated["team_id"], evaluated["round_number"]) == (execution, "a", 2)
    # A line that no event wrote knows its place as well.
    (failed,) = [line for line in lines if line["logger"] == "mixseek.evaluator.evaluator"]
    assert (failed["team_id"], failed["round_number"]) == ("c", 1)
    assert "Traceback" in failed["traceback"]
    assert failed["time"].endswith("+00:00")
    # What is logged after the end of a team is no longer about it, but the line that tells the end is.
    ends = {
        line["message"].partition(",")[0]: line for line in lines if re.match(r"\w: (finished|failed)", line["message"])
    }
    assert {message: line["team_id"] for message, line in ends.items()} == {
        "a: finished": "a",
        "b: failed": "b",
        "c: failed": "c",
    }


def test_variables_set_level_and_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIXSEEK_LOG_LEVEL", "warning")
    monkeypatch.setenv("MIXSEEK_LOG_FORMAT", "JSON")
    _play(tmp_path, "--no-log-console")
    assert {json.loads(line)["level"] for line in _log(tmp_path).splitlines()} == {"WARNING"}


def test_a_command_gets_the_shared_options_as_one_value(capsys: pytest.CaptureFixture[str]) -> None:
    app, given = typer.Typer(), list[LogOptions]()

    @app.command()
    @takes_log_options
    def try_(name: Annotated[str, typer.Argument()], *, logs: LogOptions) -> None:
        assert name == "x"
        given.append(logs)

    with pytest.raises(SystemExit):
        app(args=["x", "-v", "--log-level", "ERROR", "--log-format", "json", "--no-log-file"], prog_name="try")
    (logs_,) = given
    assert (logs_.verbose, logs_.log_level, logs_.log_format) == (True, LogLevel.ERROR, LogFormat.JSON)
    assert (logs_.no_log_console, logs_.no_log_file) == (False, True)


# --- the file ---------------------------------------------------------------------------------------------------------


def _write_lines(path: Path, writer: int, count: int) -> None:
    handler = SharedLogFile(path, lambda words: os._exit(3), max_bytes=2000, kept_files=400)
    for number in range(count):
        handler.emit(logging.makeLogRecord({"msg": f"writer {writer} line {number:04d} {'x' * 40}"}))
    handler.close()


def test_processes_that_rotate_one_file_lose_and_tear_no_line(tmp_path: Path) -> None:
    path, count = tmp_path / "mixseek.log", 300
    spawn = multiprocessing.get_context("spawn")
    writers = [spawn.Process(target=_write_lines, args=(path, writer, count)) for writer in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    files = [file for file in tmp_path.iterdir() if not file.name.startswith(".")]
    lines = sorted(line for file in files for line in file.read_text().splitlines())
    assert lines == sorted(
        f"writer {writer} line {number:04d} {'x' * 40}" for writer in range(3) for number in range(count)
    )
    assert len(files) > 10
    assert max(file.stat().st_size for file in files) < 4000


def test_a_file_that_was_taken_away_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "mixseek.log"
    handler = SharedLogFile(path, print)
    handler.emit(logging.makeLogRecord({"msg": "gone"}))
    path.unlink()
    handler.emit(logging.makeLogRecord({"msg": "here"}))
    handler.close()
    assert path.read_text() == "here\n"


def test_a_full_disk_is_told_once_and_stops_nothing(tmp_path: Path) -> None:
    told: list[str] = []
    handler = SharedLogFile(tmp_path / "mixseek.log", told.append)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        for _ in range(3):
            handler.emit(logging.makeLogRecord({"msg": "more than ten bytes"}))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    handler.close()
    assert told == [f"the log file {tmp_path / 'mixseek.log'} cannot be written: File too large"]


def test_a_command_that_is_refused_leaves_no_log_behind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_workspace(tmp_path, teams=1)
    (tmp_path / "configs" / "prompt_builder.toml").write_text('[prompt_builder]\nlanguage = "en"\n')
    (tmp_path / "configs" / "orchestrator.toml").write_text("[orchestrator]\nteam = 1\n")
    with pytest.raises(SystemExit) as end:
        main(["exec", "a task", "-w", str(tmp_path)])
    assert end.value.code == 2
    assert "orchestrator.team: unknown key" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["configs"]


def test_the_console_tells_a_reason_of_our_own_once_and_without_the_name_of_its_class(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.start_logging(Workspace(tmp_path), Redactor([]))
    for team, error in [("a", DatabaseLockedError("it is held")), ("b", DatabaseLockedError("it is held"))]:
        logging.getLogger("mixseek.orchestrator").error("team %s could not be marked", team, exc_info=error)
    logging.getLogger("mixseek.orchestrator").error("team c could not be marked", exc_info=OSError("no room"))
    assert capsys.readouterr().err.splitlines() == [
        "ERROR team a could not be marked: it is held",
        "ERROR team b could not be marked: for the same reason",
        "ERROR team c could not be marked: OSError: no room",
    ]
    assert _log(tmp_path).count("mixseek.errors.DatabaseLockedError: it is held") == 2


def test_the_console_has_a_line_once_more_only_where_it_still_holds_after_a_while(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.start_logging(Workspace(tmp_path), Redactor(), LogOptions(no_log_file=True))
    for at, words in [(0, "waiting"), (1, "waiting"), (1, "other"), (1.5, "waiting"), (3, "waiting"), (4, "waiting")]:
        record = logging.makeLogRecord({"levelno": logging.WARNING, "msg": words, "created": at, "name": "mixseek.x"})
        logging.getLogger("mixseek.x").handle(record)
    told = [line.split()[-1] for line in capsys.readouterr().err.splitlines()]
    assert told == ["waiting", "other", "waiting", "waiting"]
