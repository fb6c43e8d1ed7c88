"""Logs of a command: on standard error for people, in ``logs/mixseek.log`` for later; secrets and codes taken out."""

import json
import logging
import sys
from enum import StrEnum
from logging.handlers import RotatingFileHandler
from typing import Annotated

import typer

from mixseek.cli.output import clean, warn
from mixseek.redaction import RedactingFilter, Redactor
from mixseek.workspace import Workspace

__all__ = [
    "LogFormat",
    "LogFormatOption",
    "LogLevel",
    "LogLevelOption",
    "NoLogConsoleOption",
    "NoLogFileOption",
    "VerboseOption",
    "start_logging",
]

_MAX_BYTES = 10 * 1024 * 1024
_KEPT_FILES = 5

_started: list[logging.Handler] = []


class LogFormat(StrEnum):
    """How a log line is written."""

    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    """The least that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


VerboseOption = Annotated[bool, typer.Option("--verbose", "-v", help="Log everything, on the console too.")]
LogLevelOption = Annotated[
    LogLevel | None,
    typer.Option(
        "--log-level",
        case_sensitive=False,
        help="The least that is logged. Without it: warnings on the console, info in the file.",
    ),
]
LogFormatOption = Annotated[LogFormat, typer.Option("--log-format", help="How log lines are written.")]
NoLogConsoleOption = Annotated[bool, typer.Option("--no-log-console", help="No log lines on the console.")]
NoLogFileOption = Annotated[bool, typer.Option("--no-log-file", help="No file logs/mixseek.log in the workspace.")]


def start_logging(
    workspace: Workspace,
    redactor: Redactor,
    *,
    verbose: bool = False,
    level: LogLevel | None = None,
    log_format: LogFormat = LogFormat.TEXT,
    console: bool = True,
    file: bool = True,
) -> None:
    """Send all that is logged from now on where it was asked for."""
    asked = LogLevel.DEBUG if verbose else level
    handlers: list[logging.Handler] = []
    if console:
        handlers.append(_console_handler(asked or LogLevel.WARNING, verbose=verbose))
    if file:
        handlers += _file_handlers(workspace, asked or LogLevel.INFO)
    for handler in handlers:
        handler.addFilter(RedactingFilter(redactor))
        if log_format is LogFormat.JSON:
            handler.setFormatter(_JsonLines())
    # Without any handler, Python would print warnings by itself.
    _exchange(handlers or [logging.NullHandler()])
    logging.getLogger("mixseek").setLevel(min((handler.level for handler in handlers), default=logging.ERROR))
    # What libraries tell below a warning is about themselves: an HTTP client, for one, tells of every request.
    logging.root.setLevel(logging.DEBUG if verbose else logging.WARNING)


def _exchange(handlers: list[logging.Handler]) -> None:
    """Use these from now on, and no longer those of an earlier command of this process."""
    for handler in _started:
        logging.root.removeHandler(handler)
        handler.close()
    _started[:] = handlers
    for handler in handlers:
        logging.root.addHandler(handler)


def _console_handler(level: LogLevel, *, verbose: bool) -> logging.Handler:
    handler = logging.StreamHandler(sys.stderr)
    handler.setLevel(level.upper())
    handler.setFormatter(_Lines("%(levelname)s %(message)s", tracebacks=verbose))
    if not verbose:
        handler.addFilter(_is_news)
    return handler


def _file_handlers(workspace: Workspace, level: LogLevel) -> list[logging.Handler]:
    """The file, or none where it cannot be written: a run is worth more than its log."""
    path = workspace.root / "logs" / "mixseek.log"
    try:
        path.parent.mkdir(exist_ok=True)
        handler = RotatingFileHandler(path, maxBytes=_MAX_BYTES, backupCount=_KEPT_FILES, encoding="utf-8")
    except OSError as error:
        warn(f"no log file: {path} cannot be written: {error.strerror}")
        return []
    handler.setLevel(level.upper())
    handler.setFormatter(_Lines("%(asctime)s %(levelname)s %(name)s: %(message)s", tracebacks=True))
    return [handler]


def _is_news(record: logging.LogRecord) -> bool:
    """Whether a record tells a reader of the console more than the lines about events do."""
    return record.levelno > logging.WARNING or not record.name.startswith("mixseek.orchestrator")


class _Lines(logging.Formatter):
    """A harmless line for a record, and, where wanted, its traceback below it."""

    def __init__(self, pattern: str, *, tracebacks: bool) -> None:
        super().__init__(pattern)
        self._tracebacks = tracebacks

    def format(self, record: logging.LogRecord) -> str:
        text, trace = self._parts(record)
        if not trace:
            return text
        lines = trace.splitlines()
        if not self._tracebacks:
            return f"{text}: {clean(lines[-1])}"
        return "\n".join([text, *(f"  {clean(line)}" for line in lines)])

    def _parts(self, record: logging.LogRecord) -> tuple[str, str]:
        trace = record.exc_text or (self.formatException(record.exc_info) if record.exc_info else "")
        record.message = record.getMessage()
        if self.usesTime():
            record.asctime = self.formatTime(record, self.datefmt)
        return clean(self.formatMessage(record)), trace


class _JsonLines(logging.Formatter):
    """A record as one JSON object on one line."""

    def format(self, record: logging.LogRecord) -> str:
        told = {
            "time": self.formatTime(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        trace = record.exc_text or (self.formatException(record.exc_info) if record.exc_info else None)
        # ASCII alone, so that nothing in it can steer a terminal.
        return json.dumps(told | ({"traceback": trace} if trace else {})).replace("\x7f", "\\u007f")
