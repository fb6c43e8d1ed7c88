"""``mixseek team``: one team answers one task once, scored if asked."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mixseek.cli.answer_file import OutputOption, answer_file, write_answer
from mixseek.cli.asking import (
    bill_words,
    member_words,
    metric_words,
    score_words,
    with_bill_last,
)
from mixseek.cli.inputs import (
    AttachmentsOption,
    PromptArgument,
    PromptFileOption,
    ReferenceOption,
    find_config,
    given_file,
    read_given,
    reference_text,
)
from mixseek.cli.interrupt import leave_interrupted, run_until_stopped
from mixseek.cli.live import showing
from mixseek.cli.logs import LogOptions, start_logging, takes_log_options, watching
from mixseek.cli.output import (
    Format,
    FormatOption,
    WorkspaceOption,
    print_json,
    print_line,
    print_text,
    rounded,
    use_format,
)
from mixseek.config.attachments import read_attachments
from mixseek.config.kinds import TEAM
from mixseek.config.manager import ConfigurationManager, Given, RunSettings, locate_workspace, redactor_of
from mixseek.config.schema import JudgmentSettings
from mixseek.errors import ConfigurationError, Problem
from mixseek.redaction import Redactor
from mixseek.workspace import Workspace

if TYPE_CHECKING:
    from mixseek.orchestrator.single import TeamAnswer

__all__ = ["app"]

EXIT_SOMETHING_FAILED = 1
EXIT_NO_RESULT = 2

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command("team")
@takes_log_options
def team(
    prompt: PromptArgument = None,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", metavar="FILE", help="The team file.", show_default=False)
    ] = None,
    prompt_file: PromptFileOption = None,
    files: AttachmentsOption = None,
    evaluate: Annotated[bool, typer.Option("--evaluate", help="Score the answer.")] = False,
    evaluate_config: Annotated[
        Path | None,
        typer.Option("--evaluate-config", metavar="FILE", help="Score it by this evaluator file."),
    ] = None,
    reference: ReferenceOption = None,
    save_db: Annotated[
        bool, typer.Option("--save-db", help="Keep it in the workspace as an execution, for history and show.")
    ] = False,
    output: OutputOption = None,
    timeout: Annotated[int | None, typer.Option("--timeout", help="Seconds for the whole answer.")] = None,
    output_format: FormatOption = Format.TEXT,
    workspace: WorkspaceOption = None,
    *,
    logs: LogOptions,
) -> None:
    """Let one team answer a task once: its leader with its members, one round, scored if asked.

    Exit codes: 0 there is an answer, and a score if one was asked for (a member that failed is told, but is its
    leader's to deal with); 1 there is an answer, but it could not be scored or written to --output; 2 no answer or a
    mistake in the configuration; 130 Ctrl-C.

    \b
    Examples:
      mixseek team "Name three uses of bamboo." -c configs/agents/team.toml
      mixseek team --prompt-file task.md --evaluate -f json
      mixseek team "What is 6 times 7?" --evaluate --reference 42 --save-db
    """
    use_format(output_format)
    place = locate_workspace(workspace)
    file = find_config(config, place, "agents/team.toml", "name the team's file")
    reference = reference_text(reference, place)
    manager = _manager(place, file, timeout, reference, evaluate_config)
    if (kind := manager.kind_of(file)) is not TEAM:
        raise ConfigurationError(Problem(f"is {kind.words}: give a team file", str(file)))
    start_logging(place, manager.redactor, logs)
    settings = _settings(manager, is_scored=evaluate or evaluate_config is not None)
    attachments = read_attachments(files or (), place)
    answer_to = answer_file(output)
    task = read_given(prompt, prompt_file, place)
    redactor = redactor_of(manager.environ, settings.providers)

    from mixseek.orchestrator.single import TeamAlone  # loads model code, when all files are right

    with watching(logs, manager.environ) as listeners, showing(redactor) as progress:
        alone = TeamAlone(settings, save_db=save_db, listeners=[progress, *listeners])
        answer = run_until_stopped(alone.answer(task, attachments=attachments), alone.stop)
    _print(answer, output_format, redactor, is_saved=save_db)
    is_written = write_answer(answer.answer and redactor.text(answer.answer), answer_to)
    if answer.interrupted:
        leave_interrupted()
    raise typer.Exit(_exit_code(answer, is_written=is_written))


_OPTIONS = {
    "orchestrator": {
        "timeout_per_team_seconds": "--timeout",
        "reference": "--reference",
        "evaluator_config": "--evaluate-config",
    }
}


def _manager(
    place: Workspace, file: Path, timeout: int | None, reference: str | None, evaluate_config: Path | None
) -> ConfigurationManager:
    evaluator = None if evaluate_config is None else given_file(evaluate_config, "--evaluate-config", place)
    given = {
        "timeout_per_team_seconds": timeout,
        "reference": reference,
        "evaluator_config": evaluator and str(evaluator),
    }
    return ConfigurationManager(
        place,
        overrides={"orchestrator": {name: value for name, value in given.items() if value is not None}},
        options=_OPTIONS,
        given=Given([file], judgment=JudgmentSettings(model="none")),
    )


def _settings(manager: ConfigurationManager, *, is_scored: bool) -> RunSettings:
    """A competition of one team and one round."""
    own = manager.own_prices_and_storage()
    limits = {"max_rounds": 1, "min_rounds": 1, "prices": own.prices, "storage": own.storage}
    return manager.assemble(limits, is_scored=is_scored, borrows_prices=True)


def _exit_code(answer: "TeamAnswer", *, is_written: bool) -> int:
    if answer.answer is None:
        return EXIT_NO_RESULT
    return EXIT_SOMETHING_FAILED if answer.error is not None or not is_written else 0


# --- what is printed --------------------------------------------------------------------------------------------------


def _print(answer: "TeamAnswer", output: Format, redactor: Redactor, *, is_saved: bool) -> None:
    if output is Format.JSON:
        print_json(redactor.value(rounded(with_bill_last(answer.model_dump(mode="json")))))
        return
    for line in _lines(answer, is_saved=is_saved):
        print_line(redactor.text(line))
    if answer.answer is not None:
        print_line("Answer")
        print_line()
        print_text(redactor.text(answer.answer))


def _lines(answer: "TeamAnswer", *, is_saved: bool) -> list[str]:
    lines = [f"{answer.team_name} ({answer.team_id}): {_outcome(answer)}"]
    lines += [f"  {metric_words(metric)}" for metric in answer.metrics]
    lines += [f"  flag: {flag}" for flag in answer.flags]
    if answer.members:
        lines += ["", "Members", *(f"  {member_words(member)}" for member in answer.members)]
    lines += ["", bill_words(answer.usage, answer.cost_usd, answer.seconds)]
    return [*lines, *([f"Execution {answer.execution_id}"] if is_saved else []), ""]


def _outcome(answer: "TeamAnswer") -> str:
    if answer.answer is None:
        return f"no answer: {answer.error}"
    if answer.error is not None:
        return f"answered, but not scored: {answer.error}"
    return f"answered, score {score_words(answer.score)}" if answer.metrics else "answered"
