"""The command ``mixseek`` and its commands, each imported when it is run and not before."""

from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from mixseek import __version__
from mixseek.cli.output import EXIT_INTERRUPTED, print_error
from mixseek.errors import RunError

__all__ = ["COMMANDS", "app"]

COMMANDS = {
    "demo": ("mixseek.cli.demo", "Watch a competition on the embedded model; needs no key."),
    "init": ("mixseek.cli.init", "Make a workspace from a template, ready to play."),
    "exec": ("mixseek.cli.exec", "Let teams compete over a task, and print the best answer."),
    "resume": ("mixseek.cli.resume", "Go on with an execution that did not end, paying for nothing twice."),
    "team": ("mixseek.cli.team", "Let one team answer a task once."),
    "member": ("mixseek.cli.member", "Ask one member."),
    "evaluate": ("mixseek.cli.evaluate", "Score one answer."),
    "history": ("mixseek.cli.history", "List the executions of the workspace, the newest first."),
    "show": ("mixseek.cli.show", "Show one execution: its answer, leader board, rounds and bill."),
    "board": ("mixseek.cli.board", "Show the leader board of one execution, or of all."),
    "rejudge": ("mixseek.cli.rejudge", "Let other judges score what was submitted."),
    "replay": ("mixseek.cli.replay", "Play a finished execution again from its journal, asking nobody."),
    "whatif": ("mixseek.cli.whatif", "Tell what stopping earlier would have kept and saved."),
    "export": ("mixseek.cli.export", "Write one execution as a page, Markdown, JSON or a table."),
    "delete": ("mixseek.cli.delete", "Remove one execution from the workspace."),
    "journal": ("mixseek.cli.journal", "Look into the journal: events, calls, and whether it is whole."),
    "rebuild": ("mixseek.cli.rebuild", "Make the rows of mixseek.db anew from the journal."),
    "prune": ("mixseek.cli.prune", "Drop the bodies of old calls from the journal."),
    "models": ("mixseek.cli.models", "List, fetch and try models."),
    "config": ("mixseek.cli.config", "Write, show, list and validate configuration files."),
    "attack": ("mixseek.cli.attack", "Try to fool the judges of a file, and tell how far that got."),
    "doctor": ("mixseek.cli.doctor", "Look for what keeps MixSeek from working here."),
}


class _LazyGroup(TyperGroup):
    """Knows its commands by name and one line of help; loads one when it is run."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands.update({name: TyperCommand(name, help=words) for name, (_, words) in COMMANDS.items()})

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] in COMMANDS:
            module = import_module(COMMANDS[args[0]][0])
            self.commands[args[0]] = typer.main.get_command(module.app)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            # Typer passes on what pydantic said, with its name for the kind of error.
            error.message = error.message.removeprefix("Value error, ")
            raise
        except KeyboardInterrupt:
            print_error(RunError("interrupted"))
            raise typer.Exit(EXIT_INTERRUPTED) from None


app = typer.Typer(
    cls=_LazyGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"mixseek {__version__}")
        raise typer.Exit


@app.callback()
def _mixseek(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Teams of LLM agents compete over rounds; the best answer comes back.

    \b
    Examples:
      mixseek demo
      mixseek init my-workspace
      mixseek exec "Name three uses of bamboo." -w my-workspace
    """
