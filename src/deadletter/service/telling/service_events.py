"""What happens in the service, as facts. The path of a letter emits them; logs, metrics and alerts listen.

A listener cannot break the path: `Hub.emit` catches what one raises, says it once, and goes on. Facts about
letters come in bunches (`Confirmed`), because there may be ten thousand a second; what is rare comes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from deadletter.core.deciding.letter_fate import LetterFate
from deadletter.core.guards.gate import GateState

STORE_LETTERS: Final = "store:letters"
"""The name of the trouble when the store takes no letters; `store` is about its policies."""
STORE_READING: Final = "store:reading"
"""The second process that reads letters for the store fails; letters are read without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmed:
    """These letters are in their new home; or, LEFT and FAILED, in their old one."""

    fates: Mapping[LetterFate, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Late:
    """How much later than promised letters were released, in seconds."""

    seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """One decision. Only emitted when somebody asked for each of them."""

    letter_id: str
    fate: LetterFate
    why: str
    traceparent: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSeen:
    """A watched dead-letter queue, or one of ours, as it is now."""

    queue: str
    watched: bool
    depth: int
    consumers: int
    growth_per_s: float = 0.0
    oldest_s: float | None = None
    """The age of the oldest letter, where it is known."""
    vhost: str = ""
    in_per_s: float = 0.0
    out_per_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuesAlike:
    """Queues that a look around saw exactly as the last one told of them. Who keeps what was told has nothing
    to do; thousands of idle queues are one fact."""

    queues: tuple[QueueSeen, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LettersStored:
    """A batch of letters is committed in the store."""

    new: int
    copies: int
    """Other messages with a letter that is there already."""
    again: int
    """The very messages that were there already: a crash had kept them from being acked."""
    new_groups: int
    reopened: int
    """Groups that were resolved, and fail again."""
    seconds: float


GROUPS_BEHIND: Final = (
    "letters that come are grouped by the rules of the file, stored ones by others before them; dlq groups "
    "--regroup shows what would change, and with --yes applies them"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupingSeen:
    """Which rules group the letters that come, and whether stored ones are in groups of the same rules."""

    digest: str
    behind: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayChanged:
    """A replay is in another state: running, paused, stopped, cancelled, done."""

    replay: int
    state: str
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayCounted:
    """What became of letters of replays: sent, refused, doubtful, done, quiet."""

    what: str
    letters: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaysSeen:
    """The replays that this instance works on: how many go on, and how many wait for something."""

    going: int
    waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueGone:
    queue: str
    vhost: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateChanged:
    """A guard lets letters of an origin (or of one group of it) through, or does not. `gate` is its key."""

    gate: str
    origin: str
    state: GateState
    guard: str
    """breaker, consumers, depth, full, budget, growth."""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetSeen:
    """`policy` is empty for the budget over all."""

    policy: str
    used: int
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseChanged:
    name: str
    held: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptBy:
    """Letters that a sweep left because a gate keeps them: how many, and in a sentence why."""

    gate: str
    letters: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HousekeepingDone:
    """What nobody uses any more was deleted: delays that were asked for, queues of held letters, ways back to
    queues that went."""

    delays: int
    held: int
    ways: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepEnded:
    dlq: str
    seen: int
    moved: int
    left: int
    failed: int
    seconds: float
    why: str
    """Who asked: timer, startup, signal, request; gate, when it goes on with what a gate had held."""
    kept: tuple[KeptBy, ...] = ()
    """The letters that are left, by the gate that keeps them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowthFound:
    """More letters of one id than there should be: the path is stopped."""

    origin: str
    letter_id: str
    copies: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingNamed:
    """Something about the broker's shape that the service works around; `rule` is the doctor's."""

    rule: str
    subject: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingGone:
    """Somebody mended it."""

    rule: str
    subject: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Something does not work now. `what` names it: broker, store, store:letters, store:reading,
    store:retention, store:replays, store:samples, store:instances, store:lease@VHOST, news, management,
    watch:NAME, desk:NAME, policy:NAME@VHOST, alert:CHANNEL, condition:PROGRAM, replay:NUMBER, rule:NAME,
    deploys."""

    what: str
    why: str
    seconds: float | None = None
    """Time until the next try."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    what: str
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoliciesChanged:
    count: int
    where: str
    problems: tuple[str, ...] = ()
    """Rows that were ignored, and why."""


class Stage(StrEnum):
    STARTING = "starting"
    READY = "ready"
    RELOADED = "reloaded"
    STOPPING = "stopping"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeChanged:
    stage: Stage
    why: str = ""


ServiceEvent: TypeAlias = (
    Confirmed
    | Late
    | Decided
    | QueueSeen
    | QueuesAlike
    | LettersStored
    | GroupingSeen
    | ReplayChanged
    | ReplayCounted
    | ReplaysSeen
    | QueueGone
    | GateChanged
    | BudgetSeen
    | LeaseChanged
    | HousekeepingDone
    | SweepEnded
    | GrowthFound
    | FindingNamed
    | FindingGone
    | Trouble
    | Recovered
    | PoliciesChanged
    | LifeChanged
)
ServiceListener: TypeAlias = Callable[[ServiceEvent], None]


class Hub:
    """Tells every listener. `on_broken` hears of one that raised; it is called once per listener."""

    def __init__(self, on_broken: Callable[[ServiceListener, Exception], None]) -> None:
        self._listeners: list[ServiceListener] = []
        self._on_broken = on_broken
        self._broken: set[int] = set()

    def listen(self, listener: ServiceListener) -> None:
        self._listeners.append(listener)

    def emit(self, event: ServiceEvent) -> None:
        for listener in self._listeners:
            try:
                listener(event)
            except Exception as error:  # noqa: BLE001 -- a listener must not stop a letter; it is said, once
                if id(listener) not in self._broken:
                    self._broken.add(id(listener))
                    self._on_broken(listener, error)
