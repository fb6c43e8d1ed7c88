"""Secrets are taken out of whatever is written down, here and nowhere else.

A secret is known in two ways. By value: variables of the environment and of the workspace's ``.env`` whose names say
that they hold one, and what :func:`register_secret` was told; such a value is also found JSON-escaped, URL-encoded, in
base64, or cut off by a preview. By shape: provider keys, bearer tokens, passwords in URLs, private keys and JWTs look
like nothing else. Shapes ask for more than a prefix, so that ``sk-learn`` and ``risk-averse`` stay what they are.

Most texts hold none, so what counts is how soon that is known: all literals are searched at once, by the regular
expressions of pydantic's core, which look for many words at the speed of memory. A request of 13,000 letters takes
them 11 µs; one ``in`` after the other takes 205 µs, and Python's own regular expressions take more. Redacting twice is
redacting once.
"""

import base64
import json
import logging
import os
import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from urllib.parse import quote, quote_plus

from pydantic import JsonValue
from pydantic_core import SchemaValidator, core_schema

__all__ = [
    "MARK",
    "MIN_SECRET_LENGTH",
    "MadeJson",
    "RedactedJson",
    "RedactingFilter",
    "Redactor",
    "register_secret",
    "sorted_json",
]

MARK = "[redacted]"
MIN_SECRET_LENGTH = 8
"""Shorter values are too likely to be part of ordinary words."""

_HEAD_LENGTH = 16
_NAME_WORDS = frozenset(
    {"KEY", "APIKEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PWD", "PASSPHRASE", "CREDENTIAL", "CREDENTIALS", "AUTH"}
)
_NAMES_OF_PLACES = frozenset({"FILE", "PATH", "DIR", "SOCK", "URL", "URI", "NAME", "HOST"})
_ORDINARY_VARIABLES = frozenset({"PWD", "OLDPWD"})
# What people put where a key is asked for and none is needed; taking these out of texts would only damage them.
_PLACEHOLDERS = frozenset(
    {
        "changeme",
        "disabled",
        "dummy-key",
        "localhost",
        "no-key-needed",
        "not-needed",
        "not-required",
        "password",
        "placeholder",
    }
)


# --- shapes -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Shape:
    """A way secrets look. One of ``hints`` stands in every match; group 1, else the whole match, is the secret."""

    hints: tuple[str, ...]
    pattern: re.Pattern[str]

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        if any(hint in text for hint in self.hints):
            for match in self.pattern.finditer(text):
                yield match.span(self.pattern.groups)


