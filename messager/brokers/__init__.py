"""Brokers behind one protocol: Redis, MQTT, and one in memory.

Each is imported when it is first named: redis-py and pydantic take longer than all the rest.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .base import Backlog, Broker, OutputLimits, PubSub, Retaining
    from .memory import MemoryBroker
    from .mqtt import MqttBroker
    from .opening import open_broker
    from .redis import RedisBroker, RedisConfig

_ROOMS = {
    "Backlog": "base",
    "Broker": "base",
    "MemoryBroker": "memory",
    "MqttBroker": "mqtt",
    "OutputLimits": "base",
    "PubSub": "base",
    "RedisBroker": "redis",
    "RedisConfig": "redis",
    "Retaining": "base",
    "open_broker": "opening",
}

__all__ = [
    "Backlog",
    "Broker",
    "MemoryBroker",
    "MqttBroker",
    "OutputLimits",
    "PubSub",
    "RedisBroker",
    "RedisConfig",
    "Retaining",
    "open_broker",
]


def __getattr__(name: str) -> Any:
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f".{_ROOMS[name]}", __name__), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
