"""What the checker decides about a letter is the same whether it has seen such headers before or not.

About `operations.checking` and `core.letter.letter`.
"""

from __future__ import annotations

import pytest

from deadletter.core.deciding.deaths import (
    ByQueue,
    ByReason,
    CountBy,
    FirstEntry,
    NamedHeader,
    OwnAttempt,
    SumOfAll,
    count_deaths,
    read_history,
)
from deadletter.core.letter import names
from deadletter.core.letter.envelope import ExchangeKey
from deadletter.core.letter.field_table import Value
from deadletter.core.letter.letter import Letter
from deadletter.core.letter.message import RawMessage, View, encode
from deadletter.core.topology.queue_patterns import mapping
from deadletter.errors import MessageError
from deadletter.move.courier import Leave, Send
from deadletter.operations import checking
from deadletter.operations.checking import CheckWish

LIMIT = 3
STRATEGIES: tuple[CountBy, ...] = (
    NamedHeader(header="x-retry-count"),
    OwnAttempt(),
    FirstEntry(),
    SumOfAll(),
    ByReason(reason="rejected"),
    ByQueue(queue="orders"),
)


def letter(headers: dict[str, Value]) -> Letter:
    message = RawMessage(encode(View(headers=headers)), b"body")
    return Letter(source="dlq", message=message, came_by=ExchangeKey(b"", b"dlq"), redelivered=False)


def death(queue: str, count: int, reason: str = "rejected") -> Value:
    return {"queue": queue, "reason": reason, "count": count, "exchange": "", "routing-keys": [queue]}


LETTERS = [
    letter({"x-retry-count": count, names.ATTEMPT: 7 - count, "x-death": [death(queue, count), *more]})
    for count in range(1, 7)
    for queue in ("orders", "mail")
    for more in ([], [death("orders", 2, "expired")])
]


def judged(by: CountBy) -> checking._Judge:
    wish = CheckWish(names=mapping("dlq", "dead"), max_retries=LIMIT, count_by=by)
    return checking._Judge(wish, "dead")


@pytest.mark.parametrize("by", STRATEGIES, ids=lambda by: type(by).__name__)
def test_a_letter_seen_before_is_counted_as_at_first(by: CountBy) -> None:
    judge = judged(by)
    for _ in range(3):
        for one in LETTERS:
            goes = count_deaths(read_history(one.headers), one.headers, by) > LIMIT
            assert isinstance(judge.decide(one), Send if goes else Leave)


def test_no_more_is_remembered_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "KNOWN_MAX", 5)
    judge = judged(NamedHeader(header="n"))
    for count in range(100):
        assert isinstance(judge.decide(letter({"n": count})), Send if count > LIMIT else Leave)
        assert len(judge._known) <= 5
    judge.decide(letter({"n": "9" * (checking.KNOWN_BYTES + 1)}))
    assert all(len(raw) <= checking.KNOWN_BYTES for raw in judge._known)


def test_a_letter_that_cannot_be_read_is_not_remembered_as_one_without_headers() -> None:
    judge = judged(NamedHeader(header="n"))
    assert isinstance(judge.decide(letter({})), Leave)
    damaged = RawMessage(encode(View(headers={"n": 9}))[:-3], b"")
    with pytest.raises(MessageError):
        judge.decide(
            Letter(source="dlq", message=damaged, came_by=ExchangeKey(b"", b"dlq"), redelivered=False)
        )
