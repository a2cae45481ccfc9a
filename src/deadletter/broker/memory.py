"""`deadletter.testing.memory` by the name it had first; nothing of ours imports it."""

from __future__ import annotations

from deadletter.testing.memory import MemoryBroker, VirtualClock, virtual_time

__all__ = ["MemoryBroker", "VirtualClock", "virtual_time"]
