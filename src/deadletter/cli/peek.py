"""`dlq peek`: the first letters of a queue, for people or as JSON."""

from __future__ import annotations

import base64
import json
from datetime import datetime
from decimal import Decimal
from pathlib import Path

from deadletter import config
from deadletter.cli import loop
from deadletter.cli.exits import Exit
from deadletter.cli.output import result
from deadletter.core import lenient, looking, names
from deadletter.core.deaths import Death
from deadletter.core.failure import Failure
from deadletter.core.origin import Ambiguous, Origin
from deadletter.service.peek import Look, Peeked, body_text, peek

STACK_LINES = 6


def run(
    *, queue: str, file: Path | None, url: str | None, limit: int, body_bytes: int, as_json: bool
) -> Exit:
    addresses = config.load(config=file, options={"broker.url": url}).broker.addresses
    look = loop.run(peek(addresses, queue, limit=limit))
    if as_json:
        result(json.dumps(_as_json(look, body_bytes), ensure_ascii=False, default=_plain))
    else:
        result(_as_text(look, body_bytes, addresses[0].vhost))
    return Exit.LEFT if look.unreadable else Exit.DONE


def _as_text(look: Look, body_bytes: int, vhost: str) -> str:
    if not look.letters and not look.unreadable:
        return f"{look.queue} is empty"
    parts = [letter_text(number, seen, body_bytes) for number, seen in enumerate(look.letters, 1)]
    if look.unreadable:
        parts.append(f"{look.unreadable} letters could not be read; they are still there")
    if look.renewed:
        parts.append(
            f"{look.renewed} letters had spent {looking.RENEW_AT} or more deliveries and were renewed: they "
            f"are at the end of {look.queue} now; {looking.advice(look.queue, vhost)}"
        )
    elif look.counted and look.cost is looking.LookCost.A_DELIVERY:
        parts.append(
            f"on RabbitMQ {look.server_version} this look cost each letter {look.cost.value}; "
            f"{looking.advice(look.queue, vhost)}"
        )
    return "\n\n".join(parts)


def letter_text(number: int, seen: Peeked, body_bytes: int) -> str:
    letter = seen.letter
    lines = [f"{number}. {seen.id}", f"   came by     {_by(seen.exchange, seen.routing_key)}"]
    lines.append(f"   origin      {_origin_text(letter.origin, letter.provenance)}")
    if (cause := lenient.text(letter.headers.get(names.CAUSE), 100)) is not None:
        why = lenient.text(letter.headers.get(names.WHY), 500) or ""
        lines.append(f"   kept for    {lenient.shown(f'{cause}: {why}', 600)}")
    lines += [f"   died        {_death_text(death)}" for death in letter.history.all[:5]]
    if (failure := letter.failure) is not None:
        what = ": ".join(filter(None, (failure.error_type, failure.message))) or "no error told"
        first, *more = what.splitlines() or [""]
        lines += [
            f"   error       {first} ({failure.framework.value})",
            *(f"               {m}" for m in more),
        ]
        if where := _where_text(failure):
            lines.append(f"   failed      {where}")
        if failure.stack:
            lines += [f"               {line}" for line in failure.stack.splitlines()[:STACK_LINES]]
    if seen.delivery_count is not None:
        left = seen.remaining_deliveries
        rest = (
            ""
            if left is None
            else f", {max(0, left)} left of {looking.DEFAULT_LIMIT} if no other limit is set"
        )
        lines.append(f"   deliveries  {seen.delivery_count} spent{rest}")
    properties = {
        name: value
        for name in ("message_id", "content_type", "type", "app_id", "timestamp", "correlation_id")
        if (value := getattr(seen.properties, name)) is not None
    }
    lines.append("   properties  " + (", ".join(f"{k}={v}" for k, v in properties.items()) or "none"))
    lines.append(f"   body        {len(seen.body):,} bytes")
    lines += [
        f"     {line}" for line in body_text(seen.body, letter.content_type, most=body_bytes).splitlines()
    ]
    return "\n".join(lines)


def _where_text(failure: Failure) -> str:
    """Who failed and when, as far as the letter says."""
    named = (("service", failure.service), ("release", failure.release), ("host", failure.host))
    times = (("at", failure.at), ("first", failure.first_at if failure.first_at != failure.at else None))
    said = [f"{name} {value}" for name, value in named if value]
    said += [f"{name} {value:%Y-%m-%d %H:%M:%S} UTC" for name, value in times if value]
    return ", ".join(said)


def _by(exchange: str, routing_key: str) -> str:
    return f"exchange {exchange or '(default)'}, key {routing_key or '(empty)'}"


def _origin_text(origin: Origin | None, provenance: object) -> str:
    if origin is None:
        return f"in doubt: {provenance.why}" if isinstance(provenance, Ambiguous) else "not known"
    return f"{origin.queue} ({_by(origin.exchange or '', origin.routing_key or '')})"


def _death_text(death: Death) -> str:
    when = "" if death.first_at is None else f", first {death.first_at:%Y-%m-%d %H:%M:%S} UTC"
    return f"{death.reason} in {death.queue}, {death.count} ×{when}"


def _as_json(look: Look, body_bytes: int) -> dict[str, object]:
    return {
        "queue": look.queue,
        "broker": look.server_version,
        "look_cost": look.cost.name.lower() if look.counted else "free",
        "renewed": look.renewed,
        "unreadable": look.unreadable,
        "letters": [_letter_json(seen, body_bytes) for seen in look.letters],
    }


def _letter_json(seen: Peeked, body_bytes: int) -> dict[str, object]:
    letter, origin, failure = seen.letter, seen.letter.origin, seen.letter.failure
    try:
        body: dict[str, object] = {"body": seen.body[:body_bytes].decode()}
    except UnicodeDecodeError:
        body = {"body_base64": base64.b64encode(seen.body[:body_bytes]).decode()}
    return {
        "id": seen.id,
        "exchange": seen.exchange,
        "routing_key": seen.routing_key,
        "redelivered": seen.redelivered,
        "origin": None
        if origin is None
        else {"queue": origin.queue, "exchange": origin.exchange, "routing_keys": list(origin.routing_keys)},
        "provenance": type(letter.provenance).__name__.lower(),
        "deaths": [
            {"queue": d.queue, "reason": d.reason, "count": d.count, "first_at": d.first_at}
            for d in letter.history.all
        ],
        "error": None
        if failure is None
        else {
            "framework": failure.framework.value,
            "type": failure.error_type,
            "message": failure.message,
            "stack": failure.stack,
            "service": failure.service,
            "release": failure.release,
            "host": failure.host,
            "at": failure.at,
            "first_at": failure.first_at,
        },
        "delivery_count": seen.delivery_count,
        "remaining_deliveries": seen.remaining_deliveries,
        "content_type": letter.content_type,
        "message_id": seen.properties.message_id,
        "headers": letter.headers,
        "body_bytes": len(seen.body),
        **body,
    }


def _plain(value: object) -> object:
    """What JSON has no word for."""
    match value:
        case datetime():
            return value.isoformat()
        case bytes():
            return {"base64": base64.b64encode(value).decode()}
        case Decimal():
            return str(value)
        case _:
            raise TypeError(f"cannot say {type(value).__name__} in JSON")
