"""`dlq policy list | explain`: which policies there are, and what they would do to one letter.

What the store has to say about them is in `policy_store`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from deadletter import config
from deadletter.broker.live_topology import read_topology
from deadletter.cli import letter_file
from deadletter.cli.letter_file import Sample
from deadletter.cli.peek_command import withheld_text
from deadletter.cli.policies import policy_store
from deadletter.cli.policies.policy_store import StoreLook
from deadletter.cli.terminal import event_loop
from deadletter.cli.terminal.output import Exit, columns, data, result
from deadletter.cli.terminal.units import count
from deadletter.config.settings import Mode, Settings, Watch
from deadletter.core.deciding.deaths import OriginBy
from deadletter.core.deciding.decide import Answer, Circumstances, questions
from deadletter.core.deciding.decision import Decision, Retry
from deadletter.core.deciding.event_config import TABLE, from_table
from deadletter.core.deciding.explain import ExplainedStep, Explanation, explain
from deadletter.core.deciding.letter_view import LetterView, view_letter
from deadletter.core.deciding.place import Place
from deadletter.core.deciding.policy import JqCondition, Match, Policies, Policy
from deadletter.core.letter.header_values import shown
from deadletter.core.text.durations import duration_text, rough_duration_text
from deadletter.core.text.glob import glob
from deadletter.core.topology.descent import Descent
from deadletter.core.topology.rabbitmq_versions import traits_of
from deadletter.errors import ManagementRefused, UsageError
from deadletter.operations.peeking import peek
from deadletter.operations.withheld import withheld
from deadletter.service.intake.conditions import Conditions, Question

_MAX_NAME_CHARS: Final = 100


def list_policies(*, file: Path | None, store: str | None, as_json: bool) -> Exit:
    """In the order in force: the store's table, the file, the default."""
    settings = config.load(config=file, options={"store.url": store})
    look = policy_store.look(settings)
    if as_json:
        data(_list_json(settings, look))
    else:
        result(_list_text(settings, look))
    return policy_store.told(look.trouble)


def _list_text(settings: Settings, look: StoreLook) -> str:
    lines: list[str] = []
    if not settings.watches or len(look.numbered) < len(settings.watches):
        lines += _policies_text(settings, look, look.in_force.policies, settings.policies)
    for watch, in_force in look.numbered:
        delays = ", ".join(map(duration_text, watch.delays_ms))
        if lines:
            lines.append("")
        lines.append(f"for {shown(watch.dlq)}, by its numbered delays ({delays}) and not by a back-off:")
        lines += _policies_text(settings, look, in_force.policies, settings.policies_of(watch))
    if look.in_force.warnings:
        lines += [f"ignored in {TABLE}:", *(f"    {warning}" for warning in look.in_force.warnings)]
    return "\n".join(lines)


def _policies_text(settings: Settings, look: StoreLook, policies: Policies, file: Policies) -> list[str]:
    table = [_policy_text(p) for p in policies if from_table(p, file)]
    lines = [_policy_text(p) for p in policies if not from_table(p, file)]
    if look.store is None:
        return lines
    # only a list that may come from two places has to say from where
    if look.trouble is not None:
        above = [f"{TABLE} in {look.store} could not be read"]
    elif table:
        above = [f"from {TABLE} in {look.store}:", *table]
    else:
        above = [f"nothing from {TABLE} in {look.store}"]
    return [*above, f"from {_file(settings)}:", *lines]


def _policy_text(policy: Policy) -> str:
    return f"{shown(policy.name)}: {match_text(policy.match)}\n    {policy.text()}"


def _list_json(settings: Settings, look: StoreLook) -> dict[str, object]:
    return {
        "policies": _policies_json(look.in_force.policies, settings.policies),
        "numbered": [
            {
                "dlq": watch.dlq,
                "vhost": watch.vhost,
                "delays_ms": watch.delays_ms,
                "policies": _policies_json(in_force.policies, settings.policies_of(watch)),
            }
            for watch, in_force in look.numbered
        ],
        "levels_ms": sorted(look.in_force.policies.levels_ms),
        "file": settings.file and str(settings.file),
        "store": look.store,
        "store_error": look.trouble and str(look.trouble),
        "ignored": look.in_force.warnings,
    }


def _policies_json(policies: Policies, file: Policies) -> list[dict[str, object]]:
    return [
        {
            "name": p.name,
            "from": "table" if from_table(p, file) else "file",
            "match": _match_json(p.match),
            "text": p.text(),
        }
        for p in policies
    ]


