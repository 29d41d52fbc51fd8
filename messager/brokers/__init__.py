"""Brokers behind one protocol: Redis, and one in memory."""

from .base import Backlog, Broker, OutputLimits, PubSub
from .memory import MemoryBroker
from .redis import RedisBroker, RedisConfig

__all__ = ["Backlog", "Broker", "MemoryBroker", "OutputLimits", "PubSub", "RedisBroker", "RedisConfig"]
