"""``mixseek doctor``: what keeps MixSeek from working here, and what to do about it."""

import os
from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby

import typer

from mixseek.amounts import counted
from mixseek.cli.checkup import Finding, look_around
from mixseek.cli.output import Format, FormatOption, WorkspaceOption, print_json, print_line, use_format
from mixseek.redaction import Redactor

__all__ = ["app"]

EXIT_SOMETHING_FAILS = 1

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command("doctor")
def doctor(output: FormatOption = Format.TEXT, workspace: WorkspaceOption = None) -> None:
    """Look for what keeps MixSeek from working here; no model is called and no file is made.

    Exit codes: 0 nothing fails, 1 something does.

    \b
    Examples:
      mixseek doctor
      mixseek doctor -w my-workspace -f json
    """
    use_format(output)
    redactor = Redactor.from_environment()
    findings = list(look_around(workspace, os.environ))
    failed = sum(finding.state == "fail" for finding in findings)
    if output is Format.JSON:
        print_json(redactor.value({"ok": not failed, "findings": [asdict(finding) for finding in findings]}))
    else:
        for line in _lines(findings):
            print_line(redactor.text(line))
    raise typer.Exit(EXIT_SOMETHING_FAILS if failed else 0)


def _lines(findings: Sequence[Finding]) -> list[str]:
    lines = []
    for area, found in groupby(findings, key=lambda finding: finding.area):
        lines.append(f"{area[0].upper()}{area[1:]}")
        for finding in found:
            lines.append(f"  {finding.state:<4}  {finding.message}")
            lines += [f"        {finding.remedy}"] if finding.remedy else []
    counts = {state: sum(finding.state == state for finding in findings) for state in ("fail", "warn")}
    return [*lines, "", f"{counts['fail']} failed, {counted(counts['warn'], 'warning')}"]
