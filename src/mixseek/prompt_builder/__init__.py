"""Prompts: what teams, evaluators and judgments are told."""

from mixseek.prompt_builder.builder import UserPromptBuilder
from mixseek.prompt_builder.formatters import (
    format_ranking_table,
    format_submission_history,
    generate_position_message,
    get_current_datetime_with_timezone,
)
from mixseek.prompt_builder.jinja2_builder import Jinja2PromptBuilder, setup_jinja2_environment
from mixseek.prompt_builder.models import (
    TEMPLATE_VARIABLES,
    EvaluationResult,
    EvaluatorPromptContext,
    LeaderboardEntry,
    RoundContext,
    RoundPromptContext,
    SubmissionRecord,
)
from mixseek.prompt_builder.plain_text import PlainTextPromptBuilder, build_round_prompt
from mixseek.prompt_builder.protocol import PromptBuilder, TeamPromptBuilder
from mixseek.prompt_builder.strategy import StrategyPromptBuilder

__version__ = "1.0.0"

__all__ = [
    "TEMPLATE_VARIABLES",
    "EvaluationResult",
    "EvaluatorPromptContext",
    "Jinja2PromptBuilder",
    "LeaderboardEntry",
    "PlainTextPromptBuilder",
    "PromptBuilder",
    "RoundContext",
    "RoundPromptContext",
    "StrategyPromptBuilder",
    "SubmissionRecord",
    "TeamPromptBuilder",
    "UserPromptBuilder",
    "__version__",
    "build_round_prompt",
    "format_ranking_table",
    "format_submission_history",
    "generate_position_message",
    "get_current_datetime_with_timezone",
    "setup_jinja2_environment",
]
