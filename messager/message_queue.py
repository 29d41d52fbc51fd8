"""Queue of received messages that wait to be fetched, with the number of bytes in it."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Any

from .clock import Clock
from .endpoint import Endpoint

WARN_BYTES = 100_000_000
"""Bytes that may wait in a queue without a limit before a warning is logged."""

log = logging.getLogger("messager")


class MessageQueue(asyncio.Queue[dict[str, Any]]):
    """Received messages in order. It accepts every message; above the limit, the listener stops reading.

    `limit` is in bytes of channels and payloads. Without one, a warning with the exp_id is logged once when more than
    `WARN_BYTES` wait, and again only after the queue was empty.
    """

    def __init__(self, exp_id: str, limit: int | None, clock: Clock) -> None:
        """Raises `ValueError` for a limit that is negative or no number."""
        if limit is not None and not (isinstance(limit, int) and limit >= 0):
            raise ValueError(
                f"invalid queue_bytes: {limit!r}. Give a number of bytes, 0 or more, or None for no limit."
            )
        super().__init__()
        self.waiting_bytes = 0
        """Bytes of channels and payloads in the queue."""
        self.limit = limit
        self.endpoint = Endpoint(exp_id, self.add, clock=clock)
        """Endpoint that numbers the messages, and knows which were taken from the queue."""
        self._threshold = WARN_BYTES if limit is None else limit
        self._exceeded = False  # True from the warning until the queue is empty
        self._emptied = asyncio.Event()

    @property
    def stops_reading(self) -> bool:
        """True after the limit was exceeded until the queue is empty. Always False without a limit."""
        return self._exceeded and self.limit is not None

    add = asyncio.Queue.put_nowait

    def put_nowait(self, item: dict[str, Any]) -> None:
        """Queue a message as one that has just arrived: it is logged, and a gate may hold it back.

        Other objects are only numbered and queued.
        """
        if isinstance(item, dict) and "channel" in item and "data" in item:
            self.endpoint.arrive(item)
        else:
            self.endpoint.arrived += 1
            self.add(item)

    def take_all(self) -> list[dict[str, Any]]:
        """Remove and return all messages."""
        messages = list(self._messages)
        self._messages.clear()
        self.endpoint.fetched = self.endpoint.arrived
        self.waiting_bytes = 0
        if self._exceeded:
            self._exceeded = False
            self._emptied.set()
        return messages

    async def emptied(self) -> None:
        """Wait until the queue is empty. Call it only while `stops_reading`."""
        self._emptied.clear()
        await self._emptied.wait()

    # asyncio.Queue has _init, _put and _get for subclasses to override. They are called for each message.
    def _init(self, maxsize: int) -> None:
        self._messages: deque[dict[str, Any]] = deque()
        self._queue = self._messages  # used by asyncio.Queue

    def _put(self, item: dict[str, Any]) -> None:
        self._messages.append(item)
        try:
            self.waiting_bytes += len(item["channel"]) + len(item["data"])
        except (KeyError, TypeError):  # a subclass of Messager may queue other objects
            return
        if self.waiting_bytes > self._threshold and not self._exceeded:
            self._exceeded = True
            if self.limit is None:
                log.warning(
                    "more than %d MB of received messages of experiment %s wait to be fetched: call fetch_messages "
                    "more often, or limit the queue with queue_bytes",
                    WARN_BYTES // 1_000_000,
                    self.endpoint.exp_id,
                )

    def _get(self) -> dict[str, Any]:
        item = self._messages.popleft()
        self.endpoint.fetched = self.endpoint.arrived - len(self._messages)
        try:
            self.waiting_bytes -= len(item["channel"]) + len(item["data"])
        except (KeyError, TypeError):
            pass
        if self._exceeded and not self._messages:
            self._exceeded = False
            self._emptied.set()
        return item
