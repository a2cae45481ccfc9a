"""Every error Deadletter raises, on one page.

::

    DeadletterError
    ├── UsageError                 what was asked for makes no sense; nothing was touched
    │   ├── NotStored              no letter or group in the store is called so, or several are
    │   └── ConfigError            settings that make no sense: `problems`, all of them at once
    ├── JqUnavailable              the process that runs jq programs cannot be started
    ├── MessageError               a message whose bytes are not what AMQP says they should be
    ├── EditRefused                a change of a letter that cannot be made; it stays as it was
    ├── ChangedMeanwhile           somebody else changed it since it was looked at; nothing was done
    ├── AlreadyAsked               the same request is under way, or its process ended at it
    ├── NotAllowed                 whoever asks may not do this; nothing was done
    ├── NoPrivateBroker            a private RabbitMQ could not be started
    ├── QueueMissing               a queue somebody named is not there
    ├── ManagementRefused          the management API did not tell what we had to know
    ├── ServiceRefused             the service must not run like this; nothing was taken
    ├── MoveFailed                 the safe move could not go on; what it held is back in its source
    ├── SendingRefused             the broker wants none of the letters that are sent
    │   └── TargetMissing          where letters were to be sent is not there (any more)
    ├── PublishError               an application's publish did not come to a good end: `message_id`, where to
    │   ├── NotPublished           nothing left this process; publish it again
    │   ├── Unroutable             no queue takes what is published so
    │   ├── PublishRefused         the broker wants none of it: exchange, rights, a full queue, its size
    │   └── MaybePublished         the line was lost before the broker's word came: it may be there or not
    ├── ArchiveError               a file of letters could not be written, read or put back
    ├── StoreError                 anything between us and the store
    │   ├── StoreUnreachable       it does not answer, or somebody keeps it locked (worth another try)
    │   └── StoreRefused           it answers, and says no: login, rights, a table of another shape
    │       └── TableMissing       a table we need is not there
    └── WireError                  anything between us and the broker
        ├── FrameError             bytes that are not AMQP, or larger than we allow
        ├── CannotConnect          no conversation came about
        │   ├── Unreachable        nobody answers at that address (worth another try)
        │   ├── NotAmqp            somebody answers, but not an AMQP broker; also TLS against no TLS
        │   ├── CertificateRefused the broker's certificate did not verify
        │   ├── LoginRefused       user or password are wrong
        │   └── VhostRefused       the vhost is missing, or closed to this user
        ├── ConnectionLost         the conversation ended (worth another try)
        │   ├── HeartbeatMissed    the broker fell silent
        │   └── ClosedByBroker     the broker said why: `code` and `text`
        │       ├── ConnectionForced     320, it is shutting down or an operator closed us
        │       └── FrameRefused         501, it did not like a frame of ours
        ├── ChannelClosed          the broker closed one channel: `code` and `text`
        │   ├── ContentTooLarge    311
        │   ├── AccessRefused      403
        │   ├── NotFound           404
        │   ├── ResourceLocked     405
        │   └── PreconditionFailed 406
        ├── ConsumerCancelled      the broker ended a consumer; its unacked letters are no longer ours
        └── ChannelsExhausted      this connection has no channel number left

Errors carry data as attributes and a whole sentence as text: what was expected, what came, what to do.
A library's own exception is translated where it is caught and never crosses a room.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass


class DeadletterError(Exception):
    """The root of the tree."""


class UsageError(DeadletterError):
    """What was asked for makes no sense; nothing was touched."""


class NotStored(UsageError):
    """No letter or group in the store is called so, or several are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One setting that cannot be: its key, what was expected, what came (secrets hidden), from where."""

    key: str
    expected: str
    got: str
    source: str

    def __str__(self) -> str:
        return f"{self.source}: {self.key}: expected {self.expected}, got {self.got}"


class ConfigError(UsageError):
    """The settings make no sense; every problem is listed, so that one look at the file is enough."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        self.problems = problems
        if len(problems) == 1:
            super().__init__(str(problems[0]))
        else:
            told = [f"{len(problems)} problems in the configuration:", *(f"  {p}" for p in problems)]
            super().__init__("\n".join(told))


class JqUnavailable(DeadletterError):
    """The process that runs jq programs cannot be started: nobody's condition can be answered."""


class MessageError(DeadletterError):
    """A message whose bytes are not what AMQP says they should be."""


class EditRefused(DeadletterError):
    """A change of a letter that cannot be made: the letter stays as it was."""


class ChangedMeanwhile(DeadletterError):
    """Somebody else changed it since it was looked at; nothing was done."""


class AlreadyAsked(DeadletterError):
    """The same request is under way, or its process ended at it: nobody knows whether it was done."""


class NotAllowed(DeadletterError):
    """Whoever asks may not do this; nothing was done."""


class NoPrivateBroker(DeadletterError):
    """A private RabbitMQ could not be started; the text says what to do."""


class QueueMissing(DeadletterError):
    """A queue somebody named is not there."""

    def __init__(self, queue: str, vhost: str) -> None:
        self.queue = queue
        self.vhost = vhost
        super().__init__(
            f"no queue {queue!r} in vhost {vhost!r}; list them with: "
            f"rabbitmqctl list_queues -p {shlex.quote(vhost)}"
        )


