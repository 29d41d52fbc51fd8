"""MQTT as a broker: publishing.

A message is never repeated: after a lost acknowledgement its outcome is unknown, and is reported as unknown. An MQTT
broker does not report its subscribers, nor what waits for them.
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
from ..base import Broker
from ..busy_poll import BUSY_POLL_NS, BusyPoll
from ..urls import URLFault, fault_of, not_a_url
from . import topics
from .pubsub import MqttPubSub, meta_of
from .session import Access, Events, Session

STALE_AFTER = 1.0
"""Seconds after which an idle publishing connection is checked before it is used."""
MAX_UNACKNOWLEDGED = 10_000
"""Maximum number of unacknowledged messages; further ones wait here. The protocol has 65,535 ids."""
MAX_UNACKNOWLEDGED_QOS_2 = 20
"""Maximum of those with quality of service 2. Mosquitto acknowledges and drops further ones."""
TLS_OPTIONS = ("ca_certs", "certfile", "keyfile")
OPTIONS = ("client_id", "qos", *TLS_OPTIONS)

Request = tuple[str, bytes, int, bool]
"""Topic, payload, quality of service, retained."""


class MqttBroker(Broker):
    """An MQTT broker (protocol 3.1.1). `timeout` and the ping times are in seconds.

    `qos` is the quality of service of publishing and subscribing (default 1; a tap then subscribes with 2).
    `client_id` names the publishing client and begins the names of its subscribers; it is random by default, because
    a broker accepts each name once. A subscriber pings after `ping_interval` of silence; without an answer within
    `ping_timeout`, the connection counts as lost and is made again.
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
            raise ValueError(f"{qos!r} is no quality of service. Give 0, 1 or 2.")
        self._access = Access(hostname, port, username, password, tls, client_id)
        self.url = self._access.url
        self.qos = 1 if qos is None else qos
        self._tap_qos = 2 if qos is None else qos
        self.sends_with = meta_of(self.qos, retained=False) or None
        self.ping_interval = ping_interval
        self.ping_timeout = ping_timeout
        self._timeout = timeout or None
        self._session: Session | None = None
        self._lock = asyncio.Lock()
        self._closings = 0
        self._used = 0.0
        self._subscribers = 0
        self._waiting: deque[tuple[_Publishing, int, Request]] = deque()
        self._sent: dict[
            int, tuple[_Publishing, int, float]
        ] = {}  # unacknowledged, with the time of sending; oldest first
        self._sent_qos_2: set[int] = set()  # those with quality of service 2
        self._busy_poll = BusyPoll()
        self._making = 0  # tasks that wait for a connection
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    def from_url(cls, url: str, **options: Any) -> MqttBroker:
        """Return the broker at `mqtt://user:password@host:port` or, encrypted, `mqtts://`.

        URL options are `client_id`, `qos`, and for `mqtts` the files `ca_certs`, `certfile` and `keyfile`. Raises
        `ValueError` for any other URL.
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
        """Publish each message as it was delivered according to its `meta` (`retained`, `qos`)."""
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
            return asyncio.ensure_future(self._publish_delayed(publishing))
        self._send(session)
        session.flush()
        if len(messages) == 1 and self._busy_poll.due(len(self._sent)):
            until = time.monotonic_ns() + BUSY_POLL_NS
            while not publishing.future.done() and time.monotonic_ns() < until:
                session.read()
            self._busy_poll.finished(publishing.future.done())
        return publishing.future

    async def _publish_delayed(self, publishing: _Publishing) -> list[int | PublishError | None]:
        """Publish on a connection that must be made, or checked, first."""
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
        """Return a subscriber for recording, with the highest quality of service unless one was given.

        A broker delivers a message with no higher quality of service than the subscription has.
        """
        return self._pubsub(self._tap_qos)

    def _pubsub(self, qos: int) -> MqttPubSub:
        self._subscribers += 1
        return MqttPubSub(
            self._access,
            qos=qos,
            ping_interval=self.ping_interval,
            ping_timeout=self.ping_timeout,
            suffix=f"-{self._subscribers}",
        )

    async def _ready(self) -> Session:
        """Return the publishing connection. It is made if there is none or if the broker has closed it."""
        session = self._session
        if session is not None and not session.closed and time.monotonic() - self._used > STALE_AFTER:
            session.read()  # a blocked event loop has not noticed yet that the broker closed it
            await asyncio.sleep(0)  # the end is reported in the next turn
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
                raise BrokerUnavailable(self.url, "it was closed while connecting; connect again")
            self._session = made
        self._used = time.monotonic()
        return self._session

    def _send(self, session: Session) -> None:
        """Send waiting messages, up to the maximum of unacknowledged ones."""
        now = time.monotonic()
        while self._waiting and len(self._sent) < MAX_UNACKNOWLEDGED:
            if self._waiting[0][2][2] == 2 and len(self._sent_qos_2) >= MAX_UNACKNOWLEDGED_QOS_2:
                break
            publishing, at, request = self._waiting.popleft()
            mid = session.publish(*request)
            if mid is None:
                publishing.settle(at, PublishError(f"the connection to {self.url} was lost before", "not_sent"))
            else:
                self._sent[mid] = publishing, at, now
                if request[2] == 2:
                    self._sent_qos_2.add(mid)
        if self._timer is None and self._timeout is not None and self._sent:
            self._timer = asyncio.get_running_loop().call_later(self._timeout, self._overdue)

    def _acknowledged(self, mid: int) -> None:
        self._used = time.monotonic()
        found = self._sent.pop(mid, None)
        self._sent_qos_2.discard(mid)
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
        """End all sent messages: the connection and their acknowledgements are lost."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        lost = PublishError(f"the answer of {self.url} was lost: {reason}", "unknown")
        sent, self._sent = self._sent, {}
        self._sent_qos_2.clear()
        for publishing, at, _ in sent.values():
            publishing.settle(at, lost)

    def _give_up(self, reason: str) -> None:
        """End all waiting messages: they are not sent."""
        not_sent = PublishError(reason, "not_sent")
        while self._waiting:
            publishing, at, _ = self._waiting.popleft()
            publishing.settle(at, not_sent)

    def _overdue(self) -> None:
        """Abort the connection if the oldest message has waited longer than `timeout` for its acknowledgement."""
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
    """Messages on their way, and the result of each."""

    __slots__ = ("_left", "_results", "future")

    def __init__(self, count: int) -> None:
        self.future: asyncio.Future[list[int | PublishError | None]] = asyncio.get_running_loop().create_future()
        self._results: list[int | PublishError | None] = [None] * count
        self._left = count
        if not count:
            self.future.set_result([])

    def settle(self, at: int, result: PublishError | None) -> None:
        """Set the result of one message: None if the broker has taken it."""
        self._results[at] = result
        self._left -= 1
        if not self._left and not self.future.done():  # its caller may have been cancelled
            self.future.set_result(self._results)


def _parsed(url: str) -> dict[str, Any]:
    """Return the arguments of `MqttBroker` for a URL. Raises `ValueError`, whose text may hold a part of the URL."""
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
            raise URLFault(f"{name} names no file that exists")
    try:
        context = ssl.create_default_context(cafile=given.get("ca_certs"))
        if "certfile" in given:
            context.load_cert_chain(given["certfile"], given.get("keyfile"))
    except OSError as error:
        raise URLFault(f"the certificates cannot be read: {error.strerror or type(error).__name__}") from None
    return context
