"""How notices reach somebody: the log, webhooks, and whatever apprise knows.

Whoever delivers never waits. Each channel has its own queue and its own task, so a webhook that hangs holds
up nobody but itself; it is tried again after growing pauses, and an outage is said once. A queue is bounded:
when it is full its oldest notice goes, and the next one that arrives says how many did.

The URLs are keys: whoever has one may write into a team's chat. They appear in no log line, no error and no
event of ours; a channel is called by its kind and host, and what libraries would log about it is shut off.
"""

from __future__ import annotations

import asyncio
import logging
import warnings
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from time import time
from typing import Any, Final, Protocol

import httpx

from deadletter.config.secrets import without_token
from deadletter.core.text.safe_text import line
from deadletter.errors import UsageError
from deadletter.service.telling.alerting import AlertChange, AlertSeverity, Notice
from deadletter.service.telling.service_events import Recovered, ServiceEvent, Trouble

QUEUE: Final = 1_000
PAUSE_S: Final = 1.0
PAUSE_MAX_S: Final = 60.0
TIMEOUT_S: Final = 10.0
MAX_REFUSALS: Final = 3
"""A notice that was refused so often is given up: the next one may be liked better."""
FOLDED_SHOWN: Final = 100
TEXT_CHARS: Final = 2_000
_AGAIN: Final = frozenset({408, 425, 429})
"""Answers that say: later."""


class _Undelivered(Exception):
    """It did not arrive. `for_good`: the other side does not want this one."""

    def __init__(self, why: str, *, for_good: bool = False) -> None:
        self.for_good = for_good
        super().__init__(why)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Letterhead:
    """What every notice is sent with."""

    broker: str
    clock: Callable[[], float]

    def title(self, notice: Notice) -> str:
        word = notice.change if notice.change is AlertChange.RECOVERED else notice.severity
        return f"{word.upper()} {self.broker}"

    def payload(self, notice: Notice, lost: int) -> dict[str, object]:
        told: dict[str, object] = {
            "broker": self.broker,
            "key": notice.key,
            "severity": str(notice.severity),
            "change": str(notice.change),
            "text": f"{self.title(notice)}: {told_text(notice, lost)}",
            "since": _iso(notice.since),
            "at": _iso(self.clock()),
        }
        if notice.folded:
            told["folded"] = [
                {"key": one.key, "severity": str(one.severity), "change": str(one.change)}
                for one in notice.folded[:FOLDED_SHOWN]
            ]
        if lost:
            told["lost"] = lost
        return told


class _Carrier(Protocol):
    """Takes one notice to somebody, or raises _Undelivered."""

    async def send(self, notice: Notice, lost: int) -> None: ...

    async def close(self) -> None: ...


class _Webhook:
    """POST, as JSON."""

    def __init__(self, url: str, head: _Letterhead) -> None:
        self._url = url
        self._head = head
        self._client: httpx.AsyncClient | None = None

    async def send(self, notice: Notice, lost: int) -> None:
        if self._client is None:
            self._client = httpx.AsyncClient(timeout=TIMEOUT_S, follow_redirects=False, verify=True)
        try:
            answer = await self._client.post(self._url, json=self._head.payload(notice, lost))
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            # its text may quote the URL
            raise _Undelivered(f"it does not answer ({type(error).__name__})") from None
        if not answer.is_success:
            code = answer.status_code
            refused = 400 <= code < 500 and code not in _AGAIN
            raise _Undelivered(f"it answered {code}", for_good=refused)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()


class _Apprise:
    """Whatever apprise knows. Its calls block, so they run in a thread."""

    def __init__(self, url: str, name: str, head: _Letterhead) -> None:
        apprise = _apprise()
        self._head = head
        self._sender = apprise.Apprise()
        self._types = apprise.NotifyType
        try:
            with warnings.catch_warnings():
                # the first URL loads all of its hundred plugins, and what they import is not our affair
                warnings.simplefilter("ignore")
                known = self._sender.add(url)
        except Exception as error:  # noqa: BLE001 -- its plugins raise what they like, with the URL in the text
            raise UsageError(_not_understood(name, type(error).__name__)) from None
        if not known:
            raise UsageError(_not_understood(name, "unknown, or something is missing in it"))

    async def send(self, notice: Notice, lost: int) -> None:
        try:
            sent = await asyncio.to_thread(
                self._sender.notify,
                title=self._head.title(notice),
                body=told_text(notice, lost),
                notify_type=self._type(notice),
            )
        except Exception as error:  # noqa: BLE001 -- a plugin may raise anything; its text may hold the URL
            raise _Undelivered(f"apprise failed ({type(error).__name__})") from None
        if not sent:
            raise _Undelivered("apprise could not deliver")

    async def close(self) -> None:
        return

    def _type(self, notice: Notice) -> Any:
        if notice.change is AlertChange.RECOVERED:
            return self._types.SUCCESS
        return self._types.FAILURE if notice.severity is AlertSeverity.CRITICAL else self._types.WARNING


