"""``mixseek init``: a workspace from a template, without questions."""

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from mixseek.cli.files import EXISTS, keep_out_of_git, make_directory, write
from mixseek.cli.output import WorkspaceOption, print_line
from mixseek.cli.starters import Lang, Starter, Template
from mixseek.errors import ConfigurationError, Problem
from mixseek.workspace import Workspace

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command("init")
def init(
    directory: Annotated[
        Path | None, typer.Argument(metavar="DIRECTORY", help="Where; without it the workspace, or this directory.")
    ] = None,
    template: Annotated[Template, typer.Option("--template", "-t", help="What it is for.")] = Template.DEMO,
    lang: Annotated[Lang, typer.Option("--lang", "-l", help="Language of prompts and comments.")] = Lang.EN,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that exist.")] = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Make a workspace from a template, and say what to run next; nothing is asked and no model is called.

    \b
    demo            three small teams on the embedded model; needs no key
    research        members search and read the web; judges score
    coding          programs, scored by running them in a sandbox
    compare-models  one team on the models of several providers
    judge-only      judges to try out, with a metric of your own

    \b
    Examples:
      mixseek init my-workspace
      mixseek init my-research --template research --lang ja
    """
    root = _root(directory, workspace)
    starter = Starter(template, lang.value)
    make_directory(root)
    root = Workspace.locate(root).root
    # As it is printed and to be copied; a link keeps its name where that is possible.
    root = root.resolve() if ".." in root.parts else root
    _refuse_to_mix(root, starter, force=force)
    for name, text in starter.files.items():
        write(root, name, text, force=force)
    keep_out_of_git(root)
    for line in _next_steps(root, starter):
        print_line(line)


def _root(directory: Path | None, workspace: Path | None) -> Path:
    """The directory that is meant: the argument is stronger than a variable, but not than an option beside it."""
    named_twice = directory and workspace and str(workspace) != os.environ.get("MIXSEEK_WORKSPACE")
    if named_twice and directory != workspace:
        raise ConfigurationError("two directories are given: say DIRECTORY or --workspace, not both")
    return directory or workspace or Path()


def _refuse_to_mix(root: Path, starter: Starter, *, force: bool) -> None:
    """Half of one workspace and half of another would be neither, so one file that is there stops all of it."""
    there = [name for name in starter.files if os.path.lexists(root / name)]
    if there and not force:
        raise ConfigurationError([Problem(f"{EXISTS}, or name another directory", name) for name in there])


def _next_steps(root: Path, starter: Starter) -> list[str]:
    here = [] if root == Path.cwd() else [f"cd {shlex.quote(str(root))}"]
    keys = [f"cp .env.example .env    # and set in it: {', '.join(starter.keys)}"] if starter.keys else []
    steps = [*here, *keys, *(f"{command} -w ." for command in starter.commands)]
    return [
        "",
        f"A workspace for {starter.template.value} is in {root}.",
        f"Needs: {'; '.join([*(starter.keys or ['no key']), *starter.needs])}",
        "Next:",
        *(f"  {step}" for step in steps),
        *_hints(starter),
    ]


def _hints(starter: Starter) -> list[str]:
    others = [each.value for each in Template if each is not starter.template]
    return ["", f"Other templates: mixseek init DIRECTORY --template {'|'.join(others)}"]
