"""What is printed of a run when it is over: leader board, scores by round, bill, and the best answer."""

import shutil
import sys
from collections.abc import Mapping, Sequence

from mixseek.amounts import change_words, command_to_copy, limit_in, spent_words
from mixseek.cli.asking import bill_words
from mixseek.cli.chart import in_ascii, score_chart
from mixseek.cli.output import Format, print_json, print_line, print_text, rounded, warn, writes_all
from mixseek.cli.progress import OVER_ALL_PROCESSES
from mixseek.errors import would_fail_again
from mixseek.records import ExecutionSummary, LeaderBoardEntry, ModelUsage, known_cost
from mixseek.redaction import Redactor
from mixseek.report.summing import by_model, by_team_round_and_role, lost_words

__all__ = ["print_summary", "tell_of_interruption", "tell_who_can_go_on"]

Scores = Mapping[str, Mapping[int, float | None]]
"""For each team the scores of its rounds by their number."""

_NARROWEST = 40


def print_summary(
    summary: ExecutionSummary, output: Format, redactor: Redactor, scores: Scores, *, is_resumed: bool = False
) -> None:
    """Without secrets, as the tables have it: an answer may hold a key that a tool gave away."""
    if output is Format.JSON:
        print_json(redactor.value(rounded(summary.model_dump(mode="json"))))
        return
    for line in _lines(summary, scores, is_resumed=is_resumed):
        print_line(redactor.text(line))
    if summary.team_results:
        best = summary.team_results[0]
        print_line(redactor.text(f"Best answer: {_named(best.team_name, best.team_id)}, round {best.round_number}"))
        print_line()
        print_text(redactor.text(best.submission_content))


def tell_of_interruption(summary: ExecutionSummary, *, has_begun: bool, workspace: str | None = None) -> None:
    """Say on standard error what an interrupted run leaves behind, and how to see it again."""
    if not has_begun:
        warn("mixseek: interrupted before the run began")
        return
    if summary.team_results:
        warn("mixseek: interrupted; all finished rounds are kept, and this shows them again:")
        warn(_command("show", summary, workspace))
    else:
        warn(f"mixseek: interrupted before any round of execution {summary.execution_id} was finished and scored")
    warn("mixseek: this goes on with it, and pays for nothing twice:")
    warn(_command("resume", summary, workspace))


def tell_who_can_go_on(summary: ExecutionSummary, *, workspace: str | None = None) -> None:
    """Say on standard error how teams go on that failed or ended at their budget, where that could change anything."""
    reasons = [each.error_message for each in summary.failed_teams_info if not would_fail_again(each.error_message)]
    if not reasons:
        if any(entry.exit_reason == "budget_exhausted" for entry in summary.team_results):
            warn("mixseek: with a larger limit, teams that ended at their budget go on with this:")
            warn(f"{_command('resume', summary, workspace)} --accept-changes")
        return
    failed = "the team that failed goes" if len(summary.failed_teams_info) == 1 else "the teams that failed go"
    # With the limit, or the metric, as it is they would only fail again.
    change = change_words(reasons)
    warn(f"mixseek: {f'{change}, ' if change else ''}{failed} on with this, and nothing is paid for twice:")
    warn(_command("resume", summary, workspace) + (" --accept-changes" if change else ""))


def _command(verb: str, summary: ExecutionSummary, workspace: str | None) -> str:
    return f"  {command_to_copy(verb, summary.execution_id, workspace)}"


def _lines(summary: ExecutionSummary, scores: Scores, *, is_resumed: bool) -> list[str]:
    lines = ["Leader board, as far as it came" if summary.interrupted else "Leader board"]
    lines += [f"  {place}. {_result(entry)}" for place, entry in enumerate(summary.team_results, start=1)]
    lines += [] if summary.team_results else ["  no team has a result"]
    chart = _chart(summary, scores)
    lines += ["", "Scores by round", *chart] if chart else []
    if summary.failed_teams_info:
        lines += ["", "Failed or interrupted" if summary.interrupted else "Failed"]
        lines += [f"  {_named(one.team_name, one.team_id)}: {one.error_message}" for one in summary.failed_teams_info]
    took = bill_words(summary.usage, summary.cost_usd, summary.total_execution_time_seconds, known_cost(summary.bill))
    took += OVER_ALL_PROCESSES if is_resumed else ""
    bill = _bill_by_round(summary) if _ended_by_budget(summary) else _bill(summary.bill)
    lost = lost_words(summary.lost)
    lines += ["", *bill, took, *([lost] if lost else []), f"Execution {summary.execution_id}", ""]
    return lines


def _ended_by_budget(summary: ExecutionSummary) -> bool:
    """Whether a budget ended a team, one that has no result because of it included."""
    return any(entry.exit_reason == "budget_exhausted" for entry in summary.team_results) or any(
        limit_in(team.error_message) for team in summary.failed_teams_info
    )


def _chart(summary: ExecutionSummary, scores: Scores) -> list[str]:
    """The rounds of each team, in the order of the leader board and then of those without a place on it."""
    names = {entry.team_id: entry.team_name for entry in summary.team_results}
    names |= {one.team_id: one.team_name for one in summary.failed_teams_info if one.team_id not in names}
    rows = [(name, _by_round(scores[team_id])) for team_id, name in names.items() if team_id in scores]
    # In a file or a pipe there is no width to keep to.
    width = max(_NARROWEST, shutil.get_terminal_size().columns - 1) if sys.stdout.isatty() else 100
    lines = score_chart(rows, width=width)
    return lines if writes_all(sys.stdout) else [in_ascii(line) for line in lines]


def _by_round(scores: Mapping[int, float | None]) -> list[float | None]:
    return [scores.get(number) for number in range(1, max(scores, default=0) + 1)]


def _result(entry: LeaderBoardEntry) -> str:
    score = "unscored" if entry.score is None else f"{entry.score:.2f}"
    reason = f", {entry.exit_reason}" if entry.exit_reason else ""
    return f"{_named(entry.team_name, entry.team_id)}: {score} in round {entry.round_number}{reason}"


def _bill_by_round(summary: ExecutionSummary) -> list[str]:
    """A line for each role in each round of each team: where the money of a run went that was ended by its budget."""
    names = {entry.team_id: entry.team_name for entry in summary.team_results}
    names |= {one.team_id: one.team_name for one in summary.failed_teams_info}
    lines = [
        f"  {_named(names.get(line.team_id, line.team_id), line.team_id)}, round {line.round_number}, {line.role}: "
        f"{spent_words(line, line.cost_usd, 'call')}"
        for line in by_team_round_and_role(summary.bill)
    ]
    return ["Bill by team, round and role", *lines] if lines else []


def _bill(bill: Sequence[ModelUsage]) -> list[str]:
    """A line for each model that answered, if there are several."""
    lines = [line for line in by_model(bill) if line.requests]
    if len(lines) < 2:
        return []
    return ["Bill", *(f"  {line.model}: {spent_words(line, line.cost_usd, 'call')}" for line in lines)]


def _named(team_name: str, team_id: str) -> str:
    return f"{team_name} ({team_id})"
