"""What is to be known before letters are sent again: facts in, remarks out.

A remark has a level: `ok` (looked at, and well), `note` (good to know), `warning` (it may go wrong), `stop`
(letters would be lost, or none would arrive). Whether somebody goes on in spite of one is for them to say; a
replay that is started after a `stop` has overruled it knowingly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from deadletter.core.letter.header_values import shown
from deadletter.core.text.durations import duration_text

_NAMED: Final = 5
"""So many queues are named; the others are counted."""


class RemarkLevel(StrEnum):
    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    STOP = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """One thing that was looked at."""

    level: RemarkLevel
    about: str
    """target, others, consumers, depth, ttl, limit, loop, release, selection: for machines."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFacts:
    """A queue that would get letters."""

    name: str
    there: bool = True
    known: bool = True
    """Whether the broker told more of it than how many letters and consumers it has."""
    type: str = "classic"
    ready: int = 0
    consumers: int = 0
    ttl_ms: int | None = None
    expires_ms: int | None = None
    max_length: int | None = None
    max_length_bytes: int | None = None
    drops_head: bool = False
    """Whether it throws away its oldest letters when it is full; else it refuses new ones."""
    dead_letters_go: bool = False
    """Whether it has a dead-letter exchange."""
    comes_back_by: tuple[str, ...] = ()
    """Its dead letters come into these queues, which the service looks after."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WayFacts:
    """Where letters of one kind would go."""

    letters: int
    place: str
    """For people: the queue, or the exchange and the key."""
    queues: tuple[QueueFacts, ...] = ()
    missing: str | None = None
    """An exchange that is not there."""
    complete: bool = True
    """Whether every letter reaches a queue."""
    certain: bool = True
    """False where it depends on headers or on a plugin's exchange."""
    alone: bool = True
    """Whether it goes by a way that leads to one queue alone, whatever the letter says."""
    alternates: tuple[str, ...] = ()
    """Alternate exchanges that would catch some of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployed:
    """A release that was told."""

    service: str
    release: str
    after_ms: int
    """So long after the last failure among these letters; below zero: before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayFacts:
    """All that is known before a replay."""

    letters: int
    ways: tuple[WayFacts, ...] = ()
    room: int | None = None
    """The most that the pace lets into a queue; None: it does not look."""
    copied: int = 0
    """Letters with CC or BCC among those that were looked at;"""
    looked_at: int = 0
    """how many that were."""
    replayed_before: int = 0
    """Letters that a replay had sent before, and that are here again;"""
    most_replays: int = 0
    """and how often one of them."""
    failing_releases: tuple[str, ...] = ()
    """Releases that the letters say they failed in."""
    deployed: tuple[Deployed, ...] = ()
    unknown: str = ""
    """Why the broker could not be asked for more; empty: it could."""


def preflight(facts: ReplayFacts) -> tuple[Remark, ...]:
    """What there is to say, the worst first."""
    order = (RemarkLevel.STOP, RemarkLevel.WARNING, RemarkLevel.NOTE, RemarkLevel.OK)
    return tuple(sorted(_remarks(facts), key=lambda remark: order.index(remark.level)))


def worst(remarks: Sequence[Remark]) -> RemarkLevel:
    """The level of all of them together."""
    return remarks[0].level if remarks else RemarkLevel.OK


def _remarks(facts: ReplayFacts) -> Iterator[Remark]:
    if not facts.letters:
        yield Remark(level=RemarkLevel.STOP, about="selection", text="no letter is selected")
        return
    if facts.unknown:
        yield Remark(
            level=RemarkLevel.WARNING,
            about="target",
            text=f"the shape of the broker is not known ({facts.unknown}): who else would get letters, "
            "limits and ways back were not looked at",
        )
    for way in facts.ways:
        yield from _way(way, facts)
    yield from _history(facts)
    yield from _releases(facts)


def _way(way: WayFacts, facts: ReplayFacts) -> Iterator[Remark]:
    if way.missing is not None:
        text = f"{_letters(way.letters)} would go to {way.place}: there is no exchange {shown(way.missing)}"
        yield Remark(level=RemarkLevel.STOP, about="target", text=text)
        return
    there = [queue for queue in way.queues if queue.there]
    if not there:
        text = f"{_letters(way.letters)} would go to {way.place}: no such queue is there, they would stay"
        all_of_them = way.letters >= facts.letters
        yield Remark(
            level=RemarkLevel.STOP if all_of_them else RemarkLevel.WARNING, about="target", text=text
        )
        return
    if not way.complete:
        text = f"not every letter that goes to {way.place} reaches a queue; those that do not stay"
        yield Remark(level=RemarkLevel.WARNING, about="target", text=text)
    elif way.certain:
        yield Remark(level=RemarkLevel.OK, about="target", text=f"{way.place} is there")
    if not way.certain:
        text = f"which queues {way.place} leads to depends on headers or on a plugin: nobody can say it"
        yield Remark(level=RemarkLevel.WARNING, about="others", text=text)
    yield from _others(way, there, facts)
    for queue in there:
        yield from _queue(queue, way, facts)


def _others(way: WayFacts, there: Sequence[QueueFacts], facts: ReplayFacts) -> Iterator[Remark]:
    if way.alone:
        return
    if len(there) > 1:
        text = f"{way.place} leads to {_named([queue.name for queue in there])}: each gets letters of its own"
        yield Remark(level=RemarkLevel.WARNING, about="others", text=text)
    if way.alternates:
        text = f"some would be caught by an alternate exchange: {_named(way.alternates)}"
        yield Remark(level=RemarkLevel.WARNING, about="others", text=text)
    if facts.copied:
        text = (
            f"{facts.copied} of {facts.looked_at} letters that were looked at have CC or BCC: by "
            f"{way.place} each name in it gets a copy"
        )
        yield Remark(level=RemarkLevel.WARNING, about="others", text=text)


