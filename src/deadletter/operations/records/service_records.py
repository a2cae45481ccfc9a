"""Stored letters, asked of the running service over HTTP: `/api/v1`, as `docs/api.md` tells it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from deadletter.core.grouping.group_query import GroupQuery
from deadletter.core.grouping.letter_query import LetterQuery
from deadletter.core.letter.archive_format import StoreKeys
from deadletter.core.letter.letter import Letter
from deadletter.errors import UsageError
from deadletter.operations.records.exact_letters import NUMBERS, packed, unpacked
from deadletter.operations.records.letter_told import LetterTold
from deadletter.operations.records.records import (
    SOURCE_CHARS,
    GroupChange,
    GroupPage,
    LettersChanged,
    LettersFound,
    LettersTaken,
    SplitDone,
    StoreTold,
    json_of,
)
from deadletter.operations.records.service_wire import ANSWER_S, ServiceWire, part_of, service_wire
from deadletter.operations.service_address import CONNECT_S
from deadletter.store.letters.letter_views import (
    DiscardTold,
    Facets,
    GroupDetail,
    GroupingPreview,
    GroupingTold,
    GroupView,
)


class ServiceRecords:
    """The operations, over the wire to the service."""

    def __init__(self, wire: ServiceWire) -> None:
        self.wire: Final = wire

    async def store(self) -> StoreTold:
        return await self.wire.get(StoreTold, "store")

    # -- looking -----------------------------------------------------------------------------------------
    async def groups(self, query: GroupQuery) -> GroupPage:
        return await self.wire.get(GroupPage, "groups", group_params(query))

    async def group(self, name: str) -> GroupDetail:
        return await self.wire.get(GroupDetail, f"groups/{part_of(name)}")

    async def grouping(self) -> GroupingTold:
        return await self.wire.get(GroupingTold, "grouping")

    async def preview(self) -> GroupingPreview:
        return await self.wire.get(GroupingPreview, "grouping/preview")

    async def letters(self, query: LetterQuery) -> LettersFound:
        return await self.wire.get(LettersFound, "letters", letter_params(query))

    async def facets(self, query: LetterQuery) -> Facets:
        return await self.wire.get(Facets, "facets", letter_params(query))

    async def letter(self, name: str) -> LetterTold:
        return await self.wire.get(LetterTold, f"letters/{part_of(name)}")

    async def body(self, name: str) -> bytes:
        return (await self.wire.ask("GET", f"letters/{part_of(name)}/body")).content

    async def exact(self, ids: Sequence[int]) -> dict[int, tuple[Letter, StoreKeys]]:
        answer = await self.wire.ask("GET", "archive", params=[("id", str(one)) for one in ids])
        try:
            numbers = [int(one) for one in answer.headers.get(NUMBERS, "").split(",") if one]
            return dict(zip(numbers, await asyncio.to_thread(unpacked, answer.content), strict=True))
        except (ValueError, UsageError) as error:
            raise self.wire.stranger(answer) from error

    # -- changing ----------------------------------------------------------------------------------------
    async def change_group(self, name: str, change: GroupChange, *, who: str) -> GroupView:
        asked = {key: value for key, value in json_of(change).items() if value is not None}
        version = asked.pop("version")
        return await self.wire.change(
            GroupView, "PATCH", f"groups/{part_of(name)}", {**asked, "who": who}, version=version
        )

    async def note(self, name: str, text: str, *, who: str, version: str = "") -> GroupView:
        return await self.wire.change(
            GroupView, "POST", f"groups/{part_of(name)}/notes", {"text": text, "who": who}, version=version
        )

    async def merge(self, into: str, other: str, *, who: str) -> GroupView:
        return await self.wire.change(
            GroupView, "POST", "groups/merge", {"into": into, "other": other, "who": who}
        )

    async def split(self, key: str, *, who: str) -> SplitDone:
        return await self.wire.change(SplitDone, "POST", "groups/split", {"key": key, "who": who})

    async def regroup(self, *, who: str) -> GroupingTold:
        return await self.wire.change(GroupingTold, "POST", "grouping/regroup", {"who": who})

    async def last_discard(self, who: str) -> DiscardTold:
        return await self.wire.get(DiscardTold, "discards/last", [("who", who)])

    async def discard(self, ids: Sequence[int], *, who: str, why: str, run: str = "") -> LettersChanged:
        wish = {"ids": list(ids), "who": who, "why": why, "run": run}
        return await self.wire.change(LettersChanged, "POST", "letters/discard", wish)

    async def put(
        self, letters: Sequence[tuple[Letter, StoreKeys]], *, who: str, source: str
    ) -> LettersTaken:
        answer = await self.wire.ask(
            "POST",
            "archive",
            params=[("who", who), ("source", source[:SOURCE_CHARS])],
            content=await asyncio.to_thread(packed, letters),
        )
        return self.wire.read(LettersTaken, answer)

    async def take_back(self, ids: Sequence[int], *, who: str, why: str) -> LettersChanged:
        wish = {"ids": list(ids), "who": who, "why": why}
        return await self.wire.change(LettersChanged, "POST", "letters/take-back", wish)


@asynccontextmanager
async def service_records(
    at: str, token: str | None, *, connect_s: float = CONNECT_S, answer_s: float = ANSWER_S
) -> AsyncIterator[ServiceRecords]:
    """The records of the service that answers there; nothing is asked yet."""
    async with service_wire(at, token, connect_s=connect_s, answer_s=answer_s) as wire:
        yield ServiceRecords(wire)


def letter_params(query: LetterQuery) -> list[tuple[str, str]]:
    """A question as the parameters of a URL; what is as by default is left out. `state` is always told."""
    told: list[tuple[str, str]] = [("id", str(one)) for one in query.ids]
    told += [("header", f"{name}={value}") for name, value in query.headers]
    told.append(("state", query.state.value if query.state is not None else "any"))
    plain = LetterQuery()
    for name in (
        "vhost", "queue", "origin", "group", "cause", "error", "message_id", "letter_id", "discard",
        "died_from_ms",
        "died_until_ms", "text", "where", "order", "after", "limit",
    ):  # fmt: skip
        value = getattr(query, name)
        if value != getattr(plain, name):
            told.append((name, str(value)))
    return told


def group_params(query: GroupQuery) -> list[tuple[str, str]]:
    told = [("state", state.value) for state in query.states] or [("state", "any")]
    plain = GroupQuery()
    for name, field in (
        ("vhost", "vhost"), ("origin", "origin"), ("category", "category"), ("text", "text"),
        ("order", "order"), ("limit", "limit"), ("after", "offset"),
    ):  # fmt: skip
        value = getattr(query, field)
        if value != getattr(plain, field):
            told.append((name, str(value)))
    return told
