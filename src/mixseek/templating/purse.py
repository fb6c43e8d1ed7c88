"""What one rendering may cost.

Every rendering has a :class:`Purse`. The hooks that the sandbox puts into a template pay from it before they do
anything: *work* in units of roughly a tenth of a microsecond, *memory* in bytes of all that the template itself makes,
*output* in bytes of the text it writes. These are counted, so the same template with the same values always ends in the
same way; the clock behind them is only for work that was priced too low. It is the thread's own processor time: a
render that waits for other threads has done nothing wrong.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from sys import getsizeof
from types import GeneratorType
from typing import Any, NamedTuple

from jinja2 import Undefined
from jinja2.exceptions import SecurityError
from jinja2.runtime import LoopContext, Macro
from jinja2.utils import Namespace

from mixseek.records import Record
from mixseek.templating.failures import TemplateWorkError, require

__all__ = [
    "MAX_INTEGER_BITS",
    "MAX_MEMORY",
    "MAX_OUTPUT",
    "MAX_SECONDS",
    "MAX_WIDTH",
    "MAX_WORK",
    "PIECE",
    "Call",
    "Opaque",
    "Purse",
    "SafeNamespace",
    "Weight",
    "char_width",
]

MAX_WORK = 1_000_000
MAX_SECONDS = 0.3
MAX_MEMORY = 16 * 1024 * 1024
MAX_OUTPUT = 16 * 1024 * 1024
MAX_WIDTH = 10_000
MAX_INTEGER_BITS = 4096
MAX_DEPTH = 50
_MAX_ITEMS = 100_000
_CLOCK_EVERY = 5_000
# repr() turns one character into at most ten ("\U0001f600" style escapes).
_REPR_GROWTH = 10
PIECE = 96
"""Bytes of a short string of its own, with its place in the list that holds it."""
_REFERENCE = 8
# Python's hash of a whole number is the number itself up to about here.
_HASHED_BITS = 60
_MAX_CHAR = 4


class Opaque:
    """Something a template can call but neither print, compare by content nor look into."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__.lstrip('_').lower()}>"


class SafeNamespace(Namespace):
    """A namespace that does not print what it holds, which may be endless or itself."""

    def __repr__(self) -> str:
        return "<namespace>"


class Weight(NamedTuple):
    """How much there is to a value: parts, characters of all its strings, how deep it goes, how many huge numbers."""

    items: int
    chars: int
    depth: int
    huge: int = 0

    @property
    def hash_work(self) -> int:
        """What it may take to put the parts into a set: huge numbers can be chosen to share one hash."""
        return self.huge * self.huge >> 6


@dataclass(frozen=True, slots=True)
class Call:
    """A filter or method that is about to run on a value; prices look at it."""

    purse: "Purse"
    value: Any
    weight: Weight
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def argument(self, position: int, name: str, default: Any = None) -> Any:
        """What was given for an argument, by place or by name."""
        return self.args[position] if position < len(self.args) else self.kwargs.get(name, default)

    def whole(self, position: int, name: str, default: int, limit: int) -> int:
        """A whole number among the arguments, within a limit; of what is no number the filter itself will complain."""
        number = self.argument(position, name, default)
        if not isinstance(number, int):
            return default
        require(abs(number) <= limit, f"{name!r} is over {limit:,}")
        return number


_FLAT_TYPES = frozenset({int, float, bool, type(None)})
_NO_TEXT = (Opaque, Macro, LoopContext, Namespace, GeneratorType, type)
_SCALAR_WEIGHT = Weight(1, 24, 1)


