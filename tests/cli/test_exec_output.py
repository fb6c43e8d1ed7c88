"""What a command writes beside its result: logs without secrets or codes, and letters a terminal may not know."""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from mixseek.cli import logs
from mixseek.cli.log_file import SharedLogFile
from mixseek.cli.logs import LogFormat, LogLevel, LogOptions, start_logging
from mixseek.redaction import Redactor
from mixseek.workspace import Workspace

SECRET = "a-secret-of-the-environment"
REDACTOR = Redactor([SECRET])

logger = logging.getLogger("mixseek.some.module")


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    levels = logging.root.level, logging.getLogger("mixseek").level
    yield
    logs._exchange([])
    logging.root.setLevel(levels[0])
    logging.getLogger("mixseek").setLevel(levels[1])


def _fail() -> None:
    try:
        raise RuntimeError(f"no luck with {SECRET} \x1b[2J")
    except RuntimeError:
        logger.exception("it failed")


def _log(tmp_path: Path) -> str:
    file = tmp_path / "logs" / "mixseek.log"
    return file.read_text() if file.exists() else ""


def test_warnings_reach_the_console_and_information_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start_logging(Workspace(tmp_path), REDACTOR)
    logger.info("for the file")
    logger.warning("for both: %s", SECRET)
    logging.getLogger("httpx").info("a request")
    assert capsys.readouterr().err == "WARNING for both: [redacted]\n"
    lines = _log(tmp_path).splitlines()
    assert [line.split(maxsplit=2)[2] for line in lines] == [
        "INFO mixseek.some.module: for the file",
        "WARNING mixseek.some.module: for both: [redacted]",
    ]


def test_the_console_gets_an_error_in_a_line_and_the_file_its_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start_logging(Workspace(tmp_path), REDACTOR)
    _fail()
    assert capsys.readouterr().err == "ERROR it failed: RuntimeError: no luck with [redacted] \\x1b[2J\n"
    assert "\n  Traceback (most recent call last):\n" in _log(tmp_path)
    assert "\n  RuntimeError: no luck with [redacted] \\x1b[2J\n" in _log(tmp_path)


def test_verbose_shows_everything_on_the_console(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start_logging(Workspace(tmp_path), REDACTOR, LogOptions(verbose=True), file=False)
    logger.debug("a detail")
    logging.getLogger("httpx").debug("a detail of others")
    _fail()
    printed = capsys.readouterr().err
    assert printed.startswith("DEBUG a detail\nDEBUG a detail of others\nERROR it failed\n  Traceback ")
    assert not (tmp_path / "logs").exists()


@pytest.mark.parametrize(("level", "lines"), [(LogLevel.INFO, 2), (LogLevel.WARNING, 1), (LogLevel.ERROR, 0)])
def test_the_level_holds_for_console_and_file(
    level: LogLevel, lines: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start_logging(Workspace(tmp_path), REDACTOR, LogOptions(log_level=level))
    logger.info("one")
    logger.warning("two")
    assert len(capsys.readouterr().err.splitlines()) == lines
    assert len(_log(tmp_path).splitlines()) == lines


def test_as_json_every_record_is_one_object_on_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start_logging(Workspace(tmp_path), REDACTOR, LogOptions(log_format=LogFormat.JSON))
    logger.warning("ä\n\x7f\u202e %s", SECRET)
    _fail()
    printed = capsys.readouterr().err
    assert printed.isascii()
    assert "\x7f" not in printed
    warning, error = (json.loads(line) for line in printed.splitlines())
    assert (warning["level"], warning["message"]) == ("WARNING", "ä\n\x7f\u202e [redacted]")
    assert error["traceback"].endswith("RuntimeError: no luck with [redacted] \x1b[2J")
    assert [json.loads(line)["level"] for line in _log(tmp_path).splitlines()] == ["WARNING", "ERROR"]


def test_without_console_and_file_nothing_is_written_anywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start_logging(Workspace(tmp_path), REDACTOR, LogOptions(no_log_console=True), file=False)
    logger.error("nobody hears this")
    assert capsys.readouterr() == ("", "")
    assert list(tmp_path.iterdir()) == []


def test_a_second_command_of_one_process_does_not_log_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start_logging(Workspace(tmp_path), REDACTOR)
    start_logging(Workspace(tmp_path), REDACTOR)
    logger.warning("once")
    assert capsys.readouterr().err == "WARNING once\n"
    assert len(_log(tmp_path).splitlines()) == 1


def test_a_log_that_cannot_be_written_is_told_and_stops_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "logs").write_text("a file where a directory should be")
    start_logging(Workspace(tmp_path), REDACTOR)
    for _ in range(2):
        logger.info("nobody reads this")
    file = tmp_path / "logs" / "mixseek.log"
    assert capsys.readouterr().err == f"the log file {file} cannot be written: File exists\n"


def test_the_log_file_is_rotated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "SharedLogFile", partial(SharedLogFile, max_bytes=1000))
    start_logging(Workspace(tmp_path), REDACTOR, LogOptions(no_log_console=True))
    for number in range(200):
        logger.info("line %d", number)
    files = sorted(path.name for path in (tmp_path / "logs").glob("mixseek*"))
    assert files == ["mixseek.log", *(f"mixseek.log.{number}" for number in range(1, 6))]
    assert all(path.stat().st_size <= 1000 for path in (tmp_path / "logs").iterdir())


def test_an_answer_is_not_lost_on_a_terminal_that_lacks_its_letters() -> None:
    code = (
        "from mixseek.cli.output import print_json, print_text, warn\n"
        "print_text('東京\\n😀'); print_json({'answer': '東京😀'}); warn('東京')"
    )
    environment = {**os.environ, "PYTHONIOENCODING": "ascii:strict"}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment, timeout=60, check=True)
    text, document = ran.stdout.decode("ascii").split("{")
    assert text == "\\u6771\\u4eac\n\\U0001f600\n"
    assert json.loads("{" + document) == {"answer": "東京😀"}
    assert ran.stderr == b"\\u6771\\u4eac\n"
