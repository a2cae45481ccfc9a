"""`dlq topology plan | diff | apply | draw`: what is planned, what is there, how one becomes the other."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from deadletter import config
from deadletter.broker.definitions_file import read_definitions
from deadletter.broker.live_topology import read_topology
from deadletter.cli.terminal import event_loop
from deadletter.cli.terminal.delays import parse_backoff, parse_delays
from deadletter.cli.terminal.output import Exit, data, result
from deadletter.cli.terminal.screen import MoveScreen
from deadletter.cli.topologies import topology_words
from deadletter.config.settings import Settings
from deadletter.core import layouts
from deadletter.core.deciding.backoff import Fixed, Schedule, compile_schedule
from deadletter.core.deciding.policy import Policy
from deadletter.core.layouts.request import Plan
from deadletter.core.text.amounts import parse_rate
from deadletter.core.text.safe_text import exact_json, line
from deadletter.core.topology.definitions_export import definitions as definitions_of
from deadletter.core.topology.drift import compare
from deadletter.core.topology.vhost import Queue, Topology, topology
from deadletter.doctor.finding import Finding
from deadletter.doctor.rules.case import Case
from deadletter.doctor.rules.multiplying import multiplied
from deadletter.drawing.graph import DrawnShape, Graph, graph
from deadletter.drawing.mermaid import mermaid
from deadletter.drawing.svg import svg
from deadletter.errors import UsageError
from deadletter.move.courier import Terms
from deadletter.operations.apply import Applied, apply


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanWish:
    """Which plan, as it was typed."""

    layout: str
    queue: str
    retries: int | None
    backoff: str | None
    also: str | None
    policy: str | None
    declare_queue: bool
    queue_type: str
    file: Path | None
    options: Mapping[str, object]

    def settings(self) -> Settings:
        return config.load(config=self.file, options=self.options)

    def plan(self, settings: Settings, *, version: str, there: Topology | None) -> Plan:
        schedule, more_ms = self._schedule(settings)
        planned = layouts.plan(
            self.layout,
            self.queue,
            schedule=schedule,
            version=version,
            queue_type=self.queue_type,
            declare_queue=self.declare_queue,
            more_levels_ms=more_ms | (parse_delays("--also", self.also) if self.also else frozenset()),
            there=there,
        )
        vhost = settings.broker.vhost
        return replace(planned, topology=replace(planned.topology, vhost=vhost))

    def _schedule(self, settings: Settings) -> tuple[Schedule, frozenset[int]]:
        """The schedule, and delays beside it that error rules of the policy ask for."""
        if self.policy is not None:
            if self.retries is not None or self.backoff is not None:
                raise UsageError("expected --policy, or --retries and --backoff; got both")
            policy = _policy(settings, self.policy)
            return policy.treatments[-1].schedule, policy.levels_ms
        default = settings.policies.default
        backoff = default.backoff if self.backoff is None else parse_backoff(self.backoff)
        listed = len(backoff.delays_ms) if self.backoff is not None and isinstance(backoff, Fixed) else None
        retries = self.retries if self.retries is not None else listed or default.retries
        return compile_schedule(backoff, retries), frozenset()


def _policy(settings: Settings, name: str) -> Policy:
    for policy in settings.policies:
        if policy.name == name:
            return policy
    known = ", ".join(policy.name for policy in settings.policies)
    raise UsageError(f"--policy: expected one of the settings' policies ({known}), got {name!r}")


# -- plan -------------------------------------------------------------------------------------------------
def print_plan(wish: PlanWish, *, broker_version: str | None, form: str, output: Path | None) -> Exit:
    if form not in ("table", "json", "definitions", "mermaid", "svg"):
        raise UsageError(f"--format: expected table, json, definitions, mermaid or svg, got {form!r}")
    settings = wish.settings()
    there = _live(settings) if broker_version is None else None
    plan = wish.plan(settings, version=broker_version or (there.version if there else ""), there=there)
    _write(_planned(plan, form), output)
    return Exit.DONE


def _planned(plan: Plan, form: str) -> str:
    match form:
        case "table":
            return topology_words.plan_text(plan)
        case "definitions":
            return exact_json(definitions_of(plan.topology), indent=2)
        case "json":
            return exact_json(topology_words.plan_json(plan))
        case _:
            return _drawn(_plan_picture(plan), form, f"layout {plan.layout} for queue {plan.queue}")


def _plan_picture(plan: Plan) -> Graph:
    """With the application's queue in it, because policies of the plan lead from there."""
    shape = plan.topology
    if plan.queue not in shape.queues:
        shape = topology(
            vhost=shape.vhost,
            exchanges=shape.exchanges.values(),
            queues=[Queue(name=plan.queue), *shape.queues.values()],
            bindings=shape.bindings,
            policies=shape.policies,
        )
        picture = graph(shape, planned=True)
        nodes = [
            replace(node, shape=DrawnShape.GIVEN, lines=("the application's queue",))
            if node.id == f"queue {plan.queue}"
            else node
            for node in picture.nodes
        ]
        return replace(picture, nodes=tuple(nodes))
    return graph(shape, planned=True)


