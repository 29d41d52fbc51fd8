"""Talking: agents exchange messages over Redis channels or MQTT topics, and log hooks are told of each.

This package knows brokers and never SQL; `messager_store` remembers. Its rooms are imported
when a name of theirs is first used: who wants a `Msg` waits for no Redis client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .brokers import Broker, MemoryBroker, MqttBroker, PubSub, RedisBroker, RedisConfig, open_broker
    from .clock import Clock
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

__version__ = "0.1.0"

_ROOMS = {
    "Broker": "brokers",
    "BrokerUnavailable": "errors",
    "Clock": "clock",
    "ListenerDied": "errors",
    "LogHook": "hooks",
    "LogList": "hooks",
    "MemoryBroker": "brokers",
    "MessageRecord": "record",
    "Messager": "messager",
    "MessagerError": "errors",
    "MessagesRefused": "errors",
    "MissingDriver": "errors",
    "MqttBroker": "brokers",
    "Msg": "msg",
    "NotConnected": "errors",
    "PubSub": "brokers",
    "PublishError": "errors",
    "RedisBroker": "brokers",
    "RedisConfig": "brokers",
    "open_broker": "brokers",
}

__all__ = [
    "Broker",
    "BrokerUnavailable",
    "Clock",
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
    "NotConnected",
    "PubSub",
    "PublishError",
    "RedisBroker",
    "RedisConfig",
    "open_broker",
]


def __getattr__(name: str) -> Any:
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f".{_ROOMS[name]}", __name__), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
