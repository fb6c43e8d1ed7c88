"""Logs of a command: on standard error for people, in ``logs/mixseek.log`` for later; secrets and codes taken out.

A command that runs models takes the shared options in one line and gets them as one value, :class:`LogOptions`:

    @app.command("team")
    @takes_log_options  # below the line that registers the command
    def team(prompt: Prompt, workspace: WorkspaceOption = None, *, logs: LogOptions) -> None:
        manager = ConfigurationManager(workspace)
        start_logging(manager.workspace, manager.redactor, logs)
        with watching(logs, manager.environ) as listeners:
            Orchestrator(settings, listeners=[progress, *listeners])

``watching`` gives the listeners that log the events of a run, and send them to Logfire or OpenTelemetry if that was
asked for.
"""

import functools
import inspect
import logging
import os
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Annotated, Any, TextIO

import typer

from mixseek.cli.log_file import SharedLogFile
from mixseek.cli.log_lines import EVENT_LOGGER, JsonLines, Lines, add_where, leave_out_values, log_event
from mixseek.cli.output import warn
from mixseek.errors import ConfigurationError
from mixseek.events import Listener
from mixseek.redaction import RedactingFilter, Redactor
from mixseek.workspace import Workspace

__all__ = [
    "LogFormat",
    "LogLevel",
    "LogOptions",
    "keep_unexpected",
    "start_logging",
    "takes_log_options",
    "watching",
    "without_secrets",
]

# The variable by which OpenTelemetry lets users ask for the content of messages, and what says yes in it.
_CAPTURE_CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_SAYS_YES = ("true", "1", "span_only", "span_and_event")
_STILL_SECONDS = 2.0

_started: list[logging.Handler] = []
_redactor: list[Redactor] = []
"""What takes the secrets out of the logs of this command, once they are started."""

logger = logging.getLogger(__name__)


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


@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """What was asked for on the command line: a field for each shared option, whose annotation is the option."""

    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log everything, on the console too.")] = False
    log_level: Annotated[
        LogLevel | None,
        typer.Option(
            case_sensitive=False,
            envvar="MIXSEEK_LOG_LEVEL",
            help="The least that is logged. Without it: warnings on the console, info in the file.",
        ),
    ] = None
    log_format: Annotated[
        LogFormat,
        typer.Option(case_sensitive=False, envvar="MIXSEEK_LOG_FORMAT", help="How log lines are written."),
    ] = LogFormat.TEXT
    no_log_console: Annotated[bool, typer.Option("--no-log-console", help="No log lines on the console.")] = False
    no_log_file: Annotated[bool, typer.Option("--no-log-file", help="No file logs/mixseek.log in the workspace.")] = (
        False
    )
    logfire: Annotated[
        bool, typer.Option("--logfire", help="Send what happens to Logfire, with prompts and answers.")
    ] = False
    logfire_metadata: Annotated[
        bool, typer.Option("--logfire-metadata", help="Send it to Logfire without any prompt, answer or comment.")
    ] = False
    logfire_http: Annotated[
        bool, typer.Option("--logfire-http", help="As --logfire, and the HTTP requests of model calls too.")
    ] = False
    otel: Annotated[
        bool,
        typer.Option(
            "--otel", envvar="MIXSEEK_OTEL", help="Send what happens by OpenTelemetry, as the OTEL_ variables say."
        ),
    ] = False