def _file(settings: Settings) -> str:
    return str(settings.file or "the defaults")


def explain_file(
    *, letter: Path, watch: str | None, broker_version: str, file: Path | None, as_json: bool
) -> Exit:
    settings = config.load(config=file)
    now = datetime.now(UTC)
    sample = letter_file.read(letter, now)
    return explain_sample(
        sample, settings, watch=watch, old_broker=_is_old(broker_version), now=now, as_json=as_json
    )


def explain_queue(
    *, queue: str, watch: str | None, file: Path | None, url: str | None, as_json: bool
) -> Exit:
    """The first letter of a queue, looked at and left there."""
    settings = config.load(config=file, options={"broker.url": url})
    broker = settings.broker
    look = event_loop.run(peek(broker.addresses, queue, limit=1, api=broker.api))
    if (
        not look.letters
        and (held := event_loop.run(withheld(broker.addresses, broker.api, queue))) is not None
    ):
        raise UsageError(f"expected a letter to explain; {withheld_text(queue, held)}")
    if not look.letters:
        raise UsageError(f"expected a letter in {queue!r} to explain; it is empty")
    seen = look.letters[0]
    chosen = None if watch is None else _watch(settings, watch)
    return explain_sample(
        Sample(headers=seen.letter.headers, content_type=seen.properties.content_type, body=seen.body),
        settings,
        watch=watch,
        old_broker=traits_of(look.server_version).believes_clients,
        now=datetime.now(UTC),
        as_json=as_json,
        place=event_loop.run(_place(settings, queue, () if chosen is None else chosen.origins)),
        came_by=(seen.exchange, seen.routing_key),
    )


async def _place(settings: Settings, queue: str, named: tuple[str, ...]) -> Place | None:
    """As the service knows it; None where nobody tells the shape of the broker."""
    try:
        shape = await read_topology(settings.broker.addresses[0], settings.broker.api)
    except ManagementRefused:
        return None
    return Place(queue=queue, ways=Descent(shape), named=named)


def explain_sample(
    sample: Sample,
    settings: Settings,
    *,
    watch: str | None,
    old_broker: bool,
    now: datetime,
    as_json: bool,
    place: Place | None = None,
    came_by: tuple[str, str] = ("", ""),
) -> Exit:
    """What would happen to one letter, wherever it was taken from. `old_broker`: a RabbitMQ 3.x.

    Without a `place` every death is believed that can be one.
    """
    chosen = None if watch is None else _watch(settings, watch)
    policies = settings.policies if chosen is None else settings.policies_of(chosen)
    letter = view_letter(
        sample.headers,
        broker_keeps_client_deaths=old_broker,
        content_type=sample.content_type,
        body=sample.body,
        by=OriginBy.FAILURE if chosen is None else chosen.origin_by,
        place=place,
        came_by=came_by,
    )
    told = explain(
        letter,
        policies,
        now=now,
        # as the service works: it stays, and it looks at the origin's depth before it sends anything there
        circumstances=Circumstances(continuous=chosen is None or chosen.mode is Mode.CONSUME, sees_room=True),
        answers=_answers(letter, policies, sample.body),
    )
    attempt = told.steps[0].decision
    before = attempt.attempt - 1 if isinstance(attempt, Retry) else attempt.attempt
    if as_json:
        data(_as_json(letter, before, told))
    else:
        result(_as_text(letter, before, told))
    return Exit.DONE


def _answers(letter: LetterView, policies: Policies, body: bytes) -> Mapping[JqCondition, Answer]:
    asked = questions(letter, policies)

    async def ask() -> Mapping[JqCondition, Answer]:
        async with Conditions() as conditions:
            return (await conditions.answer([Question(body, asked)]))[0]

    return event_loop.run(ask()) if asked else {}


def _watch(settings: Settings, dlq: str) -> Watch:
    for watch in settings.watches:
        if watch.dlq == dlq or glob(watch.dlq, dlq):
            return watch
    known = ", ".join(watch.dlq for watch in settings.watches) or "none"
    raise UsageError(f"--watch: expected a dead-letter queue that a watch takes ({known}), got {dlq!r}")


def _is_old(version: str) -> bool:
    major = version.partition(".")[0]
    if major not in ("3", "4"):
        raise UsageError(f"--broker-version: expected a version such as 3.10 or 4.3, got {version!r}")
    return major == "3"


