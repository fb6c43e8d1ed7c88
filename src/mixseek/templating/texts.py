"""Every text of ours that a model reads, as one value for each language.

A prompt builder file chooses the language (``language = "en"``); whoever writes to a model is handed the
:class:`Texts` of that language and holds no sentence of its own. Words in braces are places to fill.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["Language", "PlainTexts", "Texts"]

Language: TypeAlias = Literal["ja", "en"]


@dataclass(frozen=True, kw_only=True)
class PlainTexts:
    """The prompts of the strategy that needs no template."""

    initial: str
    continuation: str
    place: str
    no_history: str
    round: str
    submission: str
    score: str
    feedback: str
    ranking: str
    ranking_line: str
    own_team: str
    own_place: str
    place_in_ranking: str
    no_place: str


@dataclass(frozen=True, kw_only=True)
class Texts:
    """All that models are told in one language."""

    # The templates that hold where a workspace has none of its own.
    team_user_prompt: str
    evaluator_user_prompt: str
    judgment_user_prompt: str

    # What each model is told it is.
    leader_instruction: str
    judgment_instruction: str
    clarity_coherence: str
    coverage: str
    relevance: str
    quality: str

    # The form of a judge's verdict and of a judgment.
    verdict_comment: str
    verdict_score: str
    judgment_reasoning: str
    judgment_should_continue: str
    judgment_confidence: str

    # A team's past and its place.
    no_history: str
    no_ranking: str
    unscored: str
    cut: str
    round: str
    score: str
    score_details: str
    reason: str
    no_reason: str
    feedback: str
    submission: str
    trend: str
    first_place: str
    place: str
    high_place: str
    ranking_line: str
    own_team: str

    # Data, attachments and references.
    data_follows: str
    attachment_name: str
    attachment: str
    attachment_not_seen: str
    attachment_not_text: str
    reference: str

    # Answers that have to meet a schema.
    answer_schema: str
    answer_again: str

    # Tools of members.
    run_python: str
    run_full_python: str
    no_output: str
    output_cut: str
    exit_code: str
    over_time: str
    over_memory: str
    over_output: str
    web_search: str
    web_search_with_texts: str
    web_fetch: str
    web_fetch_citing: str
    sources: str

    plain: PlainTexts
