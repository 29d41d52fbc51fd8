"""Listener: passes received messages of a subscriber on, and logs the gaps between them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from .brokers.base import PubSub
from .endpoint import Endpoint
from .message_queue import MessageQueue
from .record import MessageRecord

YIELD_EVERY = 20
"""Messages after which a listener lets other tasks run, on a stream that never pauses."""

log = logging.getLogger("messager")


class Listener:
    """Listener of one subscriber, which may be redis-py's own `PubSub`.

    The endpoint gets each message, which it or a gate puts into the queue.
    """

    def __init__(self, pubsub: PubSub, queue: MessageQueue, endpoint: Endpoint) -> None:
        self._pubsub = pubsub
        self._queue = queue
        self._endpoint = endpoint

    async def run(self) -> None:
        """Pass on what arrives, until cancelled. It stops reading while the queue is above its limit."""
        queue = self._queue
        received = 0
        timeout = getattr(self._pubsub, "listen_timeout", 1.0)  # subclasses may give a PubSub of redis-py
        while True:
            message = await self._pubsub.get_message(ignore_subscribe_messages=True, timeout=timeout)
            if message is None:
                continue
            if message["type"] == "pmessage":
                self._endpoint.arrive(message)
                received += 1
                if queue.stops_reading:
                    await queue.emptied()
                elif received % YIELD_EVERY == 0:
                    await asyncio.sleep(0)
            elif message["type"] == "gap":
                self._gap(message["reason"], message["since"], message["until"])

    def log_unread(self) -> None:
        """Log a gap if the listener ends while disconnected, or with `queue_bytes` before it has read everything."""
        since = self._ask("lost_since")
        reason = "the listener ended while disconnected"
        if since is None:
            since = self._ask("unconfirmed_since")
            reason = "the listener ended before its server was confirmed again"
        if self._queue.limit is not None and (unread := self._ask("unread_since")) is not None:
            since = unread if since is None else min(since, unread)
            reason = "the listener ended before it had read everything (queue_bytes)"
        if since is not None:
            self._gap(reason, since, None)

    def _ask(self, name: str) -> int | None:
        """Call a method of our subscribers that redis-py's does not have."""
        method: Callable[[], int | None] = getattr(self._pubsub, name, lambda: None)
        return method()

    def _gap(self, reason: str, since: int, until: int | None) -> None:
        clock = self._endpoint.clock
        now = clock.now()
        end = now if until is None else clock.at(until)
        start = clock.at(since)
        meta = {"reason": reason, "since": start, "until": end, "count": None}
        log.warning("messages may be missing for %.3f s: %s", (end - start) / 1e9, reason)
        self._endpoint.tell(MessageRecord("gap", now, meta=meta))