def _queue(queue: QueueFacts, way: WayFacts, facts: ReplayFacts) -> Iterator[Remark]:
    name = f"queue {shown(queue.name)}"
    if queue.type == "stream":
        text = f"{name} is a stream: letters stay in it after they were read, and it has no dead letters"
        yield Remark(level=RemarkLevel.WARNING, about="target", text=text)
    if queue.consumers:
        yield Remark(level=RemarkLevel.OK, about="consumers", text=f"{name} has {queue.consumers} consumers")
    else:
        text = f"{name} has no consumer: letters would wait there until one comes"
        yield Remark(level=RemarkLevel.WARNING, about="consumers", text=text)
    if queue.ready:
        text = f"{name} has {_letters(queue.ready)} waiting already"
        yield Remark(level=RemarkLevel.NOTE, about="depth", text=text)
    if not queue.known:
        return
    if queue.ttl_ms is not None:
        end = "and dies as expired" if queue.dead_letters_go else "and is gone: no dead-letter exchange"
        text = f"in {name} a letter waits {duration_text(queue.ttl_ms)} at most {end}"
        yield Remark(level=RemarkLevel.WARNING, about="ttl", text=text)
    if queue.expires_ms is not None:
        text = (
            f"{name} itself is deleted with all its letters after {duration_text(queue.expires_ms)} "
            "without a consumer"
        )
        yield Remark(level=RemarkLevel.WARNING, about="ttl", text=text)
    yield from _limits(queue, name, way, facts)
    yield _way_back(queue, name)


def _limits(queue: QueueFacts, name: str, way: WayFacts, facts: ReplayFacts) -> Iterator[Remark]:
    limit = queue.max_length
    if limit is not None:
        most = queue.ready + way.letters
        if facts.room is not None:
            most = min(most, max(facts.room, queue.ready))
        if most <= limit:
            text = f"{name} takes {limit} letters at most, and there will be no more than {most}"
            yield Remark(level=RemarkLevel.OK, about="limit", text=text)
        elif queue.drops_head:
            end = "into its dead-letter exchange" if queue.dead_letters_go else "for good"
            text = (
                f"{name} takes {limit} letters at most and throws out its oldest ones {end}; there may be "
                f"{most}: a pace with less room keeps within it"
            )
            level = RemarkLevel.WARNING if queue.dead_letters_go else RemarkLevel.STOP
            yield Remark(level=level, about="limit", text=text)
        else:
            text = (
                f"{name} takes {limit} letters at most and refuses more; there may be {most}, and those "
                "that are refused stay: a pace with less room keeps within it"
            )
            yield Remark(level=RemarkLevel.WARNING, about="limit", text=text)
    if queue.max_length_bytes is not None:
        end = "throws out its oldest letters" if queue.drops_head else "refuses more"
        text = f"{name} holds {queue.max_length_bytes} bytes at most and then {end}"
        yield Remark(level=RemarkLevel.WARNING, about="limit", text=text)


def _way_back(queue: QueueFacts, name: str) -> Remark:
    if queue.comes_back_by:
        text = (
            f"what fails in {name} comes back by {_named(queue.comes_back_by)}: a letter that is retried "
            "and fails each time goes round once for each replay"
        )
        return Remark(level=RemarkLevel.NOTE, about="loop", text=text)
    if queue.dead_letters_go:
        text = (
            f"what fails in {name} dies into a queue that nobody here looks after: whether a letter "
            "failed again will not be known"
        )
        return Remark(level=RemarkLevel.WARNING, about="loop", text=text)
    text = f"{name} has no dead-letter exchange: what its consumer rejects is gone"
    return Remark(level=RemarkLevel.WARNING, about="loop", text=text)


def _history(facts: ReplayFacts) -> Iterator[Remark]:
    if facts.replayed_before:
        times = "once" if facts.most_replays == 1 else f"up to {facts.most_replays} times"
        text = f"{_letters(facts.replayed_before)} of these came back from a replay before ({times})"
        yield Remark(level=RemarkLevel.WARNING, about="loop", text=text)


def _releases(facts: ReplayFacts) -> Iterator[Remark]:
    since = [one for one in facts.deployed if one.after_ms > 0 and one.release not in facts.failing_releases]
    if since:
        named = [f"{shown(one.service)} {shown(one.release)}" for one in since]
        text = f"deployed since the last failure: {_named(named, quoted=False)}"
        yield Remark(level=RemarkLevel.OK, about="release", text=text)
        return
    known = f"; they failed in {_named(facts.failing_releases)}" if facts.failing_releases else ""
    text = f"nobody told of a release since these letters failed{known}: they may fail in the same way"
    yield Remark(
        level=RemarkLevel.WARNING if facts.failing_releases else RemarkLevel.NOTE, about="release", text=text
    )


def _letters(number: int) -> str:
    return "1 letter" if number == 1 else f"{number:,} letters"


def _named(names: Sequence[str], *, quoted: bool = True) -> str:
    told = ", ".join(shown(name) if quoted else name for name in names[:_NAMED])
    return told if len(names) <= _NAMED else f"{told} and {len(names) - _NAMED} more"
