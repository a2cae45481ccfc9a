"""Spans for decisions, with OpenTelemetry's own SDK.

About `service.telling.tracing`.
"""

from __future__ import annotations

import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from deadletter.core.deciding.letter_fate import LetterFate
from deadletter.core.deciding.states import Step
from deadletter.errors import UsageError
from deadletter.service.telling import tracing
from deadletter.service.telling.service_events import Confirmed, Decided, QueueGone
from deadletter.service.telling.tracing import TraceListener, asked_for

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
FATE = LetterFate(
    step=Step.DELAYED, source="x.dlq", origin="x", policy="p", reason="rejected", delay_ms=5000, attempt=2
)


def span_of(traceparent: str | None, fate: LetterFate = FATE) -> ReadableSpan:
    kept = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(kept))
    listener = TraceListener(provider)
    listener(Confirmed(fates={fate: 1}))
    listener(QueueGone(queue="x"))
    listener(Decided(letter_id="1", fate=fate, why="2 of 3", traceparent=traceparent))
    (span,) = kept.get_finished_spans()
    return span


def test_a_decision_is_a_span_that_says_why() -> None:
    span = span_of(None)
    assert span.name == "deadletter delayed"
    assert dict(span.attributes or {}) == {
        "messaging.system": "rabbitmq",
        "messaging.destination.name": "x.dlq",
        "deadletter.id": "1",
        "deadletter.outcome": "delayed",
        "deadletter.origin": "x",
        "deadletter.policy": "p",
        "deadletter.reason": "rejected",
        "deadletter.cause": "",
        "deadletter.why": "2 of 3",
        "deadletter.attempt": 2,
        "deadletter.delay_ms": 5000,
    }
    assert span.end_time is not None
    assert not span.links


def test_it_is_linked_to_the_trace_the_letter_came_with() -> None:
    span = span_of(f"00-{TRACE}-{SPAN}-01")
    (link,) = span.links
    assert f"{link.context.trace_id:032x}" == TRACE
    assert f"{link.context.span_id:016x}" == SPAN
    assert span.parent is None
    assert span.context.trace_id != link.context.trace_id


@pytest.mark.parametrize(
    "broken", ["", "x", "00-0-0-00", f"ff-{TRACE}-{SPAN}-01", f"00-{'0' * 32}-{SPAN}-01"]
)
def test_a_traceparent_that_is_none_is_no_link(broken: str) -> None:
    assert not span_of(broken).links


def test_a_fate_without_numbers_has_none() -> None:
    attributes = span_of(None, LetterFate(step=Step.PARKED, source="x.dlq")).attributes or {}
    assert "deadletter.attempt" not in attributes
    assert "deadletter.delay_ms" not in attributes


@pytest.mark.parametrize(
    ("environ", "asked"),
    [
        ({}, False),
        ({"OTEL_SERVICE_NAME": "x"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_TRACES_EXPORTER": "none"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_SDK_DISABLED": "true"}, False),
    ],
)
def test_opentelemetrys_own_variables_ask_for_it(environ: dict[str, str], asked: bool) -> None:
    assert asked_for(environ) is asked


def test_a_missing_extra_is_said_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(UsageError, match=r"pip install 'deadletter\[otel\]'"):
        tracing.start("i1")


def test_spans_reach_a_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[tuple[str, bytes]] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("OTEL_SERVICE_NAME", "retries")
        listener = tracing.start("i1")
        listener(Decided(letter_id="letter-1", fate=FATE, why="2 of 3"))
        listener.close()
        server.shutdown()
    ((path, body),) = got
    assert path == "/v1/traces"
    for told in (b"letter-1", b"retries", b"i1"):
        assert told in body
