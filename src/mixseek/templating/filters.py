"""Jinja's filters and tests, each priced before it runs, and MixSeek's own.

A price is a function of the call that is about to be made. It refuses what would be too large, and pays for what the
general rules of :func:`_guard_filter` do not see. Nothing here makes ``Markup``: prompts are text, not HTML.
"""

import re
from collections.abc import Callable, Iterable, Sized
from typing import Any, cast

from jinja2 import pass_context
from jinja2.filters import FILTERS
from jinja2.runtime import Context
from jinja2.tests import TESTS
from markupsafe import escape

from mixseek.templating.access import count_line_breaks, count_spaces, price_join, price_replace, price_strip
from mixseek.templating.failures import require
from mixseek.templating.operators import apply_binary, format_percent, refuse_undefined
from mixseek.templating.purse import MAX_WIDTH, PIECE, Call, Purse, Weight
from mixseek.templating.variables import PROMPT_FILTERS, format_score

__all__ = ["GUARDED_FILTERS", "GUARDED_TESTS", "purse_of"]

_MAX_NUMBER_TEXT = 10_000
_MAX_NUMBER = 2**62
_MAX_NAME = 200
_MAX_PRECISION = 100
_MAX_INDENT = 32
_MAX_URLIZE_TEXT = 20_000
_MAX_URLIZE_WORD = 1_000
_ESCAPE_GROWTH = 6
_QUOTE_GROWTH = 12
_CASE_GROWTH = 3
_UNWEIGHED = Weight(0, 0, 0)
_WORD = re.compile(r"\w+")

# These look at a value's outside or pass its parts on; all others go into it.
_SHALLOW = frozenset(
    {
        "attr",
        "batch",
        "count",
        "d",
        "default",
        "first",
        "items",
        "last",
        "length",
        "list",
        "random",
        "reverse",
        "slice",
    }
)
# These work on the text of whatever they get.
_ON_TEXT = frozenset(
    {
        "capitalize",
        "center",
        "escape",
        "e",
        "forceescape",
        "format",
        "indent",
        "lower",
        "replace",
        "safe",
        "string",
        "striptags",
        "summarize",
        "title",
        "trim",
        "truncate",
        "upper",
        "urlize",
        "wordcount",
        "wordwrap",
    }
)


def purse_of(context: Context) -> Purse:
    """The purse of the rendering that a filter is part of."""
    purse: Purse = context.purse  # type: ignore[attr-defined]  # the sandbox's own context class has it
    return purse


