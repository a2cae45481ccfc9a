"""What each layout declares, to the letter: names, arguments, bindings and policies, by broker version.

About `core.layouts.application`, `core.layouts.ladder`, `core.layouts.levels`, `core.layouts.looping`,
`core.layouts.naming`, `core.layouts.native`, `core.layouts.pieces`, `core.layouts.request`,
`core.layouts.returning`, `core.layouts.sweeping`, `core.topology.routing`, `core.topology.queue_arguments`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deadletter.core.deciding.backoff import (
    NO_RETRIES,
    Exponential,
    Fixed,
    Linear,
    Schedule,
    compile_schedule,
)
from deadletter.core.layouts import LAYOUTS, correction_text, corrections, ladder, levels, naming, plan
from deadletter.core.layouts.native import NativeGrowth, growth
from deadletter.core.layouts.request import Plan
from deadletter.core.letter.field_table import Value
from deadletter.core.topology.merging import BrokerPolicy
from deadletter.core.topology.routing import Router
from deadletter.core.topology.vhost import PREDECLARED, Binding, Exchange, Queue, topology
from deadletter.doctor.rules import examine
from deadletter.doctor.rules.case import Case
from deadletter.errors import UsageError

VERSIONS = ("3.10.8", "4.0.5", "4.3.6")
TEN = compile_schedule(Fixed(delays_ms=(10_000, 15_000, 20_000)), 3)
ONE = compile_schedule(Fixed(delays_ms=(10_000,)), 3)
LINEAR = compile_schedule(Linear(step_ms=1_000), 3)
SAFE = {"dead-letter-strategy": "at-least-once", "overflow": "reject-publish"}
FROZEN_SAFE = {f"x-{key}": value for key, value in SAFE.items()}
FITTING: Mapping[str, Schedule] = {"loop": ONE, "native": LINEAR}
REFUSING = {"x-overflow": "reject-publish"}


def limit_off(version: str) -> dict[str, int]:
    return {} if version.startswith("3.") else {"delivery-limit": -1}


def resting(version: str) -> dict[str, object]:
    return {"overflow": "reject-publish", **limit_off(version)}


def dying(key: str, exchange: str = "") -> dict[str, object]:
    return {"dead-letter-exchange": exchange, "dead-letter-routing-key": key}


def frozen(key: str, exchange: str = "") -> dict[str, object]:
    return {f"x-{name}": value for name, value in dying(key, exchange).items()} | FROZEN_SAFE


def queues(plan: Plan) -> dict[str, dict[str, object]]:
    assert all(queue.type == "quorum" and queue.durable for queue in plan.topology.queues.values())
    return {name: dict(queue.arguments) for name, queue in plan.topology.queues.items()}


def exchanges(plan: Plan) -> dict[str, str]:
    ours = plan.topology.exchanges.keys() - {name for name, _ in PREDECLARED}
    return {name: plan.topology.exchanges[name].type for name in sorted(ours)}


def bindings(plan: Plan) -> set[tuple[str, str, str]]:
    return {(b.source, b.routing_key, b.destination) for b in plan.topology.bindings}


def policies(plan: Plan) -> dict[str, tuple[str, int, dict[str, object]]]:
    for policy in plan.topology.policies:
        assert policy.apply_to == ("all" if policy.name == "deadletter" else "queues")
        assert not policy.operator
    return {p.name: (p.pattern, p.priority, dict(p.definition)) for p in plan.topology.policies}


def planned(layout: str, queue: str = "orders", version: str = "4.3.6", **more: Any) -> Plan:
    schedule = more.pop("schedule", FITTING.get(layout, TEN))
    return plan(layout, queue, schedule=schedule, version=version, **more)


# -- each layout --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("version", VERSIONS)
def test_return(version: str) -> None:
    found = planned("return", version=version)
    level = frozen("deadletter.due")
    assert queues(found) == {
        "orders.dlq": {},
        "deadletter.parked": REFUSING,
        "deadletter.due": REFUSING,
        "deadletter.delay.10000": {**level, "x-message-ttl": 10_000},
        "deadletter.delay.15000": {**level, "x-message-ttl": 15_000},
        "deadletter.delay.20000": {**level, "x-message-ttl": 20_000},
    }
    assert exchanges(found) == {"deadletter.return.orders": "fanout"}
    assert bindings(found) == {("deadletter.return.orders", "", "orders")}
    assert policies(found) == {
        "deadletter": (r"^deadletter\.", 999, resting(version)),
        "deadletter.orders": ("^orders$", 100, {**dying("orders.dlq"), **SAFE}),
        "deadletter.orders.dlq": (r"^orders\.dlq$", 100, resting(version)),
    }
    assert (found.layout, found.queue, found.notes, found.corrections) == ("return", "orders", (), ())


@pytest.mark.parametrize("version", VERSIONS)
def test_levels(version: str) -> None:
    found = planned("levels", version=version)
    numbers = (1, 2, 3)
    assert queues(found) == {
        "retry-queue": {},
        "dlq-queue": {},
        **{f"retry-queue-{n}": {} for n in numbers},
        **{f"queue.delay.{n}": frozen(f"retry.#.{n}", f"retry-exchange-{n}") for n in numbers},
    }
    topics = ("retry-exchange", "route-delay", "dlq-exchange", *(f"retry-exchange-{n}" for n in numbers))
    assert exchanges(found) == dict.fromkeys(topics, "topic") | {"deadletter.return.orders": "fanout"}
    assert bindings(found) == {
        ("deadletter.return.orders", "", "orders"),
        ("retry-exchange", "retry-routing-key", "retry-queue"),
        ("dlq-exchange", "dlq-routing-key", "dlq-queue"),
        *((f"retry-exchange-{n}", f"retry.#.{n}", f"retry-queue-{n}") for n in numbers),
        *(("route-delay", f"binding.#.{n}", f"queue.delay.{n}") for n in numbers),
    }
    rest = ("retry-queue", "dlq-queue", *(f"retry-queue-{n}" for n in numbers))
    ttls = dict(zip(numbers, (10_000, 15_000, 20_000), strict=True))
    assert policies(found) == {
        "deadletter.orders": ("^orders$", 100, {**dying("retry-routing-key", "retry-exchange"), **SAFE}),
        **{f"deadletter.{q}": (f"^{re.escape(q)}$", 100, resting(version)) for q in rest},
        **{
            f"deadletter.queue.delay.{n}": (
                rf"^queue\.delay\.{n}$",
                100,
                {"message-ttl": ttl, **limit_off(version)},
            )
            for n, ttl in ttls.items()
        },
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_sweep(version: str) -> None:
    found = planned("sweep", version=version)
    assert queues(found) == {"orders.dlq": {}, "deadletter.parked": REFUSING}
    assert exchanges(found) == {"deadletter.return.orders": "fanout"}
    assert bindings(found) == {("deadletter.return.orders", "", "orders")}
    assert policies(found) == {
        "deadletter": (r"^deadletter\.", 999, resting(version)),
        "deadletter.orders": ("^orders$", 100, {**dying("orders.dlq"), **SAFE}),
        "deadletter.orders.dlq": (r"^orders\.dlq$", 100, resting(version)),
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_ladder(version: str) -> None:
    found = planned("ladder", version=version, schedule=LINEAR)
    numbers = (1, 2, 3)
    assert queues(found) == {
        "orders__dlq": {},
        **{
            f"orders__retry.{n}": {"x-dead-letter-exchange": "orders__retry_dlx", **FROZEN_SAFE}
            for n in numbers
        },
    }
    assert exchanges(found) == {"orders__retry_dlx": "fanout", "orders__retry_exchange": "topic"}
    assert bindings(found) == {
        ("orders__retry_dlx", "", "orders"),
        *(("orders__retry_exchange", f"orders__retry.{n}", f"orders__retry.{n}") for n in numbers),
    }
    assert policies(found) == {
        "deadletter.orders": ("^orders$", 100, {**dying("orders__dlq"), **SAFE}),
        "deadletter.orders__dlq": ("^orders__dlq$", 100, resting(version)),
        **{
            f"deadletter.orders__retry.{n}": (
                rf"^orders__retry\.{n}$",
                100,
                {"message-ttl": n * 1_000, **limit_off(version)},
            )
            for n in numbers
        },
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_loop(version: str) -> None:
    found = planned("loop", version=version)
    assert queues(found) == {"orders.retry": frozen("orders"), "orders.dlq": {}}
    assert exchanges(found) == {"orders.dlq": "fanout"}
    assert bindings(found) == {("orders.dlq", "", "orders.dlq")}
    assert policies(found) == {
        "deadletter.orders": ("^orders$", 100, {**dying("orders.retry"), **SAFE, **limit_off(version)}),
        "deadletter.orders.retry": (
            r"^orders\.retry$",
            100,
            {"message-ttl": 10_000, **limit_off(version)},
        ),
        "deadletter.orders.dlq": (r"^orders\.dlq$", 100, resting(version)),
    }
    assert any("expires" in note for note in found.notes)


@pytest.mark.parametrize("version", ["4.3.1", "4.3.6", "4.4.0", "5.0.0"])
def test_native(version: str) -> None:
    found = planned("native", version=version)
    assert queues(found) == {"orders.dlq": {}}
    assert (exchanges(found), bindings(found)) == ({}, set())
    retries = {
        "delayed-retry-type": "failed",
        "delayed-retry-min": 1_000,
        "delayed-retry-max": 3_000,
        "delivery-limit": 3,
    }
    assert policies(found) == {
        "deadletter.orders": ("^orders$", 100, {**dying("orders.dlq"), **SAFE, **retries}),
        "deadletter.orders.dlq": (r"^orders\.dlq$", 100, resting(version)),
    }


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_applications_queue_is_planned_only_when_asked(layout: str) -> None:
    assert "orders" not in planned(layout).topology.queues
    asked = planned(layout, declare_queue=True).topology.queues["orders"]
    assert (asked.type, dict(asked.arguments), asked.policy) == ("quorum", {}, "deadletter.orders")
    classic = planned("return", declare_queue=True, queue_type="classic")
    assert classic.topology.queues["orders"].type == "classic"
    assert "dead-letter-strategy" not in policies(classic)["deadletter.orders"][2]
    assert any("at most once" in note for note in classic.notes)


# -- schedules ----------------------------------------------------------------------------------------------
def test_more_retries_than_levels_use_the_last() -> None:
    many = compile_schedule(Fixed(delays_ms=(10_000, 15_000)), 5)
    assert "queue.delay.3" not in planned("levels", schedule=many).topology.queues
    assert [levels.level_of(n, 2) for n in range(1, 6)] == [1, 2, 2, 2, 2]
    ladder_plan = planned("ladder", schedule=many).topology
    assert [ladder_plan.queues[f"orders__retry.{n}"].ttl_ms for n in range(1, 6)] == [10_000, *[15_000] * 4]
    assert "orders__retry.6" not in ladder_plan.queues


def test_return_has_every_level_that_was_asked_for() -> None:
    jittered = compile_schedule(Exponential(first_ms=1_000, jitter=0.2), 4)
    found = planned("return", schedule=jittered, more_levels_ms=[7, 1_000])
    wanted = {naming.level_name(ms) for ms in jittered.levels_ms | {7}}
    assert wanted == {name for name in found.topology.queues if ".delay." in name}


def test_layouts_with_one_delay_per_retry_say_what_they_leave_out() -> None:
    jittered = compile_schedule(Exponential(first_ms=1_000, jitter=0.2), 2)
    found = planned("ladder", schedule=jittered, more_levels_ms=[7])
    assert [found.topology.queues[f"orders__retry.{n}"].ttl_ms for n in (1, 2)] == [1_000, 2_000]
    assert any("one delay per retry" in note and "<queue>__retry.<ms>ms" in note for note in found.notes)
    plain = compile_schedule(Exponential(first_ms=1_000), 2)
    assert not any("one delay per retry" in note for note in planned("ladder", schedule=plain).notes)


def test_without_retries_there_are_no_delays() -> None:
    assert set(queues(planned("return", schedule=NO_RETRIES))) == {
        "orders.dlq",
        "deadletter.due",
        "deadletter.parked",
    }
    assert set(queues(planned("ladder", schedule=NO_RETRIES))) == {"orders__dlq"}


@pytest.mark.parametrize(
    ("backoff", "retries", "expected"),
    [
        (Linear(step_ms=400, cap_ms=1_500), 6, NativeGrowth(400, 1_500)),
        (Linear(step_ms=400), 1, NativeGrowth(400, 400)),
        (Fixed(delays_ms=(500,)), 9, NativeGrowth(500, 500)),
        (Fixed(delays_ms=(1_000, 2_000, 3_000)), 3, NativeGrowth(1_000, 3_000)),
        (Fixed(delays_ms=(3_000, 1_000)), 2, None),
        (Linear(step_ms=400, first_ms=1_000), 3, None),
        (Linear(step_ms=1_000, jitter=0.1), 3, None),
        (Linear(step_ms=1, jitter=0.3), 4, None),  # too small for jitter at first, and not at the end
        (Linear(step_ms=1_000), 30, None),  # thinned out: no longer a line
        (Exponential(first_ms=1_000), 3, None),
        (Exponential(first_ms=1_000), 2, NativeGrowth(1_000, 2_000)),
    ],
)
def test_what_the_broker_can_compute_by_itself(
    backoff: Fixed | Linear | Exponential, retries: int, expected: NativeGrowth | None
) -> None:
    assert growth(compile_schedule(backoff, retries)) == expected


# -- auto ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("schedule", [LINEAR, TEN, NO_RETRIES])
@pytest.mark.parametrize("queue_type", ["quorum", "classic"])
def test_auto_is_return_everywhere_and_says_why(version: str, schedule: Schedule, queue_type: str) -> None:
    """Also where `native` could be: there a lost connection costs an attempt."""
    found = planned("auto", version=version, schedule=schedule, queue_type=queue_type)
    assert found.layout == "return"
    assert (
        found.topology
        == planned("return", version=version, schedule=schedule, queue_type=queue_type).topology
    )
    assert "every lost connection" in found.notes[0]


def test_native_says_its_price() -> None:
    assert any("every lost connection" in note for note in planned("native", schedule=LINEAR).notes)


# -- refusals -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("layout", "more", "said"),
    [
        ("retrun", {}, "expected return, levels, sweep, ladder, loop, native or auto, got 'retrun'"),
        ("return", {"queue": ""}, "expected a name of 1 to 255 bytes, got 0"),
        ("return", {"queue": "q" * 256}, "got 256"),
        ("return", {"queue": "deadletter.due"}, "expected an application's queue"),
        ("return", {"queue": "amq.gen-1"}, "reserves amq."),
        ("return", {"version": "3.9.29"}, "expected RabbitMQ 3.10 or later, as in 4.3.6, got '3.9.29'"),
        ("return", {"version": ""}, "got ''"),
        ("return", {"queue_type": "stream"}, "got type 'stream'"),
        (
            "native",
            {"version": "4.3.0"},
            "expected RabbitMQ 4.3.1 or later, got 4.3.0; take the layout return",
        ),
        ("native", {"schedule": TEN}, "got 10 s, 15 s, 20 s"),
        ("native", {"queue_type": "classic"}, "expected a quorum queue, got a classic one"),
        (
            "levels",
            {"queue": "dlq-queue"},
            "expected an application's queue, got 'dlq-queue', which the layout",
        ),
        ("loop", {"schedule": TEN}, "expected one delay"),
        ("loop", {"schedule": NO_RETRIES}, "got none"),
        ("ladder", {"schedule": compile_schedule(Fixed(delays_ms=(1,)), 101)}, "at most 100 retries"),
        ("levels", {"schedule": compile_schedule(Linear(step_ms=1), 500)}, "at most 100 different steps"),
    ],
)
def test_what_cannot_be_is_refused(layout: str, more: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)) as refused:
        planned(layout, **more)
    assert ";" in str(refused.value) or ":" in str(refused.value)  # and says what to do


@pytest.mark.parametrize("layout", ["levels", "ladder", "loop", "native"])
def test_a_frozen_dead_letter_exchange_stands_against_most_layouts(layout: str) -> None:
    there = topology(
        queues=[Queue(name="orders", type="quorum", arguments={"x-dead-letter-exchange": "dlx"})]
    )
    with pytest.raises(UsageError, match=r"x-dead-letter-exchange, or with .* got 'dlx', frozen"):
        planned(layout, there=there)


@pytest.mark.parametrize("layout", ["return", "sweep"])
@pytest.mark.parametrize("argument", ["x-dead-letter-exchange", "x-dead-letter-routing-key"])
def test_a_frozen_dead_letter_exchange_is_left_alone(layout: str, argument: str) -> None:
    there = topology(queues=[Queue(name="orders", type="quorum", arguments={argument: "theirs"})])
    found = planned(layout, there=there)
    assert "deadletter.orders" not in policies(found)  # our key would join their exchange
    assert "orders.dlq" not in found.topology.queues
    assert any("no policy can change" in note for note in found.notes)


def test_a_queue_that_was_declared_as_we_want_it_is_fine() -> None:
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders.retry"}
    there = topology(queues=[Queue(name="orders", type="quorum", arguments=arguments)])
    found = planned("loop", there=there, declare_queue=True)
    assert dict(found.topology.queues["orders"].arguments) == arguments


@pytest.mark.parametrize(
    ("version", "key", "value"),
    [
        ("4.3.6", "message-ttl", 60_000),
        ("4.3.6", "max-length", 10),
        ("4.3.6", "max-length-bytes", 10),
        ("3.10.8", "delivery-limit", 5),
    ],
)
@pytest.mark.parametrize("operator", [False, True])
def test_a_loop_takes_no_queue_in_which_letters_die_otherwise(
    version: str, key: str, value: int, operator: bool
) -> None:
    limit = BrokerPolicy(name="limit", pattern=".*", definition={key: value}, operator=operator)
    there = topology(queues=[Queue(name="orders", type="quorum")], policies=[limit])
    with pytest.raises(UsageError, match=f"without {key}, got {value}"):
        planned("loop", version=version, there=there)


def test_a_delivery_limit_is_taken_off_a_loop_where_it_can_be() -> None:
    limit = BrokerPolicy(name="limit", pattern=".*", definition={"delivery-limit": 5})
    there = topology(queues=[Queue(name="orders", type="quorum")], policies=[limit])
    assert policies(planned("loop", there=there))["deadletter.orders"][2]["delivery-limit"] == -1
    operators = BrokerPolicy(name="limit", pattern=".*", definition={"delivery-limit": 5}, operator=True)
    with pytest.raises(UsageError, match="without delivery-limit, got 5"):
        planned("loop", there=topology(policies=[operators]))
    stuck = Queue(name="orders", type="quorum", arguments={"x-delivery-limit": 5})
    with pytest.raises(UsageError, match="x-delivery-limit"):
        planned("loop", there=topology(queues=[stuck]))


def test_a_full_queue_that_refuses_may_be_a_loop() -> None:
    refuses: dict[str, Value] = {"max-length": 10, "overflow": "reject-publish"}
    there = topology(policies=[BrokerPolicy(name="limit", pattern=".*", definition=refuses)])
    assert policies(planned("loop", there=there))["deadletter.orders"][2]["max-length"] == 10


def test_a_dead_letter_queue_that_is_a_stream_is_refused() -> None:
    there = topology(queues=[Queue(name="orders.dlq", type="stream")])
    with pytest.raises(UsageError, match=r"orders\.dlq: expected a classic or quorum queue .* got a stream"):
        planned("return", there=there)


# -- nothing undone -----------------------------------------------------------------------------------------
def test_the_policy_that_holds_now_is_carried_on() -> None:
    theirs = BrokerPolicy(
        name="theirs",
        pattern="^ord",
        priority=500,
        definition={"max-length": 9, "overflow": "reject-publish", "dead-letter-exchange": "dlx"},
    )
    other = BrokerPolicy(name="other", pattern=".*", definition={"expires": 1})
    there = topology(queues=[Queue(name="orders", type="quorum")], policies=[theirs, other])
    found = planned("return", there=there)
    expected = {"max-length": 9, **dying("orders.dlq"), **SAFE}
    assert policies(found)["deadletter.orders"] == ("^orders$", 501, expected)
    (note,) = (note for note in found.notes if "for orders now" in note)
    assert "'theirs'" in note
    assert "carries on its max-length" in note
    assert "dead-letter-exchange 'dlx' no longer holds" in note


def test_what_would_take_letters_from_our_queues_is_not_carried_on() -> None:
    everything: dict[str, Value] = {
        "max-length": 10,
        "message-ttl": 5,
        "expires": 9,
        "dead-letter-exchange": "x",
        "queue-leader-locator": "balanced",
    }
    there = topology(policies=[BrokerPolicy(name="all", pattern=".*", definition=everything, priority=7)])
    for layout in ("return", "levels", "ladder"):
        found = planned(layout, there=there)
        for queue in found.topology.queues.values():
            wanted = queue.ttl_ms if ".delay." in queue.name or "__retry." in queue.name else None
            assert (queue.max_length, queue.expires_ms, queue.ttl_ms) == (None, None, wanted), queue.name
            assert queue.ttl_ms != 5
        assert all(
            "queue-leader-locator" in d for n, (_, _, d) in policies(found).items() if n != "deadletter"
        )
        assert any("letters must not vanish there" in note for note in found.notes)


def test_a_length_limit_that_drops_keeps_dead_lettering_as_it_is() -> None:
    there = topology(policies=[BrokerPolicy(name="limit", pattern=".*", definition={"max-length": 10})])
    found = planned("return", there=there)
    assert "overflow" not in policies(found)["deadletter.orders"][2]
    assert any("drops the oldest" in note for note in found.notes)


def test_a_dead_letter_queue_that_is_there_serves_as_it_is() -> None:
    classic = Queue(name="orders.dlq", type="classic", arguments={"x-queue-mode": "lazy"})
    found = planned("sweep", there=topology(queues=[classic])).topology.queues["orders.dlq"]
    assert (found.type, dict(found.arguments)) == ("classic", {"x-queue-mode": "lazy"})


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("version", VERSIONS)
def test_planning_again_changes_nothing(layout: str, version: str) -> None:
    version = "4.3.6" if layout == "native" else version
    user = BrokerPolicy(name="user", pattern=".*", definition={"queue-master-locator": "min-masters"})
    there = topology(version=version, queues=[Queue(name="orders", type="quorum")], policies=[user])
    first = planned(layout, version=version, there=there, declare_queue=True)
    applied = topology(
        version=version,
        exchanges=first.topology.exchanges.values(),
        queues=first.topology.queues.values(),
        bindings=first.topology.bindings,
        policies=[*first.topology.policies, user],
    )
    assert planned(layout, version=version, there=applied, declare_queue=True) == first


# -- names --------------------------------------------------------------------------------------------------
def test_long_names_are_shortened_and_stay_apart() -> None:
    one, other = "q" * 250 + "a", "q" * 250 + "b"
    for name in (naming.return_exchange_name, naming.policy_name, lambda q: ladder.rung_name(q, 12)):
        assert len(name(one)) == 255
        assert name(one) != name(other)
    assert naming.dlq_name(one) == one + ".dlq"
    assert re.fullmatch(r"q{234}~[0-9a-f]{16}\.dlq", naming.dlq_name("q" * 255))
    assert re.fullmatch(r"aω{116}~[0-9a-f]{16}\.dlq", naming.dlq_name("a" + "ω" * 127))  # no half character
    assert levels.delay_key("k" * 255, 3).startswith("binding.kkk")
    assert levels.delay_key("k" * 255, 3).endswith(".3")
    assert ladder.rung_name("q" * 255, 1) != ladder.rung_name("q" * 255, 2)
    assert naming.return_exchange_name("q" * 255) == (
        "deadletter.return." + "q" * 220 + "~" + naming.return_exchange_name("q" * 255)[-16:]
    )


def test_a_policy_is_for_one_name() -> None:
    policy = next(
        p for p in planned("return", queue="a.b+c").topology.policies if p.name == "deadletter.a.b+c"
    )
    assert policy.pattern == r"^a\.b\+c$"
    assert policy.fits("a.b+c", "quorum")
    assert not any(policy.fits(name, "quorum") for name in ("aXb+c", "a.bbc", "a.b+c.dlq", "xa.b+c"))


queue_names = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=255).filter(
    lambda name: len(name.encode()) <= 255 and not name.startswith(("deadletter.", "amq."))
)
backoffs = st.one_of(
    st.builds(Linear, step_ms=st.integers(1, 10_000)),
    st.builds(Exponential, first_ms=st.integers(1, 10_000), jitter=st.sampled_from([0.0, 0.3])),
    st.builds(Fixed, delays_ms=st.lists(st.integers(1, 99_999), min_size=1, max_size=9).map(tuple)),
)


@settings(deadline=None)
@given(
    layout=st.sampled_from([*LAYOUTS, "auto"]),
    queue=queue_names,
    version=st.sampled_from(VERSIONS),
    backoff=backoffs,
    retries=st.integers(0, 12),
)
def test_whatever_is_asked_a_plan_is_closed(
    layout: str,
    queue: str,
    version: str,
    backoff: Fixed | Linear | Exponential,
    retries: int,
) -> None:
    schedule = compile_schedule(backoff, retries)
    try:
        found = plan(
            layout,
            queue,
            schedule=schedule,
            version=version,
            declare_queue=True,
        )
    except UsageError:
        assert layout in ("native", "loop")
        return
    shape = found.topology
    assert found.layout in LAYOUTS
    for binding in shape.bindings:
        assert binding.source in shape.exchanges
        assert binding.destination in shape.queues
    for name in (*shape.queues, *shape.exchanges, *(policy.name for policy in shape.policies)):
        assert len(name.encode()) <= 255
    router = Router(shape)
    for each in shape.queues.values():
        if each.dead_letter_exchange is not None:
            assert all(fate.complete and fate.certain for fate in router.fates(each)), each.name
            assert len(router.dead_letter_queues(each)) == 1, each.name  # never two copies
        assert each.delivery_limit(version) is None or each.name == queue
    origin = shape.queues[queue]
    assert origin.dead_letter_exchange is not None
    for delay_ms in schedule.levels_ms if found.layout == "return" else ():
        assert shape.queues[naming.level_name(delay_ms)].ttl_ms == delay_ms


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("version", VERSIONS)
def test_the_doctor_finds_nothing_in_a_layout(layout: str, version: str) -> None:
    version = "4.3.6" if layout == "native" else version
    shape = planned(layout, version=version, declare_queue=True).topology
    shop = topology(
        version=version,
        exchanges=[*shape.exchanges.values(), Exchange(name="shop", type="topic")],
        queues=shape.queues.values(),
        bindings=[*shape.bindings, Binding(source="shop", destination="orders", routing_key="order.#")],
        policies=shape.policies,
    )
    assert examine(Case(topology=shop, now_ms=0)) == ()


# -- words --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("layout", LAYOUTS)
def test_corrections_are_told(layout: str) -> None:
    assert planned(layout).corrections == corrections(layout)
    assert bool(corrections(layout)) == (layout not in ("return", "native"))
    for correction in corrections(layout):
        assert correction_text(correction).startswith("The document says: ")
        assert correction.why in correction_text(correction)


def test_corrections_of_nothing() -> None:
    with pytest.raises(UsageError, match="got 'auto'"):
        corrections("auto")
