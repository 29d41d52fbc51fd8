"""The in-memory broker as a kind of broker: Redis inside one process."""

from __future__ import annotations

from ..redis.kind import RedisKind


class MemoryKind(RedisKind):
    """Patterns and internal channels are those of Redis. It has no URL, as no other process could reach it."""

    name = "in-memory"
    schemes = ("memory",)
    broker = None
    in_process = True


KIND = MemoryKind()
