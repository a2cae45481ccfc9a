"""The health gate: no retries into an origin that cannot take them.

Asked with what the broker tells about the origin; what it does not tell closes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from deadletter.core.guards.flow import FREE, Free, Hold


@dataclass(frozen=True, slots=True, kw_only=True)
class OriginState:
    """An origin as the broker shows it. `ready` is how many messages wait in it."""

    exists: bool
    consumers: int
    ready: int
    max_length: int | None = None
    drops_head: bool = False
    """When it is full it throws its oldest message away, and confirms the new one."""


def health(
    state: OriginState | None,
    *,
    require_consumers: bool,
    max_depth: int | None,
    in_flight: int,
    now: float,
    again_s: float,
) -> Free | Hold:
    """Whether letters may go to this origin. `in_flight`: sent there and not yet seen in `ready`.

    An origin that does not exist holds nothing up: its letters are parked when they cannot be released.
    """
    if state is None or not state.exists:
        return FREE
    until = now + again_s
    if require_consumers and state.consumers == 0:
        return Hold(until=until, guard="consumers", why="nobody consumes the origin")
    depth = state.ready + in_flight
    if max_depth is not None and depth >= max_depth:
        return Hold(
            until=until, guard="depth", why=f"{depth} messages wait in the origin, the limit is {max_depth}"
        )
    if state.drops_head and state.max_length is not None and depth >= state.max_length:
        # a full drop-head queue confirms a letter and throws another message away for it
        return Hold(
            until=until,
            guard="depth",
            why=f"the origin holds {state.max_length} messages at most and drops the oldest; "
            f"{depth} are there or on their way",
        )
    return FREE
