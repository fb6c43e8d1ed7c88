"""Is the submission clear, and does it hold together?"""

from mixseek.evaluator.metrics.base import LLMJudgeMetric

__all__ = ["ClarityCoherence"]


class ClarityCoherence(LLMJudgeMetric):
    """How easy the submission is to follow."""

    def get_instruction(self) -> str:
        """What the judge is told."""
        return (
            "あなたは提出内容の「明瞭性と一貫性」を評価する審査員です。\n"
            "次の観点だけで採点してください。\n"
            "- 文章が明快で、曖昧な表現や冗長な表現が少ないか\n"
            "- 論旨が一貫し、矛盾や飛躍がないか\n"
            "- 構成(見出し、段落、順序)が読者の理解を助けているか\n"
            "目安: 90以上は修正の必要がない。70は読めるが改善の余地がある。50は要点をつかむのに努力が要る。"
            "30以下は理解が難しい。"
        )
