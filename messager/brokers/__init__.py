"""Brokers behind one protocol: Redis, and one in memory.

Each is imported when it is first named: redis-py and pydantic take longer than all the rest.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .base import Backlog, Broker, OutputLimits, PubSub
    from .memory import MemoryBroker
    from .redis import RedisBroker, RedisConfig

_ROOMS = {
    "Backlog": "base",
    "Broker": "base",
    "MemoryBroker": "memory",
    "OutputLimits": "base",
    "PubSub": "base",
    "RedisBroker": "redis",
    "RedisConfig": "redis",
}

__all__ = ["Backlog", "Broker", "MemoryBroker", "OutputLimits", "PubSub", "RedisBroker", "RedisConfig"]


def __getattr__(name: str) -> Any:
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f".{_ROOMS[name]}", __name__), name)
    return found
