"""Rows of `dlq_event_config` as policies: which decide, in which order, and what is said of the others.

About `core.deciding.event_config`.
"""

from __future__ import annotations

import pytest

from deadletter.core.deciding.backoff import MAX_RETRIES, Backoff, Fixed, Linear
from deadletter.core.deciding.event_config import (
    MAX_WARNINGS,
    Row,
    check_new,
    from_table,
    in_force,
    policies_from,
)
from deadletter.core.deciding.policy import (
    DEFAULT_BACKOFF,
    MAX_LEVELS_TOGETHER,
    MAX_POLICIES,
    Match,
    Policies,
    Policy,
    Then,
)
from deadletter.errors import UsageError

BACKOFF = Fixed(delays_ms=(10_000, 15_000, 20_000))


def row(id_: int | None, name: str | None, max_retries: int | None) -> Row:
    return Row(id=id_, name=name, max_retries=max_retries)


def told(*rows: Row, backoff: Backoff = BACKOFF) -> tuple[list[tuple[str, int]], tuple[str, ...]]:
    policies, warnings = policies_from(rows, backoff=backoff)
    return [(policy.name, policy.retries) for policy in policies], warnings


def test_a_row_is_a_policy_for_its_routing_key() -> None:
    (policy,), warnings = policies_from([row(7, "order.placed", 2)], backoff=BACKOFF)
    assert warnings == ()
    assert policy == Policy(
        name="dlq_event_config:order.placed",
        match=Match(routing_key="order.placed"),
        retries=2,
        backoff=BACKOFF,
        then=Then.PARK,
    )
    assert policy.levels_ms == {10_000, 15_000}


def test_no_retries_parks_at_once() -> None:
    (policy,), _ = policies_from([row(1, "a", 0)], backoff=BACKOFF)
    assert policy.text() == "park at once, no retries"


def test_more_retries_than_levels_use_the_last_level() -> None:
    (policy,), _ = policies_from([row(1, "a", 5)], backoff=BACKOFF)
    assert [policy.treatment(None).schedule.choices_ms(n) for n in range(5)] == [
        (10_000,), (15_000,), (20_000,), (20_000,), (20_000,),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (row(3, None, 2), "row 3 is ignored: expected a routing key as its name, got null"),
        (row(3, "b", None), "row 3 (b) is ignored: max_retries: expected a number from 0 to 10000, got null"),
        (row(3, "b", -1), "row 3 (b) is ignored: max_retries: expected a number from 0 to 10000, got -1"),
        (row(3, "b", 10_001), "row 3 (b) is ignored: max_retries: expected a number from 0 to 10000, got 10"),
        (row(None, "b", -1), "the row without an id (b) is ignored: max_retries: expected a number from 0"),
        (row(3, "b" * 256, 1), "match.routing_key: expected at most 255 characters, got 256"),
    ],
)  # fmt: skip
def test_a_row_that_cannot_be_a_policy_is_named_and_the_rest_stays(bad: Row, why: str) -> None:
    found, warnings = told(row(1, "a", 1), bad, row(9, "c", 1))
    assert found == [("dlq_event_config:c", 1), ("dlq_event_config:a", 1)]
    assert len(warnings) == 1
    assert why in warnings[0]


def test_of_the_same_name_the_highest_id_decides() -> None:
    rows = [row(2, "a", 2), row(30, "a", 30), row(4, "a", 4), row(None, "a", 5)]
    found, warnings = told(*rows)
    assert found == [("dlq_event_config:a", 30)]
    assert sorted(warnings) == [
        "row 2 (a) is ignored: row 30 has the same name, and decides",
        "row 4 (a) is ignored: row 30 has the same name, and decides",
        "the row without an id (a) is ignored: row 30 has the same name, and decides",
    ]


def test_a_bad_row_does_not_take_a_good_one_of_the_same_name_with_it() -> None:
    found, warnings = told(row(1, "a", 3), row(2, "a", None))
    assert found == [("dlq_event_config:a", 3)]
    assert warnings == ("row 2 (a) is ignored: max_retries: expected a number from 0 to 10000, got null",)


