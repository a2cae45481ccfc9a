"""`dlq letters`: which letters are stored, or how they divide."""

from __future__ import annotations

import time
from dataclasses import replace

from deadletter.cli.letters.asking import now_ms, with_records
from deadletter.cli.letters.groups_text import letters_table
from deadletter.cli.letters.letter_filters import PATIENCE_S, StateFilters, order_of
from deadletter.cli.letters.record_options import RecordsWish
from deadletter.cli.terminal.output import Exit, columns, data, result
from deadletter.cli.terminal.progress import GrowingCount
from deadletter.cli.terminal.units import count
from deadletter.cli.terminal.widths import terminal_width
from deadletter.core.grouping.letter_query import LetterQuery
from deadletter.operations.records.records import LettersFound, Records, json_of
from deadletter.store.letters.letter_views import Facets, LetterRow


def list_letters(
    wish: RecordsWish, filters: StateFilters, *, sort: str, limit: int, after: int | None
) -> Exit:
    order = order_of(sort)

    async def work(records: Records) -> Exit:
        query = replace(await filters.of_state(records), order=order, limit=limit, after=after)
        found = await _found(records, query, quiet=wish.as_json)
        if wish.as_json:
            data(json_of(found))
        else:
            result(found_text(found, limit=limit, now_ms=now_ms(), width=terminal_width()))
        return Exit.DONE

    return with_records(wish, work)


async def _found(records: Records, query: LetterQuery, *, quiet: bool) -> LettersFound:
    """One page for whoever asked, of several where each had to end early."""
    rows: list[LetterRow] = []
    looked_at = unanswered = 0
    until = time.monotonic() + PATIENCE_S
    with GrowingCount("looking into letters", quiet=quiet) as shown:
        while True:
            page = await records.letters(replace(query, limit=query.limit - len(rows)))
            rows += page.letters
            looked_at += page.looked_at
            unanswered += page.unanswered
            shown.count(looked_at)
            if page.more is None or len(rows) >= query.limit or time.monotonic() > until:
                break
            query = replace(query, after=page.more)
    return LettersFound(letters=tuple(rows), more=page.more, looked_at=looked_at, unanswered=unanswered)


def found_text(found: LettersFound, *, limit: int, now_ms: int, width: int | None) -> str:
    said = [letters_table(found.letters, now_ms=now_ms, width=width)] if found.letters else []
    if not found.letters:
        said.append("no letters like that" if found.more is None else "no letters like that so far")
    if found.more is not None:
        if len(found.letters) < limit:
            said.append(
                f"the search was cut short: {count(found.looked_at)} looked into; go on with "
                f"--after {found.more}"
            )
        else:
            said.append(f"there are more: --after {found.more}")
    if found.unanswered:
        said.append(_unanswered(found.unanswered))
    return "\n".join(said)


def _unanswered(number: int) -> str:
    return f"of {count(number)} the jq program could say nothing within its limits; they are not among them"


def count_letters(wish: RecordsWish, filters: StateFilters) -> Exit:
    async def work(records: Records) -> Exit:
        facets = await records.facets(await filters.of_state(records))
        if wish.as_json:
            data(json_of(facets))
        else:
            result(facets_text(facets))
        return Exit.DONE

    return with_records(wish, work)


def facets_text(facets: Facets) -> str:
    if facets.total:
        of = count(facets.total) if facets.exact else f"the newest {facets.total:,} letters that match"
        said = [f"{of}, by"]
    else:
        said = ["no letters like that" if facets.exact else "no letters like that so far"]
    for name, some in facets.by.items():
        if some:
            twice = {one.value for one in some if [other.value for other in some].count(one.value) > 1}
            rows = [
                [
                    f"{one.letters:,}",
                    one.value or "(none)",
                    one.label or (one.vhost if one.value in twice else ""),
                ]
                for one in some
            ]
            said += [name, columns(rows, indent=3)]
    if not facets.exact and facets.looked_at:
        said.append(f"there may be more: the search was cut short, {count(facets.looked_at)} looked into")
    if facets.unanswered:
        said.append(_unanswered(facets.unanswered))
    return "\n".join(said)
