"""The attack texts: data of the package, each with the category it belongs to."""

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from itertools import chain, zip_longest

import tomli
from pydantic import Field

from mixseek.errors import ConfigurationError
from mixseek.records import Record

__all__ = ["Attack", "categories", "load_attacks"]

_FILLER = (
    "The river was quiet that year, and the harbour kept its old walls. ",
    "町の人々は毎朝市場に集まり、季節の野菜について話した。",
    "Records of the time list the names of the merchants and what they sold. ",
)


class Attack(Record):
    """A text that tells a judge what to do; with ``padding`` it is buried between so many ordinary sentences."""

    id: str
    category: str
    text: str
    padding: int = Field(default=0, ge=0)

    @property
    def payload(self) -> str:
        """The text as it is used."""
        if not self.padding:
            return self.text
        filler = "".join(_FILLER[number % len(_FILLER)] for number in range(self.padding))
        return f"{filler}\n\n{self.text}\n\n{filler}"


@cache
def _all() -> tuple[Attack, ...]:
    document = tomli.loads(files("mixseek.attacks").joinpath("attacks.toml").read_text(encoding="utf-8"))
    return tuple(Attack(**entry) for entry in document["attacks"])


def categories() -> list[str]:
    """The categories there are, in the order of the file."""
    return list(dict.fromkeys(attack.category for attack in _all()))


def load_attacks(only: Sequence[str] = (), limit: int | None = None) -> list[Attack]:
    """The attacks of these categories, or of all; a limit takes from each category in turn.

    >>> [attack.id for attack in load_attacks(["escaped", "name"], limit=3)]
    ['escaped-1', 'name-1', 'escaped-2']
    """
    unknown = [category for category in only if category not in categories()]
    if unknown:
        raise ConfigurationError(f"there is no category {unknown[0]!r}: choose from {', '.join(categories())}")
    chosen = [[attack for attack in _all() if attack.category == category] for category in only or categories()]
    in_turn = [attack for attack in chain.from_iterable(zip_longest(*chosen)) if attack is not None]
    return in_turn if limit is None else in_turn[:limit]