def _guard_filter(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    price = _PRICES.get(name)
    deep, on_text = name not in _SHALLOW, name in _ON_TEXT
    # A default is handed on as it is; other arguments may end up in a text.
    readable = name not in ("default", "d")

    @pass_context
    def guarded(context: Context, value: Any, /, *args: Any, **kwargs: Any) -> object:
        purse = purse_of(context)
        if on_text:
            value = purse.text(value)
        weight = purse.weigh(value) if deep else _UNWEIGHED
        for argument in (*args, *kwargs.values()):
            purse.weigh(argument, readable=readable)
        purse.spend(5)
        if price is not None:
            price(Call(purse, value, weight, args, kwargs))
        return purse.keep(context.call(function, value, *args, **kwargs))

    return guarded


# --- prices ---------------------------------------------------------------------------------------------------------


def _price_case(call: Call) -> None:
    call.purse.spend(call.weight.chars >> 3)
    call.purse.room_for_text(_CASE_GROWTH * call.weight.chars)


def _price_title(call: Call) -> None:
    _price_case(call)
    # Each word, and what stands between two words, is taken out and put back in another form.
    pieces = 2 + 2 * (count_spaces(call.purse, call.value) + sum(map(call.value.count, "-({[<")))
    call.purse.spend(5 * pieces)
    call.purse.room(2 * pieces * PIECE)


def _price_center(call: Call) -> None:
    call.whole(0, "width", 80, MAX_WIDTH)


def _price_indent(call: Call) -> None:
    by = call.argument(0, "width", 4)
    width = len(by) if isinstance(by, str) else call.whole(0, "width", 4, MAX_WIDTH)
    lines = 2 + count_line_breaks(call.purse, call.value)
    call.purse.spend(lines)
    call.purse.room(lines * PIECE)
    call.purse.room_for_text(len(call.value) + lines * max(0, width))


def _price_wordwrap(call: Call) -> None:
    call.purse.spend(2 * len(call.value))
    call.purse.room(len(call.value) * PIECE // 2)
    width = max(1, call.whole(0, "width", 79, _MAX_NUMBER))
    wrapstring = call.purse.text(call.argument(2, "wrapstring") or "\n")
    length = len(call.value)
    longest = max(map(len, call.value.split()), default=0)
    lines = 1 + count_line_breaks(call.purse, call.value) + length // max(1, width // 2)
    # A long word is shortened from the front, line by line: each line copies what is left of it.
    call.purse.spend((longest * longest // width >> 9) + 50 * lines)
    call.purse.room(lines * PIECE)
    call.purse.room_for_text(length + lines * len(wrapstring))


def _price_replace(call: Call) -> None:
    old, new = call.purse.text(call.argument(0, "old", "")), call.purse.text(call.argument(1, "new", ""))
    price_replace(call.purse, call.value, old, new, call.argument(2, "count"))


def _price_escape(call: Call) -> None:
    call.purse.spend(10 * call.weight.items + (call.weight.chars >> 4))
    call.purse.room_for_text(_ESCAPE_GROWTH * call.weight.chars)


def _price_urlencode(call: Call) -> None:
    call.purse.spend(10 * call.weight.items + 3 * call.weight.chars)
    call.purse.room(3 * _QUOTE_GROWTH * call.weight.chars)


def _price_urlize(call: Call) -> None:
    # Its patterns take the square of a word's length.
    length = len(call.value)
    require(length <= _MAX_URLIZE_TEXT, f"urlize takes at most {_MAX_URLIZE_TEXT:,} characters")
    longest = max(map(len, call.value.split()), default=0)
    require(longest <= _MAX_URLIZE_WORD, f"urlize takes words of at most {_MAX_URLIZE_WORD:,} characters")
    call.purse.spend(40 * length + length * longest // 4)


def _price_striptags(call: Call) -> None:
    # Comments and tags are cut out one by one, and each cut copies the rest.
    length = len(call.value)
    call.purse.spend((length >> 3) + (call.value.count("<") * length >> 8) + 15 * call.value.count("&"))
    call.purse.room_for_text(2 * length)
    call.purse.room(count_spaces(call.purse, call.value) * PIECE)


def _price_number(call: Call) -> None:
    require(call.weight.chars <= _MAX_NUMBER_TEXT, "the text of a number is too long")


def _price_round(call: Call) -> None:
    call.whole(0, "precision", 0, _MAX_PRECISION)


def _price_groups(call: Call) -> None:
    size = call.argument(0, "linecount", call.kwargs.get("slices"))
    require(isinstance(size, int) and 0 < size <= MAX_WIDTH, f"a number of items is not within 1 and {MAX_WIDTH:,}")
    call.purse.spend(size >> 2)
    call.purse.room(size * PIECE)
    _price_parts(call)


def _price_parts(call: Call) -> None:
    refuse_undefined(call.value)
    parts = _count_parts(call.value)
    call.purse.spend(parts >> 2)
    call.purse.room(parts * PIECE)
    # These make a new object of each part; others hand on what is there.
    call.purse.take(parts * PIECE if isinstance(call.value, str | range) else 0)


def _count_parts(value: object) -> int:
    return len(value) if isinstance(value, Sized) else 0


def _price_sorting(call: Call) -> None:
    steps = 1
    for name in (*call.args, *call.kwargs.values()):
        _require_short_name(name)
        steps += name.count(".") + name.count(",") if isinstance(name, str) else 0
    items, chars = call.weight.items, call.weight.chars
    call.purse.spend(items.bit_length() * (4 * items * steps + (chars >> 4)) + call.weight.hash_work)
    call.purse.room_for_text(chars)
    call.purse.room(2 * items * PIECE)


def _require_short_name(name: object) -> None:
    require(not isinstance(name, str) or len(name) <= _MAX_NAME, f"a name is over {_MAX_NAME} characters")


def _price_selecting(call: Call) -> None:
    name = call.argument(0, "attribute", "")
    _require_short_name(name)
    _price_parts(call)
    # Each step of a dotted name, for each part of the value.
    steps = name.count(".") + 2 if isinstance(name, str) else 2
    call.purse.spend(2 * steps * _count_parts(call.value))


def _price_join(call: Call) -> None:
    _require_short_name(call.argument(1, "attribute"))
    refuse_undefined(call.value)
    if not isinstance(call.value, str):
        call.purse.room_for_repr(call.weight)
    price_join(call.purse, call.purse.text(call.argument(0, "d", "")), call.value)


def _price_json(call: Call) -> None:
    by = call.argument(0, "indent")
    width = len(by) if isinstance(by, str) else call.whole(0, "indent", 0, _MAX_INDENT)
    require(width <= _MAX_INDENT, f"'indent' is over {_MAX_INDENT}")
    items, chars, depth, _ = call.weight
    call.purse.spend(items * (5 + depth) + (chars >> 3))
    call.purse.room(chars * _QUOTE_GROWTH + items * (64 + depth * max(0, width)))


def _price_pprint(call: Call) -> None:
    items, chars, depth, _ = call.weight
    call.purse.spend(items * (40 + 10 * depth) + chars * 4)
    call.purse.room(items * (200 + depth) + chars * 80)


def _price_cut(call: Call) -> None:
    call.purse.room_for_text(2 * call.weight.chars)


_PRICES: dict[str, Callable[[Call], None]] = {
    "batch": _price_groups,
    "capitalize": _price_case,
    "center": _price_center,
    "dictsort": _price_sorting,
    "escape": _price_escape,
    "e": _price_escape,
    "filesizeformat": _price_number,
    "float": _price_number,
    "forceescape": _price_escape,
    "groupby": _price_sorting,
    "indent": _price_indent,
    "int": _price_number,
    "items": _price_parts,
    "join": _price_join,
    "list": _price_parts,
    "lower": _price_case,
    "map": _price_selecting,
    "max": _price_sorting,
    "min": _price_sorting,
    "pprint": _price_pprint,
    "reject": _price_selecting,
    "rejectattr": _price_selecting,
    "replace": _price_replace,
    "reverse": _price_parts,
    "round": _price_round,
    "select": _price_selecting,
    "selectattr": _price_selecting,
    "slice": _price_groups,
    "sort": _price_sorting,
    "striptags": _price_striptags,
    "summarize": _price_cut,
    "title": _price_title,
    "tojson": _price_json,
    "trim": price_strip,
    "truncate": _price_cut,
    "unique": _price_sorting,
    "upper": _price_case,
    "urlencode": _price_urlencode,
    "urlize": _price_urlize,
    "wordwrap": _price_wordwrap,
    "xmlattr": _price_escape,
}


# --- filters that are written anew, with Jinja's meaning ------------------------------------------------------------


def _escape(value: Any) -> str:
    return str(escape(value))


@pass_context
def _attr(context: Context, value: object, name: object) -> object:
    return context.environment.getattr(value, str(name))


@pass_context
def _format(context: Context, value: str, *args: Any, **kwargs: Any) -> object:
    if args and kwargs:
        raise TypeError("can't handle positional and keyword arguments at the same time")
    return format_percent(purse_of(context), value, kwargs or args)


@pass_context
def _sum(context: Context, value: Iterable[Any], attribute: str | int | None = None, start: Any = 0) -> object:
    if attribute is not None:
        value = context.environment.call_filter("map", value, kwargs={"attribute": attribute}, context=context)
    total = start
    for part in value:
        purse_of(context).spend(3)
        total = apply_binary(purse_of(context), "+", total, part)
    return total


@pass_context
def _wordcount(context: Context, value: str) -> int:
    purse = purse_of(context)
    purse.spend(len(value) >> 3)
    words = 0
    for _ in _WORD.finditer(value):
        words += 1
        purse.spend(2)
    return words


@pass_context
def _tojson(context: Context, value: Any, indent: int | str | None = None) -> str:
    return str(context.call(FILTERS["tojson"], value, indent))


@pass_context
def _int(context: Context, value: Any, default: int = 0, base: int = 10) -> object:
    return purse_of(context).keep(FILTERS["int"](value, default, base))


@pass_context
def _format_score(context: Context, score: float | None) -> str:
    return format_score(score, context.texts)  # type: ignore[attr-defined]  # as the purse


_OWN: dict[str, Callable[..., Any]] = {
    **PROMPT_FILTERS,
    "format_score": _format_score,
    "attr": _attr,
    "e": _escape,
    "escape": _escape,
    "forceescape": _escape,
    "format": _format,
    "int": _int,
    "safe": str,
    "string": str,
    "sum": _sum,
    "tojson": _tojson,
    "wordcount": _wordcount,
}

GUARDED_FILTERS: dict[str, Callable[..., Any]] = {
    name: _guard_filter(name, function) for name, function in {**FILTERS, **_OWN}.items()
}
"""Every filter a template may use, by name."""


# --- tests ----------------------------------------------------------------------------------------------------------

_COMPARING = frozenset(
    {
        "in",
        "==",
        "eq",
        "equalto",
        "!=",
        "ne",
        ">",
        "gt",
        "greaterthan",
        "ge",
        ">=",
        "<",
        "lt",
        "lessthan",
        "<=",
        "le",
    }
)
_ON_NUMBERS = frozenset({"odd", "even", "divisibleby"})


def _guard_test(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @pass_context
    def guarded(context: Context, value: Any, /, *args: Any) -> object:
        purse = purse_of(context)
        purse.spend(3)
        if name in _COMPARING:
            for side in (value, *args):
                purse.weigh(side, readable=False)
        elif name in _ON_NUMBERS:
            _require_numbers(name, value, *args)
        elif name in ("lower", "upper"):
            value = purse.text(value)
            purse.spend_on_text(value)
        return context.call(function, value, *args)

    return guarded


def _require_numbers(name: str, *values: object) -> None:
    # On a string, "%" would be formatting.
    refuse_undefined(*values)
    if not all(isinstance(value, int | float) for value in values):
        raise TypeError(f"the test {name!r} is for numbers")


GUARDED_TESTS: dict[str, Callable[..., Any]] = {
    name: _guard_test(name, cast("Callable[..., Any]", test)) for name, test in TESTS.items()
}
"""Every test a template may use, by name."""
