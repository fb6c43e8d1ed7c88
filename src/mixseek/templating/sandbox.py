"""Templates, compiled once and rendered within bounds, in the process that asks.

A template comes from a workspace, and a workspace may come from anyone. Three walls stand around it. *Reach*:
attributes, items and calls go through :mod:`~mixseek.templating.access`, which knows what is documented and nothing
else. *Cost*: whatever a template does is paid from a :class:`~mixseek.templating.purse.Purse` first; nothing is
computed while compiling, where there is no purse. *Errors*: what goes wrong inside a template leaves as a
``jinja2.TemplateError``.
"""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from threading import RLock
from types import TracebackType
from typing import Any

import jinja2
from jinja2 import StrictUndefined, TemplateError, nodes, pass_context
from jinja2.exceptions import SecurityError, TemplateRuntimeError
from jinja2.lexer import Token, TokenStream
from jinja2.runtime import Context, LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from markupsafe import Markup

from mixseek.templating import access, hooks, operators
from mixseek.templating.failures import TemplateLimitError, require, tell_cause, translate
from mixseek.templating.filters import GUARDED_FILTERS, GUARDED_TESTS, purse_of
from mixseek.templating.japanese import JAPANESE
from mixseek.templating.purse import Opaque, Purse, SafeNamespace
from mixseek.templating.texts import Texts

__all__ = [
    "MAX_RANGE",
    "MAX_SOURCE",
    "Template",
    "compile_template",
    "compile_tree",
    "parse_template",
    "refuse",
    "template_globals",
]

MAX_SOURCE = 256 * 1024
MAX_RANGE = 10_000
_MAX_TAGS = 8_000
_MAX_TOKENS = 15_000
_LONG_NUMBER = re.compile(r"[\da-fA-F_]{5000}")
_CACHED_TEMPLATES = 32
_PURSE = "<purse>"
_TEXTS = "<texts>"


# --- the environment ------------------------------------------------------------------------------------------------


class _Context(Context):
    def __init__(self, environment: Any, parent: dict[str, Any], *more: Any, **named: Any) -> None:
        super().__init__(environment, parent, *more, **named)
        self.purse: Purse = parent[_PURSE]
        self.texts: Texts = parent[_TEXTS]


