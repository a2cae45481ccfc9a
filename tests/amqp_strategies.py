"""Hypothesis strategies for AMQP: any typed value, any table, any method a broker may send."""

from __future__ import annotations

from hypothesis import strategies as st
from tests import amqp_oracle as oracle
from tests.amqp_oracle import Field

from deadletter.core.letter import names

_ODD_TEXT = st.one_of(st.binary(max_size=12), st.text(max_size=6).map(lambda text: text.encode("utf-8")))

SCALARS: st.SearchStrategy[Field] = st.one_of(
    st.booleans().map(oracle.boolean),
    st.integers(-(2**7), 2**7 - 1).map(oracle.int8),
    st.integers(0, 2**8 - 1).map(oracle.uint8),
    st.integers(-(2**15), 2**15 - 1).map(oracle.int16),
    st.integers(-(2**15), 2**15 - 1).map(oracle.int16_of_the_specification),
    st.integers(0, 2**16 - 1).map(oracle.uint16),
    st.integers(-(2**31), 2**31 - 1).map(oracle.int32),
    st.integers(0, 2**32 - 1).map(oracle.uint32),
    st.integers(-(2**63), 2**63 - 1).map(oracle.int64),
    st.integers(-(2**63), 2**63 - 1).map(oracle.int64_of_the_specification),
    st.floats(width=32).map(oracle.float32),
    st.floats().map(oracle.float64),
    st.builds(oracle.decimal, st.integers(0, 255), st.integers(0, 2**32 - 1)),
    _ODD_TEXT.map(oracle.text),
    _ODD_TEXT.map(oracle.binary),
    st.integers(0, 2**64 - 1).map(oracle.timestamp),
    st.integers(0, 2**33).map(oracle.timestamp),
    st.just(oracle.void()),
)

NAMES: st.SearchStrategy[bytes] = st.one_of(
    st.sampled_from(
        (b"x-death", b"CC", b"deadletter-id", b"x-delivery-count", b"", b"a", b"b", b"\xff\xfe", b"n" * 255)
    ),
    st.binary(max_size=12),
)
"""Few on purpose, so that duplicates are frequent, and some that are no text at all."""


def _nested(inner: st.SearchStrategy[Field]) -> st.SearchStrategy[Field]:
    return st.one_of(
        st.lists(inner, max_size=4).map(oracle.array),
        st.lists(st.tuples(NAMES, inner), max_size=4).map(oracle.table),
    )


FIELDS: st.SearchStrategy[Field] = st.recursive(SCALARS, _nested, max_leaves=8)
TABLES: st.SearchStrategy[list[tuple[bytes, Field]]] = st.lists(st.tuples(NAMES, FIELDS), max_size=10)


@st.composite
def damaged(draw: st.DrawFn, whole: st.SearchStrategy[bytes]) -> bytes:
    """Bytes that were right once: some changed, cut off, doubled or put in."""
    raw = bytearray(draw(whole))
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(raw)))
        match draw(st.sampled_from(("change", "cut", "insert", "double", "length"))):
            case "change" if place < len(raw):
                raw[place] = draw(st.integers(0, 255))
            case "cut":
                del raw[place : place + draw(st.integers(1, 8))]
            case "insert":
                raw[place:place] = draw(st.binary(min_size=1, max_size=8))
            case "double":
                raw += raw[place:]
            case _:
                raw[place : place + 4] = draw(
                    st.sampled_from((b"\xff\xff\xff\xff", b"\0\0\0\0", b"\0\0\1\0"))
                )
    return bytes(raw)


AN_ID = b"0123456789abcdef0123456789abcdef"
DEATHS_HEADER = names.DEATHS.encode()
DEATH = oracle.table([(b"queue", oracle.text(b"orders")), (b"time", oracle.timestamp(1_700_000_000))])
OURS: st.SearchStrategy[tuple[bytes, Field]] = st.sampled_from(
    (
        (b"x-death", oracle.array([DEATH])),
        (b"x-death", oracle.text(b"no array")),
        (DEATHS_HEADER, oracle.array([DEATH, DEATH])),
        (b"x-first-death-queue", oracle.text(b"orders")),
        (b"x-delivery-count", oracle.int64(3)),
        (names.ID.encode(), oracle.text(AN_ID)),
        (names.ID.encode(), oracle.text(b"somebody else's, as long as ours")),
        (names.MOVE.encode(), oracle.text(b"run-12")),
        (names.SOURCE.encode(), oracle.text(b"dlq")),
        (names.SOURCE_EXCHANGE.encode(), oracle.text(b"shop")),
        (names.SOURCE_ROUTING_KEY.encode(), oracle.text(b"order.paid")),
        (names.CAUSE.encode(), oracle.text(b"retries-exhausted")),
        (names.PRIORITY.encode(), oracle.uint8(4)),
        (b"CC", oracle.array([oracle.text(b"other")])),
        (b"trace", oracle.text(b"4bf92f3577b34da6")),
        (b"attempt", oracle.int32(7)),
    )
)
HEADERS = st.one_of(
    st.lists(OURS, max_size=9),
    st.lists(OURS, max_size=9, unique_by=lambda entry: entry[0]),
    TABLES,
    st.lists(st.tuples(st.binary(max_size=3), FIELDS), max_size=3),
)
SHORT = st.none() | st.binary(max_size=9)
OCTET = st.none() | st.integers(0, 255)
PROPERTIES = st.builds(
    oracle.properties,
    content_type=SHORT,
    content_encoding=SHORT,
    headers=st.none() | HEADERS.map(oracle.table_bytes),
    delivery_mode=OCTET,
    priority=OCTET,
    correlation_id=SHORT,
    expiration=st.none() | st.none() | st.just(b"1000"),
    message_id=SHORT,
    timestamp_s=st.none() | st.integers(0, 2**33),
    user_id=st.none() | st.none() | st.sampled_from((b"guest", b"other")),
    app_id=SHORT,
)
