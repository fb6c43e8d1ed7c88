"""The report of an execution that was just played: where it is wanted, and the line that tells where it is."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from mixseek.cli.answer_file import writable_file
from mixseek.cli.output import warn
from mixseek.errors import ConfigurationError, MixSeekError, Problem
from mixseek.workspace import Workspace

__all__ = ["ReportFile", "ReportFileOption", "ReportOption", "report_file"]

ReportOption = Annotated[
    bool, typer.Option("--report", help="Write a report, one HTML file, to reports/ of the workspace.")
]
ReportFileOption = Annotated[
    Path | None, typer.Option("--report-file", metavar="FILE", help="Write the report to this file.")
]


@dataclass(frozen=True)
class ReportFile:
    """A place for the report; without a path it is named after the execution."""

    workspace: Workspace
    path: Path | None

    def save(self, execution_id: str) -> bool:
        """Whether the report is there now; what it tells is stored, so it can be written again."""
        from mixseek.report.html import save_report  # only who wants a report pays for loading what draws it

        try:
            path = save_report(self.workspace, execution_id, self.path)
        except MixSeekError as error:
            warn(f"mixseek: {error}")
            return False
        warn(f"the report is in {path}")
        return True


def report_file(workspace: Workspace, is_wanted: bool, given: Path | None) -> ReportFile | None:
    """Where a report is wanted, if it is, or a ConfigurationError if nothing can be written there."""
    if given is not None:
        return ReportFile(workspace, writable_file(given, "--report-file"))
    if is_wanted:
        _try_directory(workspace.reports)
    return ReportFile(workspace, None) if is_wanted else None


def _try_directory(reports: Path) -> None:
    """Refuse a place where no report can be; a workspace that cannot be written at all is told of by its stores."""
    if reports.exists() and not reports.is_dir():
        raise ConfigurationError(Problem("is a file, and --report needs a directory there: move it away", str(reports)))
