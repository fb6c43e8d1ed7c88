"""自作の指標の例: 回答に数値やリンクがあるか。"""

import re

from mixseek.evaluator.metrics import CodeMetric, Measured, MetricOptions

_CONCRETE = re.compile(r"\d+|https?://\S+")


class ConcreteOptions(MetricOptions):
    """評価設定のoptionsに書けるもの。"""

    wanted: int = 3


class Concrete(CodeMetric[ConcreteOptions]):
    """数値とリンクが指定の数以上あれば満点。"""

    Options = ConcreteOptions

    def measure(self, submission: str, reference: str | None) -> Measured:
        """スコアと、チームが読むコメント。"""
        found = len(_CONCRETE.findall(submission))
        score = 100 * min(1, found / self.options.wanted)
        return Measured(score, f"数値とリンクは{found}個です。{self.options.wanted}個以上が望まれます。")