def test_exactly_this_key_is_asked_before_any_pattern() -> None:
    found, _ = told(row(1, "a.b", 1), row(2, "a.#", 2), row(3, "a.*", 3), row(4, "a*", 4), row(5, "", 5))
    assert [name.removeprefix("dlq_event_config:") for name, _ in found] == ["", "a*", "a.b", "a.*", "a.#"]


def test_the_table_stands_before_the_file() -> None:
    file = Policies(rules=(Policy(name="orders", match=Match(queue="orders")),), default=Policy(name="rest"))
    both = in_force([row(1, "a", 1)], file=file, backoff=BACKOFF).policies
    assert [p.name for p in both] == ["dlq_event_config:a", "orders", "rest"]
    assert [from_table(p, file) for p in both] == [True, False, False]


def test_too_many_rows_keep_the_newest_that_fit_beside_the_file() -> None:
    file = Policies(rules=tuple(Policy(name=f"p{n}", backoff=BACKOFF) for n in range(10)))
    rows = [row(n, f"k{n}", 1) for n in range(1, MAX_POLICIES + 1)]
    found = in_force(rows, file=file, backoff=BACKOFF)
    assert len(found.policies.rules) == MAX_POLICIES
    assert found.policies.rules[-10:] == file.rules
    assert found.policies.rules[0].name == f"dlq_event_config:k{MAX_POLICIES}"
    assert "dlq_event_config:k10" not in [policy.name for policy in found.policies]
    assert len(found.warnings) == 10
    assert (
        "the row for k10 is ignored: expected at most 1000 policies, the file's 10 among them"
        in found.warnings
    )


def test_warnings_have_an_end() -> None:
    found = in_force([row(n, None, 1) for n in range(500)], file=Policies(), backoff=BACKOFF)
    assert len(found.warnings) == MAX_WARNINGS
    assert found.warnings[-1].endswith("more rows are ignored")


def test_too_many_different_delays_leave_out_the_rows_that_bring_them() -> None:
    # a long ladder is thinned out, so each of these numbers of retries has other delays
    backoff = Linear(step_ms=1_000)
    rows = [row(n, f"k{n}", 100 + 37 * n) for n in range(1, 60)]
    found = in_force(rows, file=Policies(), backoff=backoff)
    assert 0 < len(found.policies.rules) < len(rows)
    assert len(found.policies.levels_ms) <= MAX_LEVELS_TOGETHER
    assert len(found.policies.rules) + len(found.warnings) == len(rows)
    assert "different delays together" in found.warnings[0]


def test_a_policy_of_the_file_with_a_name_of_the_table() -> None:
    file = Policies(rules=(Policy(name="dlq_event_config:a", match=Match(queue="q")),))
    found = in_force([row(1, "a", 1), row(2, "b", 1)], file=file, backoff=BACKOFF)
    assert [policy.name for policy in found.policies] == [
        "dlq_event_config:b",
        "dlq_event_config:a",
        "default",
    ]
    assert [from_table(policy, file) for policy in found.policies] == [True, False, False]
    (warning,) = found.warnings
    assert warning.startswith(
        "the row for a is ignored: the file has a policy of the name dlq_event_config:a;"
    )


@pytest.mark.parametrize(
    ("name", "max_retries"), [("a" * 101, 1), ("a\nb", 1), ("a", -1), ("a", MAX_RETRIES + 1)]
)
def test_what_nobody_should_write_into_the_table(name: str, max_retries: int) -> None:
    with pytest.raises(UsageError, match="expected"):
        check_new(name, max_retries)
    check_new("a" * 100, MAX_RETRIES)


def test_the_default_back_off_works_for_the_table_too() -> None:
    assert told(row(1, "a", MAX_RETRIES), backoff=DEFAULT_BACKOFF) == (
        [("dlq_event_config:a", MAX_RETRIES)],
        (),
    )
