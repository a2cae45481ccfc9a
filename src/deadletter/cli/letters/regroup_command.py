"""`dlq groups --regroup`: the rules of the file, applied to stored letters. First what would change."""

from __future__ import annotations

import asyncio

from deadletter.cli.letters.asking import at_text
from deadletter.cli.letters.groups_text import preview_text
from deadletter.cli.letters.record_options import ChangeWish
from deadletter.cli.terminal import event_loop
from deadletter.cli.terminal.output import Exit, data, result
from deadletter.cli.terminal.progress import GrowingCount
from deadletter.cli.terminal.units import count
from deadletter.errors import UsageError
from deadletter.operations.records.at_hand import Whereabouts, records_at_hand
from deadletter.operations.records.records import Records, json_of
from deadletter.store.letters.letter_views import GroupingPreview, GroupingTold, RegroupStage


def run(wish: ChangeWish, *, yes: bool) -> Exit:
    place = wish.whereabouts()

    async def main() -> Exit:
        async with records_at_hand(place) as records:
            return await _work(records, wish, place, yes=yes)

    return event_loop.run(main())


async def _work(records: Records, wish: ChangeWish, place: Whereabouts, *, yes: bool) -> Exit:
    now = await records.grouping()
    if now.digest != place.settings.desk.grouping.digest:
        raise UsageError(
            "expected a service with the rules of this file, got one with others; let it read the file again "
            "(SIGHUP), then do this"
        )
    if now.stage is RegroupStage.DONE:
        if wish.as_json:
            data(_as_json(now, None, done=True))
        else:
            result(f"stored letters are grouped by these rules, in force since {at_text(now.since_ms)} UTC")
        return Exit.DONE
    if not yes:
        return _show(wish, now, await records.preview())
    who = wish.named
    stop = asyncio.Event()
    done = False
    with event_loop.stopping(stop.set), GrowingCount("group anew", now.letters, quiet=wish.as_json) as shown:
        while not done and not stop.is_set():
            now = await records.regroup(who=who)
            done = now.stage is RegroupStage.DONE
            shown.count(min(now.looked_at, now.letters))
    if wish.as_json:
        data(_as_json(now, None, done=done))
    elif done:
        result(
            f"{now.groups_before:,} groups → {now.groups:,}; {count(now.looked_at)} looked at, "
            f"{now.moved:,} in another group now"
        )
    else:
        result(
            f"stopped after {count(now.looked_at)}; the same goes on there, and until then some groups are "
            "divided"
        )
    return Exit.DONE if done else Exit.LEFT


def _show(wish: ChangeWish, now: GroupingTold, seen: GroupingPreview) -> Exit:
    if wish.as_json:
        data(_as_json(now, seen, done=False))
    else:
        begun = f"it was begun, and stopped after {count(now.looked_at)}; the same with --yes goes on"
        then = "nothing was changed; the same with --yes does it"
        result(f"{preview_text(seen)}\n{then if now.stage is RegroupStage.BEHIND else begun}")
    return Exit.DONE


def _as_json(now: GroupingTold, seen: GroupingPreview | None, *, done: bool) -> dict[str, object]:
    return {"done": done, **json_of(now), "preview": json_of(seen)}
