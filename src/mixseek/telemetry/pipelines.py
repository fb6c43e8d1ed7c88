"""How spans leave the process: over Logfire's own client, or by OTLP over HTTP. The run never waits for either.

Spans are put into a bounded queue and sent by a thread; what a receiver does not take is lost, and told once.
"""

import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Tracer

from mixseek import __version__
from mixseek.errors import ConfigurationError

__all__ = ["Pipeline", "open_pipeline"]

_SECONDS_TO_END = 5.0
_SERVICE_NAME = "mixseek"
_PREFIXES = ("OTEL_", "LOGFIRE_")

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Pipeline:
    """A tracer, and how to end what is behind it."""

    tracer: Tracer
    end: Callable[[], object]
    has_told: Callable[[], bool] = lambda: False
    """Whether it was told already that spans are lost."""

    def close(self) -> None:
        """Send what is left, but wait no longer than a few seconds: a receiver that hangs must not hold the command."""
        ending = threading.Thread(target=self.end, name="mixseek-telemetry-end", daemon=True)
        ending.start()
        ending.join(_SECONDS_TO_END)
        if ending.is_alive() and not self.has_told():
            logger.warning("not all spans could be sent within %g s; the rest is given up", _SECONDS_TO_END)


def open_pipeline(service: str, environ: Mapping[str, str]) -> Pipeline:
    """The way to Logfire, or to the OTLP receiver that the standard variables name; ImportError without the package.

    Both read the process's environment; what the workspace's ``.env`` adds is lent to them.
    """
    # They tell of every batch that is not taken, in their own words; once is enough, in ours.
    if not logger.isEnabledFor(logging.DEBUG):
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    with _lent(environ):
        return _logfire() if service == "logfire" else _otel()


@contextmanager
def _lent(environ: Mapping[str, str]) -> Iterator[None]:
    lent = {name: value for name, value in environ.items() if name.startswith(_PREFIXES) and name not in os.environ}
    os.environ.update(lent)
    try:
        yield
    finally:
        for name in lent:
            os.environ.pop(name, None)


# --- Logfire ----------------------------------------------------------------------------------------------------------


def _logfire() -> Pipeline:
    import logfire
    from logfire.exceptions import LogfireConfigError

    try:
        client = logfire.configure(
            local=True,
            send_to_logfire="if-token-present",
            service_name=os.environ.get("LOGFIRE_SERVICE_NAME") or os.environ.get("OTEL_SERVICE_NAME") or _SERVICE_NAME,
            service_version=__version__,
            console=False,
            metrics=False,
            # What is secret was taken out before; Logfire's own way takes out whole texts for a word such as "session".
            scrubbing=False,
            inspect_arguments=False,
            distributed_tracing=False,
        )
    except LogfireConfigError as error:
        raise ConfigurationError(f"Logfire cannot be used: {error}") from error
    if not client.config.token:
        raise ConfigurationError(
            "no token for Logfire: set LOGFIRE_TOKEN, or run logfire auth and logfire projects use"
        )
    provider = client.config.get_tracer_provider()
    return Pipeline(
        provider.get_tracer("mixseek", __version__), lambda: client.shutdown(timeout_millis=int(_SECONDS_TO_END * 1000))
    )


# --- OpenTelemetry ----------------------------------------------------------------------------------------------------


def _otel() -> Pipeline:
    named = {"service.name": os.environ.get("OTEL_SERVICE_NAME") or _SERVICE_NAME, "service.version": __version__}
    provider = TracerProvider(resource=Resource.create(named), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter := _exporter()))
    return Pipeline(provider.get_tracer("mixseek", __version__), provider.shutdown, lambda: exporter.has_told)


def _exporter() -> "_Telling":
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
    if protocol not in (None, "", "http/protobuf"):
        raise ConfigurationError(
            f"OTEL_EXPORTER_OTLP_PROTOCOL={protocol}: spans are sent by http/protobuf alone; point"
            " OTEL_EXPORTER_OTLP_ENDPOINT at the receiver's HTTP port, as a rule 4318"
        )
    return _Telling(OTLPSpanExporter())


class _Telling(SpanExporter):
    """Tells once that spans cannot be sent."""

    def __init__(self, exporter: OTLPSpanExporter) -> None:
        self._exporter = exporter
        self.has_told = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send a batch."""
        result = self._exporter.export(spans)
        if result is not SpanExportResult.SUCCESS and not self.has_told:
            self.has_told = True
            logger.warning("spans cannot be sent to %s; the run goes on without", self._exporter._endpoint)
        return result

    def shutdown(self) -> None:
        """Send nothing more."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]  # its package has no type for it

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Nothing is kept here."""
        return True
