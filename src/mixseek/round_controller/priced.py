"""Models without a price, found out before a call is paid for: a budget of money could not count what they cost."""

from collections.abc import Iterable

from mixseek.config.layers import show_path
from mixseek.config.manager import problems_within
from mixseek.config.model_names import asked_models
from mixseek.config.schema import Settings
from mixseek.errors import ConfigurationError, Problem
from mixseek.llm.prices import no_price
from mixseek.round_controller.run import Run
from mixseek.workspace import Workspace

__all__ = ["unpriced_models"]


def unpriced_models(
    run: Run, team_id: str, parts: Iterable[Settings], workspace: Workspace, *, has_file: bool
) -> list[Problem]:
    """One problem for each place that names a model without a price, if a budget of this team counts money.

    ``has_file``: the prices are those of an orchestrator file.
    """
    if not run.purses.counts_money(team_id):
        return []
    problems: list[Problem] = []
    for part in parts:
        for path, model in asked_models(part, workspace):
            if not run.hub.is_priced(model):
                error = ConfigurationError(no_price(model, has_file=has_file))
                found = problems_within(part, path, error)
                problems += [one if one.file else Problem(one.message, key=show_path(path)) for one in found]
    return problems
