"""自作の指標の例: 回答は、聞かれたことについて述べているか。"""

import re
from typing import Any

from mixseek.evaluator.metrics import BaseMetric
from mixseek.models.evaluation_result import MetricScore

_WORD = re.compile(r"[一-龯]{1,}|[ァ-ヶー]{2,}|[A-Za-z]{3,}")
_SAYS_LITTLE = frozenset({"説明", "理由", "何", "教", "書"})


class OnTopic(BaseMetric):
    """タスクの言葉のうち、回答に現れるものの割合。"""

    async def evaluate(self, user_query: str, submission: str, *args: Any, **context: Any) -> MetricScore:
        """スコアと、チームが読むコメント。"""
        asked = [word for word in _WORD.findall(user_query) if word not in _SAYS_LITTLE]
        missing = [word for word in asked if word not in submission]
        score = 100 * (1 - len(missing) / len(asked)) if asked else 100
        comment = f"{'、'.join(missing)}について述べてください" if missing else "聞かれたことについて述べています"
        return MetricScore(metric_name="OnTopic", score=score, evaluator_comment=comment)
