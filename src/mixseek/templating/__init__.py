"""Prompt templates: the default texts, the variables each template may use, and the sandbox they are rendered in."""

from mixseek.templating.check import TemplateFault, check_template
from mixseek.templating.english import ENGLISH
from mixseek.templating.failures import TemplateLimitError, with_place
from mixseek.templating.japanese import (
    DEFAULT_EVALUATOR_USER_PROMPT,
    DEFAULT_JUDGMENT_USER_PROMPT,
    DEFAULT_TEAM_USER_PROMPT,
    JAPANESE,
)
from mixseek.templating.sandbox import Template, compile_template
from mixseek.templating.texts import Language, Texts
from mixseek.templating.variables import PROMPT_FILTERS, TEMPLATE_VARIABLES, VARIABLES_BY_TEMPLATE

__all__ = [
    "DEFAULT_EVALUATOR_USER_PROMPT",
    "DEFAULT_JUDGMENT_USER_PROMPT",
    "DEFAULT_TEAM_USER_PROMPT",
    "ENGLISH",
    "JAPANESE",
    "PROMPT_FILTERS",
    "TEMPLATE_VARIABLES",
    "TEXTS",
    "VARIABLES_BY_TEMPLATE",
    "Language",
    "Template",
    "TemplateFault",
    "TemplateLimitError",
    "Texts",
    "check_template",
    "compile_template",
    "with_place",
]

TEXTS: dict[Language, Texts] = {"ja": JAPANESE, "en": ENGLISH}
"""The texts of each language, by what a prompt builder file calls it."""
