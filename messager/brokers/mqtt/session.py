"""Connection to an MQTT broker, from its handshake until it is lost.

paho makes it and speaks the protocol; this module drives paho's sockets from the event loop. A session ends with its
connection: the same paho client, connected again, would publish once more what was not acknowledged.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast
from uuid import uuid4

from ...drivers import needed
from ...errors import BrokerUnavailable
from ...time_limit import time_limit
from ..tls_errors import certificate_error_text

with needed("paho-mqtt", "paho"):
    from paho.mqtt.client import MQTT_ERR_SUCCESS, Client, MQTTMessage
    from paho.mqtt.enums import CallbackAPIVersion
    from paho.mqtt.reasoncodes import ReasonCode

CONNECT_TIMEOUT = 4.0
"""Seconds for a connection, so that an unreachable broker is reported within five seconds."""
KEEPALIVE = 60
"""Seconds (MQTT's keep alive) for which a program may block its event loop before the broker closes the connection."""
KEEPALIVE_CHECK = 1.0
"""Seconds between two checks whether MQTT's own ping is due."""
MAX_READ_TOGETHER = 100
"""Packets read before other tasks run."""
_LOST = "Unspecified error"
"""paho's reason for a connection that ended without a reason from the broker."""


class NoAnswer(Exception):
    """The broker did not answer a request in time, or the connection was lost."""


class _Refused(Exception):
    """The broker ended the connection, or refused it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class Access:
    """Address and credentials of a broker."""

    hostname: str
    port: int = 1883
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    """Context of an encrypted connection; None for a plain one."""
    client_id: str | None = None
    """Beginning of the client ids; None for random ones."""

    @property
    def url(self) -> str:
        """URL of the broker, without credentials."""
        host = f"[{self.hostname}]" if ":" in self.hostname else self.hostname
        return f"{'mqtt' if self.tls is None else 'mqtts'}://{host}:{self.port}"


@dataclass(slots=True)
class Events:
    """Callbacks of a session. They are called from the event loop and must not raise."""

    message: Callable[[str, bytes, int, bool], None] = lambda topic, payload, qos, retained: None
    """Called for each message."""
    acknowledged: Callable[[int], None] = lambda mid: None
    """Called when the broker has taken the message with this id."""
    lost: Callable[[str], None] = lambda reason: None
    """Called once with the reason when the connection is lost, and not after `close`."""


class Session:
    """Open connection with a clean session: the broker keeps nothing of an earlier one. `open` makes it."""

    def __init__(self, access: Access, events: Events, client_id: str) -> None:
        self.heard = time.monotonic_ns()
        """Time (monotonic ns) at which the last bytes arrived."""
        self._events = events
        self._loop = asyncio.get_running_loop()
        self._connected: asyncio.Future[None] = self._loop.create_future()
        self._over = asyncio.Event()
        self._closing = False
        self._abort_reason: str | None = None
        self._requests: dict[int, asyncio.Future[list[ReasonCode]]] = {}
        self._flush: asyncio.Handle | None = None
        self._keepalive: asyncio.TimerHandle | None = None
        self._writer: int | None = None  # file descriptor that accepts no more bytes at the moment
        self._packets = 0  # received
        # paho would connect again, and block the event loop, if the broker refuses this version of the protocol
        self._paho = Client(CallbackAPIVersion.VERSION2, client_id, clean_session=True, reconnect_on_failure=False)
        self._paho.connect_timeout = CONNECT_TIMEOUT
        self._paho.max_inflight_messages = self._paho.max_queued_messages = 0  # no limit
        if access.username is not None:
            self._paho.username_pw_set(access.username, access.password)
        if access.tls is not None:
            self._paho.tls_set_context(access.tls)
        self._paho.on_connect = self._on_connect
        self._paho.on_disconnect = self._on_disconnect
        self._paho.on_publish = self._on_publish
        self._paho.on_subscribe = self._on_answer
        self._paho.on_unsubscribe = self._on_answer
        self._paho.on_socket_close = self._on_socket_close
        self._paho.on_socket_unregister_write = self._on_unregister_write

    @classmethod
    async def open(cls, access: Access, events: Events, *, suffix: str = "") -> Session:
        """Connect; the client id ends with `suffix`. Raises `BrokerUnavailable`."""
        client_id = access.client_id + suffix if access.client_id else f"messager-{uuid4().hex[:14]}"
        session = cls(access, events, client_id)
        paho = session._paho
        connecting = session._loop.run_in_executor(None, paho.connect, access.hostname, access.port, KEEPALIVE)
        try:
            async with time_limit(CONNECT_TIMEOUT):
                await asyncio.shield(connecting)
                session._attach()
                await session._connected
        except BaseException as error:
            connecting.add_done_callback(session._abandon)  # a thread cannot be cancelled
            session._connected.cancel()
            if connecting.done():
                session._drop()
            if not isinstance(error, OSError | ValueError | _Refused):
                raise
            text = _error_text(error) + _hint(error, access)
            _release_socket(error)
            raise BrokerUnavailable(access.url, text) from None
        # Some brokers send messages before anything is subscribed to: they are dropped.
        paho.on_message = session._on_message
        return session

    def _attach(self) -> None:
        """Let the event loop drive the socket that paho connected in a thread."""
        connection = cast(socket.socket | None, self._paho.socket())
        if connection is None:
            raise _Refused(_LOST)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._paho.on_socket_register_write = self._on_register_write
        self._loop.add_reader(connection.fileno(), self._readable)
        self._check_keepalive()
        self.flush()

    @property
    def closed(self) -> bool:
        """True if nothing can be sent any more."""
        return self._closing or self._over.is_set() or self._paho.socket() is None

    def publish(self, topic: str, payload: bytes, qos: int, retain: bool) -> int | None:
        """Queue a message. Return the id under which it is acknowledged, or None if the connection is lost."""
        info = self._paho.publish(topic, payload, qos, retain)
        return info.mid if info.rc == MQTT_ERR_SUCCESS else None

    def flush(self) -> None:
        """Write queued packets, as far as the socket accepts them now. Must not be called from one of `Events`."""
        if self._flush is not None:
            self._flush.cancel()
            self._flush = None
        try:
            self._paho.loop_write()
        except Exception as error:  # whatever paho raises, the connection cannot be used any more
            self.abort(_error_text(error))
            return
        connection = self._paho.socket()
        if connection is not None and self._paho.want_write() and self._writer is None:
            self._writer = connection.fileno()
            self._loop.add_writer(self._writer, self.flush)

    def _readable(self) -> None:
        self.heard = time.monotonic_ns()
        self.read()

    def read(self) -> None:
        """Read what has arrived. Must not be called from one of `Events`.

        paho reads one packet in each call and would leave the next one to another turn of the event loop.
        """
        limit = self._packets + MAX_READ_TOGETHER
        before = -1
        try:
            while (connection := self._paho.socket()) is not None and (
                before < self._packets or getattr(connection, "pending", int)()
            ):
                if self._packets >= limit:
                    self._loop.call_soon(self._readable)  # decrypted bytes do not wake the event loop
                    return
                before = self._packets
                self._paho.loop_read()
        except Exception as error:  # as in `flush`
            self.abort(_error_text(error))

    async def subscribe(self, filters: Sequence[tuple[str, int]]) -> list[str]:
        """Subscribe to (filter, quality of service) pairs. Return the refused filters. Raises `NoAnswer`."""
        answers = await self._answer(*self._paho.subscribe(list(filters)), CONNECT_TIMEOUT)
        return [name for (name, _), answer in zip(filters, answers, strict=True) if answer.is_failure]

    async def unsubscribe(self, filters: Sequence[str]) -> None:
        """Cancel subscriptions. Raises `NoAnswer`."""
        await self._answer(*self._paho.unsubscribe(list(filters)), CONNECT_TIMEOUT)

    async def ping(self) -> None:
        """Return when the broker has answered, after everything that it had sent before. May never return.

        The ping cancels a subscription that does not exist. Every broker answers that, and the answer has the id of
        its request; MQTT's own ping has none, and paho sends it whenever it wants.
        """
        await self._answer(*self._paho.unsubscribe(f"messager/{uuid4().hex}"), None)

    @property
    def has_unreleased(self) -> bool:
        """True if a message of quality of service 2 has arrived and the broker has not released it yet."""
        return bool(self._paho._in_messages)  # paho 2.0 to 2.2 have no public way to ask

    def abort(self, reason: str) -> None:
        """Close the connection at once, whatever is on its way, and call `lost`."""
        self._abort_reason = self._abort_reason or reason
        self._loop.call_soon(self._drop)  # within a callback of paho, it would wait for itself

    async def close(self) -> None:
        """Close the connection, without a call of `lost`. May be called twice."""
        self._closing = True
        self._drop()
        with contextlib.suppress(TimeoutError):
            async with time_limit(CONNECT_TIMEOUT):
                await self._over.wait()

    async def _answer(self, result: int, mid: int | None, seconds: float | None) -> list[ReasonCode]:
        """Wait for the answer to a request with this id. Raises `NoAnswer`."""
        if result != MQTT_ERR_SUCCESS or mid is None or self._over.is_set():
            raise NoAnswer
        answer: asyncio.Future[list[ReasonCode]] = self._loop.create_future()
        self._requests[mid] = answer
        try:
            async with time_limit(seconds):
                return await answer
        except TimeoutError:
            raise NoAnswer from None
        finally:
            self._requests.pop(mid, None)

    def _drop(self) -> None:
        """Say goodbye if that can be written at once, and close the socket."""
        if self._paho.socket() is None:
            return
        self._paho.on_socket_register_write = None  # then paho writes at once
        with contextlib.suppress(Exception):
            self._paho.disconnect()
        connection = cast(socket.socket | None, self._paho.socket())
        if connection is not None:  # it accepts no bytes any more; reading from it will find its end
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _abandon(self, connecting: asyncio.Future[Any]) -> None:
        if not connecting.cancelled():
            connecting.exception()
        self._drop()

    def _check_keepalive(self) -> None:
        self._paho.loop_misc()
        if self._paho.socket() is not None:
            self._keepalive = self._loop.call_later(KEEPALIVE_CHECK, self._check_keepalive)

    def _end(self, reason: str) -> None:
        """Report the end of the connection."""
        if self._over.is_set():
            return
        self._over.set()
        for answer in self._requests.values():
            if not answer.done():
                answer.set_exception(NoAnswer())
        if not self._closing:
            self._closing = True
            self._events.lost(reason)

    def _on_connect(self, client: Client, userdata: Any, flags: Any, code: ReasonCode, properties: Any) -> None:
        if self._connected.done():
            return
        if code.is_failure:
            self._connected.set_exception(_Refused(str(code)))
        else:
            self._connected.set_result(None)

    def _on_disconnect(self, client: Client, userdata: Any, flags: Any, code: ReasonCode, properties: Any) -> None:
        # paho may call this in the thread that connects
        self._loop.call_soon_threadsafe(self._disconnected, _Refused(str(code)))

    def _disconnected(self, error: _Refused) -> None:
        if not self._connected.done():
            self._connected.set_exception(error)
        self._end(self._abort_reason or _error_text(error))

    def _on_message(self, client: Client, userdata: Any, message: MQTTMessage) -> None:
        self._packets += 1
        self._events.message(message.topic, bytes(message.payload), message.qos, message.retain)

    def _on_publish(self, client: Client, userdata: Any, mid: int, code: ReasonCode, properties: Any) -> None:
        self._packets += 1
        self._events.acknowledged(mid)

    def _on_answer(self, client: Client, userdata: Any, mid: int, codes: list[ReasonCode], properties: Any) -> None:
        self._packets += 1
        answer = self._requests.get(mid)
        if answer is not None and not answer.done():
            answer.set_result(codes)

    def _on_register_write(self, client: Client, userdata: Any, connection: Any) -> None:
        """Write together with whatever else is queued in this turn of the event loop."""
        if self._flush is None:
            self._flush = self._loop.call_soon(self.flush)

    def _on_unregister_write(self, client: Client, userdata: Any, connection: Any) -> None:
        if self._writer is not None:
            self._loop.remove_writer(self._writer)
            self._writer = None

    def _on_socket_close(self, client: Client, userdata: Any, connection: Any) -> None:
        if connection.fileno() >= 0:
            self._loop.remove_reader(connection.fileno())
        if self._keepalive is not None:
            self._keepalive.cancel()


def _release_socket(error: BaseException) -> None:
    """Clear the frames of an error: with paho, they hold the socket of a TLS handshake that failed."""
    cause: BaseException | None = error
    while cause is not None:
        traceback.clear_frames(cause.__traceback__)
        cause = cause.__context__


def _hint(error: Exception, access: Access) -> str:
    """Return what may be wrong if another kind of server listens there."""
    if isinstance(error, ConnectionRefusedError | socket.gaierror | ssl.SSLCertVerificationError):
        return ""
    if isinstance(error, _Refused) and error.reason != _LOST:
        return ""
    if access.tls is not None:
        return "; is that an MQTT broker that speaks TLS there? If not, write mqtt"
    return "; is that an MQTT broker? If it speaks TLS there, write mqtts"


def _error_text(error: Exception) -> str:
    """Return the text of an error of paho or of the network, with the remedy if one is known."""
    if isinstance(error, _Refused):
        if error.reason in ("Not authorized", "Bad user name or password"):
            return "not authorized: give the right user and password, as in mqtt://USER:PASSWORD@HOST"
        return "the connection was lost" if error.reason == _LOST else error.reason.lower()
    if isinstance(error, ssl.SSLCertVerificationError):
        return certificate_error_text(error, authority_option="ca_certs")
    if isinstance(error, ConnectionRefusedError):
        return "nobody listens there (is the MQTT broker running, and is that its port?)"
    if isinstance(error, socket.gaierror):
        return "there is no such host"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(error).strip().rstrip(".") or type(error).__name__
