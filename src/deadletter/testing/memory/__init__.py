"""A RabbitMQ in memory, and virtual time: retry behaviour tested in milliseconds. See docs/testing.md."""

from deadletter.testing.memory.broker import MemoryBroker, MemoryConnection, MemoryLink
from deadletter.testing.memory.clock import Clock, LoopClock, VirtualClock, settle, virtual_time

__all__ = [
    "Clock",
    "LoopClock",
    "MemoryBroker",
    "MemoryConnection",
    "MemoryLink",
    "VirtualClock",
    "settle",
    "virtual_time",
]
