"""``mixseek member``: one member does one task, by a file or as one of the built-in kinds."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mixseek.cli.answer_file import OutputOption, answer_file, write_answer
from mixseek.cli.asking import bill_words, member_words, surroundings, wait_for, with_bill_last, workspace_or_none
from mixseek.cli.inputs import PromptArgument, PromptFileOption, find_config, read_given
from mixseek.cli.logs import LogOptions, start_logging, takes_log_options, watching
from mixseek.cli.output import (
    Format,
    WorkspaceOption,
    print_json,
    print_line,
    print_text,
    rounded,
    use_format,
    warn,
)
from mixseek.config.manager import ConfigurationManager, redactor_of
from mixseek.config.schema import LeaderSettings, MemberAgentConfig
from mixseek.errors import ConfigurationError, Problem
from mixseek.records import AgentType
from mixseek.redaction import Redactor
from mixseek.report.tabular import Cell, csv_text

if TYPE_CHECKING:
    from mixseek.orchestrator.single import MemberAnswer

__all__ = ["app"]

EXIT_SOMETHING_FAILED = 1
EXIT_NO_RESULT = 2
MODEL_VARIABLE = "MIXSEEK_MEMBER_MODEL"

app = typer.Typer(add_completion=False, rich_markup_mode=None)


class MemberFormat(StrEnum):
    """How the answer is written."""

    STRUCTURED = "structured"
    JSON = "json"
    TEXT = "text"
    CSV = "csv"


class BuiltIn(StrEnum):
    """The kinds of members that need no file."""

    PLAIN = "plain"
    WEB_SEARCH = "web-search"
    WEB_FETCH = "web-fetch"
    CODE_EXEC = "code-exec"


_TYPES = {
    BuiltIn.PLAIN: AgentType.PLAIN,
    BuiltIn.WEB_SEARCH: AgentType.WEB_SEARCH,
    BuiltIn.WEB_FETCH: AgentType.WEB_FETCH,
    BuiltIn.CODE_EXEC: AgentType.CODE_EXECUTION,
}


@app.command("member")
@takes_log_options
def member(
    prompt: PromptArgument = None,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", metavar="FILE", help="A member file, or a team file with --name.")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="Which member of a team file.")] = None,
    agent: Annotated[BuiltIn | None, typer.Option("--agent", help="A built-in kind, without a file.")] = None,
    prompt_file: PromptFileOption = None,
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="PROVIDER:NAME", help=f"The model; with --agent also {MODEL_VARIABLE}."),
    ] = None,
    timeout: Annotated[int | None, typer.Option("--timeout", help="Seconds for the whole answer.")] = None,
    max_tokens: Annotated[int | None, typer.Option("--max-tokens", help="Longest answer, in tokens.")] = None,
    temperature: Annotated[float | None, typer.Option("--temperature", help="Randomness, from 0 to 2.")] = None,
    output: OutputOption = None,
    output_format: Annotated[
        MemberFormat, typer.Option("--format", "-f", help="How to answer; text: the answer alone.")
    ] = MemberFormat.STRUCTURED,
    workspace: WorkspaceOption = None,
    *,
    logs: LogOptions,
) -> None:
    """Ask one member: of a member file, of a team file, or one of the built-in kinds without a file.

    Exit codes: 0 there is an answer, 1 it could not be written to --output, 2 no answer or a mistake in the
    configuration, 130 Ctrl-C.

    \b
    Examples:
      mixseek member "What is bamboo?" --agent plain --model openai:gpt-5-mini
      mixseek member "Any news?" -c configs/agents/team.toml --name researcher
      mixseek member "The 20th prime?" -c configs/agents/coder.toml -f json
    """
    use_format(Format.JSON if output_format is MemberFormat.JSON else Format.TEXT)
    _check_choice(config, agent, name)
    place = workspace_or_none(workspace, needed=config is not None)
    given = {"model": model, "timeout_seconds": timeout, "max_tokens": max_tokens, "temperature": temperature}
    manager = ConfigurationManager(
        place,
        overrides={"member": {key: value for key, value in given.items() if value is not None}},
        options={"member": _OPTIONS},
    )
    start_logging(place, manager.redactor, logs, file=not place.is_bare)
    settings = _built_in(manager, agent, model) if agent else _of_file(manager, config, name)
    around = surroundings(manager)
    answer_to = answer_file(output)
    task = read_given(prompt, prompt_file, place)
    redactor = redactor_of(manager.environ, around.providers)

    from mixseek.orchestrator.single import ask_member  # loads model code, when all files are right

    with watching(logs, manager.environ) as listeners:
        answer = wait_for(ask_member(settings, task, around, listeners=listeners), redactor)
    _print(answer, output_format, redactor)
    is_answered = answer.result.status != "ERROR"
    is_written = write_answer(redactor.text(answer.result.content) if is_answered else None, answer_to)
    raise typer.Exit(EXIT_NO_RESULT if not is_answered else 0 if is_written else EXIT_SOMETHING_FAILED)


_OPTIONS = {
    "model": "--model",
    "timeout_seconds": "--timeout",
    "max_tokens": "--max-tokens",
    "temperature": "--temperature",
}


def _check_choice(config: Path | None, agent: BuiltIn | None, name: str | None) -> None:
    if (config is None) == (agent is None):
        raise ConfigurationError(f"give either -c FILE or --agent {'|'.join(BuiltIn)}")
    if agent is not None and name is not None:
        raise ConfigurationError("--name chooses a member of a team file: it does not go with --agent")


def _of_file(manager: ConfigurationManager, config: Path | None, name: str | None) -> MemberAgentConfig:
    return manager.load_one_member(find_config(config, manager.workspace, "agents/member.toml", "name one"), name)


def _built_in(manager: ConfigurationManager, kind: BuiltIn, model: str | None) -> MemberAgentConfig:
    """A member of this kind; its model is the one of the command line, of the environment, or the leaders' default."""
    set_elsewhere = manager.environ.get(MODEL_VARIABLE)
    default = LeaderSettings.model_fields["model"].default
    values = {"name": kind.value, "type": _TYPES[kind].value, "model": set_elsewhere or default}
    shown = MODEL_VARIABLE if set_elsewhere and not model else f"--agent {kind}"
    try:
        return manager.make_member(values, shown)
    except ConfigurationError as error:
        if model or set_elsewhere:
            raise
        other = f"or name another model with --model PROVIDER:NAME or {MODEL_VARIABLE}"
        raise ConfigurationError([*error.problems, Problem(other, shown)]) from error


