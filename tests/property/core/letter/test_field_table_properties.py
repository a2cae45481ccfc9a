"""Any header table: cutting and joining its bytes is the same as decoding, changing and encoding it.

Tables are drawn as typed values and written by the oracle, so that one codec's mistake cannot hide in both.

About `core.letter.field_table`, `core.letter.envelope`, `core.letter.message`, `core.letter.property_tail`.
"""

from __future__ import annotations

from hypothesis import example, given, reject
from hypothesis import strategies as st
from tests import amqp_oracle as oracle
from tests.amqp_oracle import Field
from tests.amqp_strategies import FIELDS, NAMES, TABLES, damaged

from deadletter.core.letter import envelope, field_table, message
from deadletter.core.letter.envelope import Deaths, EnvelopeRoute, ExchangeKey, Leg
from deadletter.core.letter.message import RawMessage
from deadletter.errors import MessageError

Table = list[tuple[bytes, Field]]
ANY_BYTES = st.one_of(
    st.binary(max_size=64),
    TABLES.map(oracle.table_bytes),
    damaged(TABLES.map(oracle.table_bytes)),
)


def raises_message_error(work: object) -> bool:
    """Whether it does; anything else that it raises goes on."""
    assert callable(work)
    try:
        work()
    except MessageError:
        return True
    return False


@given(TABLES)
def test_decode_shows_what_was_written(entries: Table) -> None:
    assert repr(field_table.decode(oracle.table_bytes(entries))) == repr(oracle.seen(entries))


@given(FIELDS)
def test_decode_value_shows_what_was_written(field: Field) -> None:
    assert repr(field_table.decode_value(field.wire)) == repr(field.seen)
    assert field_table.skip(field.wire, 0) == len(field.wire)


@given(TABLES)
def test_walk_gives_every_entry_where_it_stands(entries: Table) -> None:
    raw = oracle.table_bytes(entries)
    walked = field_table.walk(raw)
    assert [(name, raw[value:end]) for name, _, value, end in walked] == [(n, f.wire) for n, f in entries]
    assert b"".join(raw[start:end] for _, start, _, end in walked) == raw


@given(TABLES, st.sets(NAMES), TABLES)
def test_splice_is_decode_change_encode(entries: Table, others: set[bytes], added: Table) -> None:
    raw, more = oracle.table_bytes(entries), oracle.table_bytes(added)
    for remove in (frozenset(others), frozenset(others | {name for name, _ in entries[::2]})):
        kept = [(name, field) for name, field in entries if name not in remove]
        expected = oracle.table_bytes([*kept, *added])
        assert field_table.splice(raw, remove=remove, add=more) == expected
        found = field_table.find(raw, remove)
        assert found == [entry for entry in field_table.walk(raw) if entry[0] in remove]
        assert field_table.cut(raw, found) + more == expected


@given(TABLES)
def test_what_we_write_is_what_was_shown(entries: Table) -> None:
    shown = field_table.decode(oracle.table_bytes(entries))
    try:
        written = field_table.encode(shown)
    except MessageError:
        reject()  # an escaped name has grown too long, or a timestamp is too late for an integer
    assert repr(field_table.decode(written)) == repr(shown)


@given(ANY_BYTES, st.sets(NAMES))
@example(b"\x01", set())
@example(b"\xff" * 20, set())
@example(b"\x00S\xff\xff\xff\xff", {b""})
def test_walk_and_find_agree_on_what_is_damaged(raw: bytes, names: set[bytes]) -> None:
    wanted = frozenset(names)
    walks = raises_message_error(lambda: field_table.walk(raw))
    finds = raises_message_error(lambda: field_table.find(raw, wanted))
    assert walks == finds
    if not walks:
        assert field_table.find(raw, wanted) == [
            entry for entry in field_table.walk(raw) if entry[0] in wanted
        ]
        assert field_table.splice(raw, remove=frozenset()) == raw


