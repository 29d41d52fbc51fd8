"""Brokers behind one protocol: Redis, MQTT, and one in memory.

Each is imported when it is first named: redis-py and pydantic take longer than all the rest.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .factory import open_broker
    from .memory import MemoryBroker
    from .mqtt.broker import MqttBroker
    from .protocol import Backlog, Broker, OutputLimits, PubSub, Retaining
    from .redis.broker import RedisBroker, RedisConfig

_ROOMS = {
    "Backlog": "protocol",
    "Broker": "protocol",
    "MemoryBroker": "memory",
    "MqttBroker": "mqtt.broker",
    "OutputLimits": "protocol",
    "PubSub": "protocol",
    "RedisBroker": "redis.broker",
    "RedisConfig": "redis.broker",
    "Retaining": "protocol",
    "open_broker": "factory",
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
