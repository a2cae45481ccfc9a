"""`dlq import`: the letters of an archive into a queue, through an exchange, or into the store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from deadletter import config
from deadletter.cli.letters.asking import now_ms
from deadletter.cli.letters.record_options import ChangeWish
from deadletter.cli.terminal import event_loop
from deadletter.cli.terminal.output import Exit, complain, data, exit_for, result
from deadletter.cli.terminal.screen import MoveScreen
from deadletter.cli.terminal.units import count
from deadletter.core.letter.archive_format import ArchivedLetter
from deadletter.core.text.safe_text import lines
from deadletter.errors import DeadletterError, UsageError
from deadletter.move.courier import Progress
from deadletter.operations.archiving.archive_reading import ArchiveReader
from deadletter.operations.archiving.into_queue import QueueImport, Target
from deadletter.operations.archiving.into_store import StoreImported, import_store
from deadletter.operations.archiving.left_over import Numbers, left_text
from deadletter.operations.records.at_hand import records_at_hand

_DAMAGES = 10
"""So many are told one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportWish:
    """What was asked for, as it was typed."""

    path: Path
    to_queue: str | None
    to_exchange: str | None
    key: str | None
    to_store: bool
    after: int | None
    letters: str | None
    dry_run: bool
    url: str | None
    records: ChangeWish

    @property
    def numbers(self) -> Numbers:
        if self.letters is not None:
            return Numbers.parse(self.letters)
        return Numbers.after(self.after or 0)

    @property
    def where(self) -> str:
        if self.to_store:
            return "the store"
        return self.to_queue if self.to_queue is not None else f"exchange {self.to_exchange or '(default)'}"


def run(wish: ImportWish) -> Exit:
    _check(wish)
    reader = ArchiveReader(wish.path)
    if wish.dry_run:
        return _dry(wish, reader)
    return event_loop.run(_into_store(wish, reader) if wish.to_store else _into_queue(wish, reader))


def _check(wish: ImportWish) -> None:
    named = [wish.to_queue is not None, wish.to_exchange is not None, wish.to_store]
    if sum(named) > 1 or (not any(named) and not wish.dry_run):
        raise UsageError("expected one of --to-queue, --to-exchange and --to-store (or --dry-run alone)")
    if wish.key is not None and wish.to_exchange is None:
        raise UsageError("expected --key with --to-exchange: into a queue each letter goes with its own key")
    if wish.after is not None and wish.letters is not None:
        raise UsageError("expected --after or --letters, got both")


def _wanted(wish: ImportWish, reader: ArchiveReader) -> Iterator[ArchivedLetter]:
    numbers = wish.numbers
    return (one for one in reader.letters() if one.number in numbers)


def _dry(wish: ImportWish, reader: ArchiveReader) -> Exit:
    """Reads all of it, and so tells whether it is whole."""
    queues = Counter[str]()
    size = 0
    for one in _wanted(wish, reader):
        queues[one.source] += 1
        size += len(one.message.body)
    told = {
        "file": str(wish.path),
        "dry_run": True,
        "would_import": queues.total(),
        "body_bytes": size,
        "queues": dict(queues.most_common()),
        "source": reader.head.source if reader.head else None,
        **_state(reader),
    }
    if wish.records.as_json:
        data(told)
    else:
        told_of = f"{count(queues.total())} ({size:,} bytes of bodies) from {wish.path}"
        said = [f"would import {told_of}; nothing was touched"]
        if reader.head is not None:
            said.append(f"made from {reader.head.source}")
        said += [f"  {number:,} from {queue}" for queue, number in queues.most_common(20)]
        result(lines(said + _damage_lines(reader)))
    return Exit.DONE if reader.whole else Exit.LEFT


