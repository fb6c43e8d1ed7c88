"""What goes wrong inside a template, as Jinja's own exceptions with MixSeek's words and the place."""

from typing import Any

from jinja2 import TemplateError, TemplateSyntaxError, UndefinedError
from jinja2.exceptions import SecurityError, TemplateRuntimeError

__all__ = [
    "ERROR_PREFIX",
    "TemplateLimitError",
    "TemplateWorkError",
    "require",
    "tell_cause",
    "translate",
    "with_place",
]

ERROR_PREFIX = "Jinja2 template error: "
_MAX_MESSAGE = 500


class TemplateLimitError(TemplateRuntimeError):
    """A template wants more than a template may have."""


class TemplateWorkError(TemplateLimitError):
    """A template does more work than its share."""


_KINDS: tuple[tuple[tuple[type[Exception], ...], type[TemplateError]], ...] = (
    ((UndefinedError,), UndefinedError),
    ((SecurityError,), SecurityError),
    ((TemplateWorkError,), TemplateWorkError),
    ((TemplateLimitError, RecursionError, MemoryError), TemplateLimitError),
    ((Exception,), TemplateRuntimeError),
)


def require(condition: bool, message: str) -> None:
    """Refuse what is over a limit."""
    if not condition:
        raise TemplateLimitError(message)


def translate(error: Exception, name: str, lineno: int | None) -> TemplateError:
    """The error to raise for one inside the template ``name``; it knows its ``template_name`` and ``lineno``."""
    if isinstance(error, TemplateSyntaxError):
        words = _shorten(error.message or "")
        syntax = TemplateSyntaxError(
            f"Jinja2 template syntax error at line {error.lineno}: {words}", error.lineno, name
        )
        # Jinja would print the place behind the message; ours has it within.
        syntax.translated = True
        return _placed(syntax, template_name=name)
    kind = next(own for kinds, own in _KINDS if isinstance(error, kinds))
    return _placed(kind(ERROR_PREFIX + _shorten(_words_of(error))), template_name=name, lineno=lineno)


def _placed(error: TemplateError, **place: Any) -> TemplateError:
    """The error with its place as attributes: a class of our own would show a name nobody knows in a traceback."""
    vars(error).update(place)
    return error


def with_place(error: TemplateError) -> str:
    """What went wrong inside a template, with its name and its line."""
    place = vars(error)
    name, line = place.get("template_name"), place.get("lineno")
    if name is None:
        return str(error)
    # Words about the syntax have the line within.
    at = f", line {line}" if line is not None and not isinstance(error, TemplateSyntaxError) else ""
    return f"template {name!r}{at}: {error}"


def tell_cause(error: Exception) -> Exception | None:
    """What to raise a translated error from: thousands of frames help nobody, and keep alive what they refer to."""
    return None if isinstance(error, RecursionError | MemoryError | TemplateLimitError) else error


def _words_of(error: Exception) -> str:
    if isinstance(error, RecursionError | MemoryError):
        return "the template is nested too deeply or needs too much memory"
    if isinstance(error, SyntaxError):
        return f"the template cannot be compiled: {error.msg}"
    if isinstance(error, TemplateError):
        return error.message or type(error).__name__
    return f"{type(error).__name__}: {error}".rstrip(": ")


def _shorten(words: str) -> str:
    return words if len(words) <= _MAX_MESSAGE else words[:_MAX_MESSAGE] + "..."
