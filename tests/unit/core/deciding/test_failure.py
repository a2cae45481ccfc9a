"""Failure details in every dialect, from headers as the frameworks write them.

About `core.deciding.failure`.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest

from deadletter.core.deciding import failure as f
from deadletter.core.deciding.failure import Failure, Framework, read_failure

JAVA_STACK = """org.springframework.amqp.rabbit.support.ListenerExecutionFailedException: Listener threw
\tat org.springframework.amqp.rabbit.listener.Adapter.wrap(Adapter.java:10)
Caused by: java.lang.IllegalStateException: could not save
\tat shop.Orders.save(Orders.java:7)
Caused by: java.net.ConnectException: Connection refused
\t... 12 more
"""
LATEST = datetime.max.replace(tzinfo=timezone(-timedelta(hours=5)))
PYTHON_STACK = """Traceback (most recent call last):
  File "/app/worker.py", line 3, in run
    save(order)
shop.errors.Conflict: order 7: already there
second line
"""


def test_spring() -> None:
    headers: dict[str, object] = {
        "x-exception-message": "Connection refused",
        "x-exception-stacktrace": JAVA_STACK,
        "x-original-exchange": "shop",
        "x-original-routingKey": "order.new",
    }
    assert read_failure(headers) == Failure(
        framework=Framework.SPRING,
        error_type="java.net.ConnectException",
        message="Connection refused",
        stack=JAVA_STACK,
    )


def test_spring_with_a_stack_of_one_error() -> None:
    failure = read_failure({"x-exception-stacktrace": "java.lang.NullPointerException\n\tat a.B.c(B.java:1)"})
    assert failure is not None
    assert failure.error_type == "java.lang.NullPointerException"


def test_masstransit() -> None:
    headers: dict[str, object] = {
        "MT-Reason": "fault",
        "MT-Fault-ExceptionType": "System.InvalidOperationException",
        "MT-Fault-Message": "boom",
        "MT-Fault-StackTrace": "   at Probe.FailingConsumer.Consume(ConsumeContext`1 context)",
        "MT-Fault-Timestamp": "2026-09-26T18:02:03.5080760Z",
        "MT-Fault-InputAddress": "rabbitmq://localhost/sales/orders?durable=true",
        "MT-Fault-RetryCount": "2",
        "MT-Host-MachineName": "web-1",
    }
    assert read_failure(headers) == Failure(
        framework=Framework.MASSTRANSIT,
        error_type="System.InvalidOperationException",
        message="boom",
        stack="   at Probe.FailingConsumer.Consume(ConsumeContext`1 context)",
        host="web-1",
        at=datetime(2026, 9, 26, 18, 2, 3, 508076, tzinfo=UTC),
        retries=2,
        queue="orders",
        queue_header="MT-Fault-InputAddress",
    )


def test_nservicebus() -> None:
    headers: dict[str, object] = {
        "NServiceBus.ExceptionInfo.ExceptionType": "System.Exception",
        "NServiceBus.ExceptionInfo.Message": "An error occurred",
        "NServiceBus.ExceptionInfo.StackTrace": "at X",
        "NServiceBus.FailedQ": "sales",
        "NServiceBus.TimeOfFailure": "2014-11-11 02:26:58:000462 Z",
        "NServiceBus.ProcessingMachine": "srv-2",
    }
    assert read_failure(headers) == Failure(
        framework=Framework.NSERVICEBUS,
        error_type="System.Exception",
        message="An error occurred",
        stack="at X",
        host="srv-2",
        at=datetime(2014, 11, 11, 2, 26, 58, 462, tzinfo=UTC),
        queue="sales",
        queue_header="NServiceBus.FailedQ",
    )


def test_ratatoskr() -> None:
    headers: dict[str, object] = {
        "x-original-queue": "my-service.events",
        "x-failure-time": "2026-01-02T03:04:05.0000000+00:00",
    }
    assert read_failure(headers) == Failure(
        framework=Framework.RATATOSKR,
        at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        queue="my-service.events",
        queue_header="x-original-queue",
    )


def test_goqueue() -> None:
    headers: dict[str, object] = {"goqueue-queue-service-agent": "goqueue/rabbitmq", "goqueue-retry-count": 3}
    assert read_failure(headers) == Failure(framework=Framework.GOQUEUE, retries=3)


def test_celery_leaves_no_error_but_is_known() -> None:
    headers: dict[str, object] = {"lang": "py", "task": "shop.tasks.save", "id": "4cc7", "retries": 1}
    assert read_failure(headers) == Failure(framework=Framework.CELERY, retries=1, task="shop.tasks.save")


def dramatiq_body(**options: object) -> bytes:
    message = {"queue_name": "orders.DQ", "actor_name": "save", "args": [], "kwargs": {}, "options": options}
    return json.dumps(message, separators=(",", ":")).encode()


def test_dramatiq_keeps_its_traceback_in_the_body() -> None:
    body = dramatiq_body(traceback=PYTHON_STACK, retries=2, requeue_timestamp=1_767_323_045_000)
    assert read_failure({}, body) == Failure(
        framework=Framework.DRAMATIQ,
        error_type="shop.errors.Conflict",
        message="order 7: already there\nsecond line",
        stack=PYTHON_STACK,
        at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        retries=2,
        queue="orders",
        queue_header="queue_name",
        task="save",
    )


def test_ours_comes_before_what_an_application_copied_along() -> None:
    headers: dict[str, object] = {
        "deadletter-error-type": "TimeoutError",
        "deadletter-error-message": "slow",
        "deadletter-error-host": "h",
        "deadletter-error-service": "shop",
        "deadletter-error-release": "1.4",
        "deadletter-error-at": datetime(2026, 1, 2, tzinfo=UTC),
        "deadletter-error-first-at": datetime(2026, 1, 1, tzinfo=UTC),
        "deadletter-attempt": 4,
        "x-exception-message": "older",
    }
    assert read_failure(headers) == Failure(
        framework=Framework.DEADLETTER,
        error_type="TimeoutError",
        message="slow",
        host="h",
        service="shop",
        release="1.4",
        at=datetime(2026, 1, 2, tzinfo=UTC),
        first_at=datetime(2026, 1, 1, tzinfo=UTC),
        retries=4,
    )


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({}, b""),
        ({"x-death": []}, b"{}"),
        ({"task": "buy milk"}, b""),
        ({}, b'{"actor_name": 1}'),
        ({}, b'{"actor_name": "x", "options": []}'),
        ({}, b'{"actor_name": "x", '),
        ({}, b'{"actor_name": ' + b"[" * 100_000),
        ({}, b'{"actor_name": "x", "options": {}}' + b" " * 1_000_000),
        ({}, b'{"actor_name": "\xff", "options": {}}'),
    ],
)
def test_nothing_recognised_is_nothing_said(headers: dict[str, object], body: bytes) -> None:
    assert read_failure(headers, body) is None


@pytest.mark.parametrize("value", [None, 5, 10**400, b"\xff\xfe", [], {}, 1.5, True, "x" * 2_000_000, LATEST])
def test_any_value_in_any_header_is_borne(value: object) -> None:
    for dialect in f._DIALECTS:
        for header in (
            *dialect.marks,
            dialect.stack,
            dialect.at,
            dialect.first_at,
            dialect.service,
            dialect.queue,
            dialect.retries,
            *dialect.host,
        ):
            if header is not None:
                failure = read_failure({dialect.marks[0]: "x", header: value})
                assert failure is not None
                assert len(failure.message or "") <= f.MAX_MESSAGE_CHARS
                assert len(failure.error_type or "") <= f.MAX_TYPE_CHARS


def test_a_long_stack_keeps_head_and_tail_within_the_bound() -> None:
    failure = read_failure(
        {"x-exception-stacktrace": "a.First: x\n" + "\tat m\n" * 100_000 + "Caused by: b.Last: y"}
    )
    assert failure is not None
    assert failure.stack is not None
    assert failure.error_type == "b.Last"
    assert failure.stack.startswith("a.First")
    assert failure.stack.endswith("b.Last: y")
    assert len(failure.stack) <= f.MAX_STACK_CHARS


def test_bytes_that_are_no_text_are_shown_not_lost() -> None:
    failure = read_failure({"x-exception-message": b"caf\xe9"})
    assert failure is not None
    assert failure.message == "caf\\xe9"
