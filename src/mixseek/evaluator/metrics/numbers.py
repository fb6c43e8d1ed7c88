"""Numbers as people write them, found in a text and read exactly.

Full-width digits, thousands separators, 万 and 億, percent, powers of ten. What is not a number by itself is left
alone: the digits in ``H2O`` and ``GPT-4o``, the parts of ``1.2.3``, a power such as ``5²``. Linear in the length.
"""

from collections.abc import Iterator
from decimal import Context, Decimal

import regex

__all__ = ["EXACT", "Number", "find_numbers", "narrow"]

EXACT = Context(prec=2000, Emax=10_000, Emin=-10_000, traps=[])
"""Room enough for every number that is read, so that none is rounded."""

_NARROW = {wide: wide - 0xFEE0 for wide in range(0xFF01, 0xFF5F)} | {ord(dash): ord("-") for dash in "−‐‑–"}
_SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹"
_TO_DIGITS = str.maketrans(f"{_SUPERSCRIPTS}⁻⁺", "0123456789-+")
_SEPARATORS = ",\u00a0\u202f\u2009"
_UNITS = {"十": 10, "百": 100, "千": 1000, "万": 10**4, "億": 10**8, "兆": 10**12}

_DIGITS = rf"(?:[0-9]{{1,3}}(?:[{_SEPARATORS}][0-9]{{3}}){{1,100}}+(?![0-9])|[0-9]{{1,400}}+)"
_DECIMAL = rf"(?:{_DIGITS}(?:\.[0-9]{{1,400}}+)?+|\.[0-9]{{1,400}}+)"
_COUNTED = r"(?:[十百千]{1,2}+[万億兆]?+|[万億兆])"
_EXPONENT = rf"(?:\^\s?[({{]?[+-]?[0-9]{{1,3}}+[)}}]?|[⁻⁺]?[{_SUPERSCRIPTS}]{{1,3}}+)"
_POWER = rf"(?:[eE][+-]?[0-9]{{1,3}}+|\s?[×xX*·]\s?10{_EXPONENT})"
_NUMBER = regex.compile(
    r"(?<![\p{Latin}0-9_])(?<!\p{Latin}-)(?<![0-9]\.)(?P<sign>[-+](?=[0-9.])|[▲△]\s?)?"
    rf"(?P<digits>{_DECIMAL})"
    rf"(?:(?P<counted>{_COUNTED}(?:{_DECIMAL}{_COUNTED}){{0,6}}+(?:{_DECIMAL})?+)|(?P<power>{_POWER}|{_EXPONENT}))?+"
    r"(?![0-9]|\.[0-9])(?P<percent>\s?(?:%|percent\b|パーセント))?"
)
_TERM = regex.compile(rf"({_DECIMAL})([十百千]{{0,2}}+)([万億兆]?)")
_RAISING = f"^⁻⁺{_SUPERSCRIPTS}"
_RAISED = regex.compile(rf"[eE^]\s?[({{]?([+-]?[0-9]+)|([⁻⁺]?[{_SUPERSCRIPTS}]+)$")


class Number:
    """A number, how and where it is written, and whether as percent; its value is computed when it is asked for."""

    def __init__(self, found: "regex.Match[str]") -> None:
        self.start = found.start()
        self._found = found

    @property
    def written(self) -> str:
        """The text it was read from."""
        return self._found[0].strip()

    @property
    def is_percent(self) -> bool:
        """Whether a percent sign follows it."""
        return self._found["percent"] is not None

    @property
    def value(self) -> Decimal:
        """What it stands for, percent not counted."""
        value = _value(self._found["digits"], self._found["counted"], self._found["power"])
        return EXACT.minus(value) if (self._found["sign"] or "+")[0] != "+" else value


def narrow(text: str) -> str:
    """``text`` with full-width letters, digits and signs as their usual ones, each in its place.

    >>> narrow("答え：−１２")
    '答え:-12'
    """
    return text.translate(_NARROW)


def find_numbers(text: str) -> Iterator[Number]:
    """All numbers of ``text``, in their order.

    >>> [str(number.value) for number in find_numbers("約３億５,０００万円、-1.5e3、 H2O")]
    ['350000000', '-1.5E+3']
    """
    for found in _NUMBER.finditer(narrow(text)):
        if found["power"] is None or found["power"][0] not in _RAISING or found["digits"] == "10":
            yield Number(found)


def _value(digits: str, counted: str | None, power: str | None) -> Decimal:
    if counted:
        return _japanese(digits + counted)
    if not power:
        return _decimal(digits)
    [(plain, superscripts)] = _RAISED.findall(power)
    exponent = int(plain or superscripts.translate(_TO_DIGITS))
    return EXACT.scaleb(Decimal(1) if power[0] in _RAISING else _decimal(digits), exponent)


def _japanese(text: str) -> Decimal:
    """3億5000万 and 1千2百万: all that stands before 兆, 億 or 万, back to the one before it, counts so many times."""
    total = section = Decimal(0)
    for digits, small, large in _TERM.findall(text):
        section = EXACT.add(section, _times(_decimal(digits), small))
        if large:
            total, section = EXACT.add(total, _times(section, large)), Decimal(0)
    return EXACT.add(total, section)


def _times(value: Decimal, units: str) -> Decimal:
    for unit in units:
        value = EXACT.multiply(value, Decimal(_UNITS[unit]))
    return value


def _decimal(digits: str) -> Decimal:
    return Decimal(regex.sub(f"[{_SEPARATORS}]", "", digits))
