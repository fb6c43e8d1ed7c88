"""Does the submission have the headings, lists, links, code and tables it should have?"""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import Field

from mixseek.config.schema import Fault, MetricOptions, Settings
from mixseek.evaluator.metrics.base import CodeMetric, Measured
from mixseek.evaluator.metrics.markdown import read_markdown

__all__ = ["Structure"]

_NAMES = {
    "headings": "headings",
    "lists": "lists",
    "list_items": "list items",
    "links": "links",
    "code_blocks": "code blocks",
    "tables": "tables",
}


class CountRange(Settings):
    """How many there should be."""

    minimum: int | None = Field(default=None, ge=1, description="Fewest.")
    maximum: int | None = Field(default=None, ge=0, description="Most.")

    @classmethod
    def _faults(cls, data: Mapping[str, Any]) -> Iterable[Fault]:
        least, most = data.get("minimum"), data.get("maximum")
        if least is None and most is None:
            yield (), "say how many there should be: minimum, maximum or both"
        if isinstance(least, int) and isinstance(most, int) and least > most:
            yield ("minimum",), f"minimum ({least}) must be <= maximum ({most})"


class StructureOptions(MetricOptions):
    """The parts that count, each with its range."""

    headings: CountRange | None = Field(default=None, description="Headings, of any level.")
    lists: CountRange | None = Field(default=None, description="Lists, with the lists inside them as one.")
    list_items: CountRange | None = Field(default=None, description="Items of all lists.")
    links: CountRange | None = Field(default=None, description="Links and web addresses; images are none.")
    code_blocks: CountRange | None = Field(default=None, description="Blocks of code.")
    tables: CountRange | None = Field(default=None, description="Tables.")

    @classmethod
    def _faults(cls, data: Mapping[str, Any]) -> Iterable[Fault]:
        if not any(data.get(name) is not None for name in _NAMES):
            yield (), f"say what it should have: {', '.join(_NAMES)}"


class Structure(CodeMetric[StructureOptions]):
    """How near the counts of Markdown's parts come to their ranges, on average over the parts that are asked for."""

    Options = StructureOptions

    def measure(self, submission: str, reference: str | None) -> Measured:
        """Count outside code, and compare."""
        found = read_markdown(submission)
        asked = [(name, wanted) for name in _NAMES if (wanted := getattr(self.options, name)) is not None]
        counts = [getattr(found, name) for name, _ in asked]
        shares = [_share(count, wanted) for count, (_, wanted) in zip(counts, asked, strict=True)]
        told = [_told(_NAMES[name], count, wanted) for count, (name, wanted) in zip(counts, asked, strict=True)]
        return Measured(100 * sum(shares) / len(shares), "; ".join(told))


def _share(count: int, wanted: CountRange) -> float:
    if wanted.minimum is not None and count < wanted.minimum:
        return count / wanted.minimum
    if wanted.maximum is not None and count > wanted.maximum:
        return wanted.maximum / count
    return 1


def _told(name: str, count: int, wanted: CountRange) -> str:
    if wanted.minimum is not None and count < wanted.minimum:
        return f"{name}: {count}, wanted at least {wanted.minimum}"
    if wanted.maximum is not None and count > wanted.maximum:
        return f"{name}: {count}, wanted at most {wanted.maximum}"
    return f"{name}: {count}, as wanted"
