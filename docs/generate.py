"""Writes the pages that are made from the code: the tables of configuration.md and metrics.md, and commands.md.

make docs
"""

import contextlib
import io
import os
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import typer
from typer.core import TyperGroup

from mixseek import plugins
from mixseek.cli import main as main_command
from mixseek.cli.app import COMMANDS
from mixseek.config.checks import options_model
from mixseek.config.reference import markdown, options_table
from mixseek.metrics import CODE_METRICS

DOCS = Path(__file__).parent
REFERENCE = "<!-- reference -->\n"
_COMMANDS_HEAD = """\
# Commands

What `mixseek --help` and `mixseek COMMAND --help` say. This page is made from them: `make docs` writes it.

Results go to standard output, progress and logs to standard error; with `-f json` standard output is one JSON document
and nothing else, errors included. An id may be shortened as long as it is the only one that begins so, and `last` is
the newest execution. A task or an answer may be an argument, a file (`--prompt-file`), or what comes on standard input
(`-`, or nothing where standard input is not a terminal); a text that begins with `@` is a text. Files that are named on
the command line are looked for in the current directory, then in the workspace.

| exit code | what it says |
| --- | --- |
| 0 | all went well |
| 1 | there is a result, but something failed: a team, a score, the file of `--output` |
| 2 | there is no result, or a mistake of yours (a file, an option, a key) kept the command from starting |
| 130 | it was interrupted: Ctrl-C, SIGTERM, or a terminal that was closed |
| 141 | whoever read standard output went away, as `head` does |

Where a command means something else by 1, its help says so. An error is `{"error": {"type", "message", "problems"}}` as
JSON. An error that is a bug of ours says so in one line, and where its details are kept.
"""
_OPTIONS = re.compile(r"\| option \| allowed \| default \| \|\n(?:\|.*\n)+")


def pages() -> dict[Path, str]:
    """Every page that is made from the code, or has a part that is, and what it has to hold."""
    configuration, metrics = DOCS / "configuration.md", DOCS / "metrics.md"
    return {
        configuration: _with_reference(configuration.read_text(encoding="utf-8")),
        metrics: _with_options(metrics.read_text(encoding="utf-8")),
        DOCS / "commands.md": commands_page(),
    }


def commands_page() -> str:
    """The help of every command and of the commands inside it."""
    return "\n".join([_COMMANDS_HEAD, *(_help(words) for words in command_lines())])


def command_lines() -> Iterator[tuple[str, ...]]:
    """The words that call each command: none for ``mixseek`` itself, then ("exec",), ("config", "show") and so on."""
    yield ()
    for name, (module, _) in COMMANDS.items():
        yield (name,)
        command = typer.main.get_command(import_module(module).app)
        if isinstance(command, TyperGroup):
            yield from ((name, one) for one in command.commands)


def _help(words: tuple[str, ...]) -> str:
    text = "\n".join(line.rstrip() for line in _said([*words, "--help"]).strip().splitlines())
    return f"{'###' if len(words) > 1 else '##'} {' '.join(['mixseek', *words])}\n\n```text\n{text}\n```\n"


def _said(arguments: list[str]) -> str:
    """What a command prints in a terminal of 80 columns."""
    said, columns = io.StringIO(), os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "80"
    try:
        with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
            main_command(arguments)
    finally:
        if columns is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = columns
    return said.getvalue()


def _with_reference(page: str) -> str:
    written, mark, _ = page.partition(REFERENCE)
    return written + mark + markdown()


def _with_options(page: str) -> str:
    """Under the heading of each metric that is computed in code, the table of its options."""
    parts = re.split(r"^(?=## )", page, flags=re.MULTILINE)
    return "".join(_section_with_options(part) for part in parts)


def _section_with_options(section: str) -> str:
    name = section.partition("\n")[0].removeprefix("## ")
    model = options_model(plugins.metrics.get(name)) if name in CODE_METRICS else None
    if model is None:
        return section
    table = options_table(model)
    return _OPTIONS.sub(lambda _: table, section, count=1)


def main() -> None:
    """Write them."""
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
