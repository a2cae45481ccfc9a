"""Every name and header of ours on a broker, in one place.

A name a user may meet in a queue, a header or a log is spelled here and nowhere else; names that are made of
another name (`deadletter.delay.<ms>`, `deadletter.return.<queue>`) are made in `layouts.naming`.

Whoever meets a queue of ours in a death knows that the letter was in our hands; whoever meets a header of
ours does not know it, because applications copy headers from one message to the next. That is why the
origin of a letter is read from its deaths first and from our headers only where the two agree.
"""

from __future__ import annotations

from typing import Final

PREFIX: Final = "deadletter."
"""All queues and exchanges of ours begin with this."""

DUE: Final = f"{PREFIX}due"
"""Where letters wait whose delay is over."""
PARKED: Final = f"{PREFIX}parked"
"""Where letters wait for a person."""
OUTCOMES: Final = f"{PREFIX}outcomes"
"""Where consumers say that they are done with a letter of a replay; short words, no letters."""
ASKED: Final = f"{PREFIX}asked"
"""The exchange by which letters come to delays that nobody planned, by the name of their queue."""

# -- headers we write -------------------------------------------------------------------------------------
ID: Final = "deadletter-id"
"""Derived from the letter itself, so the two copies a crash may leave carry the same one."""
SOURCE: Final = "deadletter-source"
"""The queue the letter was last taken from."""
MOVE: Final = "deadletter-move"
"""`<run>-<number>`: which run moved it, and which publish of that run. A return is matched by it."""
SOURCE_EXCHANGE: Final = "deadletter-source-exchange"
"""The exchange the letter came by, kept because a move to a queue goes through the default exchange."""
SOURCE_ROUTING_KEY: Final = "deadletter-source-routing-key"
"""The routing key the letter came by, kept for the same reason."""
PARENT_ID: Final = "deadletter-parent-id"
"""The id of the letter whose headers an application copied into this one."""
ATTEMPT: Final = "deadletter-attempt"
"""How many times the letter was sent back."""
ORIGIN_QUEUE: Final = "deadletter-origin-queue"
ORIGIN_EXCHANGE: Final = "deadletter-origin-exchange"
ORIGIN_ROUTING_KEY: Final = "deadletter-origin-routing-key"
"""Where it first died, and how it had come there."""
DEATHS: Final = "deadletter-deaths"
"""The broker's `x-death` entries, newest first, taken off so that no broker reads them as a cycle."""
EXPIRATION: Final = "deadletter-expiration"
"""The `expiration` property, set aside: a letter must not expire in its new home."""
USER_ID: Final = "deadletter-user-id"
"""The `user_id` property, set aside: the broker closes the channel on one that is not the connection's."""
CC: Final = "deadletter-cc"
"""The `CC` header, set aside: through the default exchange it would make a copy per name in it."""
BCC: Final = "deadletter-bcc"
"""The `BCC` header, set aside for the same reason."""

PRIORITY: Final = "deadletter-priority"
"""The `priority` property, set aside while it waits: in a level it would let letters overtake each other."""
DUE_AT: Final = "deadletter-due-at"
"""When a delay ends, in milliseconds since 1970: what a release is late by."""
RELEASED_AT: Final = "deadletter-released-at"
"""When it was last sent home, in milliseconds since 1970: with which others it went, should it die again."""
HOME: Final = "deadletter-home"
"""`<attempt> <queue>`, where a fanout gives a letter to several dead-letter queues: as this attempt it went
home from that one, so what the others get of it when it dies again are copies."""
REPLAY: Final = "deadletter-replay"
"""The replay that sent it last: a consumer that is done with it says so (`deadletter.outcomes`)."""
DONE_AT: Final = "deadletter-done-at"
"""Of the word to `deadletter.outcomes`: when the consumer was done, in milliseconds since 1970."""
EDITED: Final = "deadletter-edited"
"""Who changed its content before it was sent again: a person, or the name of a recipe."""
POLICY: Final = "deadletter-policy"
"""The policy that decided last."""
GROUP: Final = "deadletter-group"
"""The error it failed with, where a policy looks at errors: letters of one origin and error share a gate."""
FINGERPRINT: Final = "deadletter-fingerprint"
"""What an application calls the failure itself: letters of one origin that say the same are one group."""
CAUSE: Final = "deadletter-cause"
WHY: Final = "deadletter-why"
PARKED_AT: Final = "deadletter-parked-at"
"""Of a parked letter: why, for machines and for people, and when, in milliseconds since 1970. Of a held one:
which guard keeps it, and why."""

ERROR_TYPE: Final = "deadletter-error-type"
ERROR_MESSAGE: Final = "deadletter-error-message"
ERROR_STACK: Final = "deadletter-error-stack"
ERROR_HOST: Final = "deadletter-error-host"
ERROR_AT: Final = "deadletter-error-at"
ERROR_FIRST_AT: Final = "deadletter-error-first-at"
ERROR_SERVICE: Final = "deadletter-error-service"
ERROR_RELEASE: Final = "deadletter-error-release"
"""Why it failed, as the consumer library writes it: the last failure, and when the first one was."""
DELIVERIES: Final = "deadletter-deliveries"
"""How often a consumer was given this letter and died before it could say what became of it; on queues that
do not count deliveries themselves."""

# -- headers the broker writes ----------------------------------------------------------------------------
X_DEATH: Final = "x-death"
DEATH_SUMMARY: Final = frozenset(
    f"x-{which}-death-{what}" for which in ("first", "last") for what in ("queue", "reason", "exchange")
)
"""Told again by the entries of `x-death`; `x-first-death-*` is wrong after a delay of ours."""
X_DELIVERY_COUNT: Final = "x-delivery-count"
DELIVERY_COUNTS: Final = frozenset({X_DELIVERY_COUNT, "x-acquired-count"})
"""Left on, RabbitMQ 4 shows them as real at the next queue and a delivery limit strikes too early."""


def is_ours(name: str) -> bool:
    """Whether a queue or exchange belongs to Deadletter."""
    return name.startswith(PREFIX)