# A stretch of eight letters and digits with a digit in it is not a word.
_RANDOM = r"(?=[\w-]*?(?=[A-Za-z]*[0-9])[A-Za-z0-9]{8})"
# A pattern that begins with a literal is searched fast, so what may not stand before it is asked afterwards.
_SHAPES = (
    _Shape(("sk-",), re.compile(rf"sk-(?<![A-Za-z0-9]sk-){_RANDOM}[A-Za-z0-9_-]{{16,}}")),
    _Shape(("AIza",), re.compile(r"AIza[A-Za-z0-9_-]{30,}")),
    _Shape(("AKIA", "ASIA"), re.compile(r"(?<![A-Za-z0-9])A(?:KI|SI)A[A-Z0-9]{16}(?![A-Za-z0-9])")),
    _Shape(("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), re.compile(r"(?<![A-Za-z0-9])gh[pousr]_[A-Za-z0-9]{20,}")),
    _Shape(("github_pat_",), re.compile(r"github_pat_[A-Za-z0-9_]{20,}")),
    _Shape(("glpat-",), re.compile(r"glpat-[A-Za-z0-9_-]{16,}")),
    _Shape(("gsk_", "hf_"), re.compile(r"(?<![A-Za-z0-9])(?:gsk|hf)_[A-Za-z0-9]{20,}")),
    _Shape(
        ("xai-", "pplx-", "nvapi-", "tvly-"),
        re.compile(rf"(?<![A-Za-z0-9])(?:xai|pplx|nvapi|tvly)-{_RANDOM}[A-Za-z0-9_-]{{16,}}"),
    ),
    _Shape(("xox",), re.compile(r"(?<![A-Za-z0-9])xox[abeoprs]-[A-Za-z0-9-]{10,}")),
    _Shape(("ya29.",), re.compile(r"(?<![A-Za-z0-9])ya29\.[A-Za-z0-9_-]{20,}")),
    _Shape((".eyJ",), re.compile(r"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?")),
    _Shape(
        ("earer", "EARER"),
        re.compile(r"\bbearer(?:\s|%20|\+)+((?=[A-Za-z._~+/=-]*[0-9])[A-Za-z0-9._~+/=-]{16,})", re.IGNORECASE),
    ),
    _Shape(
        ("uthorization", "UTHORIZATION"),
        re.compile(
            r"authorization[\\\"']*\s*[:=]\s*[\\\"']*(?:basic|bearer|token|apikey)\s+([^\s\\\"',;]{8,})", re.IGNORECASE
        ),
    ),
    _Shape(("@",), re.compile(r"://[^\s/:@\"'<>]{0,256}:([^\s/@\"'<>]{1,256})@")),
    _Shape(
        ("PRIVATE KEY-----",),
        re.compile(
            r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----"
            r"(?:[^-]{0,20000}-----END [A-Z0-9 ]*PRIVATE KEY-----|[A-Za-z0-9+/=\s\\]*)"
        ),
    ),
)


# --- values -----------------------------------------------------------------------------------------------------------

_registered: tuple[str, ...] = ()
_registering = threading.Lock()


def register_secret(value: str) -> None:
    """From now on every redactor of this process knows ``value``; one that is too short to be found is refused."""
    global _registered
    if len(value) < MIN_SECRET_LENGTH:
        raise ValueError(f"a secret of fewer than {MIN_SECRET_LENGTH} characters cannot be told from ordinary text")
    with _registering:
        if value not in _registered:
            _registered = (*_registered, value)


def _spellings(value: str) -> Iterator[str]:
    """The ways one secret is written: as it is, inside JSON, inside a URL, in base64."""
    yield value
    for ascii_only in (False, True):
        yield json.dumps(value, ensure_ascii=ascii_only)[1:-1]
    # Whole in a URL or cut off by a preview; where only some signs are encoded, see _in_urls.
    for quoted in (quote(value, safe="", errors="replace"), quote_plus(value, errors="replace")):
        yield quoted
        yield re.sub("%..", lambda code: code[0].lower(), quoted)
    yield from _base64_spellings(value.encode("utf-8", "replace"))


def _base64_spellings(value: bytes) -> Iterator[str]:
    """What base64 shows of ``value`` wherever it begins in a group of three, less what it shares with neighbours."""
    for offset, first in ((0, 0), (1, 2), (2, 3)):
        whole_characters = (offset + len(value)) * 8 // 6
        shown = base64.b64encode(b"\0" * offset + value).decode()[first:whole_characters]
        yield shown
        yield shown.translate(str.maketrans("+/", "-_"))


@dataclass(frozen=True)
class _Needle:
    """One spelling of one secret; ``head`` is searched, so that a secret cut off by a preview is found as well."""

    whole: str
    head: str

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        start = text.find(self.head)
        while start >= 0:
            if end := self._end(text, start):
                yield start, end
            start = text.find(self.head, start + 1)

    def _end(self, text: str, start: int) -> int | None:
        shared = _shared_length(self.whole, text[start : start + len(self.whole)])
        end = start + shared
        whole_or_cut = shared == len(self.whole) or end == len(text) or text.startswith(("...", "…"), end)
        return end if whole_or_cut else None


def _shared_length(one: str, other: str) -> int:
    """How many characters the two have in common from their beginnings."""
    if one == other:
        return len(one)
    pairs = zip(one, other, strict=False)
    return next((index for index, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


_ALIKE_IN_URLS = re.compile(r"[A-Za-z0-9._~-]*")


def _in_urls(text: str) -> str:
    """A pattern of ``text`` wherever it is part of a URL: programs differ in which signs they leave as they are."""
    return "".join(_sign_in_urls(sign) for sign in text)


def _sign_in_urls(sign: str) -> str:
    if _ALIKE_IN_URLS.fullmatch(sign):
        return re.escape(sign)
    encoded = "".join(f"%{byte:02X}" for byte in sign.encode("utf-8", "replace"))
    # Both kinds of regular expressions know this way to write a sign.
    plain = f"\\U{ord(sign):08X}"
    also = {" ": ["[+]"], '"': [f"\\U0000005C{plain}"], "\\": [plain * 2]}.get(sign, [])
    return f"(?:{'|'.join([encoded, encoded.lower(), *also, plain])})"


class _Words:
    """Tells whether any of many words, or of some patterns, stands in a text, by one look at it."""

    def __init__(self, words: Iterable[str], patterns: Iterable[str] = ()) -> None:
        # What UTF-8 cannot hold stands in no text that it can.
        encoded = {word: data for word in words if (data := _utf8(word)) is not None}
        # Nothing is faster than to look for one letter, and among words it would slow down the search for all of them.
        self._letters = tuple(data for word, data in encoded.items() if len(word) == 1)
        self._longer = (*(_as_pattern(word) for word in encoded if len(word) > 1), *patterns)

    def are_in(self, data: bytes) -> bool:
        """Whether one of them is in a text, given as UTF-8."""
        if self._longer and self._matches(data):
            return True
        # Asked of every text that is kept: a generator would cost more than the search.
        for letter in self._letters:  # noqa: SIM110
            if letter in data:
                return True
        return False

    @cached_property
    def _matches(self) -> Callable[[bytes], bool]:
        # Made when first needed: it takes a few milliseconds.
        pattern = "|".join(self._longer)
        return SchemaValidator(core_schema.str_schema(pattern=pattern)).isinstance_python


def _utf8(text: str) -> bytes | None:
    """None where a lone surrogate stands in it."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return None


def _as_pattern(word: str) -> str:
    return "".join(letter if letter.isascii() and letter.isalnum() else f"\\x{{{ord(letter):x}}}" for letter in word)


_SHAPE_HINTS = _Words(hint for shape in _SHAPES for hint in shape.hints)


@dataclass(frozen=True)
class _Needles:
    """Every spelling of every secret known at one moment, and what to look for in a text before looking closer."""

    registered: tuple[str, ...]
    needles: tuple[_Needle, ...]
    in_urls: tuple[re.Pattern[str], ...]
    """Those with signs that a URL may have as they are or encoded, each as it likes."""
    hints: _Words
    """What one of them begins with, as it is and inside JSON."""

    @classmethod
    def of(cls, own: Iterable[str], registered: tuple[str, ...]) -> "_Needles":
        values = {*own, *registered}
        spellings = {
            spelling
            for value in values
            for spelling in _spellings(value)
            if len(spelling) >= MIN_SECRET_LENGTH and spelling not in MARK
        }
        needles = tuple(_Needle(spelling, spelling[:_HEAD_LENGTH]) for spelling in sorted(spellings))
        heads = {needle.head for needle in needles}
        json_heads = {json.dumps(head, ensure_ascii=False)[1:-1] for head in heads}
        signed = sorted(value for value in values if not _ALIKE_IN_URLS.fullmatch(value) and _utf8(value) is not None)
        in_urls = tuple(re.compile(_in_urls(value)) for value in signed)
        patterns = [_in_urls(value[:_HEAD_LENGTH]) for value in signed]
        return cls(registered, needles, in_urls, _Words(heads | json_heads, patterns))


class MadeJson(bytes):
    """JSON in UTF-8 that was made of a value by a quicker way than by its parts; secrets may be in it."""

    __slots__ = ()


class RedactedJson(MadeJson):
    """JSON in UTF-8 that a redactor made, so that nobody has to look through it again."""

    __slots__ = ()
    has_surrogates = False
    """Whether lone surrogates stand in it as they are, which UTF-8 does not allow."""


class _JsonWithSurrogates(RedactedJson):
    __slots__ = ()
    has_surrogates = True


class Redactor:
    """Takes secrets out of texts and JSON values; with no secrets of its own it knows shapes and registered ones.

    >>> Redactor(["correct horse battery"]).text("the pass phrase is correct horse battery.")
    'the pass phrase is [redacted].'
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._own = frozenset(secret for secret in secrets if len(secret) >= MIN_SECRET_LENGTH)
        self._known = _Needles.of(self._own, _registered)

    @classmethod
    def from_environment(
        cls, environ: Mapping[str, str] = os.environ, env_file: Path | None = None, variables: Collection[str] = ()
    ) -> "Redactor":
        """Knows the secrets of ``environ`` and ``env_file``; ``variables`` names those whose names do not tell."""
        every = [*_read_env_file(env_file), *environ.items()]
        return cls(value for name, value in every if _holds_a_secret(name, value, variables))

    def text(self, text: str) -> str:
        """``text`` with a mark in place of every secret."""
        if not self.may_change(text):
            return text
        known = (span for needle in self._needles.needles for span in needle.spans(text))
        in_urls = (found.span() for pattern in self._needles.in_urls for found in pattern.finditer(text))
        shaped = (span for shape in _SHAPES for span in shape.spans(text))
        spans = sorted([*known, *in_urls, *shaped])
        redacted = _marked(text, spans) if spans else text
        # A secret that ran into its neighbour may stand out only now that the neighbour is gone.
        return text if redacted == text else self.text(redacted)

    def value(self, value: JsonValue) -> JsonValue:
        """``value`` with a mark in place of every secret, at any depth, in names as in values."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if isinstance(value, dict):
            return self._entries(value)
        return value

    def json(self, value: JsonValue | MadeJson, *, sort_keys: bool = False) -> RedactedJson:
        """``value`` as JSON without its secrets; ``ValueError`` if it is no JSON, NaN and infinity included.

        What is JSON already stays as it is, but for secrets.
        """
        if isinstance(value, MadeJson):
            return self._made(value, sort_keys)
        text = _json_text(value, sort_keys)
        data = _utf8(text)
        # Whatever is in a string of the value is in its JSON too, escaped; without a hint there is nothing to walk for.
        if data is not None and not self._may_change(data):
            return RedactedJson(data)
        text = _json_text(self.value(value), sort_keys)
        data = _utf8(text)
        return _JsonWithSurrogates(text.encode("utf-8", "surrogatepass")) if data is None else RedactedJson(data)

    def _made(self, data: MadeJson, sort_keys: bool) -> RedactedJson:
        if isinstance(data, RedactedJson):
            return data
        return self.json(json.loads(data), sort_keys=sort_keys) if self._may_change(data) else RedactedJson(data)

    def json_text(self, value: JsonValue) -> str:
        """:meth:`json` as text."""
        return self.json(value).decode("utf-8", "surrogatepass")

    def may_change(self, text: str) -> bool:
        """Whether redacting might change ``text``, or a JSON value of which it is the JSON: a quick look, no more."""
        data = _utf8(text)
        return data is None or self._may_change(data)

    def _may_change(self, data: bytes) -> bool:
        return _SHAPE_HINTS.are_in(data) or self._needles.hints.are_in(data)

    def _entries(self, value: dict[str, JsonValue]) -> dict[str, JsonValue]:
        entries: dict[str, JsonValue] = {}
        for name, entry in value.items():
            harmless = self.text(name)
            # Two secrets used as names must not become one entry.
            while harmless in entries:
                harmless += MARK
            entries[harmless] = self.value(entry)
        return entries

    @property
    def _needles(self) -> _Needles:
        if self._known.registered is not _registered:
            self._known = _Needles.of(self._own, _registered)
        return self._known


def sorted_json(value: JsonValue | MadeJson) -> MadeJson:
    """``value`` as JSON with its names in order, secrets and all; UnicodeEncodeError where UTF-8 cannot hold it."""
    return value if isinstance(value, MadeJson) else MadeJson(_json_text(value, sort_keys=True).encode())


# Made once: json.dumps would make one for each value.
_in_any_order, _in_order = (
    json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=are_sorted).encode
    for are_sorted in (False, True)
)


def _json_text(value: JsonValue, sort_keys: bool) -> str:
    return _in_order(value) if sort_keys else _in_any_order(value)


def _marked(text: str, spans: list[tuple[int, int]]) -> str:
    """``text`` with one mark for each stretch of overlapping ``spans``, which come in order."""
    parts: list[str] = []
    done = 0
    for start, end in spans:
        if start >= done:
            parts += [text[done:start], MARK]
        done = max(done, end)
    return "".join([*parts, text[done:]])


def _read_env_file(path: Path | None) -> list[tuple[str, str]]:
    if path is None or not path.is_file():
        return []
    from dotenv import dotenv_values  # costs 35 ms, and most workspaces have no such file

    return [(name, value) for name, value in dotenv_values(path).items() if value]


def _holds_a_secret(name: str, value: str, variables: Collection[str]) -> bool:
    return (name in variables or _sounds_secret(name)) and not _is_ordinary(value)


def _sounds_secret(name: str) -> bool:
    words = [word for word in re.split(r"[^A-Z0-9]+", name.upper()) if word]
    if not words or name in _ORDINARY_VARIABLES or words[-1] in _NAMES_OF_PLACES:
        return False
    return not _NAME_WORDS.isdisjoint(words) or words[-1].endswith(("KEY", "TOKEN", "SECRET", "PASSWORD"))


def _is_ordinary(value: str) -> bool:
    too_plain = len(value) < MIN_SECRET_LENGTH or value.isdecimal() or value.lower() in _PLACEHOLDERS
    return too_plain or (value.startswith(("/", "~/", "./")) and Path(value).expanduser().exists())


# --- logs -------------------------------------------------------------------------------------------------------------


class RedactingFilter(logging.Filter):
    """Takes secrets out of log records: message, arguments, traceback and extra fields. It belongs on handlers."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor
        self._formatter = logging.Formatter()

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record through, without its secrets."""
        record.msg, record.args = self._redactor.text(record.getMessage()), None
        if record.exc_info:
            # A formatter prints the text where there is one; the exception itself would be formatted with its secrets.
            record.exc_text, record.exc_info = self._formatter.formatException(record.exc_info), None
        for name, value in list(vars(record).items()):
            if isinstance(value, str | list | dict):
                setattr(record, name, self._redactor.value(value))
        return True
