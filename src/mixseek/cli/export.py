"""``mixseek export``: one execution as a document, for people or for programs."""

import errno
import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from mixseek.cli.output import Format, WorkspaceOption, json_text, print_document, print_line, use_format, warn
from mixseek.cli.stored import IdArgument, Place, as_json, open_place
from mixseek.errors import ConfigurationError
from mixseek.report.reading import LAST
from mixseek.report.record import ExecutionRecord
from mixseek.whole_file import write_whole

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_STANDARD_OUTPUT = Path("-")


class ExportFormat(StrEnum):
    """What an execution is written as."""

    HTML = "html"
    MD = "md"
    MARKDOWN = "markdown"
    JSON = "json"
    CSV = "csv"


@app.command("export")
def export(
    execution: IdArgument = LAST,
    output: Annotated[
        ExportFormat | None,
        typer.Option("--format", "-f", help="What to write; without it, what the file's name says, else html."),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Where to write it; - is standard output."),
    ] = None,
    workspace: WorkspaceOption = None,
) -> None:
    """Write one execution as a page, Markdown, JSON or a table.

    html is one file that needs nothing else; like the report of demo and exec --report it goes to reports/ of the
    workspace, unless --output names another file. md (or markdown), json and csv go to standard output unless --output
    names a file. csv has a row for each round.

    \b
    Examples:
      mixseek export
      mixseek export last --format md > report.md
      mixseek export 3f2a --format csv --output rounds.csv
    """
    wanted = output or _format_of(file)
    use_format(Format.JSON if wanted is ExportFormat.JSON else Format.TEXT)
    place = open_place(workspace)
    record = place.load(execution)
    text = _rendered(record, wanted)
    target = file or (_page_of(record, place) if wanted is ExportFormat.HTML else _STANDARD_OUTPUT)
    if target == _STANDARD_OUTPUT:
        print_document(text)
        return
    _write(target, text)
    # Where JSON was asked for, nothing else may stand on standard output.
    (warn if wanted is ExportFormat.JSON else print_line)(f"wrote {target}")


def _format_of(file: Path | None) -> ExportFormat:
    """What the ending of a file's name says."""
    if file is None or file == _STANDARD_OUTPUT:
        return ExportFormat.HTML
    if file.is_dir():
        raise _cannot_be_written(file, IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR)))
    ending = file.suffix.lower().removeprefix(".")
    known = "html" if ending == "htm" else ending
    if known not in list(ExportFormat):
        raise ConfigurationError(
            f"the name {file.name!r} does not say what to write: give --format {'|'.join(ExportFormat)}"
        )
    return ExportFormat(known)


def _rendered(record: ExecutionRecord, wanted: ExportFormat) -> str:
    # Each is imported when it is wanted: the page brings along what no other needs.
    match wanted:
        case ExportFormat.HTML:
            from mixseek.report import html

            return html.render(record)
        case ExportFormat.MD | ExportFormat.MARKDOWN:
            from mixseek.report import markdown_document

            return markdown_document.render(record)
        case ExportFormat.CSV:
            from mixseek.report.tabular import csv_text, round_table

            return csv_text(*round_table(record))
        case ExportFormat.JSON:
            return json_text(as_json(record)) + "\n"


def _page_of(record: ExecutionRecord, place: Place) -> Path:
    """Where every report is that nobody wants elsewhere; the directory is made with the first."""
    from mixseek.report.html import report_path

    path = report_path(place.workspace, record.execution_id)
    try:
        path.parent.mkdir(exist_ok=True)
    except FileExistsError:
        pass  # a file of this name: told when the page is written
    except OSError as error:
        raise _cannot_be_written(path, error) from error
    return path


def _write(target: Path, text: str) -> None:
    target = target.expanduser()
    try:
        write_whole(target, text)
    except OSError as error:
        raise _cannot_be_written(target, error) from error


def _cannot_be_written(target: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError(f"{str(target)!r} cannot be written: {error.strerror}; name another file with --output")
