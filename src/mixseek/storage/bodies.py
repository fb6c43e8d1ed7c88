"""Large bodies in the journal: JSON text that is compressed when that saves room; the type of a value tells which.

Requests, messages and prompts shrink to about a third, also at zlib's quickest level; slower ones gain a few parts in
a hundred for four times the time. What is short stays text: whoever opens the file with another program can read it.
"""

import json
import sqlite3
import zlib
from typing import Any

from pydantic import ValidationError

__all__ = [
    "UNPACK",
    "UnreadableBodyError",
    "packed",
    "register",
    "text_or_bytes",
    "unpacked",
    "value_of",
    "what_is_wrong",
]

UNPACK = "unpacked"
"""The SQL function that gives the text of a body, cast to a BLOB; :func:`register` makes it known to a connection."""


class UnreadableBodyError(sqlite3.DatabaseError):
    """What is not as it was stored; whoever reads the file takes it for damage, as for a page of SQLite's."""

    sqlite_errorcode = sqlite3.SQLITE_CORRUPT


_WORTHWHILE_BYTES = 4096
_LEVEL = 1
_COMPRESSED = b"x"


def packed(body: bytes) -> str | bytes:
    """A body, given as UTF-8, as it is stored."""
    if len(body) < _WORTHWHILE_BYTES:
        return body.decode()
    shorter = zlib.compress(body, _LEVEL)
    return shorter if len(shorter) < len(body) else body.decode()


def unpacked(stored: str | bytes | None) -> str | None:
    """The text of a stored body."""
    return zlib.decompress(stored).decode() if isinstance(stored, bytes) else stored


def text_or_bytes(stored: bytes) -> str | bytes:
    """A text as SQLite holds it; one that is no UTF-8 any more stays bytes, so that only its own row is damaged."""
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return stored


def value_of(stored: str | bytes | None) -> Any:
    """The JSON value of a stored body; None where there is none."""
    try:
        text = unpacked(stored)
        return None if text is None else json.loads(text)
    except (ValueError, TypeError, zlib.error) as error:
        raise UnreadableBodyError(f"what was kept is no readable JSON: {error}") from error


def what_is_wrong(error: Exception) -> str:
    """Why a row cannot have been written so, without its values."""
    if isinstance(error, UnreadableBodyError):
        return str(error)
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(map(str, first['loc'])) or 'it'}: {first['msg']}"
    return f"it has another shape than was written ({type(error).__name__})"


def _readable(stored: bytes | None) -> str | None:
    """The text of a body, for statements: one that is damaged has none, and keeps nobody from reading other rows.

    It is given as a BLOB: SQLite gives no text to a function that is no UTF-8. No JSON begins like a compressed body.
    """
    try:
        text = None if stored is None else unpacked(stored) if stored.startswith(_COMPRESSED) else stored.decode()
        value_of(text)  # statements fail at what is no JSON
        return text
    except (UnreadableBodyError, UnicodeDecodeError, zlib.error):
        return None


def register(connection: sqlite3.Connection) -> None:
    """Let statements of this connection look into bodies."""
    connection.create_function(UNPACK, 1, _readable, deterministic=True)
