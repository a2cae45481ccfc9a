"""`dlq queues`: the queues of a vhost in a table."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

import httpx

from deadletter import config
from deadletter.cli.letters.record_options import RecordsWish
from deadletter.cli.terminal import event_loop
from deadletter.cli.terminal.output import Exit, columns, data, result
from deadletter.cli.terminal.units import count
from deadletter.config.settings import Settings
from deadletter.core.grouping.letter_query import LetterQuery
from deadletter.core.letter import names as our_names
from deadletter.core.text.amounts import parse_span
from deadletter.core.text.durations import rough_duration_text
from deadletter.core.text.safe_text import line
from deadletter.errors import DeadletterError, UsageError
from deadletter.operations.queue_list import QueueLine, QueueList, list_queues
from deadletter.operations.records.at_hand import records_at_hand
from deadletter.operations.service_address import (
    home,
    meets_tls,
    service_url,
    token_headers,
    trusts_environment,
)

_LOOK_S: Final = 2.0
_SOURCES: Final = 2
"""So many origins of a dead-letter queue are named."""
_UNKNOWN: Final = "?"
_BY: Final[dict[str, Callable[[QueueLine], tuple[float, str]]]] = {
    "name": lambda one: (0, one.name),
    "depth": lambda one: (-(one.messages or one.ready), one.name),
    "age": lambda one: (-(one.oldest_s or -1), one.name),
    "in": lambda one: (-(one.in_per_s or -1), one.name),
    "out": lambda one: (-(one.out_per_s or -1), one.name),
    "growth": lambda one: (-(one.growth.letters if one.growth else 0), one.name),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuesWish:
    """What was asked for, as it was typed."""

    names: Sequence[str]
    dead: bool
    sort: str
    watch: str | None
    url: str | None
    api: str | None
    records: RecordsWish


def run(wish: QueuesWish) -> Exit:
    if wish.sort not in _BY:
        raise UsageError(f"--sort: expected one of {', '.join(_BY)}, got {wish.sort!r}")
    if wish.records.at is not None and wish.records.store is not None:
        raise UsageError("expected --at or --store, got both: the service has a store of its own")
    options = {"broker.url": wish.url, "broker.api": wish.api}
    settings = config.load(config=wish.records.config, options=options)
    growing = _growing(wish, settings)
    stored, notes = _stored(wish, settings, settings.broker.addresses[0].vhost)
    found = event_loop.run(
        list_queues(
            settings.broker.addresses,
            settings.broker.api,
            watches=settings.watches,
            desk=settings.desk,
            stored=stored,
            names=wish.names,
            again_s=None if wish.watch is None else parse_span(wish.watch),
            growing=growing,
        )
    )
    found = replace(found, notes=(*found.notes, *notes))
    shown = sorted((one for one in found.lines if one.dead or not wish.dead), key=_BY[wish.sort])
    if wish.records.as_json:
        data(_as_json(found, shown), default=_plain)
    else:
        result(_as_text(found, shown, wish))
    return Exit.LEFT if found.missing else Exit.DONE


# -- what the running service saw ------------------------------------------------------------------------
def _growing(wish: QueuesWish, settings: Settings) -> Mapping[str, datetime] | None:
    """Since when queues grow; None where no service of this broker answers."""
    at = wish.records.at or (settings.serve.listen and home(settings.serve.listen))
    if not at:
        return None
    base = service_url(at)
    try:
        with httpx.Client(
            headers=token_headers(os.environ.get("DLQ_API_TOKEN"), base),
            timeout=_LOOK_S,
            verify=meets_tls(base),
            trust_env=trusts_environment(base),
            follow_redirects=False,
        ) as client:
            told = client.get(f"{base}/api/status").raise_for_status().json()
        if told["broker"] != settings.broker.name:
            return None  # another broker's queues may have the same names
        return {
            str(one["queue"]): datetime.fromisoformat(one["growing_since"])
            for one in told["queues"]
            if one.get("growing_since")
        }
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError):
        if wish.records.at is not None:
            raise UsageError(
                f"--at: expected a running dlq serve at {base}, got no status from there"
            ) from None
        return None  # nobody has to run it


def _stored(wish: QueuesWish, settings: Settings, vhost: str) -> tuple[dict[str, int] | None, list[str]]:
    """Letters in the store by their queue, and what is to be said of it."""
    taken = settings.desk.in_vhost(vhost)

    async def main() -> dict[str, int]:
        async with records_at_hand(wish.records.whereabouts(prepare=False)) as records:
            facets = await records.facets(LetterQuery())  # the largest ones; those that are taken by name
            found = {one.value: one.letters for one in facets.by.get("queue", ())}
            return found | {name: (await records.facets(LetterQuery(queue=name))).total for name in taken}

    try:
        return event_loop.run(main()), []
    except DeadletterError as error:
        # Where nobody asked for it a store that is not there has no letters, and nobody misses them.
        asked = taken and settings.desk.asked
        return None, [f"how many letters are in the store is not known: {error}"] if asked else []


# -- telling ---------------------------------------------------------------------------------------------
def _as_text(found: QueueList, shown: Sequence[QueueLine], wish: QueuesWish) -> str:
    said: list[str] = []
    if shown:
        stored = any(one.stored or one.taken for one in shown)
        heads = ["queue", "type", "ready", "unacked", "age", "in/s", "out/s", "consumers", "grows"]
        rows = [heads + ["in the store"] * stored + ["what it is"]]
        said.append(columns(rows + [_row(one, stored=stored) for one in shown]))
    else:
        said.append(f"no {'dead-letter ' if wish.dead else ''}queue to list in vhost {found.vhost}")
    if any(one.oldest_s is not None for one in shown):
        said.append("age: estimated, by the timestamp that the publisher wrote on the letter at the head")
    if any(one.in_per_s is not None for one in shown):
        said.append("in/s, out/s: over the last seconds, as the broker counts; dead letters by the growth")
    said += [f"{name} is not there" for name in found.missing]
    total = sum(max(one.messages or 0, one.ready) for one in shown)  # the API's figures are some seconds old
    said += [f"{count(total)} in {count(len(shown), 'queue')} of vhost {found.vhost}"] if shown else []
    return "\n".join([said[0], *map(line, [*said[1:], *found.notes])])


def _row(one: QueueLine, *, stored: bool) -> list[str]:
    return [
        one.name,
        one.type or _UNKNOWN,
        f"{one.ready:,}",
        _UNKNOWN if one.unacked is None else f"{one.unacked:,}",
        _age(one),
        _rate(one.in_per_s),
        _rate(one.out_per_s),
        f"{one.consumers:,}",
        _grows(one),
        *([_UNKNOWN if one.stored is None else f"{one.stored:,}" if one.stored else "–"] if stored else []),
        _what(one),
    ]


def _age(one: QueueLine) -> str:
    if one.oldest_s is not None:
        return f"~{rough_duration_text(int(one.oldest_s * 1000))}"
    return "–" if one.messages == 0 else _UNKNOWN


def _rate(per_s: float | None) -> str:
    if per_s is None:
        return _UNKNOWN
    return "–" if per_s < 0.05 else f"{per_s:,.1f}" if per_s < 100 else f"{per_s:,.0f}"


def _grows(one: QueueLine) -> str:
    if one.growth is not None:
        number = one.growth.letters
        return "–" if number == 0 else f"{number:+,} in {one.growth.seconds:.0f} s"
    if one.growing_since is not None:
        ago = datetime.now(UTC) - one.growing_since
        return f"since {rough_duration_text(max(0, int(ago.total_seconds() * 1000)))}"
    return ""


def _what(one: QueueLine) -> str:
    said: list[str] = []
    if one.dead_from:
        some = ", ".join(one.dead_from[:_SOURCES])
        more = len(one.dead_from) - _SOURCES
        said.append(f"dead letters of {some}{f' and {more} more' if more > 0 else ''}")
    if one.watch is not None:
        said.append(f"watched by [[watches]] {one.watch} ({one.watch_mode})")
    if one.taken:
        said.append("into the store, by [desk]")
    if one.name == our_names.PARKED:
        said.append("letters that wait for a person")
    elif one.ours:
        said.append("of dlq serve")
    elif one.dead_from and one.watch is None and not one.taken:
        said.append("nobody watches it")
    return "; ".join(said)


def _as_json(found: QueueList, shown: Sequence[QueueLine]) -> dict[str, object]:
    return {
        "vhost": found.vhost,
        "queues": [_line_json(one) for one in shown],
        "missing": list(found.missing),
        "notes": list(found.notes),
    }


def _line_json(one: QueueLine) -> dict[str, Any]:
    return {
        **asdict(one),
        "dead": one.dead,
        "oldest_by": "unknown" if one.oldest_s is None else "estimated",
    }


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"cannot say {type(value).__name__} in JSON")
