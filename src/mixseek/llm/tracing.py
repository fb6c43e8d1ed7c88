"""Where telemetry takes hold of model calls and requests; without it, this costs a look at a variable."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass

from pydantic_ai.models import Model

__all__ = ["CallTracing", "trace_calls", "traced_model", "traced_request"]

Answered = Callable[[int], None]
"""Hears the status of an HTTP answer."""


@dataclass(frozen=True)
class CallTracing:
    """How calls are traced: a model in place of each model, and what stands around each HTTP request, if anything."""

    model: Callable[[Model, str], Model]
    request: Callable[[str, str], AbstractContextManager[Answered]] | None = None
    """Takes the method and the URL of a request."""


_tracing: ContextVar[CallTracing | None] = ContextVar("tracing", default=None)


@contextmanager
def trace_calls(tracing: CallTracing) -> Iterator[None]:
    """Inside, and in all tasks begun inside, models and requests are traced like this."""
    before = _tracing.set(tracing)
    try:
        yield
    finally:
        _tracing.reset(before)


def traced_model(model: Model, model_id: str) -> Model:
    """The model, or what traces its calls."""
    tracing = _tracing.get()
    return model if tracing is None else tracing.model(model, model_id)


def traced_request(method: str, url: str) -> AbstractContextManager[Answered]:
    """What stands around a request."""
    tracing = _tracing.get()
    if tracing is None or tracing.request is None:
        return nullcontext(_nobody_hears)
    return tracing.request(method, url)


def _nobody_hears(status: int) -> None:
    """The status of a request that nobody traces."""
