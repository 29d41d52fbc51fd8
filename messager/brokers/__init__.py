"""Brokers behind one protocol: Redis, MQTT, and one in memory.

Each is imported when it is first used: redis-py and pydantic take longer than everything else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import lazy_exports

if TYPE_CHECKING:
    from .factory import BROKER_KINDS, kind_of, open_broker
    from .kind import BrokerKind
    from .memory.broker import MemoryBroker
    from .mqtt.broker import MqttBroker
    from .protocol import Backlog, Broker, OutputLimits, PubSub, Retaining
    from .redis.broker import RedisBroker
    from .redis.config import RedisConfig

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
    "RedisConfig": "redis.config",
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

__getattr__, __dir__ = lazy_exports(__name__, globals(), _EXPORTS)