class _Function(Opaque):
    """One of the three functions a template can call by name."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def call(self, purse: Purse, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        for argument in (*args, *kwargs.values()):
            operators.refuse_undefined(argument)
        if self.name == "range":
            return _range(*args, **kwargs)
        for argument in args:
            weight = purse.weigh(argument, readable=False)
            purse.take(110 * weight.items)
            purse.spend(weight.hash_work)
        purse.take(240 + 110 * len(kwargs))
        return dict(*args, **kwargs) if self.name == "dict" else SafeNamespace(*args, **kwargs)


def _range(*args: int) -> range:
    numbers = range(*args)
    # Asking for the length of a very long range is an error of its own.
    require(not numbers[MAX_RANGE:], f"range() of more than {MAX_RANGE:,} numbers")
    return numbers


class _Environment(ImmutableSandboxedEnvironment):
    context_class = _Context
    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            autoescape=False,
            undefined=StrictUndefined,
            optimized=False,
            finalize=_finalize,
            cache_size=0,
        )
        self.globals: dict[str, Any] = {name: _Function(name) for name in ("range", "dict", "namespace")}
        self.filters = {**GUARDED_FILTERS, **_HOOKS}
        self.tests = dict(GUARDED_TESTS)

    def getattr(self, obj: Any, attribute: str) -> Any:
        return access.get_attribute(self, obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        return access.get_item(self, obj, argument)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        return access.is_readable_field(obj, attr)

    def is_safe_callable(self, obj: Any) -> bool:
        return isinstance(obj, Opaque | Macro | LoopContext)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        return operators.apply_binary(purse_of(context), operator, left, right)

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        purse = purse_of(context)
        kwargs.pop("_loop_vars", None)
        kwargs.pop("_block_vars", None)
        purse.spend(5 + len(args) + len(kwargs))
        if isinstance(obj, access.Method | _Function):
            return obj.call(purse, args, kwargs)
        if isinstance(obj, Macro):
            return _descend(purse, obj, (context.eval_ctx, *args), kwargs)
        if isinstance(obj, LoopContext):
            return _descend(purse, obj, args, kwargs)
        operators.refuse_undefined(obj)
        raise SecurityError(f"a {type(obj).__name__!r} object cannot be called")

    def call_filter(self, name: str, *args: Any, **kwargs: Any) -> Any:
        # map() takes a filter by name, and a string can spell what a template's grammar cannot.
        _require_name(name)
        if name in _HOOKS:
            raise TemplateRuntimeError(f"No filter named {name!r}.")
        return super().call_filter(name, *args, **kwargs)

    def call_test(self, name: str, *args: Any, **kwargs: Any) -> Any:
        _require_name(name)
        return super().call_test(name, *args, **kwargs)

    def _tokenize(
        self, source: str, name: str | None, filename: str | None = None, state: str | None = None
    ) -> TokenStream:
        stream = super()._tokenize(source, name, filename, state)
        return TokenStream(_count_tokens(stream), name, filename)


def _require_name(name: object) -> None:
    operators.refuse_undefined(name)
    if not isinstance(name, str):
        raise TypeError(f"a {type(name).__name__!r} object cannot name a filter or a test")


def _count_tokens(stream: TokenStream) -> Iterator[Token]:
    for count, token in enumerate(stream):
        require(count < _MAX_TOKENS, f"the template has more than {_MAX_TOKENS:,} words and signs")
        yield token


def _descend(purse: Purse, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
    purse.enter()
    try:
        return target(*args, **kwargs)
    finally:
        purse.depth -= 1


@pass_context
def _finalize(context: Context, value: Any) -> str:
    purse = purse_of(context)
    text = value if type(value) is str else purse.text(value)
    purse.write(text)
    return text


@pass_context
def _spend(context: Context, work: int, memory: int, chars: int, width: int) -> bool:
    purse = purse_of(context)
    purse.spend(work)
    if memory:
        purse.take(memory)
    if chars:
        purse.widen(width)
        purse.write_chars(chars)
    return True


@pass_context
def _weigh(context: Context, value: Any) -> Any:
    purse_of(context).weigh(value, readable=False)
    return value


@pass_context
def _attribute(context: Context, value: Any, name: str) -> object:
    found = access.get_attribute(context.environment, value, name)
    # A property makes its value anew each time.
    return purse_of(context).keep(found) if access.is_property(value, name) else found


@pass_context
def _item(context: Context, value: Any, key: Any) -> object:
    found = access.get_item(context.environment, value, key)
    return purse_of(context).keep(found) if isinstance(key, str) and access.is_property(value, key) else found


@pass_context
def _concat(context: Context, values: tuple[object, ...]) -> object:
    return operators.concat(purse_of(context), values)


@pass_context
def _slice(context: Context, value: object, start: object, stop: object, step: object) -> object:
    return operators.take_slice(purse_of(context), value, start, stop, step)


_HOOKS = {
    hooks.ATTRIBUTE: _attribute,
    hooks.CONCAT: _concat,
    hooks.ITEM: _item,
    hooks.SLICE: _slice,
    hooks.SPEND: _spend,
    hooks.WEIGH: _weigh,
}
_environment = _Environment()


def template_globals() -> frozenset[str]:
    """The names every template has besides its variables."""
    return frozenset(_environment.globals)


# --- templates ------------------------------------------------------------------------------------------------------


class Template:
    """A compiled template; one may be rendered by many threads at the same time."""

    def __init__(self, name: str, compiled: jinja2.Template) -> None:
        self.name = name
        self._compiled = compiled

    def render(self, values: Mapping[str, object], texts: Texts = JAPANESE) -> str:
        """The template's text with these values; every error is a ``jinja2.TemplateError``."""
        return self.render_within(Purse(), values, texts)

    def render_within(self, purse: Purse, values: Mapping[str, object], texts: Texts = JAPANESE) -> str:
        """:meth:`render` with means of the caller's choice."""
        try:
            return "".join(self._compiled.root_render_func(self._context(purse, values, texts)))
        except Exception as error:  # noqa: BLE001  # whatever happens inside a template is an error of the template
            raise translate(error, self.name, self._line_of(error.__traceback__)) from tell_cause(error)

    def _context(self, purse: Purse, values: Mapping[str, object], texts: Texts) -> Context:
        # HTML-safe strings would bring their own operators along; a prompt is text.
        plain = {name: str(value) if isinstance(value, Markup) else value for name, value in values.items()}
        variables = {**_environment.globals, **plain, _PURSE: purse, _TEXTS: texts}
        return _Context(_environment, variables, self.name, self._compiled.blocks)

    def _line_of(self, traceback: TracebackType | None) -> int | None:
        line = None
        while traceback is not None:
            if traceback.tb_frame.f_globals.get("__jinja_template__") is self._compiled:
                line = self._compiled.get_corresponding_lineno(traceback.tb_lineno)
            traceback = traceback.tb_next
        return line


def compile_template(source: str, name: str) -> Template:
    """The template of this source, compiled at its first use; ``name`` is what its errors call it."""
    with _compiling:
        return _compile(source, name)


_compiling = RLock()


@lru_cache(maxsize=_CACHED_TEMPLATES)
def _compile(source: str, name: str) -> Template:
    tree = parse_template(source, name)
    for refusal in hooks.find_refusals(tree):
        raise refuse(refusal, name)
    return compile_tree(tree, name)


def compile_tree(tree: nodes.Template, name: str) -> Template:
    """Put the hooks into a parsed template and compile it."""
    tree.set_environment(_environment)
    try:
        code = _environment.compile(hooks.add_hooks(tree), name, name)
        compiled = jinja2.Template.from_code(_environment, code, _environment.globals)
    except Exception as error:  # noqa: BLE001  # generated code may be refused by Python in many ways
        raise translate(error, name, None) from tell_cause(error)
    return Template(name, compiled)


def parse_template(source: str, name: str) -> nodes.Template:
    """The syntax tree of a template."""
    try:
        _require_readable(source)
        return _environment.parse(source, name)
    except Exception as error:  # noqa: BLE001  # numbers of many digits, deep brackets, ...
        raise translate(error, name, None) from tell_cause(error)


def _require_readable(source: str) -> None:
    require(len(source) <= MAX_SOURCE, f"the template is longer than {MAX_SOURCE >> 10} K characters")
    tags = source.count("{{") + source.count("{%") + source.count("{#")
    require(tags <= _MAX_TAGS, f"the template has more than {_MAX_TAGS:,} tags")
    # Jinja's pattern for numbers needs memory for every digit.
    require(_LONG_NUMBER.search(source) is None, "the template has a number of thousands of digits")


def refuse(refusal: hooks.Refusal, name: str) -> TemplateError:
    """The error for something that is never allowed."""
    error = (TemplateLimitError if refusal.is_limit else SecurityError)(refusal.message)
    return translate(error, name, refusal.lineno)
