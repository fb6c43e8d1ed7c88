"""Does the submission answer the question that was asked?"""

from mixseek.evaluator.metrics.base import LLMJudgeMetric

__all__ = ["Relevance"]


class Relevance(LLMJudgeMetric):
    """How closely the submission keeps to the task."""

    def get_instruction(self) -> str:
        """What the judge is told."""
        return (
            "あなたは提出内容の「関連性」を評価する審査員です。\n"
            "次の観点だけで採点してください。\n"
            "- ユーザの質問の意図に直接答えているか\n"
            "- 質問と関係のない内容が混ざっていないか\n"
            "- 質問が求める形式や条件に従っているか\n"
            "目安: 90以上はすべてが質問に答える。70は概ね答えるが余分がある。50は半分ほどが的外れ。"
            "30以下は質問に答えていない。"
        )
