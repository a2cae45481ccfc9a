"""Whoever asks: their name for the audit, their role, and what they see."""

from __future__ import annotations

from dataclasses import dataclass

from deadletter.core.access.rights import EVERYWHERE, RIGHTS, Action, Role
from deadletter.core.access.scope import WHOLE, Scope
from deadletter.errors import NotAllowed


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """`request.state.person` of every request that came through the door.

    `name`: of a token or an account; empty for a token that several people share (the machine's own,
    DLQ_API_TOKEN): then whoever asks says who they are. `sees_masked`: beside what the role allows.
    """

    name: str
    role: Role
    scope: Scope = WHOLE
    sees_masked: bool = False
    otherwise: str = "api"
    """What stands in the audit where nobody says a name."""

    def may(self, action: Action, *, vhost: str | None = None, queue: str | None = None) -> bool:
        """Whether somebody may do this at all, or with letters of this vhost and of this origin."""
        if action is Action.SEE_MASKED and self.sees_masked:
            return True
        if action not in RIGHTS[self.role] or (action in EVERYWHERE and not self.scope.whole):
            return False
        return (vhost is None or self.scope.in_vhost(vhost)) and (queue is None or self.scope.of_queue(queue))

    def must(self, action: Action, *, vhost: str | None = None, queue: str | None = None) -> None:
        """NotAllowed: they may not."""
        if not self.may(action, vhost=vhost, queue=queue):
            raise NotAllowed(f"{self.called()} may not {action.value}{self._why(action)}")

    def _why(self, action: Action) -> str:
        if action not in RIGHTS[self.role]:
            able = next(role for role in Role if action in RIGHTS[role])
            return f": their role is {self.role.value}, and it takes {able.value}"
        if action in EVERYWHERE:
            return ": that is about all queues, and they see some of them"
        return " here: it is not theirs"

    def called(self, said: str = "") -> str:
        """For the audit. `said`: who they say they are, which counts where nobody else says it."""
        if self.name:
            return self.name
        return said if said and said != "api" else self.otherwise


OWNER = Person(name="", role=Role.ADMIN)
"""Who has the machine's own token, or DLQ_API_TOKEN: may do everything."""
