"""How the metrics computed in code read a text: characters, words, scripts. Every step is linear in its length."""

import unicodedata

import regex

__all__ = ["UNSPACED", "count_characters", "count_words", "folded", "words"]

UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}ーｰ々〆\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
"""Letters of scripts in which a word is not told from the next, or from its particle, by a space."""

_WORD = regex.compile(
    # A letter of an unspaced script by itself, or a run of other letters and digits with what joins them inside a word.
    rf"[{UNSPACED}]|(?:(?![{UNSPACED}])[\p{{L}}\p{{M}}\p{{N}}_])++(?:['’.,-](?:(?![{UNSPACED}])[\p{{L}}\p{{M}}\p{{N}}_])++)*+"
)
_CHARACTER = regex.compile(r"[\r\n]|\X")


def folded(text: str) -> str:
    """``text`` without differences of case and width, for comparing.

    >>> folded("ＡＰＩ ｶﾞｲﾄﾞ")
    'api ガイド'
    """
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def count_characters(text: str) -> int:
    """Characters as a reader counts them, spaces inside lines included; line breaks and outer space are none.

    >>> count_characters("か\\u3099く\\n 学 ")
    4
    """
    text = text.strip()
    if text.isascii():
        return len(text) - text.count("\n") - text.count("\r")
    return sum(found[0] not in "\r\n" for found in _CHARACTER.findall(text))


def words(text: str) -> list[str]:
    """The words of ``text``; in scripts without spaces between words, every letter is one, as word processors count.

    >>> words("It's 3.14, 約3メートル")
    ["It's", '3.14', '約', '3', 'メ', 'ー', 'ト', 'ル']
    """
    return _WORD.findall(text)


def count_words(text: str) -> int:
    """How many :func:`words` there are."""
    return len(words(text))
