"""Headers of letters whose build is known are cut out as those of letters that are walked.

About `core.letter.chosen_headers`, `core.letter.property_build`.
"""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st
from tests import amqp_oracle as oracle
from tests.amqp_strategies import AN_ID, DEATH, PROPERTIES

from deadletter.core.letter import names
from deadletter.core.letter.chosen_headers import ChosenHeaders, CutHeaders
from deadletter.core.letter.property_build import LEARN_AFTER, BuildsDue
from deadletter.errors import MessageError

ID = names.ID.encode()
TOGETHER = frozenset({b"x-death", b"x-first-death-queue", b"attempt"})
APART = st.sampled_from(((), (ID,), (ID, b"trace"), (b"trace", ID)))
USUAL = oracle.properties(
    content_type=b"application/json",
    headers=oracle.table_bytes(
        [
            (b"attempt", oracle.int32(7)),
            (b"trace", oracle.text(b"4bf92f3577b34da6")),
            (b"x-death", oracle.array([DEATH])),
            (b"x-first-death-queue", oracle.text(b"orders")),
            (ID, oracle.text(AN_ID)),
        ]
    ),
    delivery_mode=2,
    message_id=b"m-1",
)


def cut(by: ChosenHeaders, properties: bytes) -> CutHeaders | str:
    """What is cut out, or why nothing is. The build that is told is one that fits."""
    try:
        chosen = by.of(properties)
    except MessageError as error:
        return str(error)
    assert chosen.build is None or chosen.build.fits(properties)
    return chosen._replace(build=None)


@given(
    PROPERTIES,
    APART,
    st.lists(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3), max_size=8),
)
@example(USUAL, (ID, b"trace"), [[(place, 7)] for place in range(len(USUAL))])
@example(USUAL, (), [[(place, 255)] for place in range(len(USUAL))])
def test_one_whose_build_is_known_is_cut_as_one_that_is_walked(
    properties: bytes, apart: tuple[bytes, ...], changes: list[list[tuple[int, int]]]
) -> None:
    learned = ChosenHeaders(TOGETHER, apart=apart)
    for _ in range(LEARN_AFTER + 1):
        cut(learned, properties)
    for changed in [[], *changes]:
        other = bytearray(properties)
        for place, value in changed:
            other[place % len(other)] = value
        walked = cut(ChosenHeaders(TOGETHER, apart=apart), bytes(other))
        assert cut(learned, bytes(other)) == walked


def test_what_is_cut_is_what_stands_there() -> None:
    by = ChosenHeaders(TOGETHER, apart=(ID, b"trace", b"none"))
    expected = CutHeaders(
        oracle.table_bytes(
            [
                (b"attempt", oracle.int32(7)),
                (b"x-death", oracle.array([DEATH])),
                (b"x-first-death-queue", oracle.text(b"orders")),
            ]
        ),
        (oracle.text(AN_ID).wire, oracle.text(b"4bf92f3577b34da6").wire, b""),
        TOGETHER,
    )
    for number in range(LEARN_AFTER + 2):  # walked at first, then cut
        assert cut(by, USUAL) == expected
        assert (by.of(USUAL).build is None) is (number * 2 + 1 < LEARN_AFTER)


def test_only_so_many_lengths_are_counted() -> None:
    due = BuildsDue()
    for size in range(1_000):
        due.is_due(size)
    assert [due.is_due(5) for _ in range(LEARN_AFTER)].count(True) == 1
    assert not any(due.is_due(999) for _ in range(2 * LEARN_AFTER))
