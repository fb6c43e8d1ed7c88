"""``mixseek export``: one execution as a document, for people or for programs."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from mixseek.cli.output import Format, WorkspaceOption, json_text, print_document, print_line, use_format
from mixseek.cli.stored import IdArgument, as_json, open_place
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

    html is one file that needs nothing else; it goes to mixseek-ID.html in the current directory unless --output names
    another. md, json and csv go to standard output unless --output names a file. csv has a row for each round.

    \b
    Examples:
      mixseek export
      mixseek export last --format md > report.md
      mixseek export 3f2a --format csv --output rounds.csv
    """
    wanted = output or _format_of(file)
    use_format(Format.JSON if wanted is ExportFormat.JSON else Format.TEXT)
    record = open_place(workspace).load(execution)
    text = _rendered(record, wanted)
    target = file or (_page_of(record) if wanted is ExportFormat.HTML else _STANDARD_OUTPUT)
    if target == _STANDARD_OUTPUT:
        print_document(text)
        return
    _write(target, text)
    # Where JSON was asked for, nothing else may stand on standard output.
    if wanted is not ExportFormat.JSON:
        print_line(f"wrote {target}")


def _format_of(file: Path | None) -> ExportFormat:
    """What the ending of a file's name says."""
    if file is None or file == _STANDARD_OUTPUT:
        return ExportFormat.HTML
    endings = {".htm": "html", ".markdown": "md"}
    ending = file.suffix.lower()
    known = endings.get(ending, ending.removeprefix("."))
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
        case ExportFormat.MD:
            from mixseek.report import markdown_document

            return markdown_document.render(record)
        case ExportFormat.CSV:
            from mixseek.report.tabular import csv_text, round_table

            return csv_text(*round_table(record))
        case ExportFormat.JSON:
            return json_text(as_json(record)) + "\n"


def _page_of(record: ExecutionRecord) -> Path:
    """A name without anything that a directory or a shell could take for its own: an id may be any text."""
    name = "".join(
        letter if letter.isascii() and (letter.isalnum() or letter in "-_") else "_" for letter in record.execution_id
    )
    return Path(f"mixseek-{name[:64]}.html")


def _write(target: Path, text: str) -> None:
    target = target.expanduser()
    try:
        write_whole(target, text)
    except OSError as error:
        raise ConfigurationError(
            f"{str(target)!r} cannot be written: {error.strerror}; name another file with --output"
        ) from error
