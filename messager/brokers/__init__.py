"""Brokers behind one base class: Redis, MQTT, and one in memory.

Each is imported when it is first used: redis-py and pydantic take longer than everything else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import lazy_exports

if TYPE_CHECKING:
    from .base import Backlog as Backlog
    from .base import Broker as Broker
    from .base import OutputLimits as OutputLimits
    from .base import PubSub as PubSub
    from .base import StreamReader as StreamReader
    from .factory import BROKER_KINDS as BROKER_KINDS
    from .factory import kind_of as kind_of
    from .factory import open_broker as open_broker
    from .kind import BrokerKind as BrokerKind
    from .memory.broker import MemoryBroker as MemoryBroker
    from .mqtt.broker import MqttBroker as MqttBroker
    from .redis.broker import RedisBroker as RedisBroker
    from .redis.config import RedisConfig as RedisConfig

_EXPORTS = {
    "factory": "BROKER_KINDS kind_of open_broker",
    "kind": "BrokerKind",
    "memory.broker": "MemoryBroker",
    "mqtt.broker": "MqttBroker",
    "base": "Backlog Broker OutputLimits PubSub StreamReader",
    "redis.broker": "RedisBroker",
    "redis.config": "RedisConfig",
}

__getattr__, __dir__, __all__ = lazy_exports(__name__, globals(), _EXPORTS)