def char_width(text: str) -> int:
    """Bytes a character of ``text`` takes in memory: 1, 2 or 4; never too few, told without reading the text."""
    if text.isascii():
        return 1
    # getsizeof also counts a cached UTF-8 form, which only makes the answer larger.
    return min(_MAX_CHAR, max(1, -(-(getsizeof(text) - 90) // len(text)))) if len(text) > 100 else _MAX_CHAR


class Purse:
    """The means of one rendering; every method raises ``TemplateLimitError`` when they run out."""

    __slots__ = ("_deadline", "_next_look", "_out_chars", "_out_width", "depth", "memory", "work")

    def __init__(self, work: int = MAX_WORK) -> None:
        self.work = work
        self.memory = MAX_MEMORY
        self.depth = 0
        self._out_chars = 0
        self._out_width = 1
        self._next_look = max(0, work - _CLOCK_EVERY)
        self._deadline: float = time.thread_time() + MAX_SECONDS

    def spend(self, units: int) -> None:
        """Pay for work."""
        self.work -= units
        if self.work < self._next_look:
            self._look_at_clock()

    def _look_at_clock(self) -> None:
        if self.work < 0:
            raise TemplateWorkError("the template does too much work")
        self._next_look = max(0, self.work - _CLOCK_EVERY)
        if time.thread_time() > self._deadline:
            raise TemplateWorkError(f"the template takes more than {MAX_SECONDS} s")

    def spend_on_text(self, *texts: str) -> None:
        """Pay for reading texts from end to end, a few nanoseconds a character."""
        self.spend(sum(map(len, texts)) >> 6)

    def take(self, size: int) -> None:
        """Pay for memory."""
        self.memory -= size
        require(self.memory >= 0, "the template makes too much data")

    def room(self, size: int) -> None:
        """Refuse early what would not fit; nothing is paid yet."""
        require(size <= self.memory, "the template makes too much data")

    def room_for_text(self, chars: int) -> None:
        """Refuse a text of so many characters if it might not fit."""
        self.room(chars * _MAX_CHAR)

    def write(self, text: str) -> None:
        """Pay for a text that goes to the output, or into a macro's or a block's."""
        self.spend(1 + (len(text) >> 10))
        if not text.isascii():
            self._out_width = max(self._out_width, char_width(text))
        self.write_chars(len(text))

    def write_chars(self, chars: int) -> None:
        """Pay for output of so many characters. One wide character makes the whole joined text wide."""
        self._out_chars += chars
        require(self._out_chars * self._out_width <= MAX_OUTPUT, f"the output is over {MAX_OUTPUT >> 20} MB")

    def widen(self, width: int) -> None:
        """Note that the template's own text has characters of this width."""
        self._out_width = max(self._out_width, width)

    def enter(self) -> None:
        """One call deeper; the caller leaves with ``depth -= 1``."""
        self.depth += 1
        require(self.depth <= MAX_DEPTH, f"macros or recursive loops are nested over {MAX_DEPTH} deep")

    def keep(self, value: object) -> object:
        """Pay for a value that was just made, and give it back; what comes piece by piece becomes a list."""
        if isinstance(value, str):
            self.take(getsizeof(value))
        elif isinstance(value, int):
            self.take(getsizeof(value))
            require(value.bit_length() <= MAX_INTEGER_BITS, "a number is too large")
        elif isinstance(value, list | tuple | dict):
            self._keep_container(value)
        elif hasattr(value, "__next__"):
            return self._collect(value)  # type: ignore[arg-type]  # has __next__, so it can be iterated
        return value

    def _keep_container(self, value: list[object] | tuple[object, ...] | dict[object, object]) -> None:
        self.spend(len(value) >> 3)
        self.take(getsizeof(value))
        for part in value if not isinstance(value, dict) else ():
            # One level more: batch, slice, groupby and items make lists of lists.
            if isinstance(part, list | tuple):
                self.take(getsizeof(part))

    def _collect(self, values: Iterable[object]) -> list[object]:
        collected = []
        for value in values:
            self.spend(2)
            self.take(2 * _REFERENCE)
            if isinstance(value, str | list | tuple):
                self.take(getsizeof(value))
            collected.append(value)
        return collected

    def weigh(self, value: object, *, readable: bool = True) -> Weight:
        """Walk through a value and pay for it, part by part as often as it is referred to.

        A list that holds another one twice, which holds a third one twice, and so on, is small in memory and endless to
        compare, hash or print: so this comes before every operation that goes into a value. ``readable`` refuses
        what must not be printed.
        """
        if type(value) is str:
            self.spend(len(value) >> 6)
            return Weight(1, len(value), 1)
        if type(value) in _FLAT_TYPES:
            return _SCALAR_WEIGHT
        weight = self._walk(value, readable)
        self.spend(weight.items + (weight.chars >> 6))
        return weight

    def _walk(self, value: object, readable: bool) -> Weight:
        items, chars, depth, huge = 0, 0, 0, 0
        level: list[object] = [value]
        while level:
            depth += 1
            items += len(level)
            deeper: list[object] = []
            for part in level:
                if isinstance(part, str):
                    chars += len(part)
                elif type(part) in _FLAT_TYPES:
                    bits = part.bit_length() if isinstance(part, int) else 0
                    chars += 24 + bits // 3
                    huge += bits > _HASHED_BITS
                else:
                    parts = _parts(part, readable)
                    require(
                        items + len(deeper) + len(parts) <= min(_MAX_ITEMS, self.work), "a value has too many parts"
                    )
                    deeper.extend(parts)
            require(chars >> 6 <= self.work, "a value is too long")
            level = deeper
        return Weight(items, chars, depth, huge)

    def text(self, value: object) -> str:
        """The text of a value, as it is printed."""
        if type(value) is str:
            return value
        if isinstance(value, str):
            return str.__str__(value)
        if type(value) in _FLAT_TYPES:
            return str(value)
        if isinstance(value, Undefined):
            return str(value)
        self.room_for_repr(self.weigh(value))
        text = str(value)
        self.take(getsizeof(text))
        return text

    def room_for_repr(self, weight: Weight) -> None:
        """Refuse a value whose printed form might not fit."""
        self.spend(weight.items * 2 + (weight.chars >> 4))
        self.room(weight.items * 32 + weight.chars * _REPR_GROWTH)


def _parts(value: object, readable: bool) -> list[object]:
    if isinstance(value, list | tuple | set | frozenset):
        return list(value)
    if isinstance(value, Mapping):
        return [*value.keys(), *value.values()]
    if isinstance(value, Record):
        return list(value.__dict__.values())
    if isinstance(value, range):
        return list(value[:_MAX_ITEMS])
    if isinstance(value, type({}.keys()) | type({}.values()) | type({}.items())):
        return list(value)
    if readable and (isinstance(value, _NO_TEXT) or callable(value)):
        raise SecurityError(f"a {type(value).__name__.lstrip('_').lower()} cannot be used as a value here")
    return []
