"""Prompt templates: the default texts, the variables each template may use, and the sandbox they are rendered in."""

from mixseek.templating.check import TemplateFault, check_template
from mixseek.templating.failures import TemplateLimitError
from mixseek.templating.sandbox import Template, compile_template
from mixseek.templating.texts import (
    DEFAULT_EVALUATOR_USER_PROMPT,
    DEFAULT_JUDGMENT_USER_PROMPT,
    DEFAULT_TEAM_USER_PROMPT,
)
from mixseek.templating.variables import PROMPT_FILTERS, TEMPLATE_VARIABLES, VARIABLES_BY_TEMPLATE

__all__ = [
    "DEFAULT_EVALUATOR_USER_PROMPT",
    "DEFAULT_JUDGMENT_USER_PROMPT",
    "DEFAULT_TEAM_USER_PROMPT",
    "PROMPT_FILTERS",
    "TEMPLATE_VARIABLES",
    "VARIABLES_BY_TEMPLATE",
    "Template",
    "TemplateFault",
    "TemplateLimitError",
    "check_template",
    "compile_template",
]
