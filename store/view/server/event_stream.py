"""Server-sent events: an answer that does not end before the client leaves, the server stops, or the source ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, NamedTuple

from starlette.types import Receive, Scope, Send

RETRY_MS = 1000
"""Milliseconds after which the browser connects again."""


class StreamEvent(NamedTuple):
    """One event for the page."""

    name: str
    data: Any
    """Sent as JSON."""
    id: str | None = None
    """What the browser gives as `Last-Event-ID` when it connects again."""

    def encode(self) -> bytes:
        """Return the event as it is sent."""
        text = json.dumps(self.data, separators=(",", ":"))
        place = "" if self.id is None else f"id: {self.id}\n"
        return f"event: {self.name}\n{place}data: {text}\n\n".encode()


class EventStream:
    """An answer that sends events. It ends when `stop` is set."""

    def __init__(self, events: AsyncGenerator[StreamEvent, None], stop: asyncio.Event) -> None:
        self._events = events
        self._stop = stop

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        sending = asyncio.create_task(self._send(send))
        ends = {sending, asyncio.create_task(_left(receive)), asyncio.create_task(self._stop.wait())}
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in ends:
                task.cancel()
            await asyncio.wait(ends)
        if not sending.cancelled():
            sending.result()
        await send({"type": "http.response.body", "body": b""})

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.body", "body": f"retry: {RETRY_MS}\n\n".encode(), "more_body": True})
        async with aclosing(self._events):
            async for event in self._events:
                await send({"type": "http.response.body", "body": event.encode(), "more_body": True})


async def _left(receive: Receive) -> None:
    """Return when the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
