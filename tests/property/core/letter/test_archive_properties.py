"""Any letters: what goes into an archive comes out byte for byte, and no damage passes for a letter.

About `core.letter.archive_format`, `core.letter.archive_parser`, `core.letter.restored`.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests import amqp_oracle as oracle
from tests.amqp_strategies import TABLES, damaged

from deadletter.core.letter import field_table, message, names
from deadletter.core.letter.archive_format import (
    ArchivedLetter,
    ArchiveEnd,
    ArchiveHead,
    ArchivePacker,
    Damage,
    Piece,
    StoreKeys,
)
from deadletter.core.letter.archive_parser import ArchiveParser
from deadletter.core.letter.envelope import ExchangeKey
from deadletter.core.letter.letter import Letter
from deadletter.core.letter.message import RawMessage
from deadletter.core.letter.restored import restored

SHORT = st.one_of(st.none(), st.binary(max_size=20))
OCTET = st.one_of(st.none(), st.integers(0, 255))
PROPERTIES = st.builds(
    oracle.properties,
    content_type=SHORT,
    content_encoding=SHORT,
    headers=st.one_of(st.none(), TABLES.map(oracle.table_bytes)),
    delivery_mode=OCTET,
    priority=OCTET,
    correlation_id=SHORT,
    reply_to=SHORT,
    expiration=SHORT,
    message_id=SHORT,
    timestamp_s=st.one_of(st.none(), st.integers(0, 2**64 - 1)),
    kind=SHORT,
    user_id=SHORT,
    app_id=SHORT,
    cluster_id=SHORT,
)
MESSAGES = st.builds(RawMessage, st.one_of(PROPERTIES, st.binary(max_size=30)), st.binary(max_size=200))
LETTERS = st.builds(
    lambda source, exchange, key, message, redelivered: Letter(
        source=source, message=message, came_by=ExchangeKey(exchange, key), redelivered=redelivered
    ),
    st.text(st.characters(codec="utf-8"), max_size=20),
    st.binary(max_size=20),
    st.binary(max_size=20),
    MESSAGES,
    st.booleans(),
)
MOMENTS = st.integers(-(2**63), 2**63 - 1)
KEYS = st.builds(
    StoreKeys,
    letter_id=st.text("0123456789abcdef", min_size=32, max_size=32),
    same=st.binary(min_size=16, max_size=16),
    message=st.binary(min_size=16, max_size=16),
    died_ms=MOMENTS,
    stored_ms=MOMENTS,
)
SOME = st.lists(st.tuples(LETTERS, st.one_of(st.none(), KEYS), st.booleans()), max_size=6)
HEAD = ArchiveHead(id=bytes(range(16)), made_ms=1, source="queue orders.dlq", taken=True, writer="a test")


def archive(some: list[tuple[Letter, StoreKeys | None, bool]]) -> bytes:
    """The third of each says whether a block ends with it."""
    packer = ArchivePacker(HEAD)
    parts = [packer.begin()]
    for letter, keys, last in some:
        packer.add(letter, stored=keys)
        if last:
            parts.append(packer.flush())
    return b"".join([*parts, packer.end()])


def parsed(raw: bytes, step: int) -> tuple[list[Piece], ArchiveParser]:
    parser = ArchiveParser()
    pieces: list[Piece] = []
    for start in range(0, len(raw), step):
        pieces += parser.feed(raw[start : start + step])
    return pieces + parser.finish(), parser


def as_archived(some: list[tuple[Letter, StoreKeys | None, bool]]) -> list[ArchivedLetter]:
    return [
        ArchivedLetter(
            number=number,
            source=letter.source,
            came_by=letter.came_by,
            message=letter.message,
            redelivered=letter.redelivered,
            stored=keys,
        )
        for number, (letter, keys, _) in enumerate(some, 1)
    ]


@given(SOME, st.integers(1, 4096))
def test_what_goes_in_comes_out(some: list[tuple[Letter, StoreKeys | None, bool]], step: int) -> None:
    pieces, parser = parsed(archive(some), step)
    assert pieces == [HEAD, *as_archived(some), ArchiveEnd(letters=len(some))]
    assert parser.whole
    assert parser.letters == len(some)


@given(SOME, st.data())
def test_damage_is_seen_and_no_letter_is_other_than_it_was(
    some: list[tuple[Letter, StoreKeys | None, bool]], draw: st.DataObject
) -> None:
    whole = archive(some)
    raw = draw.draw(damaged(st.just(whole)))
    pieces, parser = parsed(raw, 512)
    found = [piece for piece in pieces if isinstance(piece, ArchivedLetter)]
    true = as_archived(some)
    assert all(one in true for one in found)
    if raw != whole:
        assert not parser.whole
        assert any(isinstance(piece, Damage) for piece in pieces)


@given(SOME, st.data())
def test_of_a_cut_archive_every_whole_block_is_there(
    some: list[tuple[Letter, StoreKeys | None, bool]], draw: st.DataObject
) -> None:
    whole = archive(some)
    cut = draw.draw(st.integers(0, len(whole) - 1))
    pieces, parser = parsed(whole[:cut], 700)
    found = [piece for piece in pieces if isinstance(piece, ArchivedLetter)]
    assert found == as_archived(some)[: len(found)]
    assert not parser.whole
    # Whoever goes on writes after the last whole block, and nothing is there twice.
    resumed = ArchiveParser()
    kept = [p for p in resumed.feed(whole[: parser.whole_bytes]) if isinstance(p, ArchivedLetter)]
    packer = ArchivePacker(HEAD, letters=resumed.last_number, seen=resumed.seen)
    rest = b"".join([] if parser.whole_bytes else [packer.begin()])
    for letter, keys, _ in some[len(kept) :]:
        packer.add(letter, stored=keys)
    again, parser = parsed(whole[: parser.whole_bytes] + rest + packer.end(), 4096)
    assert [p for p in again if isinstance(p, ArchivedLetter)] == as_archived(some)
    assert parser.whole


@settings(max_examples=300)
@given(PROPERTIES, st.sampled_from(("guest", "")), st.booleans())
def test_restored_changes_only_what_the_broker_forbids(properties: bytes, user: str, may_copy: bool) -> None:
    before = RawMessage(properties, b"body")
    after = restored(before, user=user, may_copy=may_copy)
    assert after.message.body == b"body"
    old, new = message.spans(properties), message.spans(after.message.properties)
    for flag in old.keys() - {message.HEADERS, message.USER_ID}:
        assert (
            after.message.properties[new[flag].start : new[flag].end]
            == properties[old[flag].start : old[flag].end]
        )
    assert new.keys() - {message.HEADERS} == old.keys() - {message.HEADERS} - (
        {message.USER_ID} if "user_id" in after.set_aside else set()
    )
    volatile = {name.encode() for name in names.DELIVERY_COUNTS} | ({b"CC", b"BCC"} if may_copy else set())
    ours = {name.encode() for name in (names.USER_ID, names.CC, names.BCC)}
    table, told = message.header_table(properties), message.header_table(after.message.properties)
    kept = [table[s:e] for n, s, _, e in field_table.walk(table) if n not in volatile]
    now = [told[s:e] for n, s, _, e in field_table.walk(told)]
    assert now[: len(kept)] == kept
    added = [n for n, _, _, _ in field_table.walk(told)][len(kept) :]
    assert set(added) <= ours
    assert len(added) == len(after.set_aside)
    if not after.set_aside and not volatile & {n for n, _, _, _ in field_table.walk(table)}:
        assert after.message is before


def test_a_block_that_is_damaged_gives_what_was_whole_before() -> None:
    letters = [
        Letter(
            source="q",
            message=RawMessage(b"\0\0", bytes([n % 251]) * 3 + n.to_bytes(200, "big")),
            came_by=ExchangeKey(b"", b"q"),
            redelivered=False,
        )
        for n in range(2000)
    ]
    packer = ArchivePacker(HEAD)
    first = packer.begin()
    for letter in letters[:1000]:
        packer.add(letter)
    block = bytearray(packer.flush())
    for letter in letters[1000:]:
        packer.add(letter)
    block[len(block) * 3 // 4] ^= 0x55
    pieces, parser = parsed(first + bytes(block) + packer.end(), 1 << 16)
    found = [piece for piece in pieces if isinstance(piece, ArchivedLetter)]
    assert 1300 < len(found) < 2000, "half of the damaged block, and all of the next"
    assert [f.message for f in found] == [letters[f.number - 1].message for f in found]
    assert parser.damaged
    assert parser.ended
