"""Files that come with a task: read once, checked before anything is spent."""

import mimetypes
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from mixseek.config.reading import existing_file, read_bytes
from mixseek.errors import ConfigurationError, Problem
from mixseek.records import Attachment
from mixseek.surrogates import whole_text
from mixseek.workspace import Workspace

__all__ = ["MAX_ATTACHMENTS", "MAX_BYTES", "MAX_TEXT_BYTES", "MAX_TOTAL_BYTES", "read_attachments"]

MAX_ATTACHMENTS = 20
MAX_BYTES = 20_000_000
MAX_TEXT_BYTES = 1_000_000
MAX_TOTAL_BYTES = 50_000_000

_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"ID3", "audio/mpeg"),
    (b"\xff\xfb", "audio/mpeg"),
)
_UNKNOWN = "application/octet-stream"
# Python's own list: what a machine adds to it would make the same file something else elsewhere.
_TYPES = mimetypes.MimeTypes()
_TYPES.add_type("text/markdown", ".md")
_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}


def read_attachments(given: Sequence[Attachment | Path | str] | None, workspace: Workspace) -> tuple[Attachment, ...]:
    """What is attached, its files read; all that is wrong with any of it is one :class:`ConfigurationError`."""
    given = _listed(given)
    if len(given) > MAX_ATTACHMENTS:
        raise ConfigurationError(f"there are {len(given)} attachments: at most {MAX_ATTACHMENTS} can come with a task")
    attached: list[Attachment] = []
    problems: list[Problem] = []
    for one in given:
        try:
            attachment = one if isinstance(one, Attachment) else _read(one, workspace)
            problems += _problems(attachment)
            attached.append(attachment)
        except ConfigurationError as error:
            problems += error.problems
    total = sum(attachment.size for attachment in attached)
    if total > MAX_TOTAL_BYTES:
        problems.append(Problem(f"the attachments have {total:,} bytes together: at most {MAX_TOTAL_BYTES:,} are sent"))
    if problems:
        raise ConfigurationError(problems)
    return tuple(attached)


def _listed(given: Any) -> list[Attachment | Path | str]:
    """One may stand for a list of one, and None for nothing."""
    if given is None:
        return []
    if isinstance(given, str | Path | Attachment):
        return [given]
    if isinstance(given, Iterable) and not isinstance(given, bytes):
        return list(given)
    raise ConfigurationError(
        Problem(f"must be paths or Attachment records, in a list, not {type(given).__name__}", key="attachments")
    )


def _read(path: Path | str, workspace: Workspace) -> Attachment:
    shown = f"attachment {str(path)!r}"
    file = existing_file(path, workspace, shown)
    if whole_text(file.name) is not file.name:
        raise ConfigurationError(Problem("has a name that is not UTF-8: rename the file", shown))
    data = read_bytes(file, shown, most=MAX_BYTES)
    return Attachment(name=file.name, media_type=_media_type(file.name, data), data=data)


def _media_type(name: str, data: bytes) -> str:
    """By what is in it, and by its name only where that says nothing: ``notes.ts`` may be a program or a film."""
    for signature, media_type in _SIGNATURES:
        if data.startswith(signature):
            return media_type
    if data.startswith(b"RIFF") and data[8:12] in _RIFF:
        return _RIFF[data[8:12]]
    guessed = Attachment(name=name, media_type=_TYPES.guess_type(name)[0] or _UNKNOWN, data=data)
    return "text/plain" if not guessed.is_text and guessed.decoded() is not None else guessed.media_type


def _problems(attachment: Attachment) -> list[Problem]:
    shown = f"attachment {attachment.name!r}"
    if not attachment.data:
        return [Problem("is empty: leave it out, or attach what was meant", shown)]
    if attachment.size > MAX_BYTES:
        return [Problem(f"has {attachment.size:,} bytes: at most {MAX_BYTES:,} are sent", shown)]
    if not attachment.is_text:
        return []
    if attachment.decoded() is None:
        return [Problem(f"is no UTF-8 text, though it is {attachment.media_type}: save it as UTF-8", shown)]
    if attachment.size > MAX_TEXT_BYTES:
        return [
            Problem(f"has {attachment.size:,} bytes of text: at most {MAX_TEXT_BYTES:,} are read to a model", shown)
        ]
    return []
