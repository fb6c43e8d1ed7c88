"""What a template can reach: documented fields of records, ``loop``, namespaces, and harmless methods.

Attributes and items are looked up here and nowhere else. A method is handed out as a :class:`Method`, a name beside its
object, which only :meth:`Method.call` can turn into the real thing: who gets hold of it without calling it has nothing.
"""

from collections.abc import Callable, Mapping
from typing import Any

from jinja2 import Environment, Undefined
from jinja2.exceptions import SecurityError
from jinja2.filters import _GroupTuple
from jinja2.runtime import LoopContext
from jinja2.utils import Namespace

from mixseek.records import Record
from mixseek.templating.operators import refuse_undefined
from mixseek.templating.purse import MAX_WIDTH, PIECE, Call, Opaque, Purse, Weight

__all__ = [
    "SEQUENCE_METHODS",
    "TEXT_METHODS",
    "Method",
    "count_line_breaks",
    "count_spaces",
    "get_attribute",
    "get_item",
    "is_property",
    "is_readable_field",
    "price_join",
    "price_replace",
    "price_strip",
]

_LOOP_FIELDS = frozenset(
    {
        "index",
        "index0",
        "revindex",
        "revindex0",
        "first",
        "last",
        "length",
        "depth",
        "depth0",
        "previtem",
        "nextitem",
        "cycle",
        "changed",
    }
)
_LOOP_METHODS = frozenset({"cycle", "changed"})
_DICT_METHODS = frozenset({"get", "items", "keys", "values"})
SEQUENCE_METHODS = frozenset({"count", "index"})
_GROUP_FIELDS = frozenset({"grouper", "list"})
_PLAIN_TEXT_METHODS = frozenset(
    {
        "capitalize",
        "casefold",
        "count",
        "endswith",
        "find",
        "index",
        "isalnum",
        "isalpha",
        "isascii",
        "isdecimal",
        "isdigit",
        "isidentifier",
        "islower",
        "isnumeric",
        "isprintable",
        "isspace",
        "istitle",
        "isupper",
        "lower",
        "partition",
        "removeprefix",
        "removesuffix",
        "rfind",
        "rindex",
        "rpartition",
        "startswith",
        "swapcase",
        "title",
        "upper",
    }
)
_LINE_BREAKS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
_SPACES = (
    _LINE_BREAKS
    + "\t\x1f \xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
)


def get_attribute(environment: Environment, value: object, name: str) -> object:
    """``value.name``."""
    refuse_undefined(value)
    method = _method(value, name)
    if method is not None:
        return method
    if isinstance(value, Mapping):
        return value[name] if name in value else _nothing(environment, value, name)
    if not is_readable_field(value, name):
        return _nothing(environment, value, name)
    return _of_namespace(environment, value, name) if isinstance(value, Namespace) else getattr(value, name)


def get_item(environment: Environment, value: object, key: object) -> object:
    """``value[key]``; a string names a key of a mapping or a documented field, never an attribute."""
    refuse_undefined(value, key)
    if isinstance(value, Mapping) and isinstance(key, str | int | float | None):
        return value[key] if key in value else environment.undefined(obj=value, name=key)  # type: ignore[arg-type]
    if isinstance(key, str):
        return _field_by_item(environment, value, key)
    if isinstance(value, str | list | tuple | range) and isinstance(key, int):
        return value[key] if -len(value) <= key < len(value) else _no_element(environment, value, key)
    raise TypeError(f"{type(value).__name__!r} object has no item of type {type(key).__name__!r}")


def is_readable_field(value: object, name: str) -> bool:
    """Whether ``name`` is documented for values of this kind."""
    if isinstance(value, Record):
        return name in type(value).model_fields or name in type(value).template_properties
    if isinstance(value, LoopContext):
        return name in _LOOP_FIELDS
    if isinstance(value, _GroupTuple):
        return name in _GROUP_FIELDS
    return isinstance(value, Namespace) and not name.startswith("_")


def is_property(value: object, name: str) -> bool:
    """Whether ``name`` is computed when it is read."""
    return isinstance(value, Record) and name in type(value).template_properties


def _field_by_item(environment: Environment, value: object, name: str) -> object:
    # map(attribute=...), selectattr, groupby and sort come this way, so records answer to it too.
    if isinstance(value, Record | _GroupTuple) and is_readable_field(value, name):
        return getattr(value, name)
    return _nothing(environment, value, name)


def _of_namespace(environment: Environment, value: Namespace, name: str) -> object:
    try:
        return getattr(value, name)
    except AttributeError:
        return environment.undefined(obj=value, name=name)


def _no_element(environment: Environment, value: object, key: int) -> Undefined:
    # The words name the key; a number of a thousand digits would not help anyone.
    return environment.undefined(obj=value, name=key if abs(key) < 10**18 else "of that number")  # type: ignore[arg-type]


def _nothing(environment: Environment, value: object, name: str) -> Undefined:
    if name.startswith("_") or hasattr(type(value), name):
        return environment.undefined(
            f"access to attribute {name!r} of {type(value).__name__!r} object is unsafe.",
            obj=value,
            name=name,
            exc=SecurityError,
        )
    return environment.undefined(obj=value, name=name)


