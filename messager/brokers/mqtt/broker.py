"""MQTT as a broker: where it is, and publishing.

A message is never repeated: after a lost acknowledgement its fate is unknown, and said to be so.
How many subscribers there are, and what waits for them, an MQTT broker tells nobody.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from ...errors import BrokerUnavailable, PublishError
from ..busy_poll import GLANCE_NS, Glance
from ..picklable import Travelling
from ..protocol import Backlog, OutputLimits
from ..urls import URLFault, fault_of, not_a_url
from . import topics
from .pubsub import MqttPubSub, meta_of
from .session import Access, Events, Session

STALE_AFTER = 1.0
"""Seconds after which an idle publishing connection is looked at before it is used."""
MOST_UNACKNOWLEDGED = 10_000
"""Messages on their way at a time; the protocol numbers 65,535. What is more waits here."""
MOST_OF_QOS_2 = 20
"""Of them, those of quality of service 2: what is more, mosquitto acknowledges and drops."""
TLS_OPTIONS = ("ca_certs", "certfile", "keyfile")
OPTIONS = ("client_id", "qos", *TLS_OPTIONS)

Request = tuple[str, bytes, int, bool]
"""A message as it is asked for: topic, payload, quality of service, retained."""


class MqttBroker(Travelling):
    """An MQTT broker (protocol 3.1.1). `timeout` and the ping times are in seconds.

    `qos` is the quality of service that messages are published and subscribed to with, 1 unless given; where it is
    not given, a recorder that only listens subscribes with 2. `client_id` is the name
    of the client that publishes, and what those of its subscribers begin with; as a broker lets every name in
    once only, it is random unless given. A subscriber that has heard nothing for `ping_interval` pings;
    without any answer for `ping_timeout` more, the connection counts as lost and is made again.
    """

    def __init__(
        self,
        hostname: str,
        port: int = 1883,
        *,
        username: str | None = None,
        password: str | None = None,
        tls: ssl.SSLContext | None = None,
        client_id: str | None = None,
        qos: int | None = None,
        timeout: float = 60.0,
        ping_interval: float = 5.0,
        ping_timeout: float = 5.0,
    ) -> None:
        if qos not in (None, 0, 1, 2):
            raise ValueError(f"{qos!r} is no quality of service: it is 0, 1 or 2")
        self._access = Access(hostname, port, username, password, tls, client_id)
        self.url = self._access.url
        self.qos = 1 if qos is None else qos
        self._records_with = 2 if qos is None else qos
        self.sends_with = meta_of(self.qos, retained=False) or None
        """The meta of what is published: the same as a subscriber is told, where it is not the usual."""
        self.ping_interval = ping_interval
        self.ping_timeout = ping_timeout
        self._timeout = timeout or None
        self._session: Session | None = None
        self._lock = asyncio.Lock()
        self._closings = 0
        self._used = 0.0
        self._subscribers = 0
        self._waiting: deque[tuple[_Publishing, int, Request]] = deque()
        self._sent: dict[int, tuple[_Publishing, int, float]] = {}  # not acknowledged, since when; oldest first
        self._twos: set[int] = set()  # those of them that are of quality of service 2
        self._glance = Glance()
        self._making = 0  # how many wait for a connection, to send what waits
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    def from_url(cls, url: str, **options: Any) -> MqttBroker:
        """A broker at `mqtt://user:password@host:port` or, encrypted, `mqtts://`.

        Options of the URL are `client_id`, `qos`, and for `mqtts` the files `ca_certs`, `certfile` and
        `keyfile`. Raises `ValueError` for any other URL.
        """
        try:
            made = cls(**{**_parsed(url), **options})
        except ValueError as error:
            raise not_a_url(url, "an MQTT URL", fault_of(error)) from None
        made._made_from = url, options
        return made

    def _in_use(self) -> bool:
        return self._session is not None or self._lock.locked() or bool(self._making)

    async def connect(self) -> None:
        async with self._lock:
            await self._ready()

    async def close(self) -> None:
        self._closings += 1
        session, self._session = self._session, None
        if session is not None:
            await session.close()
        self._fail("the connection was closed")
        self._give_up(f"the connection to {self.url} was closed before")

    def publish(self, messages: Sequence[tuple[bytes, bytes]]) -> asyncio.Future[list[int | PublishError | None]]:
        return self._publish(messages, ())

    def publish_as(
        self, messages: Sequence[tuple[bytes, bytes]], how: Sequence[Mapping[str, Any] | None]
    ) -> asyncio.Future[list[int | PublishError | None]]:
        """Publish each as its `meta` says that it once was delivered: `retained`, `qos`; without any, as usual."""
        return self._publish(messages, how)

    def _publish(
        self, messages: Sequence[tuple[bytes, bytes]], how: Sequence[Mapping[str, Any] | None]
    ) -> asyncio.Future[list[int | PublishError | None]]:
        publishing = _Publishing(len(messages))
        for at, (topic, payload) in enumerate(messages):
            fault = topics.fault(topic, len(payload))
            if fault is not None:
                name = topic[:100].decode("utf-8", "backslashreplace")
                publishing.settle(
                    at, PublishError(f"cannot publish on the topic {name!a}: {fault}", "not_sent", refused=True)
                )
                continue
            meta = (how[at] if how else None) or {}
            qos = meta.get("qos", self.qos)
            request = topic.decode(), payload, qos if qos in (0, 1, 2) else self.qos, meta.get("retained") is True
            self._waiting.append((publishing, at, request))
        session = self._session
        if session is None or session.closed or time.monotonic() - self._used > STALE_AFTER:
            return asyncio.ensure_future(self._publish_anew(publishing))
        self._send(session)
        session.flush()
        if len(messages) == 1 and self._glance.due(len(self._sent)):
            until = time.monotonic_ns() + GLANCE_NS
            while not publishing.future.done() and time.monotonic_ns() < until:
                session.read()
            self._glance.looked(publishing.future.done())
        return publishing.future

    async def _publish_anew(self, publishing: _Publishing) -> list[int | PublishError | None]:
        """Publish on a connection that has to be made, or looked at, before."""
        self._making += 1
        try:
            async with self._lock:
                if not publishing.future.done():
                    session = await self._ready()
                    self._send(session)
                    session.flush()
        except BrokerUnavailable as error:
            self._give_up(str(error))
        except asyncio.CancelledError:
            self._waiting = deque(entry for entry in self._waiting if entry[0] is not publishing)
            raise
        finally:
            self._making -= 1
        return await publishing.future

    def pubsub(self) -> MqttPubSub:
        return self._pubsub(self.qos)

    def pubsub_as_published(self) -> MqttPubSub:
        """A subscriber for recording: a broker hands a message on in no higher quality of service than was
        subscribed to, so this asks for the highest, unless the one to use was given."""
        return self._pubsub(self._records_with)

    def _pubsub(self, qos: int) -> MqttPubSub:
        self._subscribers += 1
        return MqttPubSub(
            self._access,
            qos=qos,
            ping_interval=self.ping_interval,
            ping_timeout=self.ping_timeout,
            suffix=f"-{self._subscribers}",
        )

    async def unheard(self) -> dict[str, int] | None:
        return {}

    async def clock_offset(self) -> int | None:
        return None

    async def backlog(self) -> Backlog | None:
        return None

    async def output_limits(self) -> OutputLimits:
        return OutputLimits(None, None)

    async def subscriber_count(self, channels: Sequence[bytes]) -> int | None:
        return None

    async def _ready(self) -> Session:
        """The publishing connection, made if there is none or if the broker has closed it."""
        session = self._session
        if session is not None and not session.closed and time.monotonic() - self._used > STALE_AFTER:
            for _ in range(2):  # a loop that was blocked has not seen yet that the broker closed it
                await asyncio.sleep(0)
        if session is not None and session.closed:
            await session.close()
            self._gone(session, "the connection was lost")
        if self._session is None:
            closings = self._closings
            events = Events(acknowledged=self._acknowledged)
            made = await Session.open(self._access, events)
            events.lost = lambda reason: self._gone(made, reason)
            if closings != self._closings:
                await made.close()
                raise BrokerUnavailable(self.url, "it was closed meanwhile")
            self._session = made
        self._used = time.monotonic()
        return self._session

    def _send(self, session: Session) -> None:
        """Hand over what waits, as far as there is room for it on the way."""
        now = time.monotonic()
        while self._waiting and len(self._sent) < MOST_UNACKNOWLEDGED:
            if self._waiting[0][2][2] == 2 and len(self._twos) >= MOST_OF_QOS_2:
                break
            publishing, at, request = self._waiting.popleft()
            mid = session.publish(*request)
            if mid is None:
                publishing.settle(at, PublishError(f"the connection to {self.url} was lost before", "not_sent"))
            else:
                self._sent[mid] = publishing, at, now
                if request[2] == 2:
                    self._twos.add(mid)
        if self._timer is None and self._timeout is not None and self._sent:
            self._timer = asyncio.get_running_loop().call_later(self._timeout, self._overdue)

    def _acknowledged(self, mid: int) -> None:
        self._used = time.monotonic()
        found = self._sent.pop(mid, None)
        self._twos.discard(mid)
        if found is not None:
            found[0].settle(found[1], None)
        if self._waiting and self._session is not None:
            self._send(self._session)

    def _gone(self, session: Session, reason: str) -> None:
        if self._session is session:
            self._session = None
            self._fail(reason)
            if not self._making:
                self._give_up(f"the connection to {self.url} was lost before: {reason}")

    def _fail(self, reason: str) -> None:
        """The connection is gone, and with it the acknowledgements of what was sent."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        lost = PublishError(f"the answer of {self.url} was lost: {reason}", "unknown")
        sent, self._sent = self._sent, {}
        self._twos.clear()
        for publishing, at, _ in sent.values():
            publishing.settle(at, lost)

    def _give_up(self, reason: str) -> None:
        """What waits is not sent."""
        not_sent = PublishError(reason, "not_sent")
        while self._waiting:
            publishing, at, _ = self._waiting.popleft()
            publishing.settle(at, not_sent)

    def _overdue(self) -> None:
        """The oldest message may have waited for its acknowledgement for too long."""
        self._timer = None
        oldest = next(iter(self._sent.values()), None)
        if oldest is None or self._timeout is None:
            return
        left = oldest[2] + self._timeout - time.monotonic()
        if left > 0:
            self._timer = asyncio.get_running_loop().call_later(left, self._overdue)
        elif self._session is not None:
            self._session.abort("no answer in time")
            self._gone(self._session, "no answer in time")


