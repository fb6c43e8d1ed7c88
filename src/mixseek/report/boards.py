"""Leader boards: the teams of one execution, or the best results of all executions, in the one order of teams."""

from mixseek.records import ExitReason, Record
from mixseek.report.reading import best_results, list_executions
from mixseek.report.record import ExecutionRecord
from mixseek.report.summing import total
from mixseek.workspace import Workspace

__all__ = ["Result", "best_of_all", "board_of"]


class Result(Record):
    """What one team came to in one execution; what is not known is None."""

    rank: int | None
    """Its place among those listed; None: it has no scored round."""
    execution_id: str
    user_prompt: str
    team_id: str
    team_name: str
    score: float | None
    round_number: int | None
    """The round of that score."""
    rounds: int | None = None
    exit_reason: ExitReason | None = None
    error: str | None = None
    requests: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None


def board_of(record: ExecutionRecord) -> list[Result]:
    """The teams of an execution by rank, then those without one."""
    results = []
    for team in record.teams:
        bill = total(line for line in record.bill if line.team_id == team.team_id)
        results.append(
            Result(
                rank=team.rank,
                execution_id=record.execution_id,
                user_prompt=record.user_prompt,
                team_id=team.team_id,
                team_name=team.team_name,
                score=team.best_score,
                round_number=team.best_round,
                rounds=team.finished_rounds,
                exit_reason=team.exit_reason,
                error=team.error,
                requests=bill.requests if bill else None,
                input_tokens=bill.input_tokens if bill else None,
                output_tokens=bill.output_tokens if bill else None,
                cost_usd=bill.cost_usd if bill else None,
            )
        )
    return results


async def best_of_all(workspace: Workspace, limit: int | None = None) -> list[Result]:
    """Each team's best round in each execution, the best ones first."""
    prompts = {line.execution_id: line.user_prompt for line in await list_executions(workspace)}
    return [
        Result(rank=place, user_prompt=prompts.get(one.execution_id, ""), **one.model_dump())
        for place, one in enumerate(await best_results(workspace, limit), 1)
    ]
