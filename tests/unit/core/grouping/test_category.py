"""What kind of failure it is, and the states of a group.

About `core.grouping.category`, `core.grouping.group_states`.
"""

from __future__ import annotations

import pytest

from deadletter.core.deciding.failure import Failure, Framework
from deadletter.core.grouping.category import Category, guess
from deadletter.core.grouping.fingerprint import Symptom, fingerprint
from deadletter.core.grouping.group_states import GroupState, state_at


@pytest.mark.parametrize(
    ("error_type", "message", "category"),
    [
        ("httpx.ConnectTimeout", "", Category.TRANSIENT),
        ("ConnectionRefusedError", "[Errno 111] Connection refused", Category.TRANSIENT),
        ("requests.HTTPError", "503 Server Error: Service Unavailable for url: x", Category.TRANSIENT),
        ("requests.HTTPError", "429 Client Error: Too Many Requests for url: x", Category.OVERLOAD),
        ("requests.HTTPError", "404 Client Error: Not Found for url: x", Category.PERMANENT),
        ("requests.HTTPError", "422 Client Error: Unprocessable Entity", Category.DATA),
        ("pydantic_core.ValidationError", "1 validation error for Order", Category.DATA),
        ("json.JSONDecodeError", "Expecting value", Category.DATA),
        ("java.lang.NullPointerException", "", Category.BUG),
        ("KeyError", "'sku'", Category.BUG),
        ("shop.PaymentError", "card of customer 404 refused", Category.UNKNOWN),
    ],
)
def test_by_type_and_words(error_type: str, message: str, category: Category) -> None:
    failure = Failure(framework=Framework.DEADLETTER, error_type=error_type, message=message)
    found = fingerprint(Symptom(origin="orders", failure=failure))
    assert guess(found, message=f"{error_type}: {message}").category is category


@pytest.mark.parametrize(
    ("reason", "cause", "category"),
    [
        ("maxlen", "", Category.OVERLOAD),
        ("expired", "", Category.OVERLOAD),
        ("rejected", "", Category.UNKNOWN),
        ("rejected", "undecodable", Category.DATA),
        ("", "killed-its-consumer", Category.BUG),
    ],
)
def test_without_an_error(reason: str, cause: str, category: Category) -> None:
    found = fingerprint(Symptom(origin="orders", reason=reason, cause=cause))
    assert guess(found, cause=cause, reason=reason).category is category


def test_who_sleeps_wakes_up() -> None:
    assert state_at(GroupState.SNOOZED, 10, 9) is GroupState.SNOOZED
    assert state_at(GroupState.SNOOZED, 10, 10) is GroupState.OPEN
    assert state_at(GroupState.RESOLVED, None, 10) is GroupState.RESOLVED