def takes_log_options(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the shared options in place of its parameter ``logs``, which gets them as one value."""
    own = inspect.signature(command, eval_str=True)
    shared = [
        inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type)
        for field in fields(LogOptions)
    ]
    parameters = [each for each in own.parameters.values() if each.name != "logs"]

    @functools.wraps(command)
    def with_options(**given: Any) -> None:
        options = LogOptions(**{field.name: given.pop(field.name) for field in fields(LogOptions)})
        command(**given, logs=options)

    # What typer reads: it makes an option of each of these.
    vars(with_options)["__signature__"] = own.replace(parameters=[*parameters, *shared])
    return with_options


def start_logging(
    workspace: Workspace, redactor: Redactor, options: LogOptions | None = None, *, file: bool = True
) -> None:
    """Send all that is logged from now on where it was asked for; without ``file`` a command leaves no trace."""
    options = options or LogOptions()
    asked = LogLevel.DEBUG if options.verbose else options.log_level
    handlers: list[logging.Handler] = []
    if not options.no_log_console:
        handlers.append(_console_handler(asked or LogLevel.WARNING, verbose=options.verbose))
    if file and not options.no_log_file:
        handlers.append(_file_handler(workspace, asked or LogLevel.INFO))
    for handler in handlers:
        handler.addFilter(add_where)
        handler.addFilter(leave_out_values)
        handler.addFilter(RedactingFilter(redactor))
        if options.log_format is LogFormat.JSON:
            handler.setFormatter(JsonLines())
    _redactor[:] = [redactor]
    # Without any handler, Python would print warnings by itself.
    _exchange(handlers or [logging.NullHandler()])
    logging.getLogger("mixseek").setLevel(min((handler.level for handler in handlers), default=logging.ERROR))
    # The judgment has a temperature by default, and models that reason take none: nothing that anybody has to mend.
    warnings.filterwarnings("ignore", message="Sampling parameters")
    # What libraries tell below a warning is about themselves: an HTTP client, for one, tells of every request.
    logging.root.setLevel(logging.DEBUG if options.verbose else logging.WARNING)


@contextmanager
def watching(options: LogOptions, environ: Mapping[str, str]) -> Iterator[Sequence[Listener]]:
    """The listeners that log what happens and send it elsewhere; in the end all they have is sent or given up."""
    to_logfire = options.logfire or options.logfire_metadata or options.logfire_http
    if to_logfire and options.otel:
        raise ConfigurationError(
            "--otel and --logfire exclude each other; Logfire also sends to OTEL_EXPORTER_OTLP_ENDPOINT if it is set"
        )
    if not (to_logfire or options.otel):
        yield (log_event,)
        return
    from mixseek.telemetry import SendTo, sending

    if to_logfire:
        to = SendTo("logfire", content=not options.logfire_metadata, http=options.logfire_http)
    else:
        captures = environ.get(_CAPTURE_CONTENT, "").strip().lower()
        to = SendTo("otel", content=captures in _SAYS_YES, http=True)
    with sending(to, environ, _known_secrets(environ)) as send:
        yield (log_event, send)


def without_secrets(text: str) -> str:
    """A text that is to be printed, without the secrets that the logs know of."""
    return _known_secrets(os.environ).text(text)


def _known_secrets(environ: Mapping[str, str]) -> Redactor:
    """Those of the logs, which know the workspace; before there are any, those of the environment."""
    return _redactor[0] if _redactor else Redactor.from_environment(environ)


def keep_unexpected(error: Exception) -> str:
    """Keep the traceback of an error nobody expected, and say where: in the log, or in a file of its own."""
    if _started:
        logger.critical("unexpected", exc_info=error, extra={"is_told": True})
    files = [handler for handler in _started if isinstance(handler, SharedLogFile) and handler.is_open]
    if files:
        return str(files[0].path)
    with tempfile.NamedTemporaryFile(
        "w", prefix="mixseek-", suffix=".log", delete=False, encoding="utf-8", errors="backslashreplace"
    ) as file:
        file.write(without_secrets("".join(traceback.format_exception(error))))
    return file.name


def _exchange(handlers: list[logging.Handler]) -> None:
    """Use these from now on, and no longer those of an earlier command of this process."""
    for handler in _started:
        logging.root.removeHandler(handler)
        handler.close()
    _started[:] = handlers
    for handler in handlers:
        logging.root.addHandler(handler)


def _console_handler(level: LogLevel, *, verbose: bool) -> logging.Handler:
    handler = _ToStandardError()
    handler.setLevel(level.upper())
    handler.setFormatter(_ConsoleLines("%(levelname)s %(message)s", tracebacks=verbose))
    if not verbose:
        handler.addFilter(_is_news)
        handler.addFilter(_NotAgain())
    if handler.level > logging.INFO:
        handler.addFilter(_at_least(handler.level))
        handler.setLevel(logging.INFO)
    return handler


def _at_least(level: int) -> Callable[[logging.LogRecord], bool]:
    """Whether a record is as important as was asked for, or a notice of something that takes long."""
    return lambda record: record.levelno >= level or _is_notice(record)


class _NotAgain(logging.Filter):
    """Leaves out a line that is the one before it once more, unless so much later that it is news that it still holds.

    A journal that cannot be read, say, is asked for several things.
    """

    def __init__(self) -> None:
        super().__init__()
        self._last: tuple[str, float] = ("", -_STILL_SECONDS)

    def filter(self, record: logging.LogRecord) -> bool:
        """Let the first of several through."""
        line, (last, at) = record.getMessage(), self._last
        if line == last and record.created - at < _STILL_SECONDS:
            return False
        self._last = line, record.created
        return True


def _is_notice(record: logging.LogRecord) -> bool:
    """Progress is for those who sit before a terminal."""
    return getattr(record, "is_notice", False) or (getattr(record, "is_progress", False) and sys.stderr.isatty())


class _ConsoleLines(Lines):
    """Lines with their level, but for notices, which warn of nothing."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # the name is Python's
        return record.message if _is_notice(record) else super().formatMessage(record)


class _ToStandardError(logging.StreamHandler[TextIO]):
    """Writes to what is standard error at the time: while progress is shown, lines go above the picture."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        return sys.stderr


def _file_handler(workspace: Workspace, level: LogLevel) -> logging.Handler:
    """The file; that it cannot be written is told once, since a run is worth more than its log."""
    handler = SharedLogFile(workspace.root / "logs" / "mixseek.log", warn)
    handler.setLevel(level.upper())
    handler.setFormatter(Lines("%(asctime)s %(levelname)s %(name)s: %(message)s", tracebacks=True))
    return handler


def _is_news(record: logging.LogRecord) -> bool:
    """Whether a record tells a reader of the console more than the lines about events and errors do."""
    if getattr(record, "is_told", False):
        return False
    told = record.name.startswith(("mixseek.orchestrator", EVENT_LOGGER))
    return record.levelno > logging.WARNING or not told
