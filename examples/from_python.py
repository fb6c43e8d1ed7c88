"""A competition from Python without a file, an API key or a directory: two teams, a member and a metric of one's own.

The models are scripted ones on a loopback server; with real ones leave out ``providers`` and name them by their
provider, as in "openai:gpt-5-mini".

    python examples/from_python.py
"""

import random
from typing import Any

import mixseek
from mixseek.agents.member import BaseMemberAgent
from mixseek.evaluator.metrics import BaseMetric
from mixseek.records import MemberAgentResult, MetricScore
from mixseek.testing import ModelCall, ModelServer, ToolCall

TASK = "Give three numbers a die might show, as JSON."
ANSWERS = {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 6}}


class Die(BaseMemberAgent):
    """A member that asks no model."""

    async def execute(self, task: str, context: dict[str, Any] | None = None, **kwargs: Any) -> MemberAgentResult:
        """Throw three times, always the same way."""
        thrown = random.Random(1).choices(range(1, 7), k=3)  # noqa: S311
        return MemberAgentResult.success(str(thrown), self.agent_name, self.agent_type)


class Three(BaseMetric):
    """A metric that asks no model: 100 for three numbers, less for any other count."""

    async def evaluate(self, user_query: str, submission: str, *args: Any, **context: Any) -> MetricScore:
        """Count them."""
        count = submission.count(",") + 1
        return MetricScore(metric_name="Three", score=100 - 30 * abs(3 - count), evaluator_comment=f"{count} numbers")


def thrower(call: ModelCall) -> Any:
    """A leader that asks its die and passes on what it says."""
    if not call.tool_results:
        return ToolCall(call.tools[0].name, {"task": "Throw three times."})
    return call.tool_results[-1].split("[")[1].split("]")[0].join("[]")


def main() -> None:
    """Play, and print the leader board."""
    with ModelServer() as server:
        server.on("thrower", thrower)
        server.on("guesser", ["Six and one, I guess.", "```json\n[6, 1]\n```"])
        summary = mixseek.run(
            TASK,
            teams=[
                {
                    "team_id": "a",
                    "team_name": "Throwers",
                    "leader": {"model": "loopback:thrower"},
                    "members": [{"name": "die", "type": Die, "model": "loopback:unused", "description": "Throws."}],
                },
                {"team_id": "b", "team_name": "Guessers", "leader": {"model": "loopback:guesser"}},
            ],
            evaluator={"metrics": [Three()]},
            judgment={"model": "none"},
            providers={"loopback": {"base_url": server.base_url}},
            answer_schema=ANSWERS,
            max_rounds=1,
        )
    for place, entry in enumerate(summary.team_results, 1):
        print(f"{place}. {entry.team_name}: {entry.submission_content} ({entry.score:.0f} points)")


if __name__ == "__main__":
    main()
