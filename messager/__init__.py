"""Messages between agents: they travel over Redis channels or MQTT topics, and log hooks see each of them.

This package knows brokers and no SQL; `messager_store` records. Each name is imported when it is first used, so
`from messager import Msg` loads no Redis client. The Messager over MQTT is `messager.mqtt.Messager`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .lazy import lazy_exports

if TYPE_CHECKING:
    from .brokers.base import Broker, PubSub
    from .brokers.factory import open_broker
    from .brokers.memory.broker import MemoryBroker
    from .brokers.mqtt.broker import MqttBroker
    from .brokers.redis.broker import RedisBroker
    from .brokers.redis.config import RedisConfig
    from .clock import Clock
    from .compat.agentscope import to_agentscope
    from .endpoint import Endpoint
    from .errors import (
        BrokerUnavailable,
        ListenerDied,
        MessagerError,
        MessagesRefused,
        MissingDriver,
        NotConnected,
        PublishError,
    )
    from .hooks import LogHook, LogList
    from .messager import Messager
    from .msg import Msg
    from .record import MessageRecord
    from .testing import NoMqttServer, NoRedisServer, mqtt_server, redis_server
    from .transport import Transport

__version__ = "0.1.0"

_EXPORTS = {
    "brokers.factory": "open_broker",
    "brokers.memory.broker": "MemoryBroker",
    "brokers.mqtt.broker": "MqttBroker",
    "brokers.base": "Broker PubSub",
    "brokers.redis.broker": "RedisBroker",
    "brokers.redis.config": "RedisConfig",
    "clock": "Clock",
    "compat.agentscope": "to_agentscope",
    "endpoint": "Endpoint",
    "errors": "BrokerUnavailable ListenerDied MessagerError MessagesRefused MissingDriver NotConnected PublishError",
    "hooks": "LogHook LogList",
    "messager": "Messager",
    "msg": "Msg",
    "record": "MessageRecord",
    "testing": "NoMqttServer NoRedisServer mqtt_server redis_server",
    "transport": "Transport",
}

__all__ = [
    "Broker",
    "BrokerUnavailable",
    "Clock",
    "Endpoint",
    "ListenerDied",
    "LogHook",
    "LogList",
    "MemoryBroker",
    "MessageRecord",
    "Messager",
    "MessagerError",
    "MessagesRefused",
    "MissingDriver",
    "MqttBroker",
    "Msg",
    "NoMqttServer",
    "NoRedisServer",
    "NotConnected",
    "PubSub",
    "PublishError",
    "RedisBroker",
    "RedisConfig",
    "Transport",
    "mqtt_server",
    "open_broker",
    "redis_server",
    "to_agentscope",
]

__getattr__, __dir__ = lazy_exports(__name__, globals(), _EXPORTS)
