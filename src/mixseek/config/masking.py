"""Secrets are hidden wherever settings are shown, at any depth: by the name of their key and by the look of the value.

``max_tokens`` and ``api_key_env`` only sound like secrets; they are a number and the name of a variable.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

__all__ = ["MASK", "is_secret_name", "mask"]

MASK = "********"

_SECRET_WORD = re.compile(
    r"apikey|auth|authorization|bearer|cookie|credentials?|jwt|passphrase|passwd|passwords?|pwd|secrets?|token"
)
_KEY_QUALIFIER = re.compile(r"access|account|api|auth|encryption|private|secret|service|shared|signing")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_CREDENTIALS_IN_URL = re.compile(r"(?<=://)[^/\s@?#]+(?=@)")
_SECRET_IN_QUERY = re.compile(r"(?i)(?<=[?&])((?:[\w-]*(?:key|token|secret|password|sig|signature))=)[^&\s#]+")
_SECRET_OPTION = re.compile(r"(-{1,2}[\w-]+)=.+", re.DOTALL)
_LOOKS_LIKE_A_KEY = re.compile(
    r"""(?x)
    \b(?: sk-[\w-]{8,} | AIza[\w-]{16,} | gsk_\w{16,} | xai-[\w-]{16,} | hf_\w{16,} | gh[opusr]_\w{16,}
        | github_pat_\w{16,} | xox[abprs]-[\w-]{8,} | (?:AKIA|ASIA)[0-9A-Z]{16} | eyJ[\w-]{8,}\.[\w-]{8,}[\w.-]* )
    | (?i:\b(?:bearer|basic)\s+)[\w.~+/=-]{8,}
    | -----BEGIN\ [A-Z\ ]*PRIVATE\ KEY-----.*
    """,
    re.DOTALL,
)


def is_secret_name(name: str) -> bool:
    """Whether a key's name says that its value is a secret.

    >>> [is_secret_name(name) for name in ("api_key", "X-Auth-Token", "max_tokens", "api_key_env")]
    [True, True, False, False]
    """
    words = [word.lower() for word in _WORD.findall(name)]
    if words[-1:] == ["env"]:
        return False
    named_keys = (first for first, last in pairwise(words) if last in ("key", "keys"))
    return any(map(_SECRET_WORD.fullmatch, words)) or any(map(_KEY_QUALIFIER.fullmatch, named_keys))


def mask(value: Any, key: str = "") -> Any:
    """``value`` as it may be shown: the same shape, secrets replaced."""
    if isinstance(value, Mapping):
        inherited = key if is_secret_name(key) else ""
        return {name: mask(inner, inherited or str(name)) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return _mask_items(value, key)
    if value is None or isinstance(value, bool) or value == "":
        return value
    if is_secret_name(key):
        return MASK
    return _mask_text(value) if isinstance(value, str) else value


def _mask_items(items: Sequence[Any], key: str) -> list[Any]:
    shown: list[Any] = []
    follows_secret_option = False
    for item in items:
        shown.append(MASK if follows_secret_option and isinstance(item, str) else mask(item, key))
        follows_secret_option = isinstance(item, str) and item.startswith("-") and is_secret_name(item)
    return shown


def _mask_text(text: str) -> str:
    option = _SECRET_OPTION.fullmatch(text)
    if option and is_secret_name(option[1]):
        return f"{option[1]}={MASK}"
    text = _CREDENTIALS_IN_URL.sub(MASK, text)
    text = _SECRET_IN_QUERY.sub(rf"\g<1>{MASK}", text)
    return _LOOKS_LIKE_A_KEY.sub(MASK, text)