def match_text(match: Match) -> str:
    """The conditions in one line; `everything` without any."""
    parts = [
        f"{key} {value}"
        for key, value in (
            ("queue", match.queue),
            ("routing key", match.routing_key),
            ("reason", " or ".join(sorted(match.reasons)) or None),
            ("error", " or ".join(match.error_types) or None),
            ("content type", match.content_type),
            ("body", match.body and match.body.program),
        )
        if value is not None
    ]
    parts += [f"header {wanted.header} {wanted.value}" for wanted in match.headers]
    return shown(", ".join(parts) or "everything")


def _match_json(match: Match) -> dict[str, object]:
    return {
        "queue": match.queue,
        "routing_key": match.routing_key,
        "reason": sorted(match.reasons),
        "error_type": list(match.error_types),
        "header": {wanted.header: wanted.value for wanted in match.headers},
        "content_type": match.content_type,
        "body": match.body and match.body.program,
    }


def _as_text(letter: LetterView, before: int, told: Explanation) -> str:
    considered = [
        (
            shown(c.policy, _MAX_NAME_CHARS),
            "decides: " + told.schedule if c.refusal is None else "no: " + c.refusal,
        )
        for c in told.considered
    ]
    steps = [_step_text(step) for step in told.steps]
    if told.left_out:
        steps.insert(-1, ("…", f"{told.left_out} more", ""))
    return "\n".join(
        [
            _letter_text(letter, before),
            "",
            "policies, in order",
            columns(considered, indent=2),
            "",
            "if it fails every time",
            columns(steps, indent=2),
        ]
    )


def _letter_text(letter: LetterView, before: int) -> str:
    origin, failure = letter.origin, letter.failure
    where = f"died in {shown(origin.queue, _MAX_NAME_CHARS)}" if origin else "died nobody knows where"
    words = [f"{where} ({shown(letter.reason or 'no reason on record', 40)})"]
    if origin and origin.routing_key is not None:
        exchange = shown(origin.exchange or "the default exchange", _MAX_NAME_CHARS)
        words.append(f"came by {exchange} with key {shown(origin.routing_key, _MAX_NAME_CHARS)!r}")
    words.append("not sent back before" if before == 0 else f"sent back {count(before, 'time')} before")
    if failure and failure.error_type:
        words.append(f"{shown(failure.error_type, _MAX_NAME_CHARS)} by {failure.framework}")
    return ", ".join(words)


def _step_text(step: ExplainedStep) -> tuple[str, str, str]:
    when = "now" if step.after_ms == 0 else f"+ {rough_duration_text(step.after_ms)}"
    match step.decision:
        case Retry():
            delays = [duration_text(delay_ms) for delay_ms in step.choices_ms]
            what = "retry after " + " or ".join(filter(None, (", ".join(delays[:-1]), delays[-1])))
        case _:
            what = _verb(step.decision)
    return when, what, step.decision.why


def _verb(decision: Decision) -> str:
    return type(decision).__name__.lower()


def _as_json(letter: LetterView, before: int, told: Explanation) -> dict[str, object]:
    origin, failure = letter.origin, letter.failure
    return {
        "letter": {
            "provenance": type(letter.provenance).__name__.lower(),
            "origin": origin
            and {
                "queue": shown(origin.queue, 255),
                "exchange": origin.exchange and shown(origin.exchange, 255),
                "routing_keys": [shown(key, 255) for key in origin.routing_keys],
            },
            "reason": letter.reason,
            "attempt": before,
            "error_type": failure and failure.error_type,
            "framework": failure and failure.framework,
        },
        "considered": [{"policy": c.policy, "refusal": c.refusal} for c in told.considered],
        "schedule": told.schedule,
        "steps": [_step_json(step) for step in told.steps],
        "left_out": told.left_out,
    }


def _step_json(step: ExplainedStep) -> dict[str, object]:
    decision = step.decision
    facts: dict[str, object] = {
        "after_ms": step.after_ms,
        "decision": _verb(decision),
        "attempt": decision.attempt,
        "policy": decision.policy,
        "cause": decision.cause,
        "why": decision.why,
    }
    if isinstance(decision, Retry):
        facts |= {
            "delay_ms": decision.delay_ms,
            "choices_ms": step.choices_ms,
            "needs_room": decision.needs_room,
        }
    return facts