# -- into a queue ----------------------------------------------------------------------------------------
async def _into_queue(wish: ImportWish, reader: ArchiveReader) -> Exit:
    settings = config.load(config=wish.records.config, options={"broker.url": wish.url})
    target = Target(wish.to_queue, wish.to_exchange or "", wish.key)
    trouble: DeadletterError | None = None
    with MoveScreen(f"{wish.path.name} → {wish.where}") as screen:
        work = QueueImport(
            settings.broker.addresses,
            target,
            _wanted(wish, reader),
            on_event=screen.on_event,
            on_progress=lambda done: screen.on_event(Progress(moved=done, left=0, failed=0, total=None)),
        )
        try:
            with event_loop.stopping(work.stop):
                await work.run()
        except UsageError:
            raise
        except DeadletterError as error:
            trouble = error  # what arrived by then is told all the same
    done = work.done
    notes: list[str] = []
    if done.by_name:
        notes.append(
            f"they went by the name of {wish.to_queue}, which is their routing key now: no rights to bind"
        )
    notes += [
        f"{what} of {count(number)} was set aside, in a header of ours"
        for what, number in done.set_aside.items()
    ]
    if done.expiring:
        notes.append(f"{count(done.expiring)} may expire there: they have an expiration of their own")
    if done.transient:
        notes.append(f"{count(done.transient)} not persistent, as before: a restart of the broker loses them")
    if wish.records.as_json:
        data(
            {
                "file": str(wish.path),
                "imported": done.arrived,
                "failed": len(done.failed),
                "reasons": dict(Counter(done.failed.values())),
                "left": done.left,
                "maybe_twice": done.maybe_twice,
                "reconnects": done.reconnects,
                "notes": notes,
                **_state(reader),
            }
        )
    else:
        said = [f"{count(done.arrived)} imported into {wish.where}"]
        said += _failures(done.failed)
        if done.left:
            said.append(f"not there yet: {_again(wish, done.left)}")
        if done.maybe_twice:
            said.append(f"after a lost connection up to {count(done.maybe_twice)} may be there twice")
        result(lines(said + notes + _damage_lines(reader)))
    if trouble is not None:
        complain(trouble)
        return exit_for(trouble)
    return Exit.DONE if not done.left and reader.whole else Exit.LEFT


def _failures(failed: Mapping[int, str]) -> list[str]:
    reasons = Counter(failed.values())
    first = {why: number for number, why in reversed(list(failed.items()))}
    return [f"{number:,} × {why} (the first: letter {first[why]})" for why, number in reasons.most_common(10)]


def _again(wish: ImportWish, left: str) -> str:
    """How to go on."""
    first, dash, last = left.partition("-")
    way = f"--after {int(first) - 1}" if dash and not last and "," not in first else f"--letters {left}"
    return f"dlq import {wish.path} … {way}"


# -- into the store --------------------------------------------------------------------------------------
async def _into_store(wish: ImportWish, reader: ArchiveReader) -> Exit:
    who = wish.records.named
    stopped = False

    def stop() -> None:
        nonlocal stopped
        stopped = True

    place = replace(wish.records.whereabouts(), create=True)
    async with records_at_hand(place) as records:
        with MoveScreen(f"{wish.path.name} → store") as screen, event_loop.stopping(stop):
            done = await import_store(
                records,
                _wanted(wish, reader),
                archive=lambda: reader.id,
                who=who,
                source=str(wish.path),
                now_ms=now_ms(),
                stopped=lambda: stopped,
                on_progress=lambda n: screen.on_event(Progress(moved=n, left=0, failed=0, total=None)),
            )
    detail = {"file": str(wish.path), "new": done.new, "copies": done.copies, "again": done.again}
    left = left_text((), done.after) if done.stopped else ""
    if wish.records.as_json:
        data({**detail, "left": left, **_state(reader)})
    else:
        result(
            lines(
                [
                    *_store_words(done),
                    *([f"it was stopped: {_again(wish, left)}"] if left else []),
                    *_damage_lines(reader),
                ]
            )
        )
    return Exit.DONE if not left and reader.whole else Exit.LEFT


def _store_words(done: StoreImported) -> list[str]:
    said = [f"{count(done.new)} imported into the store"]
    if done.again:
        said.append(f"{count(done.again)} there already: nothing changed")
    if done.copies:
        said.append(f"{count(done.copies)} kept as copies of letters that are there")
    return said


# -- the archive -----------------------------------------------------------------------------------------
def _state(reader: ArchiveReader) -> dict[str, object]:
    return {
        "whole": reader.whole,
        "damages": [{"at_byte": one.at, "why": one.why} for one in reader.damages],
    }


def _damage_lines(reader: ArchiveReader) -> list[str]:
    """What was not read to its end is not judged."""
    said = [f"DAMAGED at byte {one.at:,}: {one.why}" for one in reader.damages[:_DAMAGES]]
    if len(reader.damages) > _DAMAGES:
        said.append(f"… and {len(reader.damages) - _DAMAGES} places more")
    return said
