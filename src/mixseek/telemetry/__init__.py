"""Logfire and OpenTelemetry: what happens in a run as spans, sent elsewhere. Nothing is loaded before it is asked for.

A run is a span, in it are its teams, in those their rounds, in those the calls: of models, members and tools, the
evaluation and the judgment. Inside of :func:`sending` models and requests are traced, and the listener it gives makes
spans of the events of a run.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from mixseek.errors import ConfigurationError
from mixseek.events import Listener
from mixseek.redaction import Redactor

__all__ = ["SendTo", "sending"]


@dataclass(frozen=True)
class SendTo:
    """Where spans go, and what is in them."""

    service: Literal["logfire", "otel"]
    content: bool = False
    """Whether prompts, answers, comments, arguments of tools and the words of errors go along."""
    http: bool = False
    """Whether each HTTP request of a model call is a span of its own."""


@contextmanager
def sending(to: SendTo, environ: Mapping[str, str], redactor: Redactor) -> Iterator[Listener]:
    """Send spans while inside; in the end what is left is sent within seconds or given up."""
    try:
        from mixseek.telemetry.pipelines import open_pipeline
        from mixseek.telemetry.spans import Spans

        pipeline = open_pipeline(to.service, environ)
    except ImportError as error:
        raise ConfigurationError(
            f'--{to.service} needs a package that is not installed: pip install "mixseek[{to.service}]"'
        ) from error
    from mixseek.llm import trace_calls

    spans = Spans(pipeline.tracer, redactor, content=to.content)
    try:
        with trace_calls(spans.tracing(http=to.http)):
            yield spans
    finally:
        spans.close()
        pipeline.close()
