"""The default templates, under the name the contract gives them."""

from mixseek.templating import DEFAULT_EVALUATOR_USER_PROMPT, DEFAULT_JUDGMENT_USER_PROMPT, DEFAULT_TEAM_USER_PROMPT

__all__ = ["DEFAULT_EVALUATOR_USER_PROMPT", "DEFAULT_JUDGMENT_USER_PROMPT", "DEFAULT_TEAM_USER_PROMPT"]
