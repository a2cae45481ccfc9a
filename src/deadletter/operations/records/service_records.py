"""Stored letters, asked of the running service over HTTP: `/api/v1`, as `docs/api.md` tells it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar
from urllib.parse import quote

import httpx
from pydantic import TypeAdapter, ValidationError

from deadletter.core.grouping.group_query import GroupQuery
from deadletter.core.grouping.letter_query import LetterQuery
from deadletter.core.letter.archive_format import StoreKeys
from deadletter.core.letter.letter import Letter
from deadletter.errors import DeadletterError, NotStored, StoreUnreachable, Unreachable, UsageError
from deadletter.operations.records.exact_letters import MEDIA_TYPE, NUMBERS, packed, unpacked
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
from deadletter.operations.service_address import (
    CONNECT_S,
    patience,
    service_url,
    token_headers,
    trusts_environment,
)
from deadletter.store.letters.letter_views import (
    DiscardTold,
    Facets,
    GroupDetail,
    GroupingPreview,
    GroupingTold,
    GroupView,
)

_ANSWER_S: Final = 60.0
_T = TypeVar("_T")


class ServiceRecords:
    """The operations, over a client whose base is the service's API."""

    def __init__(self, client: httpx.AsyncClient, at: str) -> None:
        self._client = client
        self._at = at

    async def store(self) -> StoreTold:
        return await self._get(StoreTold, "store")

    # -- looking -----------------------------------------------------------------------------------------
    async def groups(self, query: GroupQuery) -> GroupPage:
        return await self._get(GroupPage, "groups", group_params(query))

    async def group(self, name: str) -> GroupDetail:
        return await self._get(GroupDetail, f"groups/{_part(name)}")

    async def grouping(self) -> GroupingTold:
        return await self._get(GroupingTold, "grouping")

    async def preview(self) -> GroupingPreview:
        return await self._get(GroupingPreview, "grouping/preview")

    async def letters(self, query: LetterQuery) -> LettersFound:
        return await self._get(LettersFound, "letters", letter_params(query))

    async def facets(self, query: LetterQuery) -> Facets:
        return await self._get(Facets, "facets", letter_params(query))

    async def letter(self, name: str) -> LetterTold:
        return await self._get(LetterTold, f"letters/{_part(name)}")

    async def body(self, name: str) -> bytes:
        return (await self._ask("GET", f"letters/{_part(name)}/body")).content

    async def exact(self, ids: Sequence[int]) -> dict[int, tuple[Letter, StoreKeys]]:
        answer = await self._ask("GET", "archive", params=[("id", str(one)) for one in ids])
        try:
            numbers = [int(one) for one in answer.headers.get(NUMBERS, "").split(",") if one]
            return dict(zip(numbers, await asyncio.to_thread(unpacked, answer.content), strict=True))
        except (ValueError, UsageError) as error:
            raise self._stranger(answer) from error

    # -- changing ----------------------------------------------------------------------------------------
    async def change_group(self, name: str, change: GroupChange, *, who: str) -> GroupView:
        asked = {key: value for key, value in json_of(change).items() if value is not None}
        return await self._change(GroupView, "PATCH", f"groups/{_part(name)}", {**asked, "who": who})

    async def note(self, name: str, text: str, *, who: str) -> GroupView:
        return await self._change(
            GroupView, "POST", f"groups/{_part(name)}/notes", {"text": text, "who": who}
        )

    async def merge(self, into: str, other: str, *, who: str) -> GroupView:
        return await self._change(
            GroupView, "POST", "groups/merge", {"into": into, "other": other, "who": who}
        )

    async def split(self, key: str, *, who: str) -> SplitDone:
        return await self._change(SplitDone, "POST", "groups/split", {"key": key, "who": who})

    async def regroup(self, *, who: str) -> GroupingTold:
        return await self._change(GroupingTold, "POST", "grouping/regroup", {"who": who})

    async def last_discard(self, who: str) -> DiscardTold:
        return await self._get(DiscardTold, "discards/last", [("who", who)])

    async def discard(self, ids: Sequence[int], *, who: str, why: str, run: str = "") -> LettersChanged:
        wish = {"ids": list(ids), "who": who, "why": why, "run": run}
        return await self._change(LettersChanged, "POST", "letters/discard", wish)

    async def put(
        self, letters: Sequence[tuple[Letter, StoreKeys]], *, who: str, source: str
    ) -> LettersTaken:
        answer = await self._ask(
            "POST",
            "archive",
            params=[("who", who), ("source", source[:SOURCE_CHARS])],
            content=await asyncio.to_thread(packed, letters),
        )
        return self._read(LettersTaken, answer)

    async def take_back(self, ids: Sequence[int], *, who: str, why: str) -> LettersChanged:
        wish = {"ids": list(ids), "who": who, "why": why}
        return await self._change(LettersChanged, "POST", "letters/take-back", wish)

    # -- the wire ----------------------------------------------------------------------------------------
    async def _get(self, kind: type[_T], path: str, params: Sequence[tuple[str, str]] = ()) -> _T:
        return self._read(kind, await self._ask("GET", path, params=params))

    async def _change(self, kind: type[_T], method: str, path: str, wish: Mapping[str, object]) -> _T:
        return self._read(kind, await self._ask(method, path, wish=wish))

    async def _ask(
        self,
        method: str,
        path: str,
        *,
        params: Sequence[tuple[str, str]] = (),
        wish: Mapping[str, object] | None = None,
        content: bytes | None = None,
    ) -> httpx.Response:
        kind = {"content-type": MEDIA_TYPE} if content is not None else None
        try:
            answer = await self._client.request(
                method,
                path,
                params=httpx.QueryParams(list(params)),
                json=wish,
                content=content,
                headers=kind,
            )
        except httpx.ConnectError as error:
            raise Unreachable(f"nobody answers at {self._at} ({error}); start it with: dlq serve") from error
        except httpx.TransportError as error:
            raise Unreachable(
                f"{self._at} did not answer to the end ({str(error) or type(error).__name__}); "
                "a change may have been made"
            ) from error
        if answer.status_code == 200:
            return answer
        raise self._refusal(answer)

    def _refusal(self, answer: httpx.Response) -> DeadletterError:
        try:
            detail = str(answer.json()["detail"])
        except (ValueError, KeyError, TypeError):
            return self._stranger(answer)
        match answer.status_code:
            case 404:
                return NotStored(detail)
            case 400 | 413 | 422:
                return UsageError(detail)
            case 503:
                return StoreUnreachable(detail)
            case _:
                return DeadletterError(f"the service at {self._at} refuses: {detail}")

    def _read(self, kind: type[_T], answer: httpx.Response) -> _T:
        try:
            return _adapter(kind).validate_json(answer.content)
        except ValidationError as error:
            raise self._stranger(answer) from error

    def _stranger(self, answer: httpx.Response) -> DeadletterError:
        return Unreachable(
            f"somebody answers at {self._at} (HTTP {answer.status_code}), but not a dlq serve of this version"
        )