@given(ANY_BYTES)
def test_no_bytes_make_the_reader_raise_anything_but_a_message_error(raw: bytes) -> None:
    decodes = not raises_message_error(lambda: field_table.decode(raw))
    raises_message_error(lambda: field_table.decode_value(raw))
    raises_message_error(lambda: field_table.elements(raw))
    if decodes:
        assert not raises_message_error(lambda: field_table.walk(raw))


PROPERTIES: st.SearchStrategy[bytes] = st.builds(
    oracle.properties,
    content_type=st.none() | st.binary(max_size=8),
    content_encoding=st.none() | st.binary(max_size=8),
    headers=st.none() | TABLES.map(oracle.table_bytes),
    delivery_mode=st.none() | st.integers(0, 255),
    priority=st.none() | st.integers(0, 255),
    correlation_id=st.none() | st.binary(max_size=8),
    reply_to=st.none() | st.binary(max_size=8),
    expiration=st.none() | st.binary(max_size=8),
    message_id=st.none() | st.binary(max_size=8),
    timestamp_s=st.none() | st.integers(0, 2**64 - 1),
    kind=st.none() | st.binary(max_size=8),
    user_id=st.none() | st.sampled_from((b"guest", b"somebody", b"")),
    app_id=st.none() | st.binary(max_size=255),
    cluster_id=st.none() | st.binary(max_size=8),
)
TARGETS = st.sampled_from((ExchangeKey(b"", b"q"), ExchangeKey(b"e", b"k")))
ALWAYS_OFF = {
    b"x-delivery-count", b"x-acquired-count", b"deadletter-id", b"deadletter-move", b"deadletter-source",
    b"deadletter-source-exchange", b"deadletter-source-routing-key",
}  # fmt: skip


def others(properties: bytes) -> dict[int, bytes]:
    """The properties that no move changes."""
    changed = message.HEADERS, message.DELIVERY_MODE, message.EXPIRATION, message.USER_ID
    return {
        flag: properties[start:end]
        for flag, (start, end) in message.spans(properties).items()
        if flag not in changed
    }


@given(PROPERTIES, st.binary(max_size=16), TARGETS, st.sampled_from(Deaths))
def test_a_moved_letter_is_the_same_letter_but_for_what_is_promised(
    before: bytes, body: bytes, target: ExchangeKey, deaths: Deaths
) -> None:
    route = EnvelopeRoute(run="run", source="dlq", user="guest", target=target, deaths=deaths)
    letter = RawMessage(before, body)
    after = route.properties(letter, came_by=ExchangeKey(b"x", b"y"), number=1)

    gone = set(ALWAYS_OFF)
    if not target.exchange:
        gone |= {b"CC", b"BCC"}
    if deaths is Deaths.SET_ASIDE:
        gone |= {b"x-death", b"deadletter-deaths"}
    if deaths is Deaths.FORGET:
        gone |= {b"x-death"}
    raw = message.header_table(before)
    kept = b"".join(raw[start:end] for name, start, _, end in field_table.walk(raw) if name not in gone)
    assert message.header_table(after).startswith(kept)

    assert others(after) == others(before)
    seen_before, seen = message.view(before), message.view(after)
    assert seen.delivery_mode == 2
    assert seen.expiration is None
    assert seen.user_id == ("guest" if seen_before.user_id == "guest" else None)
    assert seen.headers is not None
    assert seen.headers["deadletter-id"] == envelope.letter_id(letter, source="dlq")
    assert envelope.move_number(after, "run") == 1


ADDED = {
    b"deadletter-id", b"deadletter-move", b"deadletter-source", b"deadletter-source-exchange",
    b"deadletter-source-routing-key", b"deadletter-deaths", b"deadletter-expiration", b"deadletter-user-id",
    b"deadletter-bcc",
}  # fmt: skip


