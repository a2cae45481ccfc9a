"""`dlq export`: letters of the store or of a queue into a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from deadletter import config
from deadletter.cli.archives.letter_lines import letter_line
from deadletter.cli.letters.asking import now_ms
from deadletter.cli.letters.letter_filters import StateFilters
from deadletter.cli.letters.record_options import RecordsWish
from deadletter.cli.terminal import event_loop
from deadletter.cli.terminal.output import Exit, data, parked_lines, result
from deadletter.cli.terminal.screen import MoveScreen
from deadletter.cli.terminal.units import count
from deadletter.core.text.safe_text import lines
from deadletter.errors import ArchiveError, UsageError
from deadletter.move.courier import Ended, Progress
from deadletter.operations.archiving.from_queue import QueueExport
from deadletter.operations.archiving.from_store import export_store
from deadletter.operations.archiving.new_file import unfinished
from deadletter.operations.archiving.sinks import ArchiveSink, LetterSink, LinesSink
from deadletter.operations.lifting import renewed_words, taking
from deadletter.operations.records.at_hand import records_at_hand

SUFFIX: Final = ".dlq"
"""A file with such a name is an archive."""
_NO_FILE: Final = "there is no file: one that holds half of what was meant would pass for all of it"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportWish:
    """What was asked for, as it was typed."""

    path: Path | None
    archive: bool | None
    from_queue: str | None
    take: bool
    resume: bool
    force: bool
    limit: int | None
    filters: StateFilters
    lift_limit: bool
    url: str | None
    api: str | None
    records: RecordsWish

    @property
    def is_archive(self) -> bool:
        if self.archive is not None:
            return self.archive
        return self.path is not None and self.path.suffix == SUFFIX

    @property
    def where(self) -> str:
        return "stdout" if self.path is None else str(self.path)


@dataclass(slots=True, kw_only=True)
class _Told:
    """What became of it."""

    letters: int = 0
    complete: bool = True
    notes: list[str]
    maybe_twice: int = 0
    taken: int = 0


def run(wish: ExportWish) -> Exit:
    _check(wish)
    told = event_loop.run(_from_store(wish) if wish.from_queue is None else _from_queue(wish))
    if wish.path is not None:  # else stdout is the letters alone
        if wish.records.as_json:
            data(_as_json(wish, told))
        else:
            result(_as_text(wish, told))
    return Exit.DONE if told.complete else Exit.LEFT


def _check(wish: ExportWish) -> None:
    if wish.is_archive and wish.path is None:
        raise UsageError("expected a file for the archive, such as letters.dlq: stdout cannot be renamed")
    if wish.take and wish.from_queue is None:
        raise UsageError(
            "expected --take with --from-queue: letters of the store are thrown away by dlq discard"
        )
    if wish.take and not wish.is_archive:
        raise UsageError(
            "expected an archive (a name that ends in .dlq, or --archive) with --take: lines of JSON are for "
            "reading, and no letter could be restored from them"
        )
    if wish.resume and not wish.take:
        raise UsageError("expected --resume with --take: a look can be begun anew")
    if wish.from_queue is not None and not wish.filters.says_nothing:
        raise UsageError(
            "expected filters for the store alone: of a queue all letters are exported, or --limit"
        )


def _sink(wish: ExportWish, source: str) -> LetterSink:
    if not wish.is_archive:
        return LinesSink(wish.path, partial(letter_line, now_ms=now_ms()), replace=wish.force)
    assert wish.path is not None
    if wish.resume:
        return ArchiveSink.go_on(wish.path, replace=wish.force)
    return ArchiveSink.create(wish.path, source=source, taken=wish.take, replace=wish.force, now_ms=now_ms())


async def _from_store(wish: ExportWish) -> _Told:
    stop = _Stop()
    async with records_at_hand(wish.records.whereabouts()) as records:
        query = await wish.filters.of_state(records)
        facets = None if query.looks_inside else await records.facets(query)
        total = facets.total if facets is not None and facets.exact else None
        sink = _sink(wish, f"store {(await records.store()).address}")
        try:
            with MoveScreen(f"store → {wish.where}") as screen, event_loop.stopping(stop.stop):
                done = await export_store(
                    records,
                    query,
                    sink,
                    most=wish.limit,
                    stopped=stop.asked,
                    on_progress=_progress(screen, total),
                )
            if not done.stopped:
                sink.finish()
        except BaseException:
            sink.abandon()
            raise
    told = _Told(letters=done.letters, complete=not done.stopped and not done.unanswered, notes=[])
    if done.stopped:
        sink.abandon()
        told.letters = 0
        told.notes.append(f"it was asked to stop; {_NO_FILE}")
    if done.copies:
        told.notes.append(
            f"{count(done.copies, 'copy').replace('copys', 'copies')} of these letters left out"
        )
    if done.gone:
        told.notes.append(f"{count(done.gone)} forgotten meanwhile (retention)")
    if done.unanswered:
        told.notes.append(
            f"of {count(done.unanswered)} the jq program could say nothing within its limits; left out"
        )
    return told


class _Stop:
    def __init__(self) -> None:
        self._asked = False

    def stop(self) -> None:
        self._asked = True

    def asked(self) -> bool:
        return self._asked


def _progress(screen: MoveScreen, total: int | None) -> Callable[[int], None]:
    def on_progress(done: int) -> None:
        screen.on_event(Progress(moved=done, left=0, failed=0, total=total))

    return on_progress


async def _from_queue(wish: ExportWish) -> _Told:
    options = {"broker.url": wish.url, "broker.api": wish.api}
    settings = config.load(config=wish.records.config, options=options)
    queue, broker = wish.from_queue, settings.broker
    assert queue is not None
    with MoveScreen(f"{queue} → {wish.where}") as screen:
        async with taking(broker.addresses, queue, api=broker.api, lift=wish.lift_limit) as asked:
            sink = _sink(wish, f"queue {queue}, vhost {asked.vhost}, RabbitMQ {asked.server_version}")
            export = QueueExport(
                broker.addresses,
                queue,
                sink,
                asked,
                take=wish.take,
                limit=wish.limit,
                on_event=screen.on_event,
            )
            try:
                with event_loop.stopping(export.stop):
                    tally = await export.run()
                complete = tally.ended in (Ended.COMPLETE, Ended.EMPTY)
                if complete or wish.take:
                    sink.finish()
            except ArchiveError as error:
                sink.abandon()
                if not wish.take or wish.path is None:
                    raise
                raise ArchiveError(
                    f"{error}; what was taken by then is in {unfinished(wish.path)}, the rest in {queue}: "
                    "--resume goes on with both"
                ) from error
            except BaseException:
                sink.abandon()
                raise
    told = _Told(
        letters=sink.letters,
        complete=complete and not tally.failed and not tally.sheltered and not tally.endangered,
        notes=list(asked.notes),
        maybe_twice=export.maybe_twice(tally),
        taken=tally.dropped,
    )
    if not complete:
        told.notes.append(f"ended early: {tally.ended.value}; the rest is still in {queue}")
        if not wish.take:
            sink.abandon()
            told.letters = 0
            told.notes.append(_NO_FILE)
    told.notes += [f"{number:,} × {why}" for why, number in tally.reasons.items()]
    if tally.renewed:
        told.notes.append(f"{renewed_words(tally.renewed, queue, asked.deliveries.limit)}; {asked.advice}")
    told.notes += parked_lines(queue, tally.sheltered, tally.endangered)
    return told


def _as_text(wish: ExportWish, told: _Told) -> str:
    kind = "an archive" if wish.is_archive else "lines of JSON, for reading"
    said = [f"{count(told.letters)} in {wish.where} ({kind})"]
    if wish.take:
        said.append(f"{count(told.taken)} taken from {wish.from_queue}: the archive is their home now")
    elif wish.from_queue is not None:
        said.append(f"they are still in {wish.from_queue}")
    if told.maybe_twice:
        said.append(
            f"up to {count(told.maybe_twice)} may be in the archive and in {wish.from_queue}, or twice in "
            "the archive (a connection was lost, or it was stopped)"
        )
    return lines(said + told.notes)


def _as_json(wish: ExportWish, told: _Told) -> dict[str, object]:
    return {
        "file": wish.where,
        "archive": wish.is_archive,
        "letters": told.letters,
        "taken": told.taken,
        "maybe_twice": told.maybe_twice,
        "complete": told.complete,
        "notes": told.notes,
    }
