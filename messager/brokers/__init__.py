"""Brokers behind one base class: Redis, MQTT, and one in memory.

Each is imported when it is first used: redis-py and pydantic take longer than everything else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import lazy_exports

if TYPE_CHECKING:
    from .base import Backlog, Broker, OutputLimits, PubSub, StreamReader
    from .factory import BROKER_KINDS, kind_of, open_broker
    from .kind import BrokerKind
    from .memory.broker import MemoryBroker
    from .mqtt.broker import MqttBroker
    from .redis.broker import RedisBroker
    from .redis.config import RedisConfig

_EXPORTS = {
    "factory": "BROKER_KINDS kind_of open_broker",
    "kind": "BrokerKind",
    "memory.broker": "MemoryBroker",
    "mqtt.broker": "MqttBroker",
    "base": "Backlog Broker OutputLimits PubSub StreamReader",
    "redis.broker": "RedisBroker",
    "redis.config": "RedisConfig",
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
    "StreamReader",
    "kind_of",
    "open_broker",
]

__getattr__, __dir__ = lazy_exports(__name__, globals(), _EXPORTS)
