"""Groups and letters for people: lists read at a glance, one group whole, why letters are together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from deadletter.cli.letters.asking import age_text, at_text
from deadletter.cli.letters.small_pictures import sparkline
from deadletter.cli.terminal.output import columns
from deadletter.cli.terminal.units import count
from deadletter.cli.terminal.widths import cells, fit, padded
from deadletter.core.grouping.category import By
from deadletter.core.grouping.group_states import GroupState
from deadletter.core.text.safe_text import line, lines
from deadletter.operations.records.records import GroupLine, GroupPage
from deadletter.store.letters.letter_views import GroupDetail, GroupingPreview, GroupView, LetterRow

_HEAD: Final = ("#", "open/all", "24 h", "last", "first", "what")
_WIDE: Final = 110
_USUAL_VHOST: Final = "/"
_GAP: Final = 2
_BY: Final = {
    By.PERSON: "a person",
    By.RULE: "a rule",
    By.HISTORY: "its history",
    By.GUESS: "a first guess",
}


def page_text(page: GroupPage, *, now_ms: int, width: int | None, blocks: bool) -> str:
    """Two lines a group: numbers and what, then where. Cut to the terminal; in a pipe nothing is cut."""
    if not page.groups:
        return "no groups like that (dlq groups --state any lists all)"
    room = 24 if width is None or width >= _WIDE else 12
    rows = [_cells_of(group, now_ms, room, blocks) for group in page.groups]
    widths = [max(map(cells, column)) for column in zip(_HEAD[:-1], *rows, strict=False)]
    before = sum(widths) + _GAP * len(widths)
    rest = None if width is None else max(width - before, 10)
    several = len({group.vhost for group in page.groups}) > 1
    said = [_row(_HEAD[:-1], widths) + _HEAD[-1]]
    for group, row in zip(page.groups, rows, strict=True):
        said.append(_row(row, widths) + fit(group.title, rest))
        said.append(
            " " * (widths[0] + _GAP)
            + fit(_where(group, now_ms, several), None if width is None else width - widths[0] - _GAP)
        )
    if page.more is not None:
        said.append(f"there are more: --after {page.more}")
    return lines(said)


def _cells_of(group: GroupLine, now_ms: int, room: int, blocks: bool) -> tuple[str, ...]:
    of = f"{group.open:,}" if group.open == group.total else f"{group.open:,}/{group.total:,}"
    return (
        str(group.id),
        of,
        sparkline(group.hours, width=room, blocks=blocks),
        age_text(group.last_ms, now_ms),
        age_text(group.first_ms, now_ms),
    )


def _row(row: Sequence[str], widths: Sequence[int]) -> str:
    """Numbers and ages stand right."""
    return "".join(
        padded(cell, width, right=place != 2) + " " * _GAP
        for place, (cell, width) in enumerate(zip(row, widths, strict=True))
    )


def _where(group: GroupLine, now_ms: int, several: bool) -> str:
    """`several`: groups of the list are of several vhosts, so each says of which it is."""
    parts = [
        _state(group) if group.state is not GroupState.OPEN else "",
        group.origin,
        f"vhost {group.vhost}" if several and group.vhost else "",
        group.culprit and f"in {group.culprit}",
        group.category.value if group.category.value != "unknown" else "",
        group.release and f"release {group.release}",
        _again(group, now_ms),
    ]
    return "  ".join(filter(None, parts))


def _state(group: GroupView) -> str:
    if group.state is GroupState.SNOOZED and group.until_ms is not None:
        return f"SNOOZED until {at_text(group.until_ms)} UTC"
    return group.state.value.upper()


def _again(group: GroupView, now_ms: int) -> str:
    if group.reopened_ms is None or group.state is not GroupState.OPEN:
        return ""
    release = f", since release {group.reopened_release}" if group.reopened_release else ""
    return f"FAILS AGAIN ({age_text(group.reopened_ms, now_ms)}{release})"


# -- one group -------------------------------------------------------------------------------------------
def detail_text(detail: GroupDetail, *, now_ms: int, width: int | None = None) -> str:
    group = detail.group
    said = [
        f"group {group.id}: {group.title}",
        f"   key       {group.key}",
        f"   state     {_state(group).lower()}{_after(_again(group, now_ms))}",
        f"   origin    {group.origin}",
        *([f"   vhost     {group.vhost}"] if is_told(group.vhost) else []),
    ]
    if group.culprit:
        said.append(f"   in        {group.culprit}")
    said += [
        f"   category  {group.category.value} ({group.category_by.value}: {group.category_why})",
        f"   letters   {group.open:,} here of {group.total:,} that came",
        f"   first     {at_text(group.first_ms)} UTC ({age_text(group.first_ms, now_ms)})",
        f"   last      {at_text(group.last_ms)} UTC ({age_text(group.last_ms, now_ms)})",
        *(f"   merged    with {key}" for key in detail.merged),
        *(
            ["   merged    with letters of other queues or vhosts, which you do not see"]
            if detail.partly
            else []
        ),
        *(
            f"   {tag.kind:<9} {tag.value}: {count(tag.letters)}, last {age_text(tag.last_ms, now_ms)}"
            for tag in detail.tags[:20]
        ),
    ]
    parts = [lines(said)]
    if detail.notes:
        parts.append("notes")
        for note in detail.notes:
            parts += [
                line(f"   {at_text(note.at_ms)} UTC, {note.author}"),
                *(f"      {line(one)}" for one in note.text.splitlines()),
            ]
    if detail.samples:
        parts += ["letters", letters_table(detail.samples, now_ms=now_ms, width=width, indent=3)]
    if group.open:
        parts.append(f"send them back: dlq replay --group {group.id} (says first what would happen)")
    parts.append(f"why they are together: dlq groups --why {group.id}")
    return "\n".join(parts)


def is_told(vhost: str) -> bool:
    """Whether a vhost is worth a word: it is known, and not the one that every broker has."""
    return vhost not in ("", _USUAL_VHOST)


def _after(text: str) -> str:
    return f", {text.lower()}" if text else ""


def preview_text(seen: GroupingPreview) -> str:
    """What other rules would join and part."""
    said = [
        f"{seen.before:,} groups → {seen.after:,}, by the newest of each; {count(seen.letters)} looked at"
    ]
    for one in seen.joined:
        said.append(f"one group: {line(one.title)}")
        said.append(f"  of {', '.join(str(number) for number in one.groups)}")
    said += [f"{one.into} groups of {one.group}: {line(one.title)}" for one in seen.parted]
    return lines(said)


def why_text(detail: GroupDetail, *, ascii_only: bool = False) -> str:
    """What was looked at; what counted is marked."""
    mark = "*" if ascii_only else "●"
    rows = [[mark if counted else "", kind, text] for kind, text, counted in detail.parts]
    said = [
        line(f"group {detail.group.id}: {detail.group.title}"),
        f"letters are together when all that is marked {mark} is the same:",
        columns(rows, indent=3) if rows else "   nothing is known of it",
        *(line(f"   and by hand: merged with {key}") for key in detail.merged),
        line(
            f"category {detail.group.category.value}, by {_BY[detail.group.category_by]}: "
            f"{detail.group.category_why}"
        ),
    ]
    return "\n".join(said)


# -- letters in a list -----------------------------------------------------------------------------------
_LETTER_HEAD: Final = ("#", "died", "group", "tries", "bytes", "origin", "error")


def letters_table(rows: Sequence[LetterRow], *, now_ms: int, width: int | None, indent: int = 0) -> str:
    """One line a letter."""
    told = [_letter_cells(row, now_ms) for row in rows]
    widths = [max(map(cells, column)) for column in zip(_LETTER_HEAD[:-1], *told, strict=False)]
    if width is not None:
        widths[5] = min(widths[5], max(width // 5, 8))
    before = indent + sum(widths) + _GAP * len(widths)
    rest = None if width is None else max(width - before, 10)
    return lines(_letter_lines(told, widths, rest, indent))


def _letter_lines(
    told: Sequence[tuple[str, ...]], widths: Sequence[int], rest: int | None, indent: int
) -> Iterator[str]:
    for row in (_LETTER_HEAD, *told):
        cut = [fit(cell, width) for cell, width in zip(row[:-1], widths, strict=True)]
        stand = [
            padded(cell, width, right=place < 5)
            for place, (cell, width) in enumerate(zip(cut, widths, strict=True))
        ]
        yield " " * indent + (" " * _GAP).join([*stand, fit(row[-1], rest)])


def _letter_cells(row: LetterRow, now_ms: int) -> tuple[str, ...]:
    what = row.error or row.cause or "no error told"
    if row.copies:
        what = f"({1 + row.copies} copies) {what}"
    if row.state.value != "open":
        what = f"{row.state.value.upper()} {what}"
    return (
        str(row.id),
        age_text(row.died_ms, now_ms),
        str(row.group),
        str(row.attempt),
        f"{row.bytes:,}",
        line(row.origin),
        line(what),
    )
