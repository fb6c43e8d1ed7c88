"""A try of a model: one short question, to see whether it answers, how fast, and at what cost."""

from dataclasses import dataclass, field

from pydantic_ai import ModelSettings
from pydantic_ai.models import Model

from mixseek.errors import MixSeekError
from mixseek.llm.asking import ask_for_text
from mixseek.llm.calls import FinishedCall, Meter, Scope, calling
from mixseek.llm.hub import ModelHub
from mixseek.records import Usage

__all__ = ["Trial", "try_model"]

_QUESTION = "Answer with one word: yes."
# One would do; the responses protocol takes no less.
_MOST_TOKENS = 16
_SCOPE = Scope(execution_id="check", team_id="check", round_number=1, role="member", agent_name="check")


@dataclass(frozen=True)
class Trial:
    """What came of a try; ``error`` says why there was no answer."""

    model: str
    seconds: float = 0.0
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = None
    error: str | None = None


async def try_model(hub: ModelHub, model_id: str, *, seconds: float) -> Trial:
    """Ask a model for a word, once."""
    heard: list[FinishedCall] = []
    try:
        model = hub.model(model_id)
        with calling(_SCOPE, Meter(on_call=heard.append)):
            await _ask(model, seconds)
    except MixSeekError as error:
        return Trial(model_id, heard[0].seconds if heard else 0.0, error=_words(error, model_id))
    call = heard[0]
    return Trial(model_id, call.seconds, call.usage, call.cost_usd)


async def _ask(model: Model, seconds: float) -> None:
    settings = ModelSettings(max_tokens=_MOST_TOKENS, timeout=seconds, max_retries=0)
    await ask_for_text(model, prompt=_QUESTION, settings=settings)


def _words(error: MixSeekError, model_id: str) -> str:
    """Without the model's name, which stands before them anyway."""
    return str(error).removeprefix(f"{model_id}: ")
