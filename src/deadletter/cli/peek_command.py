"""`dlq peek`: the first letters of a queue, for people or as JSON."""

from __future__ import annotations

import base64
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path

from deadletter import config
from deadletter.cli.stored_here import stored_words
from deadletter.cli.terminal import event_loop
from deadletter.cli.terminal.output import Exit, data, parked_lines, result
from deadletter.cli.terminal.units import count
from deadletter.core.deciding.deaths import Death
from deadletter.core.deciding.failure import Failure
from deadletter.core.deciding.origin import Ambiguous, Origin, Unproven
from deadletter.core.letter.header_values import shown
from deadletter.core.text.safe_text import line, lines
from deadletter.core.topology import look_cost
from deadletter.operations.lifting import renewed_words
from deadletter.operations.peeking import Peeked, PeekResult, body_text, peek
from deadletter.operations.withheld import Withheld, withheld

STACK_LINES = 6


def run(
    *,
    queue: str,
    limit: int,
    body_bytes: int,
    lift_limit: bool,
    file: Path | None,
    url: str | None,
    api: str | None,
    as_json: bool,
) -> Exit:
    settings = config.load_command(config=file, options={"broker.url": url, "broker.api": api})
    broker = settings.broker
    look = event_loop.run(peek(broker.addresses, queue, limit=limit, api=broker.api, lift=lift_limit))
    nothing = not look.letters and not look.unreadable
    held = event_loop.run(withheld(broker.addresses, broker.api, queue)) if nothing else None
    if nothing and held is None and (words := stored_words(queue, settings)) is not None:
        look = replace(look, notes=(*look.notes, words))
    if as_json:
        told = {"messages": held.messages, "why": held.why} if held is not None else None
        data({**_as_json(look, body_bytes), "withheld": told}, default=_plain)
    elif held is not None:
        result(withheld_text(queue, held))
    else:
        result(_as_text(look, body_bytes))
    amiss = look.unreadable or look.parked or look.endangered or held is not None
    return Exit.LEFT if amiss else Exit.DONE


def withheld_text(queue: str, held: Withheld) -> str:
    number = "letters" if held.messages is None else count(held.messages)
    return line(f"{queue} holds {number} that cannot be looked at: {held.why}")


def _as_text(look: PeekResult, body_bytes: int) -> str:
    if not look.letters and not look.unreadable:
        return "\n\n".join(map(line, [f"{look.queue} is empty", *look.notes]))
    limit = look.deliveries.limit
    parts = [letter_text(number, seen, body_bytes, limit) for number, seen in enumerate(look.letters, 1)]
    if look.unreadable:
        parts.append(f"{look.unreadable} letters could not be read; they are still there")
    if look.renewed:
        parts.append(f"{renewed_words(look.renewed, look.queue, limit)}; {look.advice}")
    elif look.counted and look.cost is look_cost.LookCost.A_DELIVERY:
        parts.append(
            f"on RabbitMQ {look.server_version} this look cost each letter {look.cost.value}; {look.advice}"
        )
    parts += [*parked_lines(look.queue, look.parked, look.endangered), *look.notes]
    return "\n\n".join(parts)


def letter_text(number: int, seen: Peeked, body_bytes: int, limit: int | None = None) -> str:
    letter = seen.letter
    said = [f"{number}. {seen.id}", f"   came by     {_by(seen.exchange, seen.routing_key)}"]
    said.append(f"   origin      {_origin_text(letter.origin, letter.provenance)}")
    said += [f"   died        {_death_text(death)}" for death in letter.history.all[:5]]
    if (aside := letter.put_aside) is not None:
        said.append(f"   put aside   {shown(': '.join(filter(None, aside)), 700)}")
    if (failure := letter.failure) is not None:
        what = ": ".join(filter(None, (failure.error_type, failure.message))) or "no error told"
        first, *more = what.splitlines() or [""]
        said += [
            f"   error       {first} ({failure.framework.value})",
            *(f"               {m}" for m in more),
        ]
        if where := _where_text(failure):
            said.append(f"   failed      {where}")
        if failure.stack:
            said += [f"               {one}" for one in failure.stack.splitlines()[:STACK_LINES]]
    if seen.delivery_count is not None:
        left = seen.remaining_deliveries
        rest = "" if left is None else f", {left} left of {limit}"
        said.append(f"   deliveries  {seen.delivery_count} spent{rest}")
    properties = {
        name: value
        for name in ("message_id", "content_type", "type", "app_id", "timestamp", "correlation_id")
        if (value := getattr(seen.properties, name)) is not None
    }
    said.append("   properties  " + (", ".join(f"{k}={v}" for k, v in properties.items()) or "none"))
    said.append(f"   body        {len(seen.body):,} bytes")
    body = body_text(seen.body, letter.content_type, most=body_bytes).split("\n")
    return "\n".join([lines(said), *(f"     {one}" for one in body)])


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
        return f"in doubt: {provenance.why}" if isinstance(provenance, Ambiguous | Unproven) else "not known"
    came_by = _by(shown(origin.exchange or ""), shown(origin.routing_key or ""))
    return f"{shown(origin.queue)} ({came_by})"


def _death_text(death: Death) -> str:
    when = "" if death.first_at is None else f", first {death.first_at:%Y-%m-%d %H:%M:%S} UTC"
    return f"{shown(death.reason)} in {shown(death.queue)}, {death.count} ×{when}"


def _as_json(look: PeekResult, body_bytes: int) -> dict[str, object]:
    return {
        "queue": look.queue,
        "broker": look.server_version,
        "look_cost": look.cost.name.lower() if look.counted else "free",
        "delivery_limit": look.deliveries.limit,
        "delivery_limit_known": look.deliveries.known,
        "renewed": look.renewed,
        "parked": dict(look.parked),
        "endangered": dict(look.endangered),
        "notes": list(look.notes),
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
        else {
            "queue": shown(origin.queue),
            "exchange": None if origin.exchange is None else shown(origin.exchange),
            "routing_keys": [shown(key) for key in origin.routing_keys],
        },
        "provenance": type(letter.provenance).__name__.lower(),
        "deaths": [
            {"queue": shown(d.queue), "reason": shown(d.reason), "count": d.count, "first_at": d.first_at}
            for d in letter.history.all
        ],
        "put_aside": None
        if (aside := letter.put_aside) is None
        else {"cause": shown(aside.cause), "why": shown(aside.why, 700)},
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
