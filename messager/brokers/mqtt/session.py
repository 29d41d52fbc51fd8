"""A connection to an MQTT broker, from its handshake until it is lost.

aiomqtt makes it: addresses, TLS, credentials and the protocol are its work and that of paho, which it is
built on. Two things are taken from paho directly. Messages and acknowledgements come as callbacks, as
aiomqtt makes a task for each message that is received and an event with a time limit for each that
is published: most of what a message costs. And a session ends with its connection: paho, used again, would
publish once more what was not acknowledged.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
import ssl
import sys
import time
import traceback
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast
from uuid import uuid4

from ...drivers import needed
from ...errors import BrokerUnavailable
from ..tls_reasons import not_accepted

with needed("aiomqtt"):
    import aiomqtt

T = TypeVar("T")
NoAnswer = aiomqtt.MqttError
"""What a request raises that was not answered."""
Message = aiomqtt.Message
"""A message as aiomqtt hands it out."""

CONNECT_TIMEOUT = 4.0
"""Seconds a connection may take, so that a broker out of reach is told within five."""
KEEPALIVE = 60
"""Seconds (MQTT's keep alive) for which a program may be busy with other things before the broker gives it up."""
MOST_TOGETHER = 100
"""Messages taken in before others get their turn."""
_SOCKET_OPTIONS = ((socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),)


@dataclass(frozen=True)
class Access:
    """How to reach a broker."""

    hostname: str
    port: int = 1883
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    """Where the connection is encrypted: with what."""
    client_id: str | None = None
    """What our clients' names begin with; a random one where it is None."""

    @property
    def url(self) -> str:
        """Where it is, without credentials."""
        host = f"[{self.hostname}]" if ":" in self.hostname else self.hostname
        return f"{'mqtt' if self.tls is None else 'mqtts'}://{host}:{self.port}"


@dataclass(slots=True)
class Events:
    """Who is told what happens on a session. All are called from the event loop, and must not raise."""

    message: Callable[[str, bytes, int, bool], None] = lambda topic, payload, qos, retained: None
    """A message came."""
    acknowledged: Callable[[int], None] = lambda mid: None
    """The broker has taken the message of this id."""
    lost: Callable[[str], None] = lambda reason: None
    """The connection is gone, otherwise than by `close`. Once."""


class Session:
    """An open connection, made by `open`, without a past: nothing is left of an earlier one at the broker."""

    def __init__(self, client: aiomqtt.Client, events: Events) -> None:
        self._client = client
        self._events = events
        self._paho: Any = client._client  # aiomqtt has no public way to its paho client; it is there from 2.0 to 2.5
        self._loop = asyncio.get_running_loop()
        self._soon: asyncio.Handle | None = None
        self._blocked: int | None = None  # the file that is waited for, while it takes no more bytes
        self._reason: str | None = None  # why we gave it up
        self._ended = False
        self._taken = 0  # messages
        self.heard = time.monotonic_ns()
        """When something came, be it a part of a message."""
        self._paho.on_message = self._came
        self._paho.on_publish = self._acknowledged
        self._paho.on_socket_register_write = self._register
        self._paho.on_socket_unregister_write = self._unregister
        connection = self._paho.socket()
        if connection is not None:
            self._loop.add_reader(connection.fileno(), self._readable)  # instead of aiomqtt's
        self._watching = asyncio.create_task(self._watch())

    @classmethod
    async def open(cls, access: Access, events: Events, *, suffix: str = "") -> Session:
        """Connect; the client's name ends with `suffix`. Raises `BrokerUnavailable`."""
        name = access.client_id + suffix if access.client_id else f"messager-{uuid4().hex[:14]}"
        client = aiomqtt.Client(
            access.hostname,
            access.port,
            username=access.username,
            password=access.password,
            identifier=name,
            clean_session=True,
            timeout=CONNECT_TIMEOUT,
            keepalive=KEEPALIVE,
            tls_context=access.tls,
            max_inflight_messages=0,
            max_queued_outgoing_messages=0,
            socket_options=_SOCKET_OPTIONS,
        )
        client.pending_calls_threshold = sys.maxsize
        client._client.connect_timeout = CONNECT_TIMEOUT
        client._client.disable_logger()  # what went wrong is told by us
        opening = asyncio.ensure_future(client.__aenter__())
        try:
            await asyncio.shield(opening)
        except asyncio.CancelledError:
            # A thread is at it, which cannot be cancelled.
            opening.add_done_callback(lambda done: _abandon(done, client))
            raise
        except (aiomqtt.MqttError, OSError, ValueError) as error:
            _drop(client)
            reason = _reason_of(error) + _asked(error, access)
            _let_go(error)
            raise BrokerUnavailable(access.url, reason) from None
        return cls(client, events)

    @property
    def closed(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._ended or self._paho.socket() is None

    def publish(self, topic: str, payload: bytes, qos: int, retain: bool) -> int | None:
        """Queue a message; the id under which it is acknowledged, or None where the connection is gone."""
        info = self._paho.publish(topic, payload, qos, retain)
        return cast(int, info.mid) if info.rc == 0 else None

    def flush(self) -> None:
        """Write what is queued, as far as the socket takes it now. Not to be called from one of `Events`."""
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        try:
            self._paho.loop_write()
        except Exception as error:  # as aiomqtt has it: whatever paho raises here, its connection is no good any more
            self.abort(_reason_of(error))
            return
        connection = self._paho.socket()
        if connection is not None and self._paho.want_write() and self._blocked is None:
            self._blocked = connection.fileno()
            self._loop.add_writer(self._blocked, self.flush)

    def _readable(self) -> None:
        self.heard = time.monotonic_ns()
        self.read()

    def read(self) -> None:
        """Take in what has come. paho takes one message at a time, and would leave the next to another turn.

        Not to be called from one of `Events`.
        """
        upto = self._taken + MOST_TOGETHER
        before = -1
        try:
            while (connection := self._paho.socket()) is not None and (
                before < self._taken or getattr(connection, "pending", int)()
            ):
                if self._taken >= upto:
                    self._loop.call_soon(self._readable)  # what is decrypted already would not wake the event loop
                    return
                before = self._taken
                self._paho.loop_read()
        except Exception as error:  # as aiomqtt has it
            self.abort(_reason_of(error))

    async def subscribe(self, filters: Sequence[tuple[str, int]]) -> list[str]:
        """Subscribe, each in its quality of service; those that the broker refused.

        Raises `NoAnswer`.
        """
        answers = await self._answered(self._client.subscribe(list(filters), timeout=CONNECT_TIMEOUT))
        return [one for (one, _), answer in zip(filters, answers, strict=True) if _code(answer) >= 0x80]

    async def unsubscribe(self, filters: Sequence[str]) -> None:
        """Give subscriptions up. Raises `NoAnswer`."""
        await self._answered(self._client.unsubscribe(list(filters), timeout=CONNECT_TIMEOUT))

    async def ping(self) -> None:
        """Return when the broker has answered, behind what it had sent before. May never return.

        To give up a subscription that there is not is answered by every broker, and other than MQTT's own
        ping, which a client library sends when it likes, it tells which answer belongs to it.
        """
        await self._client.unsubscribe(f"messager/{uuid4().hex}", timeout=math.inf)

    @property
    def halfway(self) -> bool:
        """Whether a message of quality of service 2 is here that the broker has not released to us yet."""
        return bool(self._paho._in_messages)

    def abort(self, reason: str) -> None:
        """Give the connection up at once, whatever is on its way, and call `lost`."""
        self._reason = self._reason or reason
        # Not from within one of paho's callbacks, which would wait for itself.
        self._loop.call_soon(_drop, self._client)

    async def close(self) -> None:
        """Give the connection up, without a call of `lost`. May be called twice."""
        self._ended = True
        _drop(self._client)
        await asyncio.wait([self._watching], timeout=CONNECT_TIMEOUT)
        self._watching.cancel()

    async def _answered(self, asked: Coroutine[Any, Any, T]) -> T:
        """What the broker answers. aiomqtt goes on waiting where the connection is lost meanwhile."""
        asking = asyncio.ensure_future(asked)
        try:
            await asyncio.wait([asking, self._watching], return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                raise aiomqtt.MqttError("the connection was lost")
            return asking.result()
        finally:
            asking.cancel()

    async def _watch(self) -> None:
        """Wait for the end of the connection. Messages are taken from paho; what came before that, which some
        brokers send to whom it may not concern, was not subscribed to."""
        try:
            async for _ in self._client.messages:
                pass
        except aiomqtt.MqttError as error:
            reason = self._reason or _reason_of(error.__cause__ or error)
        _drop(self._client)
        if not self._ended:
            self._ended = True
            self._events.lost(reason)

    def _came(self, client: object, userdata: object, message: Any) -> None:
        self._taken += 1
        self._events.message(message.topic, message.payload, message.qos, message.retain)

    def _acknowledged(self, client: object, userdata: object, mid: int, *_: object) -> None:
        self._events.acknowledged(mid)

    def _register(self, client: object, userdata: object, connection: object) -> None:
        """paho has something to write: with whatever else comes in this turn of the event loop."""
        if self._soon is None:
            self._soon = self._loop.call_soon(self.flush)

    def _unregister(self, client: object, userdata: object, connection: object) -> None:
        """Everything is written, or the connection is gone."""
        if self._blocked is not None:
            self._loop.remove_writer(self._blocked)
            self._blocked = None


def _drop(client: aiomqtt.Client) -> None:
    """Say goodbye, where that can be written at once, and close the socket."""
    paho = client._client
    if paho.socket() is None:
        return
    paho.on_socket_register_write = None  # so that it writes by itself, at once
    with contextlib.suppress(Exception):
        paho.disconnect()
    connection = paho.socket()
    if connection is not None:  # it takes no bytes any more; its end is found when it is read from
        with contextlib.suppress(OSError):
            cast(socket.socket, connection).shutdown(socket.SHUT_RDWR)


def _abandon(opening: asyncio.Future[Any], client: aiomqtt.Client) -> None:
    if not opening.cancelled():
        opening.exception()
    _drop(client)


def _code(answer: Any) -> int:
    return int(getattr(answer, "value", answer))


def _let_go(error: BaseException) -> None:
    """Of what the frames of an error hold: with paho, the socket of a TLS handshake that failed."""
    cause: BaseException | None = error
    while cause is not None:
        traceback.clear_frames(cause.__traceback__)
        cause = cause.__context__


def _asked(error: BaseException, access: Access) -> str:
    """What may be the matter where somebody else than such a broker listens."""
    if isinstance(error, aiomqtt.MqttCodeError) and str(error.rc) != "Unspecified error":
        return ""
    cause = error.__cause__ or error.__context__ or error
    if isinstance(cause, ConnectionRefusedError | socket.gaierror | ssl.SSLCertVerificationError):
        return ""
    if access.tls is not None:
        return "; is that an MQTT broker that speaks TLS there? If not, write mqtt"
    return "; is that an MQTT broker? If it speaks TLS there, write mqtts"


def _reason_of(error: BaseException) -> str:
    """An error of aiomqtt or of the network in a few words."""
    if isinstance(error, aiomqtt.MqttCodeError):
        code = str(error.rc)
        if code == "Not authorized":
            return "not authorized: give the right user and password, as in mqtt://USER:PASSWORD@HOST"
        return "the connection was lost" if code in ("Unspecified error", "7") else code.lower()
    cause = error.__cause__ or error.__context__ or error
    if isinstance(cause, ssl.SSLCertVerificationError):
        return not_accepted(cause, authority_option="ca_certs")
    if isinstance(cause, ConnectionRefusedError):
        return "nobody listens there (is the MQTT broker running, and is that its port?)"
    if isinstance(cause, socket.gaierror):
        return "there is no such host"
    text = str(error).strip().rstrip(".") or type(error).__name__
    return "no answer in time" if text in ("Operation timed out", "timed out") else text