class _Channel:
    """One queue and what empties it."""

    def __init__(
        self, name: str, carrier: _Carrier, emit: Callable[[ServiceEvent], None], pause_s: float
    ) -> None:
        self.name = name
        self._carrier = carrier
        self._emit = emit
        self._first_pause_s = pause_s
        self._queue: deque[Notice] = deque()
        self._lost = 0
        """Notices that had to make room for others, and nobody was told of yet."""
        self._awake = asyncio.Event()
        self._closing = asyncio.Event()
        self._in_trouble = False

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def put(self, notice: Notice) -> None:
        if len(self._queue) >= QUEUE:
            del self._queue[1]  # the first is under way
            self._lost += 1
        self._queue.append(notice)
        self._awake.set()

    def finish(self) -> None:
        """Send what is there, and end."""
        self._closing.set()
        self._awake.set()

    async def run(self) -> None:
        try:
            while True:
                while self._queue:
                    await self._deliver_first()
                if self._closing.is_set():
                    return
                self._awake.clear()
                await self._awake.wait()
        finally:
            await self._carrier.close()

    async def _deliver_first(self) -> None:
        notice, pause_s, refusals = self._queue[0], self._first_pause_s, 0
        while True:
            lost = self._lost
            try:
                await self._carrier.send(notice, lost)
            except _Undelivered as error:
                self._trouble(str(error), pause_s)
                refusals += error.for_good
                if refusals >= MAX_REFUSALS:
                    self._lost += 1
                    break
                await self._pause(pause_s)
                pause_s = min(pause_s * 2, PAUSE_MAX_S)
            else:
                self._lost -= lost
                self._recovered()
                break
        self._queue.popleft()

    async def _pause(self, pause_s: float) -> None:
        if self._closing.is_set():
            await asyncio.sleep(min(pause_s, self._first_pause_s))
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(self._closing.wait(), pause_s)

    def _trouble(self, why: str, pause_s: float) -> None:
        if not self._in_trouble:
            self._in_trouble = True
            self._emit(Trouble(what=f"alert:{self.name}", why=why, seconds=pause_s))

    def _recovered(self) -> None:
        if self._in_trouble:
            self._in_trouble = False
            self._emit(Recovered(what=f"alert:{self.name}"))


class Channels:
    """All of them. `deliver` at any time; `run` until `close`. UsageError: one of them cannot be."""

    def __init__(
        self,
        urls: Sequence[str],
        emit: Callable[[ServiceEvent], None],
        *,
        broker: str,
        log: Callable[[Notice], None],
        clock: Callable[[], float] = time,
        pause_s: float = PAUSE_S,
    ) -> None:
        self._emit = emit
        self._log = log if "log" in urls else None
        head = _Letterhead(broker=broker, clock=clock)
        self._channels: list[_Channel] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._closing = asyncio.Event()
        names: Counter[str] = Counter()
        _silence("httpx", "httpcore", "urllib3")
        for url in urls:
            if url == "log":
                continue
            name = without_token(url)
            names[name] += 1
            if names[name] > 1:
                name = f"{name}#{names[name]}"
            web = url.lower().startswith(("http://", "https://"))
            carrier: _Carrier = _Webhook(url, head) if web else _Apprise(url, name, head)
            self._channels.append(_Channel(name, carrier, emit, pause_s))

    @property
    def waiting(self) -> int:
        """How many notices are on their way, over all channels."""
        return sum(channel.waiting for channel in self._channels)

    def deliver(self, notices: Sequence[Notice]) -> None:
        """Never waits. After `close` only the log is told."""
        for notice in notices:
            if self._log is not None:
                self._log(notice)
            if not self._closing.is_set():
                for channel in self._channels:
                    channel.put(notice)

    async def run(self) -> None:
        """Deliver notices until `close`, or until it is cancelled."""
        self._tasks = [asyncio.create_task(channel.run(), name=channel.name) for channel in self._channels]
        closing = asyncio.create_task(self._closing.wait())
        try:
            done, _ = await asyncio.wait([closing, *self._tasks], return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                if not task.cancelled():
                    task.result()
        finally:
            for task in (closing, *self._tasks):
                task.cancel()
            await asyncio.gather(closing, *self._tasks, return_exceptions=True)

    async def close(self, grace_s: float) -> None:
        """Send what is queued, for so long; say what could not be sent."""
        self._closing.set()
        for channel in self._channels:
            channel.finish()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=grace_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        for channel in self._channels:
            if channel.waiting:
                why = f"{channel.waiting} alerts could not be sent before the end"
                self._emit(Trouble(what=f"alert:{channel.name}", why=why))


def told_text(notice: Notice, lost: int = 0) -> str:
    """The notice as a sentence, bounded."""
    text = line(notice.text, TEXT_CHARS)
    if lost:
        text = f"{text} ({lost:,} older {'alert' if lost == 1 else 'alerts'} could not be delivered)"
    return text


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _apprise() -> Any:
    # it quotes URLs in what it logs, and what goes wrong is said by us
    logging.getLogger("apprise").setLevel(logging.CRITICAL + 1)
    try:
        return import_module("apprise")
    except ImportError:
        raise UsageError(
            "alerts.channels: expected log or http(s) URLs, because apprise, which knows all others, is not "
            "installed; install it with: pip install 'deadletter[alerts]'"
        ) from None


def _silence(*libraries: str) -> None:
    """These log every URL they ask, below a warning."""
    for library in libraries:
        log = logging.getLogger(library)
        if log.getEffectiveLevel() < logging.WARNING or log.level == logging.NOTSET:
            log.setLevel(logging.WARNING)


def _not_understood(name: str, why: str) -> str:
    return (
        f"alerts.channels: expected log, the http(s) URL of a webhook or an apprise URL, got {name!r}, which "
        f"apprise does not understand ({why})"
    )
