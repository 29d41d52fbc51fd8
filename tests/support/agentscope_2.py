"""Stand-in for `agentscope.app.message_bus` of AgentScope 2.0.11: the interface of its buses, in memory."""

from __future__ import annotations

import asyncio
import itertools
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Self

Entry = tuple[str, dict[str, Any]]


class MessageBus(ABC):
    """The abstract operations, some of the registries and locks left out."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        self.closed = True

    @abstractmethod
    async def queue_push(self, key: str, payload: dict[str, Any], *, ttl_secs: int | None = None) -> str: ...

    @abstractmethod
    async def queue_drain(self, key: str, max_count: int = 100) -> list[Entry]: ...

    @abstractmethod
    async def queue_delete(self, key: str) -> None: ...

    @abstractmethod
    async def log_append(
        self, key: str, payload: dict[str, Any], *, ttl_secs: int | None = None, max_len: int | None = None
    ) -> str: ...

    @abstractmethod
    async def log_read(self, key: str, since: str | None = None, max_count: int = 100) -> list[Entry]: ...

    @abstractmethod
    async def log_trim(self, key: str, before_id: str | None = None) -> None: ...

    @abstractmethod
    async def publish(self, key: str, payload: dict[str, Any]) -> None: ...

    @abstractmethod
    def subscribe(
        self, key: str, *, on_ready: Callable[[], None] | None = None
    ) -> AsyncGenerator[dict[str, Any], None]: ...

    @abstractmethod
    @asynccontextmanager
    async def acquire_lock(self, key: str, *, ttl_secs: int = 600) -> AsyncIterator[None]:
        yield

    @abstractmethod
    async def is_locked(self, key: str) -> bool: ...

    @abstractmethod
    async def registry_set(self, namespace: str, field: str, value: str, *, ttl_secs: int | None = None) -> None: ...

    @abstractmethod
    async def registry_get(self, namespace: str, field: str) -> str | None: ...


class InMemoryMessageBus(MessageBus):
    def __init__(self) -> None:
        self._ids = (f"{number}-0" for number in itertools.count(1))
        self._queues: dict[str, list[Entry]] = defaultdict(list)
        self._logs: dict[str, list[Entry]] = defaultdict(list)
        self._subscribers: dict[str, list[asyncio.Queue[dict[str, Any]]]] = defaultdict(list)
        self._locks: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.registry: dict[tuple[str, str], str] = {}

    async def queue_push(self, key: str, payload: dict[str, Any], *, ttl_secs: int | None = None) -> str:
        self._queues[key].append((next(self._ids), payload))
        return self._queues[key][-1][0]

    async def queue_drain(self, key: str, max_count: int = 100) -> list[Entry]:
        drained, self._queues[key] = self._queues[key][:max_count], self._queues[key][max_count:]
        return drained

    async def queue_delete(self, key: str) -> None:
        self._queues.pop(key, None)

    async def log_append(
        self, key: str, payload: dict[str, Any], *, ttl_secs: int | None = None, max_len: int | None = None
    ) -> str:
        self._logs[key].append((next(self._ids), payload))
        return self._logs[key][-1][0]

    async def log_read(self, key: str, since: str | None = None, max_count: int = 100) -> list[Entry]:
        after = 0 if since is None else int(since.split("-")[0])
        return [entry for entry in self._logs[key] if int(entry[0].split("-")[0]) > after][:max_count]

    async def log_trim(self, key: str, before_id: str | None = None) -> None:
        self._logs.pop(key, None)

    async def publish(self, key: str, payload: dict[str, Any]) -> None:
        for queue in self._subscribers[key]:
            queue.put_nowait(payload)

    async def subscribe(
        self, key: str, *, on_ready: Callable[[], None] | None = None
    ) -> AsyncGenerator[dict[str, Any], None]:
        queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._subscribers[key].append(queue)
        if on_ready is not None:
            on_ready()
        try:
            while True:
                yield await queue.get()
        finally:
            self._subscribers[key].remove(queue)

    @asynccontextmanager
    async def acquire_lock(self, key: str, *, ttl_secs: int = 600) -> AsyncIterator[None]:
        async with self._locks[key]:
            yield

    async def is_locked(self, key: str) -> bool:
        return self._locks[key].locked()

    async def registry_set(self, namespace: str, field: str, value: str, *, ttl_secs: int | None = None) -> None:
        self.registry[namespace, field] = value

    async def registry_get(self, namespace: str, field: str) -> str | None:
        return self.registry.get((namespace, field))


class RedisMessageBus(InMemoryMessageBus):
    """In memory too: it only has the arguments of the one on Redis."""

    def __init__(self, host: str = "localhost", port: int = 6379, db: int = 0, password: str | None = None) -> None:
        super().__init__()
