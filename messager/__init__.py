"""Messages between agents: they travel over Redis channels or MQTT topics, and log hooks see each of them.

This package knows brokers and no SQL; `messager_store` records. Each name is imported when it is first used, so
`from messager import Msg` loads no Redis client. The Messager over MQTT is `messager.mqtt.Messager`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .lazy import lazy_exports

if TYPE_CHECKING:
    from .actors import acting as acting
    from .brokers.base import Broker as Broker
    from .brokers.base import PubSub as PubSub
    from .brokers.factory import open_broker as open_broker
    from .brokers.memory.broker import MemoryBroker as MemoryBroker
    from .brokers.mqtt.broker import MqttBroker as MqttBroker
    from .brokers.redis.broker import RedisBroker as RedisBroker
    from .brokers.redis.config import RedisConfig as RedisConfig
    from .clock import Clock as Clock
    from .compat.agentscope import to_agentscope as to_agentscope
    from .endpoint import Endpoint as Endpoint
    from .errors import BrokerUnavailable as BrokerUnavailable
    from .errors import ListenerDied as ListenerDied
    from .errors import MessagerError as MessagerError
    from .errors import MessagesRefused as MessagesRefused
    from .errors import MissingDriver as MissingDriver
    from .errors import NotConnected as NotConnected
    from .errors import PublishError as PublishError
    from .hooks import LogHook as LogHook
    from .hooks import LogList as LogList
    from .messager import Messager as Messager
    from .msg import Msg as Msg
    from .record import MessageRecord as MessageRecord
    from .testing import NoMqttServer as NoMqttServer
    from .testing import NoRedisServer as NoRedisServer
    from .testing import mqtt_server as mqtt_server
    from .testing import redis_server as redis_server
    from .transport import Transport as Transport

__version__ = "0.1.0"

_EXPORTS = {
    "actors": "acting",
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

__getattr__, __dir__, __all__ = lazy_exports(__name__, globals(), _EXPORTS)
