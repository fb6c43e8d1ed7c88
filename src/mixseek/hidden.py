"""Characters that nobody sees, or that steer what shows them: where a text holds them and no writing needs them.

Codes of terminals, turns of the direction of writing, joiners and selectors out of place, letters of no width, tags,
and halves of characters. Emoji, scripts whose letters join, and variants of kanji keep what they are written with.
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

__all__ = ["hidden_places", "is_hidden"]

_HIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufdd0-\ufdef\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
    "|\r(?!\n)"
)
_JOINERS = {"\u200c", "\u200d"}
_VARIANTS = [*range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE0110)]
_AT_TIMES_NEEDED = frozenset({*_JOINERS, *map(chr, _VARIANTS)})
_PICTURES = {"So", "Sk", "Sm"}
_BEFORE_EMOJI_STYLE = {*_PICTURES, "Nd", "Po", "Pd", "Ll"}
_LETTERS_THAT_JOIN = re.compile("[\u0600-\u0dff\u0f00-\u109f\u1780-\u17d3\u1820-\u18aa\ua840-\uabff]")
_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_FLAGS = re.compile(
    "\U0001f3f4\U000e0067\U000e0062(?:eng|sct|wls)\U000e007f".translate(
        {ord(letter): 0xE0000 + ord(letter) for letter in "engsctwl"}
    )
)


def hidden_places(text: str) -> Iterator[int]:
    """Where they stand; line feeds, tabs and the two letters of a line's end on Windows are none of them.

    >>> list(hidden_places("a\\u200bb 👩\\u200d🔬"))
    [1]
    """
    if text.isascii() and text.isprintable():
        return
    flags = {place for flag in _FLAGS.finditer(text) for place in range(*flag.span())}
    for found in _HIDDEN.finditer(text):
        place = found.start()
        if text[place] in _AT_TIMES_NEEDED and place and _belongs(text[place - 1 : place + 2]):
            continue
        if place not in flags:
            yield place


def is_hidden(char: str) -> bool:
    """Whether a character is one of them where nothing stands around it."""
    return _HIDDEN.match(char) is not None


# Whoever hides a million of them has the same few neighbours again and again.
@lru_cache(maxsize=8192)
def _belongs(around: str) -> bool:
    """Whether writing needs the second of these characters: in emoji, scripts whose letters join, variants of kanji."""
    before, hidden, after = around[0], around[1], around[2:]
    if hidden in _JOINERS:
        pictures = (before == "\ufe0f" or unicodedata.category(before) in _PICTURES) and _is_picture(after)
        return pictures or _LETTERS_THAT_JOIN.match(before) is not None
    if hidden in "\ufe0e\ufe0f":
        return unicodedata.category(before) in _BEFORE_EMOJI_STYLE and (before in "©®ℹ" or not before.islower())
    if "\ufe00" <= hidden <= "\ufe02":
        return _HAN.match(before) is not None or unicodedata.category(before) == "Sm"
    if "\U000e0100" <= hidden <= "\U000e010f":
        return _HAN.match(before) is not None
    return "\u180b" <= hidden <= "\u180f" and "\u1820" <= before <= "\u18aa"


def _is_picture(char: str) -> bool:
    return bool(char) and unicodedata.category(char) in _PICTURES
