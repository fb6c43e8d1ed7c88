"""Halves of surrogate pairs, which no UTF-8 can hold: what has one can neither be sent nor kept.

Models and tools give them where a text was cut in the middle of an emoji.
"""

import re
from collections.abc import Iterator, Mapping
from operator import is_
from typing import Any

__all__ = ["HALF", "halves_in", "is_unicode", "whole_json", "whole_text", "whole_value"]

HALF = "holds half a surrogate pair, which can neither be sent nor kept: write the whole character"
"""What to tell of a text that a person gave."""

_DEEPEST = 100

_ESCAPES = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<half>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)


def whole_text(text: str) -> str:
    """The text itself, or where halves stand in it, one that has U+FFFD for each; two that belong together are one.

    >>> whole_text("cut here \\ud83d"), whole_text("\\ud83d\\ude00")
    ('cut here \ufffd', '\U0001f600')
    """
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def whole_json(text: str) -> str:
    r"""A text of JSON whose strings can be read; halves may be written as escapes there.

    >>> whole_json(r'"cut here \ud83d, not \\ud83d or \ud83d\ude00"')
    '"cut here \\ufffd, not \\\\ud83d or \\ud83d\\ude00"'
    """
    text = whole_text(text)
    if "\\ud" not in text and "\\uD" not in text:
        return text
    return _ESCAPES.sub(lambda escape: r"\ufffd" if escape["half"] else escape[0], text)


def whole_value(value: Any) -> Any:
    """A value whose texts are whole, down to those in lists and dicts: the same one where they were before."""
    if isinstance(value, str):
        return whole_text(value)
    if isinstance(value, list):
        items = [whole_value(item) for item in value]
        return value if all(map(is_, items, value)) else items
    if isinstance(value, dict):
        keys, values = whole_value(list(value)), whole_value(list(value.values()))
        is_same = all(map(is_, keys, value)) and all(map(is_, values, value.values()))
        return value if is_same else dict(zip(keys, values, strict=True))
    return value


def halves_in(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where texts with halves stand in lists and mappings; of a key that has one, the mapping.

    >>> list(halves_in({"name": "whole", "said": ["cut here \\ud83d"]}))
    [('said', 0)]
    """
    if isinstance(value, str):
        if whole_text(value) is not value:
            yield path
    elif len(path) > _DEEPEST:
        return  # it may hold itself
    elif isinstance(value, Mapping):
        for key, each in value.items():
            if isinstance(key, str) and whole_text(key) is not key:
                yield path
            else:
                yield from halves_in(each, (*path, key))
    elif isinstance(value, list | tuple):
        for number, each in enumerate(value):
            yield from halves_in(each, (*path, number))


def is_unicode(text: str) -> bool:
    """Whether UTF-8 can hold it: no half of a surrogate pair stands in it.

    >>> is_unicode("日本"), is_unicode("\\ud800")
    (True, False)
    """
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False
