"""Subscriber on MQTT: patterns become filters, and every possible loss becomes a gap."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any, NamedTuple

from ... import channels
from ...errors import BrokerUnavailable
from ...time_limit import time_limit
from ..reconnecting import ReconnectingSubscriber
from . import topics
from .session import Access, Events, NoAnswer, Session

PROVE_NS = 1_000_000_000
"""Interval of the pings that prove, while messages arrive, that all earlier ones were read, ns."""
WINDOW = 10
"""Minimum of messages that a broker sends before it waits for an acknowledgement (mosquitto: 20)."""
INBOX_BYTES = 256 * 1024 * 1024
"""Maximum bytes of messages that wait for `get_message`; above it the connection is closed, with a gap.

They wait here because brokers keep few (mosquitto: a thousand messages) and drop the others silently.
"""
CACHED_TOPICS = 100_000
"""Topics whose matching patterns are cached."""


class _Subscription(NamedTuple):
    """Filter and quality of service that a pattern needs."""

    filter: str
    qos: int


class MqttPubSub(ReconnectingSubscriber[Session]):
    """Subscriber on MQTT. `qos` is the requested quality of service.

    A pattern is a glob or a filter of MQTT (see `messager.brokers.mqtt.topics`). `meta` of a message has
    `retained: True` if the broker had retained it, and `qos` if that is not 1. Retained messages arrive when a
    subscription begins: again after a reconnection, and not if an earlier pattern covers the new one.

    The subscriber pings after `ping_interval` (s) of silence; without an answer within `ping_timeout` (s), the
    connection counts as lost.
    """

    def __init__(
        self, access: Access, *, qos: int, ping_interval: float, ping_timeout: float, suffix: str = ""
    ) -> None:
        super().__init__(access.url)
        self._access = access
        self._qos = qos
        self._ping_interval, self._ping_timeout = ping_interval, ping_timeout
        self._suffix = suffix
        self._patterns: dict[bytes, _Subscription] = {}
        self._filters: dict[str, int] = {}  # subscribed filters, with their quality of service
        self._matching: dict[str, list[bytes]] = {}  # patterns by topic
        self._subscribing = asyncio.Lock()
        self._proven = 0  # everything that the broker delivered before this time (monotonic ns) has arrived
        self._ping: asyncio.Task[None] | None = None
        self._pinged_at = 0
        self._since_ping = 0  # messages since the last ping

    async def psubscribe(self, *patterns: str | bytes, qos: int | None = None) -> None:
        """Subscribe as `PubSub.psubscribe` does; `qos` replaces the quality of service of this subscriber.

        Raises `ValueError`, before anything is sent, for a pattern that matches no topic and for a shared
        subscription (`$share/...`).
        """
        filters = {channels.encode(pattern): topics.filter_of(pattern) for pattern in patterns}
        async with self._subscribing:
            wanted = [pattern for pattern in filters if pattern not in self._patterns]
            if not wanted:
                return
            if self._lost is not None:
                raise BrokerUnavailable(self._url, self._lost[0])
            if self._connection is None:
                self._connection = await self._connect()
                self._proven = time.monotonic_ns()
                self._event.set()
            # Before the request: retained messages may arrive earlier than its answer.
            new = {pattern: _Subscription(filters[pattern], self._qos if qos is None else qos) for pattern in wanted}
            self._set_patterns({**self._patterns, **new})
            try:
                await self._subscribe(self._connection)
            except BaseException:
                self._set_patterns({pattern: one for pattern, one in self._patterns.items() if pattern not in wanted})
                raise

    def _taken(self, message: dict[str, Any]) -> None:
        self._inbox_bytes -= len(message["data"])

    async def aclose(self) -> None:
        self._set_patterns({})
        await super().aclose()

    async def _connect(self) -> Session:
        events = Events(message=self._received)
        session = await Session.open(self._access, events, suffix=self._suffix)
        events.lost = lambda reason: self._ended(session, reason)
        return session

    async def _subscribe_again(self, connection: Session) -> None:
        self._proven = time.monotonic_ns()
        try:
            await self._subscribe(connection)
            if connection.closed:
                raise BrokerUnavailable(self._url, "the connection was lost again")
        except BaseException:
            self._inbox.clear()  # retained messages arrive again with the next try
            self._inbox_bytes = 0
            raise

    async def _stop_tasks(self) -> None:
        self._filters = {}
        ping, self._ping = self._ping, None
        if ping is not None:
            ping.cancel()
            await asyncio.gather(ping, return_exceptions=True)

    def _ended(self, session: Session, reason: str) -> None:
        if self._connection is session:  # and not one before it
            self._connection_lost(reason, self._proven)

    def _set_patterns(self, patterns: dict[bytes, _Subscription]) -> None:
        self._patterns = patterns
        self._matching.clear()

    def _quality(self, name: str) -> int:
        """Return the quality of service that the patterns need for a filter."""
        return max((one.qos for one in self._patterns.values() if topics.overlap(name, one.filter)), default=0)

    async def _subscribe(self, session: Session) -> None:
        """Subscribe to the missing filters of the patterns. Raises `BrokerUnavailable`."""
        names = (one.filter for one in self._patterns.values())
        needed = {one: self._quality(one) for one in topics.without_overlap([*self._filters, *names])}
        new = [(one, qos) for one, qos in needed.items() if self._filters.get(one, -1) < qos]
        old = [one for one in self._filters if one not in needed]
        if not new:
            return
        try:
            refused = await session.subscribe(new)
            if refused:
                with contextlib.suppress(NoAnswer):
                    await session.unsubscribe([one for one, _ in new])
                raise BrokerUnavailable(self._url, f"it refused the subscription to {refused[0]!r}")
            self._filters = needed
            if old:
                await session.unsubscribe(old)
        except NoAnswer:
            reason = "the connection was lost while subscribing" if session.closed else "no answer in time"
            raise BrokerUnavailable(self._url, reason) from None

    async def _wait(self, timeout: float) -> dict[str, Any] | None:
        deadline = time.monotonic() + timeout
        while not self._inbox:
            session = self._connection
            if session is None and self._lost is not None:
                return await self._reconnect(timeout)
            if session is None:
                if not await self._event_within(deadline - time.monotonic()):
                    break
                continue
            left = self._seconds_left(session)
            happened = await self._event_within(min(left, deadline - time.monotonic()))
            if not happened and self._connection is session and self._seconds_left(session) <= 0:
                if self._ping is None:
                    self._send_ping(session)
                else:
                    session.abort(f"no answer to a ping within {self._ping_timeout:g} s")
                    self._ended(session, f"no answer to a ping within {self._ping_timeout:g} s")
            if time.monotonic() >= deadline:
                break
        return None

    def _seconds_left(self, session: Session) -> float:
        """Return the seconds until a ping, or the answer to one, is due."""
        since = max(session.heard, self._pinged_at if self._ping is not None else 0)
        allowed = self._ping_interval if self._ping is None else self._ping_timeout
        return (since - time.monotonic_ns()) / 1e9 + allowed

    async def _event_within(self, seconds: float) -> bool:
        """Wait for an event. Return False if there was none."""
        self._event.clear()
        with contextlib.suppress(TimeoutError):
            async with time_limit(max(seconds, 0.001)):
                await self._event.wait()
        return self._event.is_set()

    def _received(self, topic: str, payload: bytes, qos: int, retained: bool) -> None:
        """Keep a copy of a message for each pattern that it matches."""
        self._since_ping += 1
        if not self._inbox:
            self._read_to = self._proven
        patterns = self._matching.get(topic)
        if patterns is None:
            if len(self._matching) >= CACHED_TOPICS:
                self._matching.clear()
            patterns = self._matching[topic] = [pattern for pattern in self._patterns if topics.fits(pattern, topic)]
        for pattern in patterns:
            message: dict[str, Any] = {
                "type": "pmessage",
                "pattern": pattern,
                "channel": topic.encode(),
                "data": payload,
            }
            if retained or qos != 1:
                message["meta"] = meta_of(qos, retained)
            self._inbox.append(message)
            self._inbox_bytes += len(payload)
        session = self._connection
        if session is not None:
            if self._inbox_bytes > INBOX_BYTES:
                session.abort(f"more than {INBOX_BYTES >> 20} MB were waiting to be fetched")
            elif self._ping is None and session.heard - max(self._proven, self._pinged_at) >= PROVE_NS:
                self._send_ping(session)
        self._event.set()

    def _send_ping(self, session: Session) -> None:
        """Send a ping."""
        self._pinged_at, self._since_ping = time.monotonic_ns(), 0
        self._ping = asyncio.create_task(self._pinged(session))

    async def _pinged(self, session: Session) -> None:
        """Wait for the answer to a ping.

        It proves that everything has arrived only if few messages came before it, as a broker that waits for
        acknowledgements delivers the rest after the answer; and only if no message is unreleased. A broker that
        answers before it delivers what it has accepted, as a cluster may, cannot be detected.
        """
        with contextlib.suppress(NoAnswer):
            await session.ping()
            if self._since_ping < WINDOW and not session.has_unreleased:
                self._proven = self._pinged_at
            self._ping = None
            self._event.set()


def meta_of(qos: int, retained: bool) -> dict[str, Any]:
    """Return the `meta` of a delivery: `retained`, and a `qos` other than 1."""
    meta: dict[str, Any] = {"retained": True} if retained else {}
    if qos != 1:
        meta["qos"] = qos
    return meta
