"""``mixseek evaluate``: one answer scored by the metrics of a file."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mixseek.cli.asking import Judges, bill_words, judges_of, metric_words, score_words, wait_for, workspace_or_none
from mixseek.cli.inputs import ReferenceOption, find_config, read_given, reference_text
from mixseek.cli.logs import LogOptions, start_logging, takes_log_options, watching
from mixseek.cli.output import Format, WorkspaceOption, print_json, print_line, rounded, use_format, warn
from mixseek.config.manager import ConfigurationManager, redactor_of
from mixseek.config.reading import checked_text
from mixseek.config.schema import EvaluatorSettings
from mixseek.records import EvaluationRequest
from mixseek.redaction import Redactor
from mixseek.workspace import Workspace

if TYPE_CHECKING:
    from mixseek.orchestrator.single import EvaluationAnswer

__all__ = ["app"]

EXIT_UNSCORED = 1
EXIT_FAILED = 2

app = typer.Typer(add_completion=False, rich_markup_mode=None)


class EvaluationFormat(StrEnum):
    """How the scores are written."""

    STRUCTURED = "structured"
    JSON = "json"


@app.command("evaluate")
@takes_log_options
def evaluate(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="The task that was answered.")],
    submission: Annotated[
        str | None,
        typer.Argument(metavar="SUBMISSION", help="The answer; - or nothing: it is read from standard input."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            "-c",
            metavar="FILE",
            help="An evaluator or an orchestrator file; without one configs/evaluator.toml, or the default judges.",
        ),
    ] = None,
    submission_file: Annotated[
        Path | None, typer.Option("--submission-file", "--file", metavar="FILE", help="Read the answer from this file.")
    ] = None,
    reference: ReferenceOption = None,
    output_format: Annotated[
        EvaluationFormat, typer.Option("--format", "-f", help="How to answer.")
    ] = EvaluationFormat.STRUCTURED,
    workspace: WorkspaceOption = None,
    *,
    logs: LogOptions,
) -> None:
    """Score one answer by the metrics of a file: each metric with its comment, and all of them together.

    Exit codes: 0 scored, 1 a metric gave no finite number and there is no overall score, 2 a metric failed (the scores
    of the others are told) or a mistake in the configuration, 130 Ctrl-C.

    \b
    Examples:
      mixseek evaluate "Name two uses of bamboo." "Paper and scaffolding."
      mixseek evaluate "6 times 7?" --file answer.md --reference 42 -f json
      cat answer.md | mixseek evaluate "Name three uses of bamboo."
    """
    use_format(Format.JSON if output_format is EvaluationFormat.JSON else Format.TEXT)
    place = workspace_or_none(workspace, needed=config is not None)
    manager = ConfigurationManager(place)
    start_logging(place, manager.redactor, logs, file=not place.is_bare)
    file = None if config is None else find_config(config, place, "", "")
    judges = judges_of(manager, file, for_a_run=True)
    request = _request(query, submission, submission_file, reference_text(reference, place) or judges.reference, place)
    redactor = redactor_of(manager.environ, judges.providers)

    from mixseek.orchestrator.single import Surroundings, evaluate_submission  # loads model code, when files are right

    around = Surroundings(place, judges.prompts, judges.providers, judges.orchestrator)
    with watching(logs, manager.environ) as listeners:
        asking = evaluate_submission(judges.evaluator, request, around, listeners=listeners)
        answer = wait_for(asking, redactor)
    _print(answer, judges, output_format, redactor)
    unscored = EXIT_FAILED if answer.failures else EXIT_UNSCORED
    raise typer.Exit(unscored if answer.result.overall_score is None else 0)


def _request(
    query: str, submission: str | None, file: Path | None, reference: str | None, place: Workspace
) -> EvaluationRequest:
    given = read_given(submission, file, place, what="submission", option="--submission-file")
    return EvaluationRequest(user_query=checked_text(query, "query"), submission=given, reference=reference)


# --- what is printed --------------------------------------------------------------------------------------------------


def _print(answer: "EvaluationAnswer", judges: Judges, output: EvaluationFormat, redactor: Redactor) -> None:
    weights = _weights(judges.evaluator)
    if output is EvaluationFormat.JSON:
        print_json(redactor.value(rounded(_as_json(answer, weights))))
        return
    result = answer.result
    print_line(f"Overall {score_words(result.overall_score)}")
    for metric in result.metrics:
        print_line(redactor.text(f"  {metric_words(metric, weights[metric.metric_name])}"))
    for flag in result.flags:
        print_line(redactor.text(f"  flag: {flag}"))
    print_line()
    print_line(bill_words(answer.usage, answer.cost_usd, answer.seconds))
    for failure in answer.failures:
        warn(redactor.text(f"mixseek: {failure}"))


def _weights(settings: EvaluatorSettings) -> dict[str, float]:
    """The share each metric has in the whole; where none is set they are equal."""
    equal = 1 / len(settings.metrics)
    return {metric.name: equal if metric.weight is None else metric.weight for metric in settings.metrics}


def _as_json(answer: "EvaluationAnswer", weights: dict[str, float]) -> dict[str, Any]:
    alone: Any = {
        "bill": {"__all__": {"execution_id", "team_id", "round_number"}},
        "request": True,
        "result": True,
        "failures": True,
    }
    request, result = answer.request, answer.result
    metrics = [{**metric.model_dump(), "weight": weights[metric.metric_name]} for metric in result.metrics]
    error = {"type": "EvaluationError", "message": "\n".join(answer.failures), "problems": []}
    return {
        **({"error": error} if answer.failures else {}),
        "user_query": request.user_query,
        "submission": request.submission,
        "reference": request.reference,
        "overall_score": result.overall_score,
        "metrics": metrics,
        "flags": result.flags,
        **answer.model_dump(mode="json", exclude=alone),
    }
