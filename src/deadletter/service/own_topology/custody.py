"""The custody of letters: at every look around, whether a policy takes them out of queues of ours.

Ours are put back where somebody deleted or changed them, and above a user policy that goes before them. Where
that does not help, because an operator's policy holds or we may not set any, nothing is brought into danger:
no letter is taken from a dead-letter queue, and none leaves a safe queue of ours for an unsafe one. Out of an
unsafe one letters go on being released: at home they are safe. It is said with the policy's name and the
command that mends it, the service is not ready, and once it is mended all goes on by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from deadletter.broker.declare import put_policy
from deadletter.broker.management import Management
from deadletter.core.layouts import levels
from deadletter.core.layouts.naming import level_name
from deadletter.core.letter import names
from deadletter.core.topology import safekeeping
from deadletter.core.topology.drift import DifferentPolicy, Missing, compare
from deadletter.core.topology.merging import BrokerPolicy
from deadletter.core.topology.safekeeping import Threat
from deadletter.core.topology.vhost import Topology, topology
from deadletter.errors import ManagementRefused
from deadletter.service.survey import Sight
from deadletter.service.telling.service_events import (
    FindingGone,
    FindingNamed,
    Recovered,
    ServiceEvent,
    Trouble,
)
from deadletter.service.telling.service_health import POLICY

_LEVEL: Final = level_name(0).removesuffix("0")
_LIMITS: Final = "dlq-limits"


@dataclass(frozen=True, slots=True, kw_only=True)
class Safety:
    """What may go on."""

    threats: tuple[Threat, ...] = ()
    refusing: tuple[Threat, ...] = ()
    """Of these nothing is lost: a queue that is full does not take letters."""
    takes: bool = True
    """Whether letters may be taken from dead-letter queues."""
    releases: bool = True
    """Whether what is due may be sent home."""
    anew: bool = False
    """Whether a queue of ours takes letters again that it may have refused: lines begin anew."""
    expiring: frozenset[str] = frozenset()
    """Queues of ours that would be deleted because nobody consumes them."""

    @property
    def why(self) -> str:
        both = (*self.threats, *self.refusing)
        return "; ".join(f"{threat}; mend it with: {threat.command}" for threat in both)


SAFE: Final = Safety()


class Custody:
    """The custody of letters in one vhost."""

    def __init__(self, emit: Callable[[ServiceEvent], None]) -> None:
        self._emit = emit
        self._told: set[str] = set()
        """Troubles that are not over."""
        self._named: set[str] = set()
        self._threatened = False

    async def look(self, asked: Management, sight: Sight, plan: Topology) -> Safety:
        """Mend what can be mended; the rest says what may go on."""
        before = safekeeping.threats(plan, sight.shape, sight.told)
        mended, refused = await _mend(asked, sight.shape, plan)
        after = before
        if mended:
            # What the broker tells is older than what was set just now.
            after = safekeeping.threats(plan, _governed(sight.shape, mended))
        standing = tuple(threat for threat in after if not threat.only_refuses)
        past = [one for one in before if not any(_same(one, other) for other in after)]
        self._tell(plan.vhost, standing, past, refused)
        refusing = tuple(threat for threat in after if threat.only_refuses)
        self._name(refusing)
        anew = bool(past) or (self._threatened and not after)
        self._threatened = bool(after)
        return replace(_safety(standing), refusing=refusing, anew=anew)

    def _tell(self, vhost: str, standing: Iterable[Threat], past: Iterable[Threat], refused: str) -> None:
        told: set[str] = set()
        for threat in standing:
            what = f"{POLICY}{threat.policy}@{vhost}"
            told.add(what)
            own = f"; ours could not be set: {refused}" if refused and not threat.operator else ""
            aside = f", or let its pattern leave out names that begin with {names.PREFIX}"
            why = f"{threat}{own}; no letter is taken until it is mended: {threat.command}"
            self._emit(Trouble(what=what, why=why + (aside if threat.ours is None else "")))
        for threat in past:
            what = f"{POLICY}{threat.policy}@{vhost}"
            if what not in told:
                told.add(what)
                why = f"{threat}; our policy is set, and goes before it; letters that came there meanwhile "
                self._emit(Trouble(what=what, why=f"{why}may be gone"))
        for what in self._told - told:
            self._emit(Recovered(what=what))
        self._told = told

    def _name(self, refusing: Iterable[Threat]) -> None:
        """A full queue that refuses loses nothing; but letters stay where they are, and that is said."""
        named: set[str] = set()
        for threat in refusing:
            for subject in threat.subjects:
                named.add(subject)
                if subject not in self._named:
                    why = f"{threat}; take it off: {threat.command}"
                    self._emit(FindingNamed(rule=_LIMITS, subject=subject, why=why))
        for subject in self._named - named:
            self._emit(FindingGone(rule=_LIMITS, subject=subject))
        self._named = named


async def _mend(asked: Management, live: Topology, plan: Topology) -> tuple[list[BrokerPolicy], str]:
    """Put ours back, or above; what was set, and why something was not."""
    wanted = [
        found.planned
        for found in compare(plan, live)
        if isinstance(found, Missing | DifferentPolicy) and isinstance(found.planned, BrokerPolicy)
    ]
    mended: list[BrokerPolicy] = []
    refused = ""
    for policy in wanted:
        try:
            await put_policy(asked, policy)
            mended.append(policy)
        except ManagementRefused as error:
            refused = str(error)
    return mended, refused


def _governed(live: Topology, policies: list[BrokerPolicy]) -> Topology:
    """The vhost, with these policies set."""
    names_set = {policy.name for policy in policies}
    others = [policy for policy in live.policies if policy.operator or policy.name not in names_set]
    return topology(
        vhost=live.vhost,
        version=live.version,
        exchanges=live.exchanges.values(),
        queues=live.queues.values(),
        bindings=live.bindings,
        policies=[*others, *policies],
        live=live.live,
    )


def _same(one: Threat, other: Threat) -> bool:
    return (one.policy, one.operator) == (other.policy, other.operator)


def _safety(standing: tuple[Threat, ...]) -> Safety:
    unsafe = {subject for threat in standing for subject in threat.subjects}
    beyond = {name for name in unsafe if not _is_due(name) and not _is_level(name)}
    return Safety(
        threats=standing,
        takes=not standing,
        releases=not beyond or any(map(_is_due, unsafe)),
        expiring=frozenset(
            subject
            for threat in standing
            for subject in threat.subjects
            if any(danger.key == "expires" for danger in threat.dangers) and not _is_due(subject)
        ),
    )


def _is_due(name: str) -> bool:
    return name == names.DUE or name.startswith(f"{levels.RETRY_QUEUE}-")


def _is_level(name: str) -> bool:
    return name.startswith((_LEVEL, levels.DELAY_QUEUE))