# -- diff and apply ---------------------------------------------------------------------------------------
def print_diff(wish: PlanWish, *, as_json: bool) -> Exit:
    settings = wish.settings()
    live = _live(settings)
    plan = wish.plan(settings, version=live.version, there=live)
    drifts, copied = compare(plan.topology, live), _multiplied(plan, live)
    if as_json:
        told = {"layout": plan.layout, "queue": plan.queue, "broker": live.version, "vhost": live.vhost}
        data({**told, "drift": topology_words.drifts_json(drifts, live, copied)})
    else:
        result(topology_words.diff_text(drifts, live, copied))
    return Exit.LEFT if drifts or copied else Exit.DONE


def _multiplied(plan: Plan, live: Topology) -> tuple[Finding, ...]:
    """Where letters of this plan become more, whatever is declared."""
    return multiplied(Case(topology=live, now_ms=0), {plan.queue, *plan.topology.queues})


def run_apply(wish: PlanWish, *, migrating: bool, rate: str | None, dry_run: bool, as_json: bool) -> Exit:
    terms = Terms(rate_per_s=None if rate is None else parse_rate(rate))
    if rate is not None and not migrating:
        raise UsageError("expected --rate together with --migrate: nothing else moves letters")
    settings = wish.settings()
    live = _live(settings)
    plan = wish.plan(settings, version=live.version, there=live)
    if dry_run:
        drifts, copied = compare(plan.topology, live), _multiplied(plan, live)
        if as_json:
            found = topology_words.drifts_json(drifts, live, copied)
            data({"dry_run": True, "layout": plan.layout, "drift": found})
        else:
            result(topology_words.dry_text(drifts, live, migrating=migrating, copied=copied))
        return Exit.DONE

    async def work() -> Applied:
        broker = settings.broker
        with MoveScreen(plan.queue) as screen:
            return await apply(
                broker.addresses,
                broker.api,
                plan.topology,
                live,
                migrating=migrating,
                terms=terms,
                on_event=screen.on_event_at,
            )

    applied = event_loop.run(work())
    copied = _multiplied(plan, applied.live)
    if as_json:
        data(topology_words.applied_json(plan, applied, copied))
    else:
        result(topology_words.applied_text(applied, copied))
    return Exit.DONE if applied.complete and not copied else Exit.LEFT


# -- draw -------------------------------------------------------------------------------------------------
def run_draw(
    *,
    queues: Sequence[str],
    definitions: Path | None,
    vhost: str | None,
    form: str,
    output: Path | None,
    file: Path | None,
    options: Mapping[str, object],
) -> Exit:
    if form not in ("svg", "mermaid", "json"):
        raise UsageError(f"--format: expected svg or mermaid, got {form!r}")
    if definitions is not None:
        shape = _chosen(read_definitions(definitions), vhost, definitions)
    elif vhost is not None:
        raise UsageError("expected --vhost together with --definitions; a live broker's vhost is in --url")
    else:
        shape = _live(config.load(config=file, options=options))
    title = f"vhost {shape.vhost}" + (f", around {', '.join(queues)}" if queues else "")
    _write(_drawn(graph(shape, around=queues), form, title), output)
    return Exit.DONE


def _chosen(found: Mapping[str, Topology], vhost: str | None, file: Path) -> Topology:
    if vhost is None and len(found) == 1:
        return next(iter(found.values()))
    if vhost is not None and vhost in found:
        return found[vhost]
    known = ", ".join(map(repr, found))
    got = "none" if vhost is None else repr(vhost)
    raise UsageError(f"{file}: expected --vhost with one of {known}, got {got}")


def _drawn(picture: Graph, form: str, title: str) -> str:
    match form:
        case "svg":
            return svg(picture, title=title)
        case "mermaid":
            return mermaid(picture)
        case _:
            return exact_json(topology_words.graph_json(picture))


# -- both -------------------------------------------------------------------------------------------------
def _live(settings: Settings) -> Topology:
    return event_loop.run(read_topology(settings.broker.addresses[0], settings.broker.api))


def _write(text: str, output: Path | None) -> None:
    if output is None:
        result(text)
        return
    try:
        output.write_text(text.rstrip("\n") + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--output {output}: expected a file to write, got {error.strerror}") from error
    sys.stderr.write(line(f"written to {output}") + "\n")
