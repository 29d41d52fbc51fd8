"""Messages of a bus of AgentScope 2: who says them to whom, and their log.

Source of the contract: `MessageBusKeys`, `_bus_ops` and `HintBlock` of AgentScope 2.0.11.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing
from contextvars import ContextVar
from typing import Any

from ..endpoint import Endpoint
from ..payload import to_wire
from ..record import Carrier

INBOX, EVENTS = "agentscope:inbox:", "agentscope:session:events:"
"""Prefixes of the keys that belong to a session."""

Entry = tuple[str, dict[str, Any]]
"""Id and payload of an entry of a queue or a log."""

log = logging.getLogger("messager")

acting: ContextVar[str | None] = ContextVar("acting", default=None)
"""Session whose inbox the running task, or the one that started it, drained last."""


def inbox_owner(key: str) -> str | None:
    """Return the session that an inbox belongs to; None for any other key."""
    return key.removeprefix(INBOX) if key.startswith(INBOX) else None


def sender_of(key: str, payload: Any) -> str | None:
    """Return who said something: the session whose events a log has, else the source of the payload, else None."""
    return key.removeprefix(EVENTS) if key.startswith(EVENTS) else _source(payload)


def _source(payload: Any) -> str | None:
    """Return the sender that a `HintBlock` names: the text of its `source`, or the label in the JSON there."""
    source = payload.get("source") if isinstance(payload, dict) else None
    if not isinstance(source, str):
        return None
    try:
        labels = json.loads(source)
        label = labels.get("sublabel") or labels.get("label")
    except (ValueError, AttributeError):  # plain text
        label = source
    return label if isinstance(label, str) and label else None


def wire(payload: Any) -> bytes:
    """Return a payload as a Messager writes it; text that shows it if it has no JSON form."""
    try:
        return to_wire(payload).encode()
    except (TypeError, ValueError, RecursionError):
        return repr(payload).encode("utf-8", "backslashreplace")


class Readers:
    """Endpoints of those who read what belongs to no session, named by the key: dispatchers and viewers.

    Each subscription has one of its own. Of a log, each entry counts as received once.
    """

    def __init__(self, endpoint: Callable[[str], Endpoint]) -> None:
        self._endpoint = endpoint
        self._read: dict[str, tuple[int, ...]] = {}
        self._subscribed: dict[str, set[int]] = {}

    def received(self, key: str, payload: Any, carrier: Carrier | None, reader: str | None = None) -> None:
        """Log that an entry was read. An error is logged, as it must not reach AgentScope."""
        try:
            to_id = inbox_owner(key)
            endpoint = self._endpoint(reader or to_id or key)
            endpoint.received(key, wire(payload), sender_of(key, payload), to_id, carrier=carrier)
        except Exception:
            log.exception("a message on %s is not recorded", key)

    def read(self, key: str, entries: Iterable[Entry]) -> None:
        """Log entries of a log, as far as they were not read before."""
        for entry_id, payload in entries:
            if (place := _place(entry_id)) > self._read.get(key, ()):
                self._read[key] = place
                self.received(key, payload, "stream")

    async def subscription(self, key: str, messages: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
        """Yield the messages of a subscription, and log each."""
        others = self._subscribed.setdefault(key, set())
        number = next(number for number in range(1, len(others) + 2) if number not in others)
        others.add(number)
        try:
            async with aclosing(messages):
                async for payload in messages:
                    self.received(key, payload, None, key if number == 1 else f"{key}#{number}")
                    yield payload
        finally:
            others.discard(number)


def _place(entry_id: str) -> tuple[int, ...]:
    """Return the id of an entry in a form that can be compared; of an unknown form, one behind all others."""
    try:
        return tuple(map(int, entry_id.split("-")))
    except (ValueError, AttributeError):
        return (1 << 63,)


class BusLog:
    """The operations of a bus that carry messages, with their log.

    `speaker` returns the endpoint of who says something, None if unknown, and `reader` that of an inbox or of a key.
    Payloads that were drained and are put back, as AgentScope does to look into a queue, are not logged again.
    """

    OPERATIONS = "queue_push", "queue_drain", "log_append", "log_read", "publish", "subscribe"

    def __init__(self, bus: Any, speaker: Callable[[Any], Endpoint], reader: Callable[[str], Endpoint]) -> None:
        self.readers = Readers(reader)
        self._speaker = speaker
        self._queue_push, self._queue_drain = bus.queue_push, bus.queue_drain
        self._log_append, self._log_read = bus.log_append, bus.log_read
        self._publish, self._subscribe = bus.publish, bus.subscribe
        self._drained: dict[str, list[Any]] = {}  # payloads of the last drain
        self._put_back: set[tuple[str, str]] = set()  # keys and ids of entries

    async def queue_push(self, key: str, payload: Any, **options: Any) -> Any:
        if taken(self._drained.get(key, []), payload) is None:
            return await self._send(lambda: self._queue_push(key, payload, **options), key, payload, "queue")
        entry_id = await self._queue_push(key, payload, **options)
        self._put_back.add((key, entry_id))
        return entry_id

    async def queue_drain(self, key: str, *args: Any, **options: Any) -> Any:
        if (session := inbox_owner(key)) is not None:
            acting.set(session)
        entries: list[Entry] = await self._queue_drain(key, *args, **options)
        for entry_id, payload in entries:
            if (key, entry_id) in self._put_back:
                self._put_back.discard((key, entry_id))
            else:
                self.readers.received(key, payload, "queue")
        if entries:
            self._drained[key] = [payload for _, payload in entries]
        return entries

    async def log_append(self, key: str, payload: Any, **options: Any) -> Any:
        return await self._send(lambda: self._log_append(key, payload, **options), key, payload, "stream")

    async def log_read(self, key: str, *args: Any, **options: Any) -> Any:
        entries = await self._log_read(key, *args, **options)
        self.readers.read(key, entries)
        return entries

    async def publish(self, key: str, payload: Any) -> Any:
        return await self._send(lambda: self._publish(key, payload), key, payload, None)

    def subscribe(self, key: str, **options: Any) -> AsyncGenerator[Any, None]:
        return self.readers.subscription(key, self._subscribe(key, **options))

    async def _send(self, call: Callable[[], Awaitable[Any]], key: str, payload: Any, carrier: Carrier | None) -> Any:
        try:
            ids = sender_of(key, payload) or acting.get(), inbox_owner(key)
            endpoint = self._speaker(ids[0])
        except Exception:
            log.exception("a message on %s is not recorded", key)
            return await call()
        more = {"signal": True} if carrier is None else {}  # nobody has to be there
        return await self.sending(endpoint, call, key, wire(payload), *ids, carrier=carrier, **more)

    async def sending(self, endpoint: Endpoint, call: Callable[[], Awaitable[Any]], *message: Any, **more: Any) -> Any:
        """Await `call` and log the message."""
        return await endpoint.sending(call, *message, **more)


def taken(payloads: list[Any], payload: Any) -> int | None:
    """Remove this very object from a list; return its place there, None if it is not there."""
    for at, one in enumerate(payloads):
        if one is payload:
            del payloads[at]
            return at
    return None
