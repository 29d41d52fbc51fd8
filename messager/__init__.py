"""Talking: agents exchange messages over Redis channels, and log hooks are told of each.

This package knows brokers and never SQL; `messager_store` remembers.
"""

from .brokers import Broker, MemoryBroker, PubSub, RedisBroker, RedisConfig
from .clock import Clock
from .errors import BrokerUnavailable, ListenerDied, MessagerError, NotConnected, PublishError
from .hooks import LogHook, LogList
from .messager import Messager
from .msg import Msg
from .record import MessageRecord

__version__ = "0.1.0"

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
    "Msg",
    "NotConnected",
    "PubSub",
    "PublishError",
    "RedisBroker",
    "RedisConfig",
]
