"""Which failures are the same. About `core.grouping.fingerprint`, `core.grouping.grouping_rules`."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable

import pytest

from deadletter.core.deciding.failure import Failure, Framework
from deadletter.core.grouping.fingerprint import Fingerprint, Kind, Symptom, fingerprint
from deadletter.core.grouping.grouping_rules import Grouping, GroupingRule, unknown_slots

EMPTY: dict[str, object] = {}
SHOWN = """Traceback (most recent call last):
  File "/srv/a.py", line 3, in f
    g()
ValueError: the account is closed"""
"""A stack that is remembered but for what its error says."""


def symptom(work: Callable[[], object], origin: str = "orders", **headers: object) -> Symptom:
    try:
        work()
    except Exception as error:  # noqa: BLE001 -- whatever it is, that is the failure
        failure = Failure(
            framework=Framework.DEADLETTER,
            error_type=type(error).__qualname__,
            message=str(error),
            stack="".join(traceback.format_exception(error)),
        )
        return Symptom(origin=origin, failure=failure, headers=headers)
    raise AssertionError("it did not fail")


def not_found(name: str) -> None:
    raise LookupError(f"no customer called {name} here")


def closed(name: str) -> None:
    if name == "ann":
        raise ValueError("the account is closed")
    raise ValueError("the account is locked")


def parsed(body: str) -> None:
    json.loads(body)


def first_caller(key: str) -> object:
    return EMPTY[key]


def second_caller(key: str) -> object:
    return EMPTY[key]


def caused(inner: Callable[[], object]) -> None:
    try:
        inner()
    except Exception as error:
        raise RuntimeError("could not charge") from error


def key(work: Callable[[], object], origin: str = "orders") -> str:
    return fingerprint(symptom(work, origin)).key


def test_what_was_put_into_the_message_does_not_matter() -> None:
    assert key(lambda: not_found("ann")) == key(lambda: not_found("bob the builder"))


def test_two_raises_of_one_function_are_two() -> None:
    assert key(lambda: closed("ann")) != key(lambda: closed("bob"))


def test_where_a_library_failed_does_not_matter_but_who_called_it() -> None:
    assert key(lambda: parsed('{"a": nope}')) == key(lambda: parsed('{"a": 1, "b": nope}'))
    assert key(lambda: parsed("{nope")) != key(lambda: parsed('{"a": nope}'))  # another complaint
    assert key(lambda: first_caller("x")) == key(lambda: first_caller("y"))
    assert key(lambda: first_caller("x")) != key(lambda: second_caller("x"))


def test_another_cause_is_another_failure() -> None:
    assert key(lambda: caused(lambda: first_caller("x"))) != key(lambda: caused(lambda: parsed("{")))
    assert key(lambda: caused(lambda: first_caller("x"))) == key(lambda: caused(lambda: first_caller("y")))


def test_another_origin_is_another_handler() -> None:
    assert key(lambda: closed("ann")) != key(lambda: closed("ann"), "billing")


def test_without_an_error_the_death_counts() -> None:
    expired = Symptom(origin="orders", reason="expired")
    assert fingerprint(expired).key == fingerprint(Symptom(origin="orders", reason="expired")).key
    assert fingerprint(expired).key != fingerprint(Symptom(origin="orders", reason="rejected")).key
    assert fingerprint(expired).title == "expired"
    assert fingerprint(Symptom(origin="orders")).title == "unknown"


def test_a_body_that_is_not_what_it_says_is_a_group_of_its_own() -> None:
    told = Symptom(origin="orders", reason="rejected", undecodable="application/json")
    assert fingerprint(told).key != fingerprint(Symptom(origin="orders", reason="rejected")).key
    assert fingerprint(told).title == "body is not application/json"


def test_it_tells_what_counted() -> None:
    found = fingerprint(symptom(lambda: not_found("ann")))
    assert found.title == "LookupError: no customer called ann here"
    assert found.culprit.endswith("test_fingerprint:not_found")
    counted = {part.kind: part.text for part in found.parts if part.counted}
    assert counted[Kind.SOURCE] == 'raise LookupError(f"no customer called {name} here")'
    assert Kind.MESSAGE not in counted


@pytest.mark.parametrize(
    "grouping",
    [
        Grouping(),
        Grouping(rules=(GroupingRule(group="one"),)),
        Grouping(rules=(GroupingRule(group="{default}"),)),
    ],
    ids=["plain", "rule", "default"],
)
@pytest.mark.parametrize("header", ["", "card-refused"], ids=["no header", "header"])
def test_queues_of_one_name_in_two_vhosts_are_two(grouping: Grouping, header: str) -> None:
    """Also where the stack is known already, a rule names the group, or the letter does."""
    told = symptom(lambda: closed("ann"), **({"deadletter-fingerprint": header} if header else {}))
    told = told._replace(failure=told.failure and told.failure._replace(stack=SHOWN))
    shop, bank, unknown = (told._replace(vhost=vhost) for vhost in ("shop", "bank", ""))
    assert len({grouping.of(one).key for one in (shop, bank, unknown)}) == 3
    assert grouping.of(shop).key == grouping.of(shop._replace(headers=dict(shop.headers or {}))).key
    first = [(part.kind, part.text, part.counted) for part in grouping.of(shop).parts[:2]]
    assert first == [(Kind.VHOST, "shop", True), (Kind.ORIGIN, "orders", True)]
    assert all(part.kind is not Kind.VHOST for part in grouping.of(unknown).parts)
    for one in (shop, unknown):
        places = [part for part in grouping.of(one).parts if part.kind in (Kind.VHOST, Kind.ORIGIN)]
        assert len(places) == (2 if one is shop else 1), "each is told once"


# -- rules -----------------------------------------------------------------------------------------------
def by(rule: GroupingRule, told: Symptom) -> Fingerprint:
    return Grouping(rules=(rule,)).of(told)


def test_a_rule_joins_what_would_be_apart() -> None:
    rule = GroupingRule(error="*Error", group="all of {origin}")
    assert by(rule, symptom(lambda: closed("ann"))).key == by(rule, symptom(lambda: not_found("x"))).key


def test_a_rule_parts_what_would_be_together() -> None:
    rule = GroupingRule(group="{default} {header:tenant}")
    one, other = (symptom(lambda: closed("ann"), tenant=tenant) for tenant in ("a", "b"))
    assert by(rule, one).key != by(rule, other).key
    assert by(rule, one).key == by(rule, symptom(lambda: closed("ann"), tenant="a")).key


@pytest.mark.parametrize(
    "rule",
    [
        GroupingRule(origin="billing", group="x"),
        GroupingRule(error="Key*", group="x"),
        GroupingRule(message="*locked*", group="x"),
        GroupingRule(headers=(("tenant", "b*"),), group="x"),
    ],
)
def test_a_rule_that_does_not_match_changes_nothing(rule: GroupingRule) -> None:
    told = symptom(lambda: closed("ann"), tenant="a")
    assert by(rule, told) == fingerprint(told)


def test_what_the_application_calls_it_comes_first() -> None:
    named = {"deadletter-fingerprint": "card-refused"}
    one, other = symptom(lambda: closed("ann"), **named), symptom(lambda: not_found("x"), **named)
    grouping = Grouping(rules=(GroupingRule(group="another"),))
    assert grouping.of(one).key == grouping.of(other).key
    assert grouping.of(one).title != grouping.of(other).title


def test_words_in_braces_that_mean_nothing_are_found() -> None:
    assert unknown_slots("{origin} {tenant} {header:x} {}") == ["{tenant}", "{}"]
