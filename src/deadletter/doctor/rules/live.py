"""What only a live broker shows: letters that pile up, are held, or are late.

A live broker tells less than one would think. Its figures are some seconds old, on quorum queues up to ten.
The time it tells for the oldest letter is a property the publisher set, so it is when the letter was first
published, not when it came into this queue; and only classic queues tell it. Letters on their way through
at-least-once dead-lettering look like letters held by it. Each rule here speaks only where one of these
readings remains.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Final

from deadletter.core.letter import names
from deadletter.core.text.durations import duration_text, rough_duration_text
from deadletter.core.topology.vhost import Queue
from deadletter.doctor.finding import Evidence, Harm, Severity
from deadletter.doctor.rules.case import Case, rule
from deadletter.doctor.rules.neglect import failure_queues, way_into
from deadletter.doctor.rules.path_words import dead_lettering, fates, in_queue, queue_step
from deadletter.doctor.rules.refusal import WORKER_HOLDS
from deadletter.doctor.rules.routes import can_refuse, death_step, gap_of, keeps_what_fails, way_out

LATE_BY_MS: Final = 60_000
"""Time stamps are whole seconds of another machine's clock."""


@rule(
    "growing-dlq",
    Harm.STUCK,
    live=True,
    summary="a dead-letter queue that is getting longer",
    why="Its growth says that something fails now, faster than anybody takes care of it. As measured by "
    "the broker over its last samples, so it is some seconds old.",
)
def growing_dlq(case: Case) -> Iterator[Evidence]:
    for queue in failure_queues(case):
        state = queue.state
        if state is None or state.growth_per_s <= 0 or names.is_ours(queue.name):
            continue
        sources = [source.name for source in case.dying_into.get(queue.name, ())]
        yield Evidence(
            severity=Severity.WARNING,
            subject=queue.name,
            path=(*way_into(case, queue), f"grows by {state.growth_per_s:g}/s"),
            why=(
                f"{queue.name} holds {state.messages} letters and grows by {state.growth_per_s:g}/s: "
                f"something fails now{f' in {sources[0]}' if len(sources) == 1 else ''}."
            ),
            fix=f"see what fails: dlq peek {shlex.quote(queue.name)}; when it is mended, send it back",
        )


@rule(
    "held-letters",
    Harm.STUCK,
    live=True,
    summary="letters held by at-least-once dead-lettering because their target is missing or full",
    why="They count among a queue's messages but are neither ready nor unacknowledged, so no client sees "
    "them. RabbitMQ tries again, up to three minutes after the target is there; 32 of them stop the "
    "queue. Letters on their way look the same for a moment, so this is said only where the route "
    "has a gap or a queue that can refuse.",
)
def held_letters(case: Case) -> Iterator[Evidence]:
    for queue, _ in dead_lettering(case):
        state = queue.state
        if state is None or not keeps_what_fails(queue):
            continue
        held = state.messages - state.ready - state.unacked
        if held > 0 and (where := _where_held(case, queue)) is not None:
            stopped = held >= WORKER_HOLDS
            yield Evidence(
                severity=Severity.ERROR,
                subject=queue.name,
                path=(*where, f"{held} held"),
                why=(
                    f"{queue.name} holds {held} letters that have died and found no target; they are neither "
                    "ready nor unacknowledged, and no client can take them. "
                    + (
                        "It is standing still: nothing gets through it any more."
                        if stopped
                        else f"At {WORKER_HOLDS} it stands still for every letter."
                    )
                ),
                fix=f"give them a target ({where[-1]}: make it exist, or make room in it); they are sent "
                "again by themselves within about three minutes",
            )


def _where_held(case: Case, queue: Queue) -> tuple[str, ...] | None:
    """Letters on their way look the same, so somewhere on the route must be a reason to hold them."""
    for reach in fates(case, queue):
        if (gap := gap_of(case, reach)) is not None:
            return (*way_out(queue, reach), *gap.steps)
        for name in sorted(reach.queues):
            if can_refuse(case.topology.queues[name]):
                return (*way_out(queue, reach), queue_step(name))
    return None


@rule(
    "overdue-level",
    Harm.STUCK,
    live=True,
    summary="a delay queue whose oldest letter should have left long ago",
    why="RabbitMQ fixes the time of expiry when a letter enters the queue and looks only at the head. "
    "After a TTL was made shorter, old letters keep the long one and hold up the new ones, on every "
    "version. Only classic queues tell how old their head is, and only if publishers stamp their "
    "letters; elsewhere nothing is said.",
)
def overdue_level(case: Case) -> Iterator[Evidence]:
    for queue, _ in dead_lettering(case):
        state, ttl_ms = queue.state, queue.ttl_ms
        if state is None or ttl_ms is None or state.oldest_at_ms is None or not state.ready:
            continue
        if state.consumers or names.is_ours(queue.name) or queue.name in case.dying_into:
            # Letters that died, and those we moved, keep the stamp of their first publish: it says nothing.
            continue
        age_ms = case.now_ms - state.oldest_at_ms
        if age_ms <= ttl_ms + LATE_BY_MS:
            continue
        yield in_queue(
            queue,
            Severity.WARNING,
            f"head published {rough_duration_text(age_ms)} ago",
            f"should have {death_step(queue)}",
            f"{state.ready} ready",
            why=(
                f"Letters leave {queue.name} after {duration_text(ttl_ms)}, but the one at its head was "
                f"published {rough_duration_text(age_ms)} ago. If its publisher stamps letters when it sends "
                "them here, it is overdue, and all behind it wait: a TTL that is made shorter does not hold "
                "for letters that are there already."
            ),
            fix=f"look at the head: dlq peek {shlex.quote(queue.name)}; to let them go at once, move them to "
            "where they would expire to: dlq move",
        )
