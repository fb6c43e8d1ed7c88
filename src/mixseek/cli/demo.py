"""``mixseek demo``: a competition of three small teams on the embedded model, for whoever has no key yet."""

import os
import sys
from pathlib import Path
from shutil import which
from typing import Annotated

import typer

from mixseek.cli.files import keep_out_of_git, make_directory, write
from mixseek.cli.interrupt import leave_interrupted
from mixseek.cli.logs import LogOptions, start_logging, takes_log_options, watching
from mixseek.cli.output import Format, FormatOption, use_format, warn
from mixseek.cli.playing import exit_code, play
from mixseek.cli.report_file import ReportFile
from mixseek.cli.starters import Starter, Template
from mixseek.cli.summary import print_summary, tell_of_interruption
from mixseek.config.kinds import ORCHESTRATOR
from mixseek.config.manager import ConfigurationManager, RunSettings, redactor_of
from mixseek.config.reading import checked_text
from mixseek.errors import ConfigurationError
from mixseek.workspace import Workspace

__all__ = ["app"]

_STARTER = Starter(Template.DEMO, "en")
_DIRECTORY = Path("mixseek-demo")
_EMBEDDED = "local:"

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command("demo")
@takes_log_options
def demo(
    prompt: Annotated[
        str, typer.Argument(metavar="PROMPT", help="The task for the teams, in English.", show_default=True)
    ] = _STARTER.task,
    rounds: Annotated[int | None, typer.Option("--rounds", min=1, max=10, help="Most rounds of a team.")] = None,
    output_format: FormatOption = Format.TEXT,
    # Not the workspace of the environment: that is somebody's real one.
    workspace: Annotated[
        Path, typer.Option("--workspace", "-w", metavar="DIRECTORY", help="Where the demonstration is kept.")
    ] = _DIRECTORY,
    *,
    logs: LogOptions,
) -> None:
    """Watch three small teams compete on the embedded model; needs no key.

    The first time it makes a workspace and fetches the weights of the model (98 MB); after that it uses both again. The
    answers show how MixSeek works, not how well a real model answers.

    Exit codes are those of exec: 0 all teams have a result, 1 some failed, 2 no result or a mistake, 130 Ctrl-C.

    \b
    Examples:
      mixseek demo
      mixseek demo "Why do we dream?" --rounds 2 -w /tmp/demo
    """
    use_format(output_format)
    task = checked_text(prompt, "prompt")
    place = _demo_workspace(workspace)
    manager = ConfigurationManager(place, overrides=_overrides(rounds), options={"orchestrator": _OPTIONS})
    start_logging(place, manager.redactor, logs)
    settings = manager.load_run_settings(manager.default_file(ORCHESTRATOR), for_a_run=True)
    redactor = redactor_of(manager.environ, settings.providers)
    with watching(logs, manager.environ) as listeners:
        played = play(settings, lambda it: it.execute(task), redactor, listeners, workspace=workspace)
    summary, progress = played.summary, played.progress
    has_begun = progress.execution_id is not None
    if has_begun or output_format is Format.JSON:
        print_summary(summary, output_format, redactor, progress.scores)
    is_told = has_begun and ReportFile(place, None).save(summary.execution_id)
    if summary.interrupted:
        tell_of_interruption(summary, has_begun=has_begun, workspace=str(workspace))
        leave_interrupted()
    for line in _how_to_go_on(settings, place):
        warn(line)
    raise typer.Exit(exit_code(summary, is_written=is_told))


_OPTIONS = {"max_rounds": "--rounds", "min_rounds": "--rounds"}


def _overrides(rounds: int | None) -> dict[str, dict[str, int]]:
    return {} if rounds is None else {"orchestrator": {"max_rounds": rounds, "min_rounds": min(rounds, 2)}}


def _demo_workspace(directory: Path) -> Workspace:
    """The workspace of the demonstration, made if it is not there, used as it is if it is."""
    make_directory(directory)
    place = Workspace.locate(directory)
    files = _STARTER.files
    there = [name for name in files if os.path.lexists(place.root / name)]
    if not there:
        warn(f"making a workspace in {place.root}")
        for name, text in files.items():
            write(place.root, name, text, force=False, tell=None)
        keep_out_of_git(place.root, tell=None)
    elif _looks_like_another(there):
        # Its teams may be anyone's, and their models may cost money.
        raise ConfigurationError(f"{str(place.root)!r} is another workspace: name a new directory with -w")
    return place


def _looks_like_another(there: list[str]) -> bool:
    """Whether a team of the demonstration is missing: other files of it may well have been thrown away."""
    return not {name for name in _STARTER.files if name.startswith("configs/agents/")} <= set(there)


def _how_to_go_on(settings: RunSettings, place: Workspace) -> list[str]:
    """How to switch to a real model, as long as there is a team that has none."""
    team = next((team for team in settings.teams if team.leader.model.startswith(_EMBEDDED)), None)
    if team is None:
        return []
    file = place.root / "configs" / "agents" / f"{team.team_id}.toml"
    return [
        "This model is tiny: it shows how a competition goes, not how good an answer can be.",
        "For a real model change one line for each team, and set the key of its provider:",
        f'  {file}{_line_of_model(file)}: model = "openai:gpt-5-mini"',
        f"  {place.root / '.env'}: OPENAI_API_KEY=...",
        "or all leaders at once, in the same .env: MIXSEEK_TEAM__LEADER__MODEL=openai:gpt-5-mini",
        f"Then: {_command()} exec PROMPT -w {place.root}",
    ]


def _command() -> str:
    """The command as it can be typed here: who plays by ``make`` has not put it on the path."""
    return sys.argv[0] if Path(sys.argv[0]).name == "mixseek" and not which("mixseek") else "mixseek"


def _line_of_model(file: Path) -> str:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return ""
    return next((f", line {number}" for number, line in enumerate(lines, 1) if line.startswith("model =")), "")
