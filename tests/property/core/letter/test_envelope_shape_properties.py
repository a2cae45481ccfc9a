"""Letters whose build is known go as letters that are walked: byte for byte, whatever is in them.

About `core.letter.envelope_shape`, `core.letter.property_build`, `core.letter.envelope_parts`,
`core.letter.envelope`.
"""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st
from tests import amqp_oracle as oracle
from tests.amqp_strategies import AN_ID, DEATH, PROPERTIES

from deadletter.core.letter import names
from deadletter.core.letter.chosen_headers import ChosenHeaders
from deadletter.core.letter.deaths_aside import MAX_DEATHS_BYTES
from deadletter.core.letter.envelope import Deaths, EnvelopeRoute, ExchangeKey, Leg
from deadletter.core.letter.message import RawMessage
from deadletter.core.letter.property_build import LEARN_AFTER, LEARN_AGAIN, PropertyBuild, build_of
from deadletter.errors import MessageError

ROUTES = st.fixed_dictionaries(
    {
        "target": st.sampled_from((ExchangeKey(b"", b"target"), ExchangeKey(b"deadletter.return.q", b"key"))),
        "deaths": st.sampled_from(Deaths),
        "leg": st.sampled_from(Leg),
        "anew": st.booleans(),
        "circling": st.booleans(),
        "add": st.sampled_from(({}, {"x-why": "because"}, {"trace": "another"})),
        "without": st.sampled_from(((), ("trace",))),
    }
)
CAME_BY = st.builds(ExchangeKey, st.binary(max_size=4), st.binary(max_size=4))


def route(terms: dict[str, object]) -> EnvelopeRoute:
    return EnvelopeRoute(run="run", source="dlq", user="guest", **terms)  # type: ignore[arg-type]  # drawn


def told(
    by: EnvelopeRoute,
    properties: bytes,
    came_by: ExchangeKey,
    number: int,
    more: bytes,
    build: PropertyBuild | None = None,
) -> bytes | str:
    """With what it goes, or why it does not."""
    message = RawMessage(properties, b"body")
    try:
        return by.properties(message, came_by=came_by, number=number, more=more, build=build)
    except MessageError as error:
        return str(error)


def found_out(by: ChosenHeaders, properties: bytes) -> PropertyBuild | None:
    try:
        return by.of(properties).build
    except MessageError:
        return None


PLAIN = {
    "target": ExchangeKey(b"", b"target"),
    "deaths": Deaths.SET_ASIDE,
    "leg": Leg.PLAIN,
    "anew": False,
    "circling": False,
    "add": {},
    "without": (),
}
USUAL = oracle.properties(
    content_type=b"application/json",
    headers=oracle.table_bytes(
        [
            (b"trace", oracle.text(b"4bf92f3577b34da6")),
            (b"x-death", oracle.array([DEATH])),
            (names.ID.encode(), oracle.text(AN_ID)),
            (b"x-delivery-count", oracle.int64(3)),
        ]
    ),
    delivery_mode=2,
    message_id=b"m-1",
)


@given(
    PROPERTIES,
    ROUTES,
    st.lists(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3), max_size=8),
    CAME_BY,
    st.sampled_from((b"", oracle.entry(b"deadletter-due-at", oracle.int64(5)))),
)
@example(USUAL, PLAIN, [[(place, 7)] for place in range(len(USUAL))], ExchangeKey(b"e", b"k"), b"")
def test_one_whose_build_is_known_goes_as_one_that_is_walked(
    properties: bytes,
    terms: dict[str, object],
    changes: list[list[tuple[int, int]]],
    came_by: ExchangeKey,
    more: bytes,
) -> None:
    """Whoever decided tells the build, where it found that out; that changes nothing either."""
    learned, decided = route(terms), ChosenHeaders(frozenset({b"x-death"}))
    for number in range(LEARN_AFTER + 1):
        told(learned, properties, came_by, number, b"")
        found_out(decided, properties)
    for number, changed in enumerate([[], *changes]):
        other = bytearray(properties)
        for place, value in changed:
            other[place % len(other)] = value
        walked = told(route(terms), bytes(other), came_by, number, more)
        assert told(learned, bytes(other), came_by, number, more) == walked
        build = found_out(decided, bytes(other))
        assert told(learned, bytes(other), came_by, number, more, build) == walked


def test_a_build_that_is_told_need_not_be_the_one_that_is_known() -> None:
    """One that decides learned from letters, one that publishes from others of the same length."""
    first, second = (
        oracle.properties(headers=oracle.table_bytes([(name, oracle.text(b"value"))]))
        for name in (b"x-death", b"another")
    )
    by = route(PLAIN)
    for number in range(LEARN_AFTER + 1):
        told(by, second, ExchangeKey(b"", b""), number, b"")
    assert by.known_builds == 1
    walked = told(route(PLAIN), first, ExchangeKey(b"", b""), 5, b"")
    assert told(by, first, ExchangeKey(b"", b""), 5, b"", build_of(first)) == walked


def test_the_usual_letter_has_a_build_that_is_learned() -> None:
    """Else the test above would compare walking with walking."""
    by = route(PLAIN)
    for number in range(LEARN_AFTER):
        assert not by.known_builds
        told(by, USUAL, ExchangeKey(b"e", b"k"), number, b"")
    assert by.known_builds == 1


def test_an_id_after_many_that_were_none_is_one() -> None:
    def carrying(identity: bytes) -> bytes:
        return oracle.properties(headers=oracle.table_bytes([(names.ID.encode(), oracle.text(identity))]))

    by = route(PLAIN)
    for number in range(LEARN_AFTER + 1):
        told(by, carrying(b"somebody else's, as long as ours"), ExchangeKey(b"", b""), number, b"")
    answer = told(by, carrying(AN_ID), ExchangeKey(b"", b""), 1, b"")
    assert isinstance(answer, bytes)
    assert AN_ID in answer


def test_deaths_that_are_too_many_are_walked() -> None:
    many = oracle.array([oracle.text(bytes(100))] * (MAX_DEATHS_BYTES // 100 + 1))
    properties = oracle.properties(headers=oracle.table_bytes([(b"x-death", many)]))
    by = route(PLAIN)
    for number in range(LEARN_AFTER + 1):
        told(by, properties, ExchangeKey(b"", b""), number, b"")
    assert by.known_builds == 0


def test_another_build_of_the_same_length_is_learned_when_many_of_it_come() -> None:
    def built(name: bytes) -> bytes:
        return oracle.properties(headers=oracle.table_bytes([(name, oracle.text(b"value"))]))

    by = route(PLAIN)
    for number in range(LEARN_AFTER):
        told(by, built(b"one"), ExchangeKey(b"", b""), number, b"")
    for number in range(LEARN_AGAIN):
        told(by, built(b"two"), ExchangeKey(b"", b""), number, b"")
    assert by.known_builds == 1
    for name in (b"one", b"two"):
        assert told(by, built(name), ExchangeKey(b"", b""), 5, b"") == told(
            route(PLAIN), built(name), ExchangeKey(b"", b""), 5, b""
        )
