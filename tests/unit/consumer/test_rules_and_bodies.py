"""Rules, bodies, failure details, and the message as a handler sees it.

About `consumer.outcomes`, `consumer.backoffs`, `consumer.message`, `consumer.handlers.signature`,
`consumer.handlers.failure_details`, `consumer.handlers.handler_end`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pydantic
import pytest

from deadletter.consumer.backoffs import exponential, fixed, linear, own
from deadletter.consumer.handlers import handler_end
from deadletter.consumer.handlers.failure_details import MESSAGE_CHARS, STACK_CHARS, Teller, slimmer
from deadletter.consumer.handlers.signature import decoder_for
from deadletter.consumer.message import Message
from deadletter.consumer.outcomes import (
    Discard,
    Park,
    RetryLater,
    Rules,
    Undecodable,
    discard,
    park,
    retry,
)
from deadletter.consumer.queues.layout_routes import LayoutRoutes, Past
from deadletter.core.deciding import decision
from deadletter.core.deciding.backoff import Schedule
from deadletter.core.deciding.decision import Decision
from deadletter.core.letter import field_table, names
from deadletter.core.letter.envelope import ExchangeKey
from deadletter.core.letter.field_table import Value
from deadletter.core.letter.letter import Letter
from deadletter.core.letter.message import RawMessage as Raw
from deadletter.core.letter.message import View, encode
from deadletter.core.letter.parking import Cause
from deadletter.core.topology.layout_names import ConsumerLayout
from deadletter.errors import UsageError
from deadletter.move.verdict import Send


# -- rules ---------------------------------------------------------------------------------------------------
class Network(Exception): ...


class Slow(Network): ...


def judged(rules: Rules, error: BaseException) -> Decision:
    return handler_end.decided(rules, error, attempt=0, dice=0.5, policy="t")


def test_the_nearest_class_decides() -> None:
    rules = Rules(
        retries=3, backoff=fixed(1), on={Network: park, Slow: fixed(60), KeyError: discard, OSError: retry()}
    )
    slow = judged(rules, Slow())
    assert isinstance(slow, decision.Retry)
    assert slow.delay_ms == 60_000
    assert isinstance(judged(rules, Network("n")), decision.Park)
    assert isinstance(judged(rules, KeyError("k")), decision.Discard)
    other = judged(rules, ValueError())
    assert isinstance(other, decision.Retry)
    assert other.delay_ms == 1_000
    known = judged(rules, OSError())
    assert isinstance(known, decision.Retry)
    assert known.delay_ms == 1_000


def test_a_rule_may_have_retries_and_delays_of_its_own() -> None:
    rules = Rules(retries=3, backoff=fixed(1), on={Slow: retry(linear(2), retries=7)})
    found = rules.of(Slow())
    assert isinstance(found, Schedule)
    assert found == rules.schedules[1]
    assert found.retries == 7
    assert [found.delay_ms(n, 0) for n in range(3)] == [2000, 4000, 6000]


def test_what_handlers_raise_themselves() -> None:
    rules = Rules(retries=3, backoff=fixed(1), on={Exception: discard})
    later = judged(rules, RetryLater(timedelta(minutes=1), "busy"))
    assert isinstance(later, decision.Retry)
    assert later.delay_ms == 60_000
    parked = judged(rules, Park("look at it"))
    assert isinstance(parked, decision.Park)
    assert (parked.why, parked.cause) == ("look at it", "handler")
    assert isinstance(judged(rules, Discard()), decision.Discard)
    unreadable = judged(rules, Undecodable("no"))
    assert isinstance(unreadable, decision.Park)
    assert unreadable.cause == "undecodable"


@pytest.mark.parametrize("no_error", [int, "ValueError", ValueError("one of them")])
def test_a_rule_for_what_is_no_error(no_error: Any) -> None:
    with pytest.raises(UsageError, match="expected classes of errors"):
        Rules(retries=1, backoff=fixed(1), on={no_error: park})


def test_a_rule_that_is_none() -> None:
    with pytest.raises(UsageError, match="expected park, discard"):
        Rules(retries=1, backoff=fixed(1), on={KeyError: "park"})  # type: ignore[dict-item]


def test_delays_in_seconds_are_seconds() -> None:
    rules = Rules(retries=5, backoff=exponential(1, cap=5))
    assert [rules.schedule.delay_ms(n, 0) for n in range(5)] == [1000, 2000, 4000, 5000, 5000]
    squares = Rules(retries=3, backoff=own(lambda attempt: attempt**2))
    assert [squares.schedule.delay_ms(n, 0) for n in range(3)] == [1000, 4000, 9000]
    with pytest.raises(UsageError):
        RetryLater(0)
    with pytest.raises(UsageError):
        fixed(float("nan"))


# -- bodies --------------------------------------------------------------------------------------------------
class Order(pydantic.BaseModel):
    n: int


class Struct(msgspec.Struct):
    n: int


@dataclasses.dataclass
class Plain:
    n: int


BODY = b'{"n": 7}'


@pytest.mark.parametrize(
    ("kind", "body", "expected"),
    [
        (bytes, b"\xff", b"\xff"),
        (str, "ü".encode(), "ü"),
        (dict, BODY, {"n": 7}),
        (dict[str, Any], BODY, {"n": 7}),
        (Any, b"[1]", [1]),
        (dict, '{"ü": "☃"}'.encode(), {"ü": "☃"}),
        (dict, '{"n": 7}'.encode("utf-16"), {"n": 7}),
        (dict, '{"n": 7}'.encode("utf-16-le"), {"n": 7}),
        (dict, b'\xef\xbb\xbf{"n": 7}', {"n": 7}),
        (dict, b' \n{"n": 7} ', {"n": 7}),
        (list[int], b"[1, 2]", [1, 2]),
        (int, b"7", 7),
        (Order, BODY, Order(n=7)),
        (Struct, BODY, Struct(7)),
        (Plain, BODY, Plain(7)),
        (Order | None, b"null", None),
        (Order | str, b'"x"', "x"),
    ],
)
def test_a_body_by_annotation(kind: object, body: bytes, expected: object) -> None:
    assert decoder_for(kind)(body) == expected


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (str, b"\xff"),
        (dict, b"{"),
        (dict, b"\xff"),
        (Order, b'{"n": "x"}'),
        (Order, b""),
        (Struct, b'{"n": "x"}'),
        (Struct, b"{"),
        (Plain, b"{}"),
        (list[int], b'["x"]'),
        (Order | str, b"1"),
        (dict, b"[" * 100_000),
    ],
)
def test_a_body_that_is_not_what_it_should_be(kind: object, body: bytes) -> None:
    with pytest.raises(Undecodable) as refused:
        decoder_for(kind)(body)
    assert 0 < len(str(refused.value)) <= 500


def test_a_kind_nobody_can_decode() -> None:
    class Strange:
        pass

    with pytest.raises(UsageError, match="expected bytes, str, JSON types"):
        decoder_for(Strange)


# -- details -------------------------------------------------------------------------------------------------
def caught(error: Exception) -> Exception:
    try:
        raise error
    except Exception as raised:  # noqa: BLE001
        return raised


def test_details_tell_what_when_and_where() -> None:
    teller = Teller(service="shop", release="1.0", host="h")
    told = teller.headers(caught(Slow("too slow")), at_ms=5, first_at_ms=3)
    assert told[names.ERROR_TYPE] == f"{__name__}.Slow"
    assert told[names.ERROR_MESSAGE] == "too slow"
    assert "raise error" in str(told[names.ERROR_STACK])
    assert (told[names.ERROR_AT], told[names.ERROR_FIRST_AT]) == (5, 3)
    assert (told[names.ERROR_SERVICE], told[names.ERROR_RELEASE], told[names.ERROR_HOST]) == (
        "shop",
        "1.0",
        "h",
    )
    assert teller.headers(KeyError("x"), at_ms=5, first_at_ms=None)[names.ERROR_FIRST_AT] == 5


def test_each_text_has_a_limit_and_a_stack_keeps_its_end() -> None:
    told = Teller().headers(caught(ValueError("x" * 50_000 + "END")), at_ms=1, first_at_ms=None)
    assert len(str(told[names.ERROR_MESSAGE])) <= MESSAGE_CHARS + 1
    stack = str(told[names.ERROR_STACK])
    assert len(stack) <= STACK_CHARS + 1
    assert stack.strip().endswith("END")
    slim = slimmer(told)
    assert names.ERROR_STACK not in slim
    assert len(str(slim[names.ERROR_MESSAGE])) <= 200


def test_a_stack_tells_of_causes_and_of_the_application_alone() -> None:
    def deep(n: int) -> None:
        if n:
            deep(n - 1)
        raise ValueError("deep")

    def caused() -> None:
        try:
            deep(0)
        except ValueError as error:
            raise KeyError("shallow") from error

    def stack_of(work: Callable[[], object]) -> str:
        try:
            decoder_for(str)  # whatever ours
            work()
        except Exception as error:  # noqa: BLE001
            return str(Teller().headers(error, at_ms=1, first_at_ms=None)[names.ERROR_STACK])
        raise AssertionError

    chained = stack_of(caused)
    assert "ValueError: deep" in chained
    assert chained.strip().endswith("KeyError: 'shallow'")
    alone = stack_of(lambda: deep(500))
    assert alone.strip().endswith("ValueError: deep")
    assert alone.count(" in deep\n") <= 50

    with pytest.raises(Undecodable) as undecodable:
        decoder_for(str)(b"\xff")
    assert "UnicodeDecodeError" in str(
        Teller().headers(undecodable.value, at_ms=1, first_at_ms=None)[names.ERROR_STACK]
    )


def test_secrets_are_redacted_and_a_hook_that_fails_lets_nothing_out() -> None:
    told = Teller(redact=lambda text: text.replace("hunter2", "…")).headers(
        caught(ValueError("password hunter2")), at_ms=1, first_at_ms=None
    )
    assert "hunter2" not in str(told)

    def broken(text: str) -> str:
        raise RuntimeError(text)

    told = Teller(redact=broken).headers(caught(ValueError("hunter2")), at_ms=1, first_at_ms=None)
    assert "hunter2" not in str(told)
    assert told[names.ERROR_MESSAGE] == "(left out: the redaction hook failed with RuntimeError)"


def test_an_error_that_cannot_even_be_shown() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    told = Teller().headers(caught(Mute()), at_ms=1, first_at_ms=None)
    assert told[names.ERROR_MESSAGE] == "(no text: RuntimeError)"
    rules = Rules(retries=1, backoff=fixed(1), on={Mute: park})
    found = judged(rules, Mute())
    assert isinstance(found, decision.Park)
    assert "its text cannot be made" in found.why


def test_text_that_no_header_can_hold_is_made_visible() -> None:
    error = caught(ValueError("file \udcff"))
    told = Teller().headers(error, at_ms=1, first_at_ms=None)
    assert told[names.ERROR_MESSAGE] == "file \\udcff"
    field_table.encode(told)
    past = Past.unread()
    for way in (ConsumerLayout.RETURN, ConsumerLayout.LADDER, ConsumerLayout.LOOP, ConsumerLayout.NATIVE):
        route = LayoutRoutes(way, "q").aside(past, told, cause=Cause.HANDLER, why=str(error), at_ms=1)
        assert isinstance(route, Send)
        field_table.encode(route.headers)


# -- the message ---------------------------------------------------------------------------------------------
def message(headers: dict[str, Value] | None = None, **view: Any) -> Message:
    raw = Raw(encode(View(headers=headers, **view)), b"body")
    letter = Letter(source="orders", message=raw, came_by=ExchangeKey(b"ex", b"key"), redelivered=False)
    return Message(letter, 2)


def test_what_a_handler_sees() -> None:
    seen = message(message_id="m1", content_type="text/plain")
    assert (seen.body, seen.queue, seen.attempt, seen.message_id) == (b"body", "orders", 2, "m1")
    assert (seen.exchange, seen.routing_key, seen.content_type) == ("ex", "key", "text/plain")
    assert seen.deaths == ()
    assert seen.age is None
    assert seen.headers == {}
    assert len(seen.id) == 32
    retried = message({names.ORIGIN_ROUTING_KEY: "order.new", names.ORIGIN_EXCHANGE: ""})
    assert (retried.exchange, retried.routing_key) == ("", "order.new")


@pytest.mark.parametrize(
    ("verb", "kind"),
    [
        (lambda m: m.retry(5), RetryLater),
        (lambda m: m.park("why"), Park),
        (lambda m: m.discard(), Discard),
        (lambda m: m.ack(), bool),
    ],
)
async def test_a_verb_counts_once_and_not_after_the_end(verb: Callable[[Message], Any], kind: type) -> None:
    one = message()
    await verb(one)
    assert isinstance(one.decided, kind)
    with pytest.raises(UsageError, match="once per message"):
        await verb(one)
    other = message()
    assert other.close() is False
    with pytest.raises(UsageError, match="before the handler ends"):
        await verb(other)
