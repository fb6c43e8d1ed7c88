"""The prompt strategy that reads its two templates from a directory a workspace may keep."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from mixseek.config.schema import RoundPromptConfig
from mixseek.errors import ConfigurationError, Problem
from mixseek.prompt_builder.budget import fit
from mixseek.prompt_builder.formatters import Detail, one_line
from mixseek.prompt_builder.models import LeaderboardEntry, SubmissionRecord
from mixseek.prompt_builder.strategy import narrowed, with_evaluations
from mixseek.records import EvaluationResult
from mixseek.templating import JAPANESE, PROMPT_FILTERS, Template, Texts, compile_template

__all__ = ["Jinja2PromptBuilder", "setup_jinja2_environment"]


def setup_jinja2_environment(env: jinja2.Environment) -> None:
    """Give ``env`` the filters that prompt templates have: ``format_score``, ``summarize`` and ``medal``."""
    env.filters.update(PROMPT_FILTERS)


class Jinja2PromptBuilder:
    """Prompts from ``initial_prompt.jinja2`` and ``continuation_prompt.jinja2``, read once, rendered in the sandbox."""

    def __init__(
        self, template_dir: Path | str, config: RoundPromptConfig | None = None, *, texts: Texts = JAPANESE
    ) -> None:
        self._initial = _read_template(Path(template_dir), "initial_prompt")
        self._continuation = _read_template(Path(template_dir), "continuation_prompt")
        self._config = config
        self._texts = texts

    def build_initial_prompt(self, user_query: str, team_id: str, metadata: Mapping[str, Any] | None = None) -> str:
        """The prompt of round 1, from ``initial_prompt.jinja2``."""
        values = {"user_query": user_query, "team_id": team_id, "team_name": _team_name(team_id, metadata)}
        what = f"the prompt of round 1 for team {team_id!r}"
        return fit(lambda _: self._initial.render(values, self._texts), self._config, what)

    def build_continuation_prompt(
        self,
        user_query: str,
        round_number: int,
        team_id: str,
        submission_history: Sequence[SubmissionRecord],
        evaluation_feedback: Sequence[EvaluationResult],
        leaderboard_ranking: Sequence[LeaderboardEntry],
        current_team_rank: int | None,
        metadata: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt of a later round, from ``continuation_prompt.jinja2``."""
        records = with_evaluations(submission_history, evaluation_feedback)

        def render(detail: Detail) -> str:
            shown, teams = narrowed(records, leaderboard_ranking, team_id, detail, self._texts)
            return self._continuation.render(
                {
                    "user_query": user_query,
                    "round_number": round_number,
                    "team_id": team_id,
                    "team_name": _team_name(team_id, metadata),
                    "submission_history": shown,
                    "evaluation_feedback": _newest(evaluation_feedback, len(shown), detail),
                    "leaderboard_ranking": teams,
                    "current_team_rank": current_team_rank,
                },
                self._texts,
            )

        what = f"the prompt of round {round_number} for team {team_id!r}"
        return fit(render, self._config, what, rounds=len(records), teams=len(leaderboard_ranking))


def _read_template(directory: Path, name: str) -> Template:
    path = directory / f"{name}.jinja2"
    try:
        return compile_template(path.read_text(encoding="utf-8"), name)
    except FileNotFoundError:
        missing = "is missing: a template directory holds initial_prompt.jinja2 and continuation_prompt.jinja2"
        raise ConfigurationError(Problem(missing, file=str(path))) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(Problem(f"cannot be read: {error}", file=str(path))) from error


def _newest(evaluations: Sequence[EvaluationResult], count: int, detail: Detail) -> list[EvaluationResult]:
    """As many as there are submissions to stand beside, without their metrics where there is no room for these."""
    newest = evaluations[len(evaluations) - min(count, len(evaluations)) :]
    return [one if detail.scores else one.model_copy(update={"metrics": []}) for one in newest]


def _team_name(team_id: str, metadata: Mapping[str, Any] | None) -> str:
    return one_line(str((metadata or {}).get("team_name") or team_id))
