"""The one place that reads files of a workspace: whatever is found there, a clear answer within a second.

Nothing is opened that could block or never end (a pipe, a device), nothing larger than a configuration can be is read,
and what would keep the TOML parser busy is refused before it starts.
"""

import io
import os
import re
import stat
from pathlib import Path
from typing import Any, NamedTuple

import tomli
from dotenv import dotenv_values
from dotenv.parser import parse_stream

from mixseek.config.layers import show_value
from mixseek.errors import ConfigurationError, MissingFileError, Problem
from mixseek.workspace import Workspace

__all__ = [
    "MAX_FILE_BYTES",
    "Dotenv",
    "checked_seconds",
    "checked_text",
    "existing_file",
    "is_there",
    "named_file",
    "read_bytes",
    "read_dotenv",
    "read_text",
    "read_toml",
    "referred_file",
]

MAX_FILE_BYTES = 1_000_000
_MAX_KEY_PARTS = 32
_KEY_PART = r"""(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+"""
_LONG_KEY = re.compile(rf"(?:^|[\[{{,])[ \t]*+(?:{_KEY_PART}\.[ \t]*+){{{_MAX_KEY_PARTS}}}", re.MULTILINE)
_TABLE = re.compile(r"\('.*'(?:,|)\)")
_KEY_OF_A_LINE = re.compile(rf"\s*\[*\s*({_KEY_PART}(?:\.[ \t]*+{_KEY_PART})*)[\]=]")
_UNCLOSED_AT_THE_END = {
    "unterminated string": "a text is not closed: the quote at its end is missing",
    'expected "\'"': "a text is not closed: the quote at its end is missing",
    "expected \"'''\"": "a text is not closed: the quote at its end is missing",
    "unclosed array": "a list is not closed: its ] is missing",
}
_PLACE = re.compile(r" \(at (?:line (?P<line>\d+), column (?P<column>\d+)|end of document)\)$")


def named_file(path: Path | str, workspace: Workspace, shown: str | None = None) -> Path:
    """Where a file is that somebody named, whether or not it exists; ``shown`` is how messages name it."""
    try:
        return workspace.find(path)
    except PermissionError as error:
        raise _wrong(shown or str(path), _why_unreadable(error)) from error
    except (OSError, RuntimeError, ValueError, TypeError) as error:
        # Too long, or "~somebody/file" and there is no such user.
        raise MissingFileError(Problem("is not the name of a file", shown or str(path))) from error


def existing_file(path: Path | str, workspace: Workspace, shown: str | None = None) -> Path:
    """:func:`named_file`, refused if nothing is there."""
    file = named_file(path, workspace, shown)
    if not is_there(file):
        where = "" if Path(path).is_absolute() else " in the current directory or the workspace"
        raise MissingFileError(Problem(f"does not exist{where}", shown or str(path)))
    return file


def is_there(file: Path) -> bool:
    """Whether something stands there; where nobody may look, reading it tells so."""
    try:
        file.lstat()
    except PermissionError:
        return True
    except (OSError, ValueError):
        return False
    return True


def read_toml(path: Path, shown: str) -> dict[str, Any]:
    """The document in a TOML file; ``shown`` is how messages name the file."""
    text = read_text(path, shown)
    long_key = _LONG_KEY.search(text)
    if long_key:
        line = text.count("\n", 0, long_key.end()) + 1
        raise _wrong(shown, f"line {line}: a key with more than {_MAX_KEY_PARTS} dotted parts; split it into tables")
    try:
        return tomli.loads(text)
    except tomli.TOMLDecodeError as error:
        raise _wrong(shown, f"not valid TOML: {_tell(error, text)}") from None
    except RecursionError:
        raise _wrong(shown, "tables or lists are nested too deeply; flatten them") from None
    except ValueError:
        # Python refuses to convert numbers with thousands of digits.
        raise _wrong(shown, "not valid TOML: a number is too long") from None


class Dotenv(NamedTuple):
    """The variables of a ``.env`` file, and the lines that are none."""

    values: dict[str, str]
    problems: tuple[Problem, ...] = ()


