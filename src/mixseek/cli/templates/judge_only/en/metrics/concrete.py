"""A metric of your own: does an answer give numbers and links?"""

import re

from mixseek.evaluator.metrics import CodeMetric, Measured, MetricOptions

_CONCRETE = re.compile(r"\d+|https?://\S+")


class ConcreteOptions(MetricOptions):
    """What may stand in the options of the evaluator file."""

    wanted: int = 3


class Concrete(CodeMetric[ConcreteOptions]):
    """Full score from so many numbers and links on."""

    Options = ConcreteOptions

    def measure(self, submission: str, reference: str | None) -> Measured:
        """The score and the comment that a team reads."""
        found = len(_CONCRETE.findall(submission))
        score = 100 * min(1, found / self.options.wanted)
        return Measured(score, f"{found} numbers and links, {self.options.wanted} are wanted")