class _Publishing:
    """Messages on their way, and what became of each."""

    __slots__ = ("_left", "_results", "future")

    def __init__(self, count: int) -> None:
        self.future: asyncio.Future[list[int | PublishError | None]] = asyncio.get_running_loop().create_future()
        self._results: list[int | PublishError | None] = [None] * count
        self._left = count
        if not count:
            self.future.set_result([])

    def settle(self, at: int, result: PublishError | None) -> None:
        """One is taken by the broker, or is not."""
        self._results[at] = result
        self._left -= 1
        if not self._left and not self.future.done():  # nobody may wait any more
            self.future.set_result(self._results)


def _parsed(url: str) -> dict[str, Any]:
    """What a URL says, as `MqttBroker` takes it. Raises `ValueError`, whose text may hold a part of the URL."""
    parts = urlsplit(url)
    if parts.scheme not in ("mqtt", "mqtts"):
        raise URLFault("it begins with mqtt:// or mqtts://")
    if "#" in url or "@" in parts.query or parts.path not in ("", "/"):
        raise ValueError
    if not parts.hostname:
        raise URLFault("it names no host")
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = [name for name in given if name not in OPTIONS]
    if unknown:
        raise URLFault(f"its options are {', '.join(OPTIONS)}")
    encrypted = parts.scheme == "mqtts"
    if not encrypted and any(name in given for name in TLS_OPTIONS):
        raise URLFault(f"{', '.join(TLS_OPTIONS)} are for mqtts://")
    if given.get("qos", "1") not in ("0", "1", "2"):
        raise URLFault("qos is 0, 1 or 2")
    return {
        "hostname": parts.hostname,
        "port": parts.port or (8883 if encrypted else 1883),
        "username": None if parts.username is None else unquote(parts.username),
        "password": None if parts.password is None else unquote(parts.password),
        "tls": _tls(given) if encrypted else None,
        "client_id": given.get("client_id") or None,
        "qos": int(given["qos"]) if "qos" in given else None,
    }


def _tls(given: Mapping[str, str]) -> ssl.SSLContext:
    for name in TLS_OPTIONS:
        if name in given and not os.path.isfile(given[name]):
            raise URLFault(f"{name} names no file that is there")
    try:
        context = ssl.create_default_context(cafile=given.get("ca_certs"))
        if "certfile" in given:
            context.load_cert_chain(given["certfile"], given.get("keyfile"))
    except OSError as error:
        raise URLFault(f"the certificates cannot be read: {error.strerror or type(error).__name__}") from None
    return context
