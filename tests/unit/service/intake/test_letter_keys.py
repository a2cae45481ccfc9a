"""What decides about a letter is read alike, whatever letters came before it.

About `service.intake.letter_keys`, `core.letter.chosen_headers`.
"""

from __future__ import annotations

from typing import Final

from hypothesis import example, given
from hypothesis import strategies as st

from deadletter.core.deciding.policy import HeaderMatch, Match, Policies, Policy
from deadletter.core.letter.envelope import ExchangeKey
from deadletter.core.letter.field_table import Value
from deadletter.core.letter.letter import Letter
from deadletter.core.letter.message import RawMessage, View, encode
from deadletter.core.letter.property_build import LEARN_AFTER
from deadletter.service.intake.letter_keys import LetterReader

_GOLD: Final = Policy(name="gold", match=Match(headers=(HeaderMatch(header="tenant", value="gold"),)))
_TYPED: Final = Policy(name="typed", match=Match(content_type="text/plain"))
_WAYS: Final = (ExchangeKey(b"", b"dlq"), ExchangeKey(b"shop", b"new"))


def _properties(content_type: str = "text/plain", tenant: str = "acme", **headers: Value) -> bytes:
    death: Value = [{"queue": "orders", "reason": "rejected", "count": 1}]
    found = {"x-death": death, "tenant": tenant, **{k.replace("_", "-"): v for k, v in headers.items()}}
    return encode(View(headers=found, content_type=content_type, message_id="m"))


LETTERS: Final = (
    _properties(),
    _properties(tenant="gold"),
    _properties(tenant="gold!"),  # longer
    _properties("text/html!"),  # as long as the first
    _properties(deadletter_id="0123456789abcdef"),
    _properties(deadletter_id="fedcba9876543210"),
    _properties(deadletter_id=["no id at all"]),
    _properties(deadletter_released_at=1 << 40),
    _properties(deadletter_released_at=(1 << 40) + 1),
    encode(View(headers={"tenant": "acme"}, message_id="did not die")),
)


def _reader(*policies: Policy) -> LetterReader:
    rules = Policies(rules=policies, default=Policy(name="default", retries=0))
    return LetterReader(rules, keeps_client_deaths=False)


def _letter(number: int, way: int) -> Letter:
    return Letter(
        source="dlq", message=RawMessage(LETTERS[number], b""), came_by=_WAYS[way], redelivered=False
    )


@given(
    st.sampled_from(((_GOLD,), (_GOLD, _TYPED), ())),
    st.lists(st.tuples(st.integers(0, len(LETTERS) - 1), st.integers(0, 1)), max_size=30),
)
@example((_GOLD,), [(0, 0), (6, 1), (0, 1), (0, 1), (0, 0)])
@example((), [(0, 0), (1, 0), (0, 0), (9, 1), (0, 1)])
def test_a_key_is_that_of_the_letter_alone(
    policies: tuple[Policy, ...], arrivals: list[tuple[int, int]]
) -> None:
    reader = _reader(*policies)
    for number in range(len(LETTERS)):
        for _ in range(LEARN_AFTER + 1):
            reader.key(_letter(number, 0))
    for number, way in arrivals:
        letter = _letter(number, way)
        assert reader.key(letter) == _reader(*policies).key(_letter(number, way))
        assert letter.build is None or letter.build.fits(LETTERS[number])


def test_letters_that_differ_where_it_decides_have_different_keys() -> None:
    """Else the test above could compare nothing with nothing."""
    reader = _reader(_GOLD)
    keys = [reader.key(_letter(number, way)) for number in (0, 1, 2) for way in (0, 1)]
    assert len({key.value for key in keys if key is not None}) == 6
    released = [reader.key(_letter(number, 0)) for number in (7, 8)]
    assert [key.released_ms for key in released if key is not None] == [1 << 40, (1 << 40) + 1]
    assert reader.key(_letter(9, 0)) is None
