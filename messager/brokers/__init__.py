"""Brokers behind one protocol: Redis, MQTT, and one in memory.

Each is imported when it is first named: redis-py and pydantic take longer than all the rest.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .factory import BROKER_KINDS, kind_of, open_broker
    from .kind import BrokerKind
    from .memory.broker import MemoryBroker
    from .mqtt.broker import MqttBroker
    from .protocol import Backlog, Broker, OutputLimits, PubSub, Retaining
    from .redis.broker import RedisBroker, RedisConfig

_EXPORTS = {
    "BROKER_KINDS": "factory",
    "Backlog": "protocol",
    "Broker": "protocol",
    "BrokerKind": "kind",
    "MemoryBroker": "memory.broker",
    "MqttBroker": "mqtt.broker",
    "OutputLimits": "protocol",
    "PubSub": "protocol",
    "RedisBroker": "redis.broker",
    "RedisConfig": "redis.broker",
    "Retaining": "protocol",
    "kind_of": "factory",
    "open_broker": "factory",
}

__all__ = [
    "BROKER_KINDS",
    "Backlog",
    "Broker",
    "BrokerKind",
    "MemoryBroker",
    "MqttBroker",
    "OutputLimits",
    "PubSub",
    "RedisBroker",
    "RedisConfig",
    "Retaining",
    "kind_of",
    "open_broker",
]


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f".{_EXPORTS[name]}", __name__), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