def read_dotenv(path: Path, shown: str) -> Dotenv:
    """The variables in a ``.env`` file, none where there is no such file; a wrong line hides no other."""
    if not is_there(path):
        return Dotenv({})
    text = read_text(path, shown)
    lines = list(parse_stream(io.StringIO(text)))
    right = "".join("\n" if line.error else line.original.string for line in lines)
    values = dotenv_values(stream=io.StringIO(right))
    return Dotenv(
        {name: value for name, value in values.items() if value is not None},
        tuple(Problem(f"line {line.original.line} is not NAME=value", shown) for line in lines if line.error),
    )


def read_text(path: Path, shown: str) -> str:
    """The text of a file that is a file, not too large, readable and UTF-8; a byte order mark is left out."""
    content = read_bytes(path, shown)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _wrong(shown, f"not UTF-8 text (line {line}); save the file as UTF-8") from None


def checked_text(text: object, what: str) -> str:
    """A text that was given by hand: it says something, and can be sent and kept."""
    if not isinstance(text, str):
        raise ConfigurationError(f"the {what} is no text but {type(text).__name__}: give some text")
    if not text.strip():
        raise ConfigurationError(f"the {what} is empty: give some text")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConfigurationError(f"the {what} is not UTF-8 text") from error
    return text


def checked_seconds(given: object, name: str) -> int:
    """A time-out that was given by hand, as the argument or the option of this name."""
    if isinstance(given, int | float) and not isinstance(given, bool) and given >= 1 and not given % 1:
        return int(given)
    told = f"{show_value(given)} is not allowed: must be a whole number from 1 up"
    raise ConfigurationError(Problem(told, key=name))


def referred_file(workspace: Workspace, given: str) -> Path | None:
    """What a path inside a file leads to, whatever stands there; None where nothing does."""
    try:
        path = workspace.resolve(given)
    except RuntimeError:
        # "~somebody/file", and there is no such user.
        return None
    return path if is_there(path) else None


def read_bytes(path: Path, shown: str, *, most: int = MAX_FILE_BYTES) -> bytes:
    """The content of a file that is a file, readable and not too large."""
    try:
        return _read_regular(path, shown, most)
    except OSError as error:
        raise _wrong(shown, _why_unreadable(error)) from None


def _read_regular(path: Path, shown: str, most: int) -> bytes:
    # Without O_NONBLOCK, opening a pipe that nobody writes to would wait for ever.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise _wrong(shown, "is a directory, not a file")
        if not stat.S_ISREG(mode):
            raise _wrong(shown, "is not a regular file")
        content = file.read(most + 1)
    if len(content) > most:
        why = ", which no configuration file should be" if most == MAX_FILE_BYTES else ""
        raise _wrong(shown, f"is larger than {most:,} bytes{why}")
    return content


def _why_unreadable(error: OSError) -> str:
    match error:
        case FileNotFoundError():
            return "does not exist"
        case IsADirectoryError():
            return "is a directory, not a file"
        case PermissionError():
            return "may not be read; check its permissions and those of its directory"
    return f"cannot be read: {(error.strerror or str(error)).lower()}"


def _tell(error: tomli.TOMLDecodeError, document: str) -> str:
    text = str(error)
    place = _PLACE.search(text)
    if not place:
        return text
    said = _TABLE.sub(lambda match: match[0].strip("(,)").replace("'", "").replace(", ", "."), text[: place.start()])
    said = said[0].lower() + said[1:]
    if not place["line"]:
        return f"at the end: {_UNCLOSED_AT_THE_END.get(said, said)}"
    line = document.split("\n")[int(place["line"]) - 1]
    plain = _in_plain_words(said, line, int(place["column"]))
    return f"line {place['line']}: {plain}" if plain else f"line {place['line']}, column {place['column']}: {said}"


def _in_plain_words(said: str, line: str, column: int) -> str | None:
    """The two slips everybody makes, as a person would tell them; None for all others."""
    if said.startswith("illegal character '\\n'") or (said.startswith("illegal character") and column > len(line)):
        return "a text is not closed: the quote at its end is missing"
    if said == "cannot overwrite a value":
        key = _KEY_OF_A_LINE.match(line)
        return f"{key[1].strip()} is set a second time: keep one of the two" if key else None
    return None


def _wrong(shown: str, message: str) -> ConfigurationError:
    return ConfigurationError(Problem(message, shown))
