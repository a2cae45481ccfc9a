"""Traces: one span for each decision, linked to the trace that the letter came with. An extra.

A letter keeps its headers byte for byte, `traceparent` among them: the consumer that gets it back is in the
same trace as the publisher, however often it was retried, and whether or not this is switched on. What this
adds is a span of our own that says what was decided, when and why. It is a link and not a child: a letter may
come back days later, and by then nobody keeps its trace open.

OpenTelemetry is asked for by its own variables (OTEL_EXPORTER_OTLP_ENDPOINT and its kin). Its exporter has a
thread and a bounded queue of its own, so a collector that is away costs spans, never letters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from deadletter import __version__
from deadletter.errors import UsageError
from deadletter.service.telling.service_events import Decided, ServiceEvent

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

_ASKING: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


def asked_for(environ: Mapping[str, str]) -> bool:
    """Whether OpenTelemetry's own variables ask for traces."""
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    exporter = environ.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    return exporter == "otlp" or (exporter != "none" and any(environ.get(name) for name in _ASKING))


def start(instance: str) -> TraceListener:
    """Spans to the collector that OpenTelemetry's variables name. UsageError where the extra is missing."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise UsageError(
            "expected OpenTelemetry to be installed, because the environment (OTEL_…) asks for traces, and "
            f"it is not ({error}); install it with: pip install 'deadletter[otel]', or set "
            "OTEL_SDK_DISABLED=true"
        ) from error
    resource = Resource.create({"service.instance.id": instance})
    if str(resource.attributes.get("service.name", "")).startswith("unknown_service"):  # nobody named it
        resource = resource.merge(Resource({"service.name": "deadletter"}))
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return TraceListener(provider)


class TraceListener:
    """Makes the spans. It wants each decision to be emitted."""

    def __init__(self, provider: TracerProvider) -> None:
        from opentelemetry.trace import Link, SpanKind, get_current_span
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = provider
        self._tracer = provider.get_tracer("deadletter", __version__)
        self._propagator = TraceContextTextMapPropagator()
        self._link, self._kind, self._span_of = Link, SpanKind.INTERNAL, get_current_span

    def __call__(self, event: ServiceEvent) -> None:
        if not isinstance(event, Decided):
            return
        fate = event.fate
        attributes: dict[str, str | int] = {
            "messaging.system": "rabbitmq",
            "messaging.destination.name": fate.source,
            "deadletter.id": event.letter_id,
            "deadletter.outcome": fate.step.value,
            "deadletter.origin": fate.origin,
            "deadletter.policy": fate.policy,
            "deadletter.reason": fate.reason,
            "deadletter.cause": fate.cause,
            "deadletter.why": event.why,
        }
        if fate.attempt is not None:
            attributes["deadletter.attempt"] = fate.attempt
        if fate.delay_ms is not None:
            attributes["deadletter.delay_ms"] = fate.delay_ms
        links = []
        if event.traceparent is not None:
            found = self._propagator.extract({"traceparent": event.traceparent})
            came_with = self._span_of(found).get_span_context()
            if came_with.is_valid:
                links.append(self._link(came_with))
        self._tracer.start_span(
            f"deadletter {fate.step.value}", kind=self._kind, attributes=attributes, links=links
        ).end()

    def close(self) -> None:
        """Send what is there; may take as long as the exporter's own time limits. Not for the event loop."""
        self._provider.shutdown()
