"""Answers that have to meet a JSON schema: what the leader is told, and what is taken for one."""

import asyncio
from typing import TYPE_CHECKING

from mixseek.templating import JAPANESE, Texts

if TYPE_CHECKING:
    from mixseek.json_schema import JsonSchema

__all__ = ["UnfitAnswerError", "ask_again", "schema_words", "structured"]


class UnfitAnswerError(ValueError):
    """What keeps an answer from meeting the schema, in words for the leader."""


def schema_words(schema: "JsonSchema", texts: Texts = JAPANESE) -> str:
    """What a leader is told beside its prompt."""
    return texts.answer_schema.format(schema=schema.source)


def ask_again(wrong: UnfitAnswerError, texts: Texts = JAPANESE) -> str:
    """What a leader is told of an answer that does not meet the schema."""
    return texts.answer_again.format(wrong=wrong)


async def structured(answer: str, schema: "JsonSchema") -> str:
    """The bare JSON of an answer that meets the schema, or an :class:`UnfitAnswerError`."""
    from mixseek.json_schema import bare_json  # whoever has a schema has paid for it already

    text = bare_json(answer)
    # In a thread: a large answer takes a while, and the other teams do not wait for it.
    faults = await asyncio.to_thread(_faults, text, schema)
    if faults:
        raise UnfitAnswerError("; ".join(faults))
    return text


def _faults(text: str, schema: "JsonSchema") -> list[str]:
    from mixseek.json_schema import read_json

    try:
        return schema.faults(read_json(text))
    except ValueError as error:
        return [f"the answer {error}"]
