"""Scores as small bars: how a team's rounds went, in the space of a few letters."""

from collections.abc import Iterable, Sequence

from rich.cells import cell_len, set_cell_size

__all__ = ["arrow", "bounds_of", "fit", "in_ascii", "number", "score_chart", "sparkline"]

_BLOCKS = "▁▂▃▄▅▆▇█"
_IN_ASCII = str.maketrans(_BLOCKS + "↑↓→━─·…✓✗", "_.-:=+*#" + "^v=" + "#-" + "|~" + "+x")
_WIDEST_NAME = 30

Scores = Sequence[float | None]


def score_chart(rows: Iterable[tuple[str, Scores]], *, width: int = 80) -> list[str]:
    """Lines with the bars and the numbers of each row, rounds as columns; none if there is no score at all.

    Names come as they are and are cleaned by whoever prints the lines. Where the numbers of many rounds do not fit the
    width, those of the last ones are shown.
    """
    rows = [(name, list(scores)) for name, scores in rows]
    rounds = max((len(scores) for _, scores in rows), default=0)
    bounds = bounds_of(scores for _, scores in rows)
    if bounds is None:
        return []
    name_width = min(_WIDEST_NAME, max(cell_len(name) for name, _ in rows), max(8, width // 3))
    shown = max(1, min(rounds, (width - name_width - rounds - 5) // 7))
    head = "".join(f"{number:>7}" for number in range(rounds - shown + 1, rounds + 1))
    lines = [f"  {'':{name_width}}  {'':{rounds}}{head}"]
    for name, scores in rows:
        padded = [*scores, *([None] * (rounds - len(scores)))]
        numbers = "".join(f"{'-' if score is None else number(score):>7}" for score in padded[rounds - shown :])
        lines.append(f"  {fit(name, name_width)}  {sparkline(padded, bounds)}{numbers}")
    return lines


def bounds_of(rows: Iterable[Scores]) -> tuple[float, float] | None:
    """The lowest and the highest of all scores."""
    scores = [score for row in rows for score in row if score is not None]
    return (min(scores), max(scores)) if scores else None


def sparkline(scores: Scores, bounds: tuple[float, float] | None = None) -> str:
    """A letter for each score, as high as the score between the bounds; a blank where there is none.

    >>> sparkline([60, None, 80, 70])
    '▁ █▅'
    """
    bounds = bounds or bounds_of([scores])
    return "".join(" " if score is None or bounds is None else _BLOCKS[_height(score, *bounds)] for score in scores)


def _height(score: float, low: float, high: float) -> int:
    if high <= low:
        return len(_BLOCKS) // 2
    return round((score - low) / (high - low) * (len(_BLOCKS) - 1))


def arrow(scores: Scores) -> str:
    """Whether the latest score is above, below or as the one before; a blank before there are two."""
    known = [score for score in scores if score is not None]
    if len(known) < 2:
        return " "
    return "→" if known[-1] == known[-2] else "↑" if known[-1] > known[-2] else "↓"


def fit(text: str, width: int, *, right: bool = False) -> str:
    """The text in exactly so many cells of a terminal, cut with a mark or filled up.

    >>> fit("東京都庁", 5), fit("ab", 4), fit("ab", 4, right=True)
    ('東京…', 'ab  ', '  ab')
    """
    size = cell_len(text)
    if size > width:
        mark = "…" if width > 1 else ""
        return set_cell_size(set_cell_size(text, width - len(mark)).rstrip() + mark, width)
    return " " * (width - size) + text if right else text + " " * (width - size)


def in_ascii(text: str) -> str:
    """The bars, arrows and marks of this module in letters that every terminal has.

    >>> in_ascii(sparkline([1, 2]) + arrow([1, 2]))
    '_#^'
    """
    return text.translate(_IN_ASCII)


def number(score: float) -> str:
    """A score in at most seven letters, as a rule in five."""
    return f"{score:.2f}" if abs(score) < 1000 else f"{score:.3g}"
