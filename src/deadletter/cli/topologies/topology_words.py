"""Plans, drifts and what became of them, as a person reads them and as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final, assert_never

from deadletter.broker.declare import DeclaredItem, DeclareOutcome
from deadletter.cli.terminal.output import columns
from deadletter.cli.terminal.units import count
from deadletter.core.layouts import correction_text
from deadletter.core.layouts.request import Plan
from deadletter.core.text.safe_text import line
from deadletter.core.topology import drift
from deadletter.core.topology.definitions_export import definitions
from deadletter.core.topology.vhost import Topology
from deadletter.doctor.finding import Finding
from deadletter.drawing.graph import Graph
from deadletter.operations.apply import Applied
from deadletter.operations.migrating.migrate import Migrated, NotMigrated, Result

WIDTH: Final = 100
MULTIPLIED: Final = "multiplied"
"""No drift from a plan: the shape around it makes several of one letter."""


# -- a plan -----------------------------------------------------------------------------------------------
def plan_text(plan: Plan) -> str:
    shape = plan.topology
    things: list[drift.Planned] = [
        *shape.policies,
        *drift.planned_exchanges(shape),
        *shape.queues.values(),
        *(binding for binding in shape.bindings if binding.source),
    ]
    rows = [[*_name(thing), drift.describe(thing)] for thing in things]
    lines = [
        line(f"layout {plan.layout} for queue {plan.queue}")
        + (f", RabbitMQ {shape.version}" if shape.version else "")
    ]
    lines += ["", columns([["what", "name", "how"], *rows])] if rows else ["", "nothing to declare"]
    for title, said in (
        ("notes", plan.notes),
        ("corrections", tuple(map(correction_text, plan.corrections))),
    ):
        if said:
            lines += ["", f"{title}:", *(_bullet(text) for text in said)]
    return "\n".join(lines)


def _name(thing: drift.Planned) -> tuple[str, str]:
    kind, _, name = drift.subject(thing).partition(" ")
    return kind, name


def _bullet(text: str) -> str:
    return textwrap.fill(
        line(text),
        WIDTH,
        initial_indent="  - ",
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def plan_json(plan: Plan) -> dict[str, Any]:
    shape = {key: value for key, value in definitions(plan.topology).items() if key != "vhosts"}
    return {
        "layout": plan.layout,
        "queue": plan.queue,
        "vhost": plan.topology.vhost,
        "broker": plan.topology.version,
        **shape,
        "notes": list(plan.notes),
        "corrections": list(map(asdict, plan.corrections)),
    }


# -- drift ------------------------------------------------------------------------------------------------
def diff_text(drifts: Sequence[drift.Drift], live: Topology, copied: Sequence[Finding]) -> str:
    if not drifts and not copied:
        return "everything planned is there, as planned"
    lines = [*_told(drifts, live), *([""] if drifts and copied else []), *_copied_text(copied)]
    return "\n".join([*lines, "", f"{count(len(drifts) + len(copied), 'difference')}; nothing was touched"])


def _copied_text(copied: Sequence[Finding]) -> Iterator[str]:
    for number, found in enumerate(copied):
        if number:
            yield ""
        yield f"{MULTIPLIED}: exchange {found.subject}"
        yield f"  found:   {found.why}"
        yield f"  to do:   {found.fix}"


def _copied_json(found: Finding) -> dict[str, Any]:
    return {
        "kind": MULTIPLIED,
        "subject": f"exchange {found.subject}",
        "planned": "one dead-letter queue for each letter",
        "found": found.why,
        "steps": [found.fix],
    }


def dry_text(
    drifts: Sequence[drift.Drift], live: Topology, *, migrating: bool, copied: Sequence[Finding]
) -> str:
    if not drifts and not copied:
        return "everything planned is there; nothing would be done"
    would = [drift.subject(one.planned) for one in drifts if isinstance(one, drift.Missing)]
    lines = [line(f"would declare {subject}") for subject in would]
    if migrating:
        lines += [
            line(f"would {verb} {drift.subject(one.planned)}") for one in drifts if (verb := _verb(one))
        ]
        drifts = [one for one in drifts if not _verb(one)]
    rest = [one for one in drifts if not isinstance(one, drift.Missing)]
    if rest:
        lines += ["", *_told(rest, live)]
    if copied:
        lines += ["", *_copied_text(copied)]
    return "\n".join([*lines, "", "nothing was touched"])


def _verb(one: drift.Drift) -> str:
    """What --migrate does about it; nothing about what it cannot cure."""
    match one:
        case drift.DifferentQueue():
            return "replace, with its letters,"
        case drift.DifferentPolicy():
            return "set"
        case drift.Interrupted():
            return "go on migrating"
        case drift.Missing() | drift.DifferentExchange() | drift.Overruled():
            return ""
        case _:
            assert_never(one)


def _told(drifts: Sequence[drift.Drift], live: Topology) -> Iterator[str]:
    for number, one in enumerate(drifts):
        words = drift.words(one, live)
        if number:
            yield ""
        yield line(f"{words.kind}: {words.subject}")
        yield line(f"  planned: {words.planned}")
        yield line(f"  found:   {words.found}")
        if len(words.steps) == 1:
            yield line(f"  to do:   {words.steps[0]}")
        else:
            yield "  to do:"
            yield from (line(f"    {step}. {text}") for step, text in enumerate(words.steps, 1))


def drifts_json(
    drifts: Sequence[drift.Drift], live: Topology, copied: Sequence[Finding]
) -> list[dict[str, Any]]:
    return [*(asdict(drift.words(one, live)) for one in drifts), *map(_copied_json, copied)]


# -- what became of it ------------------------------------------------------------------------------------
def applied_text(applied: Applied, copied: Sequence[Finding]) -> str:
    worth = [item for item in applied.items if item.outcome is not DeclareOutcome.THERE]
    rows = [[item.outcome.value, item.subject, item.why] for item in worth]
    lines = [columns(rows)] if rows else []
    lines += [line(text) for one in applied.migrations for text in _migration_text(one)]
    if applied.left:
        lines += ["", *_told(applied.left, applied.live)]
    if copied:
        lines += ["", *_copied_text(copied)]
    tally = _tally(applied.items)
    ending = "everything planned is there" if applied.complete else "not everything is as planned"
    if applied.complete and copied:
        ending = "all of the plan is declared, and letters are multiplied beside it"
    return "\n".join([*lines, "", f"{tally}; {ending}"]).lstrip("\n")


def _tally(items: Sequence[DeclaredItem]) -> str:
    return ", ".join(
        f"{number} {outcome.value}"
        for outcome in DeclareOutcome
        if (number := sum(item.outcome is outcome for item in items))
    )


def _migration_text(one: Result) -> Iterator[str]:
    match one:
        case Migrated(queue=queue, moved=moved, set_aside=set_aside, copies=copies):
            yield f"migrated {queue}: it is as planned; {count(moved)} were moved on the way there and back"
            if set_aside:
                yield (
                    f"  {count(set_aside)} looked like copies an interruption left, and are in {copies}; "
                    f"if they are letters of their own: dlq move --keep-deaths {copies} {queue}"
                )
            if one.maybe_twice:
                yield f"  up to {count(one.maybe_twice)} may be in {queue} twice, with the same deadletter-id"
            if one.gone:
                yield (
                    f"  {count(one.gone)} went with the old queue: published to it by its name in the "
                    "instant in which it was deleted"
                )
        case NotMigrated(queue=queue, why=why):
            yield f"not migrated {queue}: {why}"
        case _:
            assert_never(one)


def applied_json(plan: Plan, applied: Applied, copied: Sequence[Finding]) -> dict[str, Any]:
    return {
        "layout": plan.layout,
        "queue": plan.queue,
        "complete": applied.complete and not copied,
        "items": [
            {"subject": item.subject, "outcome": item.outcome.value, "why": item.why}
            for item in applied.items
        ],
        "migrations": [_migration_json(one) for one in applied.migrations],
        "drift": drifts_json(applied.left, applied.live, copied),
    }


def _migration_json(one: Result) -> dict[str, Any]:
    match one:
        case Migrated():
            return {
                "queue": one.queue,
                "migrated": True,
                "moved": one.moved,
                "set_aside": one.set_aside,
                "copies": one.copies if one.set_aside else None,
                "maybe_twice": one.maybe_twice,
                "gone": one.gone,
                "why": None,
            }
        case NotMigrated():
            return {"queue": one.queue, "migrated": False, "why": one.why}
        case _:
            assert_never(one)


def graph_json(picture: Graph) -> dict[str, Any]:
    return {
        "nodes": [
            {"id": node.id, "shape": node.shape.value, "title": node.title, "lines": list(node.lines)}
            for node in picture.nodes
        ],
        "arrows": [
            {"source": arrow.source, "target": arrow.target, "line": arrow.line.value, "label": arrow.label}
            for arrow in picture.arrows
        ],
    }
