"""Hypothesis strategies for AMQP: any typed value, any table, any method a broker may send."""

from __future__ import annotations

from hypothesis import strategies as st
from tests import amqp_oracle as oracle
from tests.amqp_oracle import Field

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
