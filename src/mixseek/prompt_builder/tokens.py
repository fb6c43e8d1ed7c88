"""Counting tokens without a network: the vocabulary comes in a package, and Japanese is counted as models count it."""

import importlib
from functools import cache
from typing import Any

__all__ = ["count_tokens", "first_tokens"]

# The tokenizer refuses a million characters at once. Pieces count a few tokens more than the whole at their seams, so
# the sum errs on the safe side.
_PIECE = 200_000


def count_tokens(text: str) -> int:
    """How many tokens ``text`` has in the vocabulary of current OpenAI models (o200k), a fair measure for others.

    >>> count_tokens("東京の天気")
    4
    """
    encoding = _encoding()
    return sum(len(encoding.encode_ordinary(text[start : start + _PIECE])) for start in range(0, len(text), _PIECE))


def first_tokens(text: str, most: int) -> str:
    """The beginning of ``text``, ``most`` tokens at most; all of it if it has no more.

    >>> first_tokens("東京の天気", 2)
    '東京の'
    """
    encoding, left = _encoding(), most
    kept: list[str] = []
    for start in range(0, len(text), _PIECE):
        piece = text[start : start + _PIECE]
        tokens = encoding.encode_ordinary(piece)
        if len(tokens) > left:
            # A character may be several tokens: what is cut inside one is left out.
            return "".join(kept) + _whole_characters(encoding, tokens[:left], piece)
        left -= len(tokens)
        kept.append(piece)
    return text


def _whole_characters(encoding: Any, tokens: list[int], text: str) -> str:
    while tokens:
        decoded = encoding.decode(tokens)
        if decoded is not None and text.startswith(decoded):
            return str(decoded)
        tokens = tokens[:-1]
    return ""


@cache
def _encoding() -> Any:
    # Loaded when first used: it takes most of a second, and only prompts with a budget need it.
    return importlib.import_module("bpe_openai").get_encoding("o200k_base")
