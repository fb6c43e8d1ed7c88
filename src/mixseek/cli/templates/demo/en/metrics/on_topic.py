"""A metric of your own: does an answer speak of what was asked?"""

import re
from typing import Any

from mixseek.evaluator.metrics import BaseMetric
from mixseek.models.evaluation_result import MetricScore

_WORD = re.compile(r"[^\W\d_]{4,}")
_SAYS_LITTLE = re.compile(
    "about|also|between|could|describe|does|each|explain|find|from|give|have|into|list|main|make|many|more|most|much|"
    "name|only|other|people|please|should|show|some|such|take|tell|than|that|their|them|then|there|these|they|this|"
    "those|very|want|what|when|where|which|while|will|with|would|write|your"
)


class OnTopic(BaseMetric):
    """The share of the words of the task that come up in the answer, in any form."""

    async def evaluate(self, user_query: str, submission: str, *args: Any, **context: Any) -> MetricScore:
        """The score and the comment that the team reads."""
        asked = [word for word in _WORD.findall(user_query.lower()) if not _SAYS_LITTLE.fullmatch(word)]
        missing = [word for word in asked if word[:5] not in submission.lower()]
        score = 100 * (1 - len(missing) / len(asked)) if asked else 100
        comment = f"speak of {', '.join(missing)}" if missing else "speaks of what was asked"
        return MetricScore(metric_name="OnTopic", score=score, evaluator_comment=comment)
