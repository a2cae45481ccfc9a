"""What a replay at work needs of the vhost it works in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from deadletter.broker.return_exchanges import WaysBack
from deadletter.operations.records.where_programs import Programs
from deadletter.service.guarding.gates import Gates
from deadletter.service.replaying.replay_edits import ReplayEdits
from deadletter.service.survey import UnackedSeen
from deadletter.service.telling.service_events import ServiceEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayGround:
    """What a replay needs of the vhost it works in."""

    ways: WaysBack
    gates: Gates
    unacked: Callable[[str], UnackedSeen | None]
    """Letters of a queue that its consumers have, as far as the last look around told; None: it did not."""
    programs: Programs
    """Run the jq program of a selection."""
    edits: ReplayEdits
    """Change letters of a replay that asks for it."""
    emit: Callable[[ServiceEvent], None]