# --- methods --------------------------------------------------------------------------------------------------------


class Method(Opaque):
    """A method that was named; calling it pays first."""

    __slots__ = ("name", "owner")

    def __init__(self, owner: object, name: str) -> None:
        self.owner = owner
        self.name = name

    def call(self, purse: Purse, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        """Price the call, then make it."""
        for argument in (*args, *kwargs.values()):
            purse.weigh(argument, readable=False)
        if not isinstance(self.owner, LoopContext):
            refuse_undefined(*args, *kwargs.values())
        if isinstance(self.owner, str):
            _price_text_method(Call(purse, self.owner, Weight(1, len(self.owner), 1), args, kwargs), self.name)
        elif isinstance(self.owner, list | tuple):
            purse.weigh(self.owner, readable=False)
        return purse.keep(getattr(self.owner, self.name)(*args, **kwargs))


def _method(value: object, name: str) -> Method | None:
    for kind, names in _METHODS_BY_KIND:
        if isinstance(value, kind):
            return Method(value, name) if name in names else None
    return None


def _price_text_method(call: Call, name: str) -> None:
    length = len(call.value)
    call.purse.spend(2 + (length >> 3))
    # Upper case, title case and case folding make up to three characters of one.
    call.purse.room_for_text(3 * length if name in _PLAIN_TEXT_METHODS else length)
    if name in _TEXT_PRICES:
        _TEXT_PRICES[name](call)


def _price_width(call: Call) -> None:
    call.whole(0, "width", 0, MAX_WIDTH)


def _price_tabs(call: Call) -> None:
    size = call.whole(0, "tabsize", 8, MAX_WIDTH)
    call.purse.room_for_text(len(call.value) + call.value.count("\t") * max(0, size))


def _price_replace(call: Call) -> None:
    if len(call.args) >= 2 and all(isinstance(text, str) for text in call.args[:2]):
        price_replace(call.purse, call.value, call.args[0], call.args[1], call.argument(2, "count", -1))


def price_replace(purse: Purse, text: str, old: str, new: str, count: int | None = None) -> None:
    """Refuse a replacement whose result would not fit."""
    purse.spend_on_text(text)
    found = text.count(old)
    if isinstance(count, int) and count >= 0:
        found = min(found, count)
    purse.room_for_text(len(text) + found * len(new))


def price_strip(call: Call) -> None:
    """Every character of the text may be looked for in all of ``chars``."""
    chars = call.argument(0, "chars")
    call.purse.spend((len(call.value) * len(chars)) >> 8 if isinstance(chars, str) else 0)


def _price_split(call: Call) -> None:
    separator, most = call.argument(0, "sep"), call.argument(1, "maxsplit", -1)
    found = call.value.count(separator) if isinstance(separator, str) else count_spaces(call.purse, call.value)
    _price_pieces(call.purse, 1 + (min(found, most) if isinstance(most, int) and most >= 0 else found))


def _price_splitlines(call: Call) -> None:
    _price_pieces(call.purse, 1 + count_line_breaks(call.purse, call.value))


def _price_pieces(purse: Purse, pieces: int) -> None:
    purse.take(pieces * PIECE)
    purse.spend(pieces)


def count_line_breaks(purse: Purse, text: str) -> int:
    """How many places ``str.splitlines`` may split at."""
    return _count_any(purse, text, _LINE_BREAKS)


def count_spaces(purse: Purse, text: str) -> int:
    """How many places ``str.split`` may split at."""
    return _count_any(purse, text, _SPACES)


def _count_any(purse: Purse, text: str, chars: str) -> int:
    purse.spend((len(text) * len(chars)) >> 6)
    return sum(map(text.count, chars))


def _price_join(call: Call) -> None:
    price_join(call.purse, call.value, call.argument(0, "iterable"))


def price_join(purse: Purse, separator: str, values: object) -> None:
    """Refuse a joined text that would not fit."""
    weight = purse.weigh(values)
    parts = len(values) if isinstance(values, str) else weight.items
    purse.spend(parts)
    # Each character of a string that is taken apart is a string of its own.
    purse.room(parts * PIECE if isinstance(values, str) else 0)
    purse.room_for_text(weight.chars + parts * len(separator))


_TEXT_PRICES: dict[str, Callable[[Call], None]] = {
    "center": _price_width,
    "expandtabs": _price_tabs,
    "join": _price_join,
    "ljust": _price_width,
    "lstrip": price_strip,
    "replace": _price_replace,
    "rjust": _price_width,
    "rsplit": _price_split,
    "rstrip": price_strip,
    "split": _price_split,
    "splitlines": _price_splitlines,
    "strip": price_strip,
    "zfill": _price_width,
}
TEXT_METHODS = _PLAIN_TEXT_METHODS | _TEXT_PRICES.keys()
_METHODS_BY_KIND: tuple[tuple[Any, frozenset[str]], ...] = (
    (str, TEXT_METHODS),
    (Mapping, _DICT_METHODS),
    (_GroupTuple, frozenset()),
    (list | tuple, SEQUENCE_METHODS),
    (LoopContext, _LOOP_METHODS),
)