@given(PROPERTIES, st.binary(max_size=16), TARGETS)
def test_a_wait_and_the_way_home_give_the_letter_back(
    before: bytes, body: bytes, target: ExchangeKey
) -> None:
    level = ExchangeKey(b"", b"deadletter.delay.1000")
    wait = EnvelopeRoute(
        run="run", source="dlq", user="guest", target=level, deaths=Deaths.SET_ASIDE, leg=Leg.WAIT
    )
    home = EnvelopeRoute(
        run="run", source="due", user="guest", target=target, deaths=Deaths.FORGET, leg=Leg.HOME
    )
    there = wait.properties(RawMessage(before, body), came_by=ExchangeKey(b"x", b"y"), number=1)
    assert message.view(there).priority is None
    back = home.properties(RawMessage(there, body), came_by=ExchangeKey(b"", b"due"), number=2)

    assert others(back) == others(before)
    raw, found = message.header_table(before), message.header_table(back)
    came = [(name, raw[start:end]) for name, start, _, end in field_table.walk(raw)]
    gone = ALWAYS_OFF | {b"CC", b"BCC", b"x-death"}
    kept = b"".join(entry for name, entry in came if name not in gone)
    assert found.startswith(kept)
    added = {name: found[start:end] for name, start, _, end in field_table.walk(found) if start >= len(kept)}
    copies = [entry for name, entry in came if name == b"CC"]
    if copies and target.exchange:
        assert added.pop(b"CC") == copies[-1]
    elif copies:
        assert added.pop(b"deadletter-cc") == oracle.short(b"deadletter-cc") + copies[-1][3:]
    assert added.keys() <= ADDED
    seen = field_table.decode(found)
    assert seen["deadletter-id"] == envelope.letter_id(RawMessage(before, body), source="dlq")
    assert (seen["deadletter-source-exchange"], seen["deadletter-source-routing-key"]) == ("x", "y")


@given(PROPERTIES, st.integers(0, 2**62), st.binary(max_size=8))
def test_the_id_does_not_change_when_the_broker_counts(before: bytes, count: int, body: bytes) -> None:
    where = message.spans(before).get(message.HEADERS)
    counted = oracle.entry(b"x-delivery-count", oracle.int64(count))
    if where is None:
        flags = int.from_bytes(before[:2], "big") | message.HEADERS
        at = next((s.start for f, s in message.spans(before).items() if f < message.HEADERS), len(before))
        after = flags.to_bytes(2, "big") + before[2:at] + oracle.long(counted) + before[at:]
    else:
        grown = message.header_table(before) + counted
        after = before[: where.start] + oracle.long(grown) + before[where.end :]
    assert envelope.letter_id(RawMessage(before, body), source="q") == envelope.letter_id(
        RawMessage(after, body), source="q"
    )


@given(
    st.one_of(st.binary(max_size=48), PROPERTIES, damaged(PROPERTIES)),
    TARGETS,
    st.sampled_from(Deaths),
    st.sampled_from(Leg),
)
def test_no_bytes_make_a_move_raise_anything_but_a_message_error(
    raw: bytes, target: ExchangeKey, deaths: Deaths, leg: Leg
) -> None:
    route = EnvelopeRoute(run="run", source="dlq", user="guest", target=target, deaths=deaths, leg=leg)
    letter = RawMessage(raw, b"")
    refused = raises_message_error(lambda: route.properties(letter, came_by=ExchangeKey(b"", b""), number=1))
    sound = not raises_message_error(lambda: message.spans(raw))
    raises_message_error(lambda: message.view(raw))
    raises_message_error(lambda: envelope.letter_id(letter, source="dlq"))
    raises_message_error(lambda: envelope.delivery_count(raw))
    raises_message_error(lambda: envelope.move_number(raw, "run"))
    if (
        sound
        and not raises_message_error(lambda: field_table.walk(message.header_table(raw)))
        and not refused
    ):
        message.spans(route.properties(letter, came_by=ExchangeKey(b"", b""), number=1))
