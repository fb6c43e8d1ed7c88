"""What goes wrong inside a template, as Jinja's own exceptions with MixSeek's words and the place."""

from jinja2 import TemplateError, TemplateSyntaxError, UndefinedError
from jinja2.exceptions import SecurityError, TemplateRuntimeError

__all__ = ["ERROR_PREFIX", "TemplateLimitError", "TemplateWorkError", "require", "tell_cause", "translate"]

ERROR_PREFIX = "Jinja2 template error: "
_MAX_MESSAGE = 500


class TemplateLimitError(TemplateRuntimeError):
    """A template wants more than a template may have."""


class TemplateWorkError(TemplateLimitError):
    """A template does more work than its share."""


class _PlacedError(TemplateError):
    template_name: str | None = None
    lineno: int | None = None


class _PlacedUndefinedError(_PlacedError, UndefinedError):
    pass


class _PlacedSecurityError(_PlacedError, SecurityError):
    pass


class _PlacedWorkError(_PlacedError, TemplateWorkError):
    pass


class _PlacedLimitError(_PlacedError, TemplateLimitError):
    pass


class _PlacedRuntimeError(_PlacedError, TemplateRuntimeError):
    pass


class _PlacedSyntaxError(TemplateSyntaxError):
    def __init__(self, message: str, lineno: int, name: str | None = None, filename: str | None = None) -> None:
        super().__init__(message, lineno, name, filename)
        self.template_name = name
        # Jinja would print the place behind the message; ours has it within.
        self.translated = True


_KINDS: tuple[tuple[tuple[type[Exception], ...], type[_PlacedError]], ...] = (
    ((UndefinedError,), _PlacedUndefinedError),
    ((SecurityError,), _PlacedSecurityError),
    ((TemplateWorkError,), _PlacedWorkError),
    ((TemplateLimitError, RecursionError, MemoryError), _PlacedLimitError),
    ((Exception,), _PlacedRuntimeError),
)


def require(condition: bool, message: str) -> None:
    """Refuse what is over a limit."""
    if not condition:
        raise TemplateLimitError(message)


def translate(error: Exception, name: str, lineno: int | None) -> TemplateError:
    """The error to raise for one that happened inside the template ``name``."""
    if isinstance(error, TemplateSyntaxError):
        words = _shorten(error.message or "")
        return _PlacedSyntaxError(f"Jinja2 template syntax error at line {error.lineno}: {words}", error.lineno, name)
    kind = next(placed for kinds, placed in _KINDS if isinstance(error, kinds))
    translated = kind(ERROR_PREFIX + _shorten(_words_of(error)))
    translated.template_name = name
    translated.lineno = lineno
    return translated


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
