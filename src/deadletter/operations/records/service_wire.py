"""The way from a command to the service's API: requests, answers as values, refusals as errors of ours."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar
from urllib.parse import quote

import httpx
from pydantic import TypeAdapter, ValidationError

from deadletter.errors import (
    ChangedMeanwhile,
    DeadletterError,
    EditRefused,
    NotStored,
    StoreUnreachable,
    Unreachable,
    UsageError,
)
from deadletter.operations.records.exact_letters import MEDIA_TYPE
from deadletter.operations.service_address import (
    CONNECT_S,
    meets_tls,
    patience,
    service_url,
    token_headers,
    trusts_environment,
)

ANSWER_S: Final = 60.0
_T = TypeVar("_T")


class ServiceWire:
    """Over a client whose base is the service's API."""

    def __init__(self, client: httpx.AsyncClient, at: str) -> None:
        self._client = client
        self._at = at

    async def get(self, kind: type[_T], path: str, params: Sequence[tuple[str, str]] = ()) -> _T:
        return self.read(kind, await self.ask("GET", path, params=params))

    async def change(
        self, kind: type[_T], method: str, path: str, wish: Mapping[str, object], *, version: str = ""
    ) -> _T:
        """`version`: of what was looked at; where it is another one now, nothing is done."""
        return self.read(kind, await self.ask(method, path, wish=wish, version=version))

    async def ask(
        self,
        method: str,
        path: str,
        *,
        params: Sequence[tuple[str, str]] = (),
        wish: Mapping[str, object] | None = None,
        content: bytes | None = None,
        version: str = "",
    ) -> httpx.Response:
        headers = {"content-type": MEDIA_TYPE} if content is not None else {}
        if version:
            headers["if-match"] = f'"{version}"'
        try:
            answer = await self._client.request(
                method,
                path,
                params=httpx.QueryParams(list(params)),
                json=wish,
                content=content,
                headers=headers,
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
            return self.stranger(answer)
        match answer.status_code:
            case 404:
                return NotStored(detail)
            case 400 | 413 | 422:
                return UsageError(detail)
            case 409:
                return EditRefused(detail)
            case 412:
                return ChangedMeanwhile(detail)
            case 503:
                return StoreUnreachable(detail)
            case _:
                return DeadletterError(f"the service at {self._at} refuses: {detail}")

    def read(self, kind: type[_T], answer: httpx.Response) -> _T:
        try:
            return _adapter(kind).validate_json(answer.content)
        except ValidationError as error:
            raise self.stranger(answer) from error

    def stranger(self, answer: httpx.Response) -> DeadletterError:
        return Unreachable(
            f"somebody answers at {self._at} (HTTP {answer.status_code}), but not a dlq serve of this version"
        )


_ADAPTERS: Final[dict[type, TypeAdapter[Any]]] = {}


def _adapter(kind: type[_T]) -> TypeAdapter[_T]:
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


@asynccontextmanager
async def service_wire(
    at: str, token: str | None, *, connect_s: float = CONNECT_S, answer_s: float = ANSWER_S
) -> AsyncIterator[ServiceWire]:
    """To the service that answers there; nothing is asked yet."""
    url = service_url(at)
    async with httpx.AsyncClient(
        base_url=f"{url}/api/v1/",
        headers=token_headers(token, url),
        timeout=patience(answer_s, connect_s),
        verify=meets_tls(url),
        trust_env=trusts_environment(url),
        follow_redirects=False,  # one would carry the token along
    ) as client:
        yield ServiceWire(client, url)


def part_of(name: str) -> str:
    """A name as one part of a path; one that would walk elsewhere is none."""
    if not name or name in (".", ".."):
        raise UsageError(f"expected a name, got {name!r}")
    return quote(name, safe="")
