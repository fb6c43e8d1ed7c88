"""Is the submission as long as it should be?"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from pydantic import Field

from mixseek.amounts import counted
from mixseek.config.schema import Fault, MetricOptions
from mixseek.evaluator.metrics.base import CodeMetric, Measured
from mixseek.evaluator.metrics.text import count_characters, count_words
from mixseek.prompt_builder.tokens import count_tokens

__all__ = ["Length"]

_COUNTED: Mapping[str, Callable[[str], int]] = {
    "characters": count_characters,
    "words": count_words,
    "tokens": count_tokens,
}


class LengthOptions(MetricOptions):
    """The range, and how steeply the score falls outside it."""

    unit: Literal["characters", "words", "tokens"] = Field(default="characters", description="What is counted.")
    minimum: int | None = Field(default=None, ge=1, description="Fewest that get the full score.")
    maximum: int | None = Field(default=None, ge=1, description="Most that get the full score.")
    slope: float = Field(
        default=0.5, ge=0, le=10, description="Share of a bound over which the score falls to 0 beyond it; 0: at once."
    )

    @classmethod
    def _faults(cls, data: Mapping[str, Any]) -> Iterable[Fault]:
        least, most = data.get("minimum"), data.get("maximum")
        if least is None and most is None:
            yield (), "say how long it should be: minimum, maximum or both"
        if isinstance(least, int) and isinstance(most, int) and least > most:
            yield ("minimum",), f"minimum ({least}) must be <= maximum ({most})"


class Length(CodeMetric[LengthOptions]):
    """Full score within a range of characters, words or tokens, falling in a straight line outside it."""

    Options = LengthOptions

    def measure(self, submission: str, reference: str | None) -> Measured:
        """Count, and compare with the range."""
        options = self.options
        count = _COUNTED[options.unit](submission)
        has = counted(count, options.unit.removesuffix("s"))
        if options.minimum is not None and count < options.minimum:
            return Measured(
                self._beyond(options.minimum - count, options.minimum), f"{has}: write at least {options.minimum:,}"
            )
        if options.maximum is not None and count > options.maximum:
            return Measured(
                self._beyond(count - options.maximum, options.maximum), f"{has}: write at most {options.maximum:,}"
            )
        return Measured(100, f"{has}: within the range")

    def _beyond(self, distance: int, bound: int) -> float:
        width = self.options.slope * bound
        return max(0.0, 100 * (1 - distance / width)) if width else 0.0
