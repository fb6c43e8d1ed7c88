"""Does the submission cover what was asked?"""

from mixseek.evaluator.metrics.base import LLMJudgeMetric

__all__ = ["Coverage"]


class Coverage(LLMJudgeMetric):
    """How much of what the task needs the submission has."""

    def get_instruction(self) -> str:
        """What the judge is told."""
        return (
            "あなたは提出内容の「網羅性」を評価する審査員です。\n"
            "次の観点だけで採点してください。\n"
            "- ユーザの質問に含まれるすべての要求に答えているか\n"
            "- 回答に必要な論点、根拠、具体例が欠けていないか\n"
            "- 説明の深さが質問に見合っているか\n"
            "目安: 90以上は欠けた論点がない。70は主要な論点がそろう。50は重要な論点が欠ける。"
            "30以下はほとんど答えていない。"
        )
