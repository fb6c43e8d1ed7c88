"""Which execution people mean who name one by its whole id, by the beginning of it, or by ``last``."""

from collections.abc import Sequence

from mixseek.records import LAST

__all__ = ["executions_meant", "words_of_several"]

_MOST_NAMED = 5


def executions_meant(wanted: str, ids: Sequence[str]) -> Sequence[str]:
    """Those of ``ids``, the newest first, that may be meant.

    >>> [executions_meant(wanted, ["abc", "ab"]) for wanted in ("ab", "a", "last", "b")]
    [['ab'], ['abc', 'ab'], ['abc'], []]
    """
    if wanted in ids:
        return [wanted]
    return ids[:1] if wanted == LAST else [each for each in ids if wanted and each.startswith(wanted)]


def words_of_several(wanted: str, meant: Sequence[str]) -> str:
    """What to say where more than one is meant."""
    named = ", ".join(meant[:_MOST_NAMED])
    more = f" and {len(meant) - _MOST_NAMED} more" if len(meant) > _MOST_NAMED else ""
    return f"{wanted!r} may be any of {len(meant)} executions: give more of the id ({named}{more})"
