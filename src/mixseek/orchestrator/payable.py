"""What a budget can never count or pay for: a run refuses it before anybody is asked, and a check of files tells it."""

from mixseek.config.manager import RunSettings
from mixseek.config.schema import TeamSettings
from mixseek.errors import Problem
from mixseek.orchestrator.estimate import unpayable_judges
from mixseek.round_controller.priced import unpriced_models
from mixseek.round_controller.run import Run, open_run

__all__ = ["not_to_be_paid", "not_to_be_paid_by_any"]


def not_to_be_paid(run: Run, settings: RunSettings, team: TeamSettings) -> list[Problem]:
    """Models that no budget of this team, whose purse is open, could count, or pay for even once."""
    judges = [settings.evaluator] if settings.is_scored else []
    parts = [team, *judges, settings.judgment]
    has_file = settings.file is not None or settings.borrows_prices
    problems = unpriced_models(run, team.team_id, parts, settings.workspace, has_file=has_file)
    if problems or run.replays:
        return problems
    longest = run.purses.max_output_tokens(team.team_id)
    return unpayable_judges(settings, team, longest, run.hub)


def not_to_be_paid_by_any(settings: RunSettings) -> list[Problem]:
    """The same of all teams of a run that is not played; it needs no keys."""
    run = open_run(
        "none",
        settings.workspace,
        save_db=False,
        providers=settings.providers,
        orchestrator=settings.orchestrator,
    )
    problems: list[Problem] = []
    for team in settings.teams:
        run.purses.open(team.team_id, team.budget)
        problems += not_to_be_paid(run, settings, team)
    return list(dict.fromkeys(problems))
