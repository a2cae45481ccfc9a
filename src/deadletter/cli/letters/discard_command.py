"""`dlq discard`: throws stored letters away, after saying which; `--undo` takes them back.

The selection is frozen first: all its numbers are collected, then exactly these are changed, a portion per
transaction. What comes in meanwhile is not among them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from secrets import token_hex
from typing import Final

from deadletter.cli.letters.asking import at_text, now_ms, with_records
from deadletter.cli.letters.groups_text import letters_table
from deadletter.cli.letters.letter_filters import LetterFilters, pages
from deadletter.cli.letters.record_options import ChangeWish
from deadletter.cli.terminal import event_loop
from deadletter.cli.terminal.output import Exit, data, result
from deadletter.cli.terminal.progress import GrowingCount
from deadletter.cli.terminal.units import count
from deadletter.cli.terminal.widths import terminal_width
from deadletter.core.grouping.letter_query import MAX_LIMIT, LetterQuery, LetterState
from deadletter.core.text.safe_text import line
from deadletter.errors import DeadletterError, UsageError
from deadletter.operations.records.records import (
    CHANGED_AT_ONCE,
    WHY_CHARS,
    LettersChanged,
    LettersFound,
    Records,
    json_of,
)
from deadletter.store.letters.letter_views import DiscardTold, LetterRow

_SAMPLE: Final = 5
_ASKED: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscardWish:
    filters: LetterFilters
    undo: bool = False
    yes: bool = False
    why: str = ""
    limit: int | None = None


@dataclass(slots=True, kw_only=True)
class _Selection:
    """Exactly these."""

    numbers: list[int] = field(default_factory=list)
    sample: list[LetterRow] = field(default_factory=list)
    groups: set[int] = field(default_factory=set)
    bytes: int = 0
    unanswered: int = 0
    missing: int = 0
    """Named, and not there, or not in the state for it."""


def run(wish: ChangeWish, discard: DiscardWish) -> Exit:
    if discard.filters.says_nothing and not discard.undo:
        raise UsageError(
            "expected letters: their numbers, or filters such as --group 12 or --older-than 30d (dlq letters "
            "takes the same and shows them)"
        )
    if len(discard.why) > WHY_CHARS:
        raise UsageError(f"--why: expected at most {WHY_CHARS} characters, got {len(discard.why)}")

    async def work(records: Records) -> Exit:
        stop = event_loop.StopAsked()
        with event_loop.stopping(stop):
            last = await records.last_discard(wish.named) if discard.filters.says_nothing else None
            found = await _select(records, discard, last, stop, quiet=wish.as_json)
            if stop.asked:
                raise DeadletterError("stopped while letters were looked for; nothing was changed")
            changed = await _change(records, wish, discard, found.numbers, stop) if discard.yes else 0
        if wish.as_json:
            data({**_as_json(discard, found, changed), "discard": json_of(last)})
        else:
            result("\n".join([*_last(last), _as_text(discard, found, changed)]))
        whole = changed == len(found.numbers) and not found.missing and not found.unanswered
        return Exit.LEFT if discard.yes and not whole else Exit.DONE

    return with_records(wish, work)


async def _select(
    records: Records,
    discard: DiscardWish,
    last: DiscardTold | None,
    stop: event_loop.StopAsked,
    *,
    quiet: bool,
) -> _Selection:
    found = _Selection()
    state = LetterState.DISCARDED if discard.undo else LetterState.OPEN
    most = discard.limit
    query = replace(
        await discard.filters.query(records, state=state),
        limit=min(most or MAX_LIMIT, MAX_LIMIT),
        discard=None if last is None else last.discard,
    )
    with GrowingCount("looking for letters", quiet=quiet) as shown:
        async for page in _pages(records, query):
            rows = page.letters if most is None else page.letters[: most - len(found.numbers)]
            found.numbers += [row.id for row in rows]
            found.sample += rows[: _SAMPLE - len(found.sample)] if len(found.sample) < _SAMPLE else ()
            found.groups |= {row.group for row in rows}
            found.bytes += sum(row.bytes for row in rows)
            found.unanswered += page.unanswered
            shown.count(len(found.numbers))
            if stop.asked or len(found.numbers) == most:
                break
    if most is None and query.ids:
        found.missing = len(query.ids) - len(found.numbers)
    return found


async def _pages(records: Records, query: LetterQuery) -> AsyncIterator[LettersFound]:
    """Many numbers do not fit into one question."""
    portions = [query.ids[start : start + _ASKED] for start in range(0, len(query.ids), _ASKED)]
    for ids in portions or [()]:
        async for page in pages(records, replace(query, ids=ids)):
            yield page


async def _change(
    records: Records,
    wish: ChangeWish,
    discard: DiscardWish,
    numbers: Sequence[int],
    stop: event_loop.StopAsked,
) -> int:
    who, done, run = wish.named, 0, token_hex(8)

    async def change(portion: Sequence[int]) -> LettersChanged:
        if discard.undo:
            return await records.take_back(portion, who=who, why=discard.why)
        return await records.discard(portion, who=who, why=discard.why, run=run)

    with GrowingCount(_word(discard), len(numbers), quiet=wish.as_json) as shown:
        for start in range(0, len(numbers), CHANGED_AT_ONCE):
            if stop.asked:
                break
            portion = numbers[start : start + CHANGED_AT_ONCE]
            done += (await change(portion)).letters
            shown.count(start + len(portion))
    return done


def _word(discard: DiscardWish) -> str:
    return "take back" if discard.undo else "discard"


def _none(discard: DiscardWish) -> str:
    if not discard.undo:
        return "no letters like that; nothing to discard"
    if discard.filters.says_nothing:
        return "none of them is left to take back: that was done, or their retention is over"
    return "no discarded letters like that"


def _last(last: DiscardTold | None) -> list[str]:
    """Which one it is that is taken back, where nobody said it."""
    if last is None:
        return []
    why = f": {line(last.why)}" if last.why else ""
    when = f"{at_text(last.at_ms)} UTC"
    return [f"the last discard of {line(last.who)}, {when}, of {count(last.letters)}{why}"]


def _as_text(discard: DiscardWish, found: _Selection, changed: int) -> str:
    if not found.numbers:
        said = [_none(discard)]
    elif discard.yes:
        done = "took back" if discard.undo else "discarded"
        said = [f"{done} {count(changed)}"]
        if changed < len(found.numbers):
            said.append(
                f"{count(len(found.numbers) - changed)} of the selection were not: somebody else was "
                "quicker, or it was stopped"
            )
        if not discard.undo and changed:
            said.append("they can be taken back until their retention is over: dlq discard --undo")
    else:
        groups = count(len(found.groups), "group")
        said = [
            f"would {_word(discard)} {count(len(found.numbers))} of {groups}, {found.bytes:,} bytes, such as",
            letters_table(found.sample, now_ms=now_ms(), width=terminal_width(), indent=3),
            "nothing was changed; the same with --yes does it",
        ]
    if found.missing:
        state = "discarded" if discard.undo else "open"
        said.append(f"named, but not here or not {state}: {count(found.missing)}")
    if found.unanswered:
        said.append(f"of {count(found.unanswered)} the jq program could say nothing; they are left alone")
    return "\n".join(said)


def _as_json(discard: DiscardWish, found: _Selection, changed: int) -> dict[str, object]:
    return {
        "action": "take-back" if discard.undo else "discard",
        "done": discard.yes,
        "selected": len(found.numbers),
        "changed": changed,
        "groups": sorted(found.groups),
        "bytes": found.bytes,
        "missing": found.missing,
        "unanswered": found.unanswered,
        "sample": json_of(found.sample),
    }
