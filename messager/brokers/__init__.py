"""Brokers behind one protocol: Redis, and one in memory."""

from .base import Broker, PubSub
from .memory import MemoryBroker
from .redis import RedisBroker, RedisConfig

__all__ = ["Broker", "MemoryBroker", "PubSub", "RedisBroker", "RedisConfig"]
