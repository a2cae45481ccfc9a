"""The look before a replay, from all sides: which letters would go, and what the broker says of the way."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final, TypeAlias

from deadletter.config.settings import Settings
from deadletter.core.grouping.letter_query import MAX_LIMIT, LetterOrder, LetterQuery, LetterState
from deadletter.core.letter import names
from deadletter.core.replaying.preflight import Remark, RemarkLevel, ReplayFacts, preflight
from deadletter.core.replaying.replay_pace import AllAtOnce, Auto, Canary, ReplayPace
from deadletter.core.replaying.replay_target import ReplayTarget, ToExchange
from deadletter.core.text.glob import glob
from deadletter.errors import UsageError, WireError
from deadletter.operations.records.where_programs import WhereProgram
from deadletter.operations.replays.letter_history import history_of
from deadletter.operations.replays.preflight import LetterKinds, Looked, look
from deadletter.operations.replays.replay_told import SAMPLE, SELECTED, PreflightTold, ReplayWish
from deadletter.store.letters.letter_store import LetterStore
from deadletter.store.letters.letter_views import Facets
from deadletter.store.replays.draft_table import DraftStore

LOOK_S: Final = 20.0
"""So long the broker is waited for."""

BrokerLook: TypeAlias = Callable[[str, ReplayTarget, LetterKinds], Awaitable[Looked]]
"""What the broker says of where letters of these kinds would go in a vhost; empty: the broker's own."""
WhereSource: TypeAlias = Callable[[LetterQuery], Awaitable[WhereProgram | None]]
"""What answers the jq program of a selection, where it has one."""


def broker_look(settings: Callable[[], Settings]) -> BrokerLook:
    """At the broker of these settings; `looked after` is what its watches and its desk take letters from."""

    async def asked(vhost: str, target: ReplayTarget, letters: LetterKinds) -> Looked:
        now = settings()
        vhost = vhost or now.broker.vhost
        watched = [watch.dlq for watch in now.watches if watch.vhost == vhost]
        stored = now.desk.in_vhost(vhost)

        def looked_after(queue: str) -> bool:
            return names.is_ours(queue) or queue in stored or any(glob(one, queue) for one in watched)

        addresses = [replace(address, vhost=vhost) for address in now.broker.addresses]
        try:
            async with asyncio.timeout(LOOK_S):
                return await look(addresses, now.broker.api, target, letters, looked_after=looked_after)
        except TimeoutError:
            return Looked((), f"{now.broker.name} did not answer within {LOOK_S:.0f} s")
        except WireError as error:
            return Looked((), str(error))

    return asked


def to_be_sent(selection: LetterQuery, vhost: str = "") -> LetterQuery:
    """The letters that a replay of this selection would take, in its order. UsageError for what none takes:
    whoever asks, the bounds are the same."""
    if len(selection.ids) > SELECTED:
        raise UsageError(
            f"selection: expected at most {SELECTED:,} letters by their numbers, got "
            f"{len(selection.ids):,}; a group or a search has no such limit"
        )
    if vhost and selection.vhost not in (None, vhost):
        raise UsageError(f"vhost: expected letters of {vhost}, where they are sent, got {selection.vhost}")
    return replace(
        selection,
        vhost=vhost or selection.vhost,
        state=LetterState.OPEN,
        order=LetterOrder.OLDEST,
        after=None,
        limit=SAMPLE,
    )


def vhost_of(wish: ReplayWish, found: Facets) -> str:
    """Where they are sent: as it was said, else where they are all from."""
    if wish.vhost or wish.selection.vhost:
        return wish.vhost or wish.selection.vhost or ""
    several = sorted({queue.vhost for queue in found.by.get("queue", ())})
    if len(several) > 1:
        raise UsageError(
            f"vhost: expected letters of one vhost, got {', '.join(map(repr, several))}; name one of them"
        )
    return several[0] if several else ""


async def before_replay(
    store: LetterStore, wish: ReplayWish, *, where: WhereSource, look_at: BrokerLook | None, attended: bool
) -> PreflightTold:
    """`look_at` None: nobody knows the broker. `attended`: whoever tells it sends the letters, too."""
    asked = to_be_sent(wish.selection, wish.vhost)
    answers = await where(asked)
    found = await store.facets(asked, where=answers)
    vhost = vhost_of(wish, found)
    sample = (await store.find(asked, where=await where(asked))).letters
    origins = {one.value: one.letters for one in found.by.get("origin", ())}
    kinds = LetterKinds(origins=origins, keys=await _keys(store, wish, asked, where))
    looked = Looked((), "it was not asked")
    if found.total and look_at is not None:
        looked = await look_at(vhost, wish.target, kinds)
    history = await history_of(store, asked, where=await where(asked))
    facts = ReplayFacts(
        letters=found.total,
        ways=looked.ways,
        room=_room(wish.pace),
        unknown=looked.unknown,
        copied=history.copied,
        looked_at=history.looked_at,
        replayed_before=history.replayed_before,
        most_replays=history.most_replays,
        failing_releases=history.failing_releases,
        deployed=history.deployed,
    )
    drafts = await DraftStore(store).of([row.id for row in sample]) if sample else {}
    return PreflightTold(
        vhost=vhost,
        remarks=(*preflight(facts), *([] if attended else [_UNATTENDED])),
        letters=found.total,
        exact=found.exact,
        unanswered=0 if answers is None else answers.unanswered,
        origins=origins,
        sample=sample,
        drafts=len(drafts),
    )


_UNATTENDED: Final = Remark(
    level=RemarkLevel.NOTE,
    about="service",
    text="the store answers, and no service: letters go when dlq serve runs with this store",
)


def _room(pace: ReplayPace) -> int | None:
    match pace:
        case AllAtOnce():
            return None
        case Canary(room=room) | Auto(room=room):
            return room


async def _keys(
    store: LetterStore, wish: ReplayWish, asked: LetterQuery, where: WhereSource
) -> dict[str, int]:
    """Routing keys of some, where each goes by its own."""
    if not isinstance(wish.target, ToExchange) or wish.target.key is not None:
        return {}
    page = await store.find(replace(asked, limit=MAX_LIMIT), where=await where(asked))
    return dict(Counter(row.routing_key for row in page.letters))