_ADAPTERS: Final[dict[type, TypeAdapter[Any]]] = {}


def _adapter(kind: type[_T]) -> TypeAdapter[_T]:
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


@asynccontextmanager
async def service_records(
    at: str, token: str | None, *, connect_s: float = CONNECT_S, answer_s: float = _ANSWER_S
) -> AsyncIterator[ServiceRecords]:
    """The records of the service that answers there; nothing is asked yet."""
    url = service_url(at)
    async with httpx.AsyncClient(
        base_url=f"{url}/api/v1/",
        headers=token_headers(token),
        timeout=patience(answer_s, connect_s),
        trust_env=trusts_environment(url),
        follow_redirects=False,  # one would carry the token along
    ) as client:
        yield ServiceRecords(client, url)


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
        ("origin", "origin"), ("category", "category"), ("text", "text"), ("order", "order"),
        ("limit", "limit"), ("after", "offset"),
    ):  # fmt: skip
        value = getattr(query, field)
        if value != getattr(plain, field):
            told.append((name, str(value)))
    return told


def _part(name: str) -> str:
    """A name as one part of a path; one that would walk elsewhere is none."""
    if not name or name in (".", ".."):
        raise UsageError(f"expected the name of a letter or a group, got {name!r}")
    return quote(name, safe="")
