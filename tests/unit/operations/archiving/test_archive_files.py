"""Files of letters: there whole or not at all, for their owner alone, and what is left is named.

About `operations.archiving.new_file`, `operations.archiving.sinks`, `operations.archiving.archive_reading`,
`operations.archiving.left_over`.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadletter.core.letter.envelope import ExchangeKey
from deadletter.core.letter.letter import Letter
from deadletter.core.letter.message import RawMessage
from deadletter.errors import ArchiveError, UsageError
from deadletter.operations.archiving.archive_reading import ArchiveReader
from deadletter.operations.archiving.left_over import Numbers, left_text
from deadletter.operations.archiving.new_file import NewFile
from deadletter.operations.archiving.sinks import ArchiveSink


def letter(number: int) -> Letter:
    return Letter(
        source="dead",
        message=RawMessage(b"\0\0", b"%d" % number),
        came_by=ExchangeKey(b"", b"dead"),
        redelivered=False,
    )


def sink(path: Path, *, taken: bool = True, replace: bool = False) -> ArchiveSink:
    return ArchiveSink.create(path, source="a test", taken=taken, replace=replace, now_ms=1)


def bodies(path: Path) -> list[bytes]:
    return [one.message.body for one in ArchiveReader(path).letters()]


def test_it_is_there_when_it_is_whole_and_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.dlq"
    made = sink(path)
    made.add(letter(1), None)
    made.secure()
    assert not path.exists()
    made.finish()
    assert [one.name for one in tmp_path.iterdir()] == ["a.dlq"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert bodies(path) == [b"1"]


def test_what_was_taken_is_never_thrown_away(tmp_path: Path) -> None:
    path = tmp_path / "a.dlq"
    made = sink(path)
    made.add(letter(1), None)
    made.secure()
    made.abandon()
    with pytest.raises(UsageError, match="--resume goes on with it"):
        sink(path)
    again = ArchiveSink.go_on(path, replace=False)
    again.add(letter(2), None)
    again.finish()
    reader = ArchiveReader(path)
    assert [(one.number, one.message.body) for one in reader.letters()] == [(1, b"1"), (2, b"2")]
    assert reader.whole


def test_a_block_that_a_kill_cut_is_written_anew(tmp_path: Path) -> None:
    path, part = tmp_path / "a.dlq", tmp_path / "a.dlq.part"
    made = sink(path)
    made.add(letter(1), None)
    made.secure()
    whole = part.stat().st_size
    made.add(letter(2), None)
    made.secure()
    made.abandon()
    os.truncate(part, whole + 30)
    again = ArchiveSink.go_on(path, replace=False)
    again.add(letter(3), None)
    again.finish()
    reader = ArchiveReader(path)
    assert [one.message.body for one in reader.letters()] == [b"1", b"3"]
    assert reader.whole


def test_a_look_that_failed_leaves_nothing(tmp_path: Path) -> None:
    made = sink(tmp_path / "a.dlq", taken=False)
    made.add(letter(1), None)
    made.secure()
    made.abandon()
    assert list(tmp_path.iterdir()) == []


def test_a_look_that_was_killed_is_not_gone_on_with(tmp_path: Path) -> None:
    made = sink(tmp_path / "a.dlq", taken=False)
    made.secure()
    os.close(made._file._number)
    with pytest.raises(ArchiveError, match="were looked at"):
        ArchiveSink.go_on(tmp_path / "a.dlq", replace=False)


def test_a_link_that_somebody_put_there_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "theirs").touch()
    (tmp_path / "a.part").symlink_to(tmp_path / "theirs")
    with pytest.raises(UsageError, match="cannot be written"):
        NewFile.create(tmp_path / "a", replace=False)


@pytest.mark.parametrize("replace", [False, True])
def test_what_is_no_file_is_not_replaced(tmp_path: Path, replace: bool) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "theirs").touch()
    (tmp_path / "link").symlink_to(tmp_path / "theirs")
    for name in ("pipe", "link"):
        with pytest.raises(UsageError, match=f"{name} is no file of its own"):
            NewFile.create(tmp_path / name, replace=replace)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "pipe", "theirs"]


def test_what_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    (tmp_path / "a.part").touch(0o644)
    file = NewFile.create(tmp_path / "a", replace=False)
    file.finish()
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600


def test_two_at_once(tmp_path: Path) -> None:
    first = NewFile.create(tmp_path / "a", replace=False)
    with pytest.raises(UsageError, match="another export writes"):
        NewFile.create(tmp_path / "a", replace=False)
    first.abandon(keep=False)


def test_nothing_is_replaced_that_came_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "a"
    file = NewFile.create(path, replace=False)
    file.write(b"ours")
    path.write_text("theirs")
    with pytest.raises(ArchiveError, match="whole in"):
        file.finish()
    assert path.read_text() == "theirs"
    assert (tmp_path / "a.part").read_bytes() == b"ours"


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    number = os.open("/dev/full", os.O_RDWR)
    file = NewFile(tmp_path / "a", number, replace=False)
    with pytest.raises(ArchiveError, match="No space left"):
        file.write(b"x")
    file.abandon(keep=False)


@pytest.mark.parametrize(
    ("begins", "why"), [(b'{"id": 1}\n', "for reading"), (b"PK\3\4", "expected an archive")]
)
def test_what_is_no_archive_is_said_at_once(tmp_path: Path, begins: bytes, why: str) -> None:
    (tmp_path / "a").write_bytes(begins)
    with pytest.raises(UsageError, match=why):
        ArchiveReader(tmp_path / "a")


def test_an_archive_that_was_cut_gives_what_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.dlq"
    made = sink(path)
    for number in range(100):
        made.add(letter(number), None)
        made.secure()
    made.finish()
    os.truncate(path, path.stat().st_size // 2)
    reader = ArchiveReader(path)
    found = [one.message.body for one in reader.letters()]
    assert found == [b"%d" % n for n in range(len(found))]
    assert len(found) > 30
    assert not reader.whole
    assert "no end" in reader.damages[-1].why


@given(st.sets(st.integers(1, 60)), st.one_of(st.none(), st.integers(0, 60)))
def test_what_is_left_is_read_as_it_was_written(missing: set[int], after: int | None) -> None:
    missing = {n for n in missing if after is None or n <= after}
    text = left_text(missing, after)
    if not text:
        assert not missing
        assert after is None
        return
    numbers = Numbers.parse(text)
    for number in range(1, 80):
        assert (number in numbers) == (number in missing or (after is not None and number > after))


@pytest.mark.parametrize("text", ["", "0", "a", "3-1", "1-b", "-4", "1,,2"])
def test_numbers_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="expected numbers of letters"):
        Numbers.parse(text)