class ManagementRefused(DeadletterError):
    """The management API did not tell what we had to know."""


class ServiceRefused(DeadletterError):
    """The service must not run like this: letters could be lost. Nothing was taken."""


class MoveFailed(DeadletterError):
    """The safe move could not go on; everything it held is back in its source."""


class SendingRefused(DeadletterError):
    """The broker wants none of the letters that are sent; they are where they were."""


class TargetMissing(SendingRefused):
    """Where letters were to be sent is not there (any more); they are where they were."""


class PublishError(DeadletterError):
    """An application's publish did not come to a good end. `message_id`: what to publish it again with."""

    def __init__(self, text: str, *, exchange: str, routing_key: str, message_id: str) -> None:
        self.exchange = exchange
        self.routing_key = routing_key
        self.message_id = message_id
        super().__init__(f"exchange {exchange!r}, key {routing_key!r}, message {message_id}: {text}")


class NotPublished(PublishError):
    """Nothing left this process. Worth another try."""


class Unroutable(PublishError):
    """No queue takes what is published so; it is nowhere."""


class PublishRefused(PublishError):
    """The broker wants none of it; it is nowhere."""


class MaybePublished(PublishError):
    """The line was lost before the broker's word came. Published again with the same id it may be there
    twice, and whoever takes it can tell by that id."""


class ArchiveError(DeadletterError):
    """A file of letters could not be written, read or put back; what was taken for it is in it."""


class StoreError(DeadletterError):
    """Anything between us and the store."""


class StoreUnreachable(StoreError):
    """It does not answer, or somebody keeps it locked. Worth another try."""


class StoreRefused(StoreError):
    """It answers, and says no: login, rights, a table of another shape."""


class TableMissing(StoreRefused):
    """A table we need is not there."""


class WireError(DeadletterError):
    """Anything between us and the broker."""


class FrameError(WireError):
    """Bytes that are not AMQP, or larger than we allow. `first_bytes`: those where a frame should begin."""

    def __init__(self, text: str, *, first_bytes: bytes = b"") -> None:
        self.first_bytes = first_bytes
        super().__init__(text)


class CannotConnect(WireError):
    """No conversation came about."""


class Unreachable(CannotConnect):
    """Nobody answers at that address. Worth another try."""


class NotAmqp(CannotConnect):
    """Somebody answers, but not an AMQP 0-9-1 broker; also TLS against no TLS."""


class CertificateRefused(CannotConnect):
    """The broker's certificate did not verify."""


class LoginRefused(CannotConnect):
    """User or password are wrong."""


class VhostRefused(CannotConnect):
    """The vhost is missing, or closed to this user."""


class ConnectionLost(WireError):
    """The conversation ended. Worth another try."""


class HeartbeatMissed(ConnectionLost):
    """The broker fell silent for two heartbeat intervals."""


class ClosedByBroker(ConnectionLost):
    """The broker closed the connection and said why."""

    def __init__(self, code: int, text: str) -> None:
        self.code = code
        self.text = text
        super().__init__(f"the broker closed the connection: {code} {text}")


class ConnectionForced(ClosedByBroker):
    """320: the broker is shutting down, or an operator closed the connection."""


class FrameRefused(ClosedByBroker):
    """501: the broker did not like a frame of ours, most often for its size."""


class ChannelClosed(WireError):
    """The broker closed one channel and said why."""

    def __init__(self, code: int, text: str) -> None:
        self.code = code
        self.text = text
        super().__init__(f"the broker closed the channel: {code} {text}")


class ContentTooLarge(ChannelClosed):
    """311."""


class AccessRefused(ChannelClosed):
    """403."""


class NotFound(ChannelClosed):
    """404."""


class ResourceLocked(ChannelClosed):
    """405."""


class PreconditionFailed(ChannelClosed):
    """406: also an argument that differs on declare, and a `user_id` that is not the connection's."""


class ConsumerCancelled(WireError):
    """The broker ended a consumer: its queue was deleted, failed over, or the consumer took too long.

    Whatever was unacked on it is no longer ours.
    """

    def __init__(self, queue: str) -> None:
        self.queue = queue
        super().__init__(f"the broker cancelled our consumer on {queue!r}; is the queue still there?")


class ChannelsExhausted(WireError):
    """This connection has no channel number left."""


_CHANNEL: dict[int, type[ChannelClosed]] = {
    311: ContentTooLarge,
    403: AccessRefused,
    404: NotFound,
    405: ResourceLocked,
    406: PreconditionFailed,
}
_CONNECTION: dict[int, type[ClosedByBroker]] = {320: ConnectionForced, 501: FrameRefused}


def channel_closed(code: int, text: str) -> ChannelClosed:
    """The typed error for a `channel.close` of the broker."""
    return _CHANNEL.get(code, ChannelClosed)(code, text)


def connection_closed(code: int, text: str) -> ClosedByBroker:
    """The typed error for a `connection.close` of the broker."""
    return _CONNECTION.get(code, ClosedByBroker)(code, text)