# --- what is printed --------------------------------------------------------------------------------------------------


def _print(answer: "MemberAnswer", output: MemberFormat, redactor: Redactor) -> None:
    result = answer.result
    match output:
        case MemberFormat.JSON:
            print_json(redactor.value(rounded(_as_json(answer))))
        case MemberFormat.CSV:
            print_text(redactor.text(_as_csv(answer)).rstrip("\r\n"))
        case MemberFormat.TEXT if result.status != "ERROR":
            print_text(redactor.text(result.content))
        case MemberFormat.TEXT:
            warn(f"mixseek: {redactor.text(member_words(result))}")
        case MemberFormat.STRUCTURED:
            _print_structured(answer, redactor)


def _print_structured(answer: "MemberAnswer", redactor: Redactor) -> None:
    print_line(redactor.text(member_words(answer.result)))
    print_line()
    print_line(bill_words(answer.usage, answer.cost_usd, answer.seconds))
    if answer.result.status != "ERROR":
        print_line()
        print_line("Answer")
        print_line()
        print_text(redactor.text(answer.result.content))


def _as_json(answer: "MemberAnswer") -> dict[str, Any]:
    alone = {"bill": {"__all__": {"execution_id", "team_id", "round_number"}}}
    told = answer.model_dump(mode="json", exclude=alone)
    result = told.pop("result")
    return with_bill_last({"task": told.pop("task"), **result, **told})


def _as_csv(answer: "MemberAnswer") -> str:
    result, usage = answer.result, answer.usage
    row: dict[str, Cell] = {
        "agent_name": result.agent_name,
        "agent_type": result.agent_type,
        "status": result.status,
        "content": result.content,
        "error_message": result.error_message,
        "seconds": round(answer.seconds, 3),
        "requests": usage.requests,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cost_usd": answer.cost_usd,
    }
    return csv_text(list(row), [list(row.values())])
