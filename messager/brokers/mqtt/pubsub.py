"""Listening on MQTT: patterns become filters, silence is noticed, and what may be missing is told."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any, NamedTuple

from ... import channels
from ...errors import BrokerUnavailable
from ..reconnecting import Listening
from . import topics
from .session import Access, Events, NoAnswer, Session

PROVE_NS = 1_000_000_000
"""While messages come, how often a subscriber asks for a proof that it has read all that was sent to it, ns."""
WINDOW = 10
"""Messages a broker sends at the least before it waits for an acknowledgement (mosquitto: 20)."""
INBOX_BYTES = 256 * 1024 * 1024
"""How much may have been taken in and not been fetched. It waits here, as brokers keep little (mosquitto: a thousand
messages) and drop the rest without a word; a subscriber that leaves more than this gets a gap."""
DIFFERENT_TOPICS = 100_000
"""Topics of which it is remembered which patterns they fit."""


class _Wanted(NamedTuple):
    """What a pattern needs: a filter and a quality of service."""

    filter: str
    qos: int


class MqttPubSub(Listening[Session]):
    """A subscriber on MQTT.

    A pattern is a glob, or one of MQTT's filters (see `messager.topics`). A message that is no live one, but was
    retained by the broker, has `meta` with `retained: True`; one of another quality of service than 1 has
    `qos` in it. A retained message comes when a subscription begins, so again after a reconnection, and
    not where an earlier pattern covers the new one. `qos` is what is asked for.

    One that has heard nothing for `ping_interval` (s) pings; without any answer for `ping_timeout` (s)
    more, the connection counts as lost.
    """

    def __init__(
        self, access: Access, *, qos: int, ping_interval: float, ping_timeout: float, suffix: str = ""
    ) -> None:
        super().__init__(access.url)
        self._access = access
        self._qos = qos
        self._ping_interval, self._ping_timeout = ping_interval, ping_timeout
        self._suffix = suffix
        self._patterns: dict[bytes, _Wanted] = {}
        self._filters: dict[str, int] = {}  # what is subscribed to, in which quality
        self._fitting: dict[str, list[bytes]] = {}  # the patterns that a topic fits
        self._subscribing = asyncio.Lock()
        self._proven = 0  # what the broker delivered to us before this moment has come in
        self._ping: asyncio.Task[None] | None = None
        self._pinged_at = 0
        self._since_ping = 0  # messages

    async def psubscribe(self, *patterns: str | bytes, qos: int | None = None) -> None:
        """As `PubSub.psubscribe`; with `qos`, in another quality of service than that of this subscriber.

        Raises `ValueError`, before anything is sent, for a pattern that no topic can fit and for a subscription that
        is shared with others (`$share/...`).
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
                self._stirred.set()
            # Before they are subscribed to: what is retained may come ahead of the answer.
            new = {pattern: _Wanted(filters[pattern], self._qos if qos is None else qos) for pattern in wanted}
            self._know({**self._patterns, **new})
            try:
                await self._subscribe(self._connection)
            except BaseException:
                self._know({pattern: one for pattern, one in self._patterns.items() if pattern not in wanted})
                raise

    async def punsubscribe(self, *patterns: str | bytes) -> None:
        gone = {channels.encode(pattern) for pattern in patterns} or set(self._patterns)
        async with self._subscribing:
            self._know({pattern: one for pattern, one in self._patterns.items() if pattern not in gone})
            over = [one for one in self._filters if self._quality(one) is None]
            for one in over:
                del self._filters[one]
            if over and self._connection is not None:
                with contextlib.suppress(NoAnswer):  # what comes all the same fits no pattern
                    await self._connection.unsubscribe(over)

    async def get_message(self, ignore_subscribe_messages: bool = True, timeout: float = 0.0) -> dict[str, Any] | None:
        inbox = self._inbox
        if not inbox:
            gap = await self._wait(timeout)
            if gap is not None or not inbox:
                return gap
        message = inbox.popleft()
        self._inbox_bytes -= len(message["data"])
        return message

    async def aclose(self) -> None:
        self._know({})
        await super().aclose()

    async def _connect(self) -> Session:
        events = Events(message=self._came)
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
            self._inbox.clear()  # retained messages come again with the next try
            self._inbox_bytes = 0
            raise

    async def _forget(self) -> None:
        self._filters = {}
        ping, self._ping = self._ping, None
        if ping is not None:
            ping.cancel()
            await asyncio.gather(ping, return_exceptions=True)

    def _ended(self, session: Session, reason: str) -> None:
        if self._connection is session:  # and not one before it
            self._gone(reason, self._proven)

    def _know(self, patterns: dict[bytes, _Wanted]) -> None:
        self._patterns = patterns
        self._fitting.clear()

    def _quality(self, name: str) -> int | None:
        """The quality of service that a filter is needed in; None where no pattern needs it."""
        found = [one.qos for one in self._patterns.values() if topics.overlap(name, one.filter)]
        return max(found, default=None)

    async def _subscribe(self, session: Session) -> None:
        """Subscribe to what the patterns need and there is not yet. Raises `BrokerUnavailable`."""
        names = (one.filter for one in self._patterns.values())
        needed = {one: self._quality(one) or 0 for one in topics.without_overlap([*self._filters, *names])}
        new = [(one, qos) for one, qos in needed.items() if self._filters.get(one, -1) < qos]
        old = [one for one in self._filters if one not in needed]
        if not new:
            return
        try:
            refused = await session.subscribe(new)
            if refused:
                with contextlib.suppress(NoAnswer):
                    await session.unsubscribe([one for one, _ in new])
                raise BrokerUnavailable(self._url, f"it does not let us subscribe to {refused[0]!r}")
            self._filters = needed
            if old:
                await session.unsubscribe(old)
        except NoAnswer:
            reason = "the connection was lost while subscribing" if session.closed else "no answer in time"
            raise BrokerUnavailable(self._url, reason) from None

    async def _wait(self, timeout: float) -> dict[str, Any] | None:
        """Return when there is a message, or after `timeout` seconds; a gap, where the connection was made again."""
        deadline = time.monotonic() + timeout
        while not self._inbox:
            session = self._connection
            if session is None and self._lost is not None:
                return await self._mend(timeout)
            if session is None:
                if not await self._stirs(deadline - time.monotonic()):
                    break
                continue
            left = self._patience(session)
            stirred = await self._stirs(min(left, deadline - time.monotonic()))
            if not stirred and self._connection is session and self._patience(session) <= 0:
                if self._ping is None:
                    self._send_ping(session)
                else:
                    session.abort(f"no answer to a ping within {self._ping_timeout:g} s")
                    self._ended(session, f"no answer to a ping within {self._ping_timeout:g} s")
            if time.monotonic() >= deadline:
                break
        return None

    def _patience(self, session: Session) -> float:
        """For how long (s) the connection may still be silent, until there has to be a ping, or its answer."""
        since = max(session.heard, self._pinged_at if self._ping is not None else 0)
        allowed = self._ping_interval if self._ping is None else self._ping_timeout
        return (since - time.monotonic_ns()) / 1e9 + allowed

    async def _stirs(self, seconds: float) -> bool:
        """Wait until something happens; whether it did."""
        self._stirred.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(seconds, 0.001)):
                await self._stirred.wait()
        return self._stirred.is_set()

    def _came(self, topic: str, payload: bytes, qos: int, retained: bool) -> None:
        """A message came: a copy of it for each pattern that it fits is kept for `get_message`."""
        self._since_ping += 1
        if not self._inbox:
            self._read_to = self._proven
        patterns = self._fitting.get(topic)
        if patterns is None:
            if len(self._fitting) >= DIFFERENT_TOPICS:
                self._fitting.clear()
            patterns = self._fitting[topic] = [pattern for pattern in self._patterns if topics.fits(pattern, topic)]
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
        self._stirred.set()

    def _send_ping(self, session: Session) -> None:
        """Ask for a sign of life."""
        self._pinged_at, self._since_ping = time.monotonic_ns(), 0
        self._ping = asyncio.create_task(self._pinged(session))

    async def _pinged(self, session: Session) -> None:
        """Wait for the answer. A proof it is where little came before it: a broker sends only so many messages
        ahead of their acknowledgements, and those that it holds back would come behind the answer. Nor is it one while
        a message is here that the broker has not released yet. (What a
        broker took and has not handed to us before it answers, as a cluster may, nobody can know of.)"""
        with contextlib.suppress(NoAnswer):
            await session.ping()
            if self._since_ping < WINDOW and not session.halfway:
                self._proven = self._pinged_at
            self._ping = None
            self._stirred.set()


def meta_of(qos: int, retained: bool) -> dict[str, Any]:
    """What is told of a delivery that was not the usual one: `retained`, and a `qos` other than 1."""
    meta: dict[str, Any] = {"retained": True} if retained else {}
    if qos != 1:
        meta["qos"] = qos
    return meta
