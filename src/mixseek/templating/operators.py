"""The operators of a template, each priced before it runs."""

import operator
import re
from collections.abc import Callable
from typing import Any

from jinja2 import Undefined

from mixseek.templating.failures import require
from mixseek.templating.purse import MAX_INTEGER_BITS, MAX_WIDTH, Purse

__all__ = ["apply_binary", "concat", "format_percent", "refuse_undefined", "take_slice"]

_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "**": operator.pow,
    "%": operator.mod,
}
_MAX_DIGITS = 1_400
_SPECIFIER = re.compile(r"%(\([^()]*\))?[#0\- +]*(\*|\d*)(?:\.(\*|\d*))?[hlL]?(.?)", re.DOTALL)
_CONVERSIONS = frozenset("diouxXeEfFgGcrsa%")


def apply_binary(purse: Purse, symbol: str, left: object, right: object) -> object:
    """``left symbol right`` for numbers, strings, lists and tuples; other operands are refused."""
    refuse_undefined(left, right)
    if isinstance(left, int | float) and isinstance(right, int | float):
        return _calculate(purse, symbol, left, right)
    if symbol == "%" and isinstance(left, str):
        return format_percent(purse, left, right)
    if symbol == "*" and isinstance(left, str | list | tuple) and isinstance(right, int):
        return _repeat(purse, left, right)
    if symbol == "*" and isinstance(right, str | list | tuple) and isinstance(left, int):
        return _repeat(purse, right, left)
    if symbol == "+" and _same_kind(left, right):
        return _join(purse, left, right)
    kinds = f"{type(left).__name__!r} and {type(right).__name__!r}"
    raise TypeError(f"unsupported operand type(s) for {symbol}: {kinds}")


def refuse_undefined(*values: object) -> None:
    """Let an undefined value say what is undefined."""
    for value in values:
        if isinstance(value, Undefined):
            str(value)


def _same_kind(left: object, right: object) -> bool:
    return any(isinstance(left, kind) and isinstance(right, kind) for kind in (str, list, tuple))


def _calculate(purse: Purse, symbol: str, left: float, right: float) -> object:
    if symbol == "**" and isinstance(left, int) and isinstance(right, int):
        require(abs(left) <= 1 or (left.bit_length() - 1) * abs(right) <= MAX_INTEGER_BITS, "a number is too large")
    result = _ARITHMETIC[symbol](left, right)
    return purse.keep(result) if isinstance(result, int) else result


def _repeat(purse: Purse, sequence: Any, times: int) -> object:
    length = len(sequence) * max(0, times)
    purse.room_for_text(length) if isinstance(sequence, str) else purse.room(length * 8)
    purse.spend(length >> 6)
    return purse.keep(sequence * times)


def _join(purse: Purse, left: Any, right: Any) -> object:
    length = len(left) + len(right)
    purse.room_for_text(length) if isinstance(left, str) else purse.room(length * 8)
    purse.spend(length >> 6)
    return purse.keep(left + right)


def concat(purse: Purse, values: tuple[object, ...]) -> object:
    """``a ~ b ~ c``."""
    texts = [purse.text(value) for value in values]
    purse.spend_on_text(*texts)
    purse.room_for_text(sum(map(len, texts)))
    return purse.keep("".join(texts))


def take_slice(purse: Purse, value: object, start: Any, stop: Any, step: Any) -> object:
    """``value[start:stop:step]``."""
    refuse_undefined(value, start, stop, step)
    if not isinstance(value, str | list | tuple | range):
        raise TypeError(f"{type(value).__name__!r} object cannot be sliced")
    cut = slice(start, stop, step)
    length = len(range(*cut.indices(len(value))))
    purse.room_for_text(length) if isinstance(value, str) else purse.room(length * 8)
    purse.spend(length >> 6)
    return purse.keep(value[cut])


def format_percent(purse: Purse, pattern: str, values: object) -> object:
    """``pattern % values`` in the manner of printf, with bounded widths."""
    purse.spend_on_text(pattern)
    refuse_undefined(values)
    weight = purse.weigh(values)
    growth = 1 if isinstance(values, str) else 10
    length, uses = len(pattern), 0
    for found in _SPECIFIER.finditer(pattern):
        key, width, precision, conversion = found.groups("")
        require(conversion in _CONVERSIONS, f"unsupported format character {conversion!r}")
        length += _format_width(width) + _format_width(precision) + _MAX_DIGITS
        uses += 1 if key else 0
        purse.room_for_text(length)
    purse.spend(length >> 6)
    purse.room_for_text(length + weight.chars * growth * max(1, uses))
    return purse.keep(pattern % values)


def _format_width(text: str) -> int:
    require(text != "*" and len(text) < 10, "a width given as '*' or as a huge number cannot be used in a format")
    require(int(text or 0) <= MAX_WIDTH, f"a width is over {MAX_WIDTH:,}")
    return int(text or 0)
