"""Connection to Redis after its handshake.

redis-py opens it: sockets, TLS and authentication are its work. Its client is not used, for two reasons: it sends
PUBLISH again when an answer is lost, which doubles messages, and it awaits every answer under a timeout of its own,
which is most of the cost of a message. Here hiredis parses all replies of a chunk at once, in the callback of the
event loop.
"""

from __future__ import annotations

import asyncio
import os
import selectors
import time
from collections.abc import Callable, Sequence
from typing import Any, cast

import hiredis
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ResponseError

from ...time_limit import time_limit
from .endpoint import Endpoint
from .error_text import error_text

MAX_REPLY = 513 * 1024 * 1024
"""Bytes of one reply above which the server is no Redis, whose strings have at most 512 MiB by default."""
TLS_CLOSE_SECONDS = 0.5
"""Seconds for the server to close its side of a TLS connection, before it is cut."""
CLOSED = "the connection was closed by the server"
_INCOMPLETE = object()


def publish_commands(messages: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Return the bytes of a PUBLISH for each (channel, payload)."""
    return b"".join(
        [
            b"*3\r\n$7\r\nPUBLISH\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (len(channel), channel, len(payload), payload)
            for channel, payload in messages
        ]
    )


def carried_commands(messages: Sequence[tuple[bytes, bytes]], entries: Sequence[list[bytes] | None]) -> bytes:
    """Return the bytes of a PUBLISH for each (channel, payload), of an XADD where there are fields of an entry."""
    commands = []
    for message, fields in zip(messages, entries, strict=True):
        if fields is None:
            commands.append(publish_commands([message]))
        else:
            words = [b"XADD", message[0], b"*", *fields]
            commands.append(b"*%d\r\n" % len(words))
            commands += [b"$%d\r\n%b\r\n" % (len(word), word) for word in words]
    return b"".join(commands)


class Wire(asyncio.Protocol):
    """Open connection.

    `received` is called for each chunk with the replies that it completes (error replies as `ResponseError`), `lost`
    once with the reason when the connection is lost.
    """

    def __init__(
        self, connection: AbstractConnection, received: Callable[[list[Any]], None], lost: Callable[[str], None]
    ) -> None:
        self.closed = False
        self.connection = connection
        self._received = received
        self._lost = lost
        self._paused = False
        self._parser = hiredis.Reader(replyError=_refusal, notEnoughData=_INCOMPLETE)
        self._unfinished = 0  # bytes that have arrived without completing a reply
        self.bytes_read = 0
        """Number of bytes that have arrived since the handshake."""
        writer = connection._writer  # redis-py 5.2 to 8.1 have no public way to the transport
        assert writer is not None
        self._transport = cast(asyncio.Transport, writer.transport)
        self._encrypted = self._transport.get_extra_info("ssl_object") is not None
        self._socket = self._transport.get_extra_info("socket")
        plain = os.name == "posix" and not self._encrypted
        self._file = self._socket.fileno() if plain and self._socket is not None else None
        self._over = asyncio.Event()
        self._streams = self._transport.get_protocol()
        self._transport.set_protocol(self)
        self._transport.resume_reading()

    @classmethod
    async def open(cls, endpoint: Endpoint, received: Callable[[list[Any]], None], lost: Callable[[str], None]) -> Wire:
        """Connect, with the handshake. Raises `BrokerUnavailable`."""
        return cls(await endpoint.connect(), received, lost)

    def write(self, data: bytes) -> None:
        """Send bytes. A lost connection is reported by `lost`."""
        self._transport.write(data)

    def packed(self, *words: str | bytes) -> bytes:
        """Return the bytes of a command."""
        return b"".join(self.connection.pack_command(*words))

    def command(self, *words: str | bytes) -> None:
        """Send one command."""
        self.write(self.packed(*words))

    def abort(self, reason: str) -> None:
        """Close the connection at once, whatever is on its way, and call `lost`."""
        self._transport.abort()
        self._end(reason)

    def poll(self, nanoseconds: int) -> None:
        """Read what arrives within this time, without a turn of the event loop. Encrypted connections are not polled.

        A server on the same machine answers in about 20 us; the event loop takes several times as long to sleep and
        wake up.
        """
        if self._file is None or self._transport.is_closing() or self._transport.get_write_buffer_size():
            return
        until = time.monotonic_ns() + nanoseconds
        while time.monotonic_ns() < until:
            try:
                data = os.read(self._file, 1 << 16)
            except BlockingIOError:
                continue
            except OSError:
                return  # the transport will report it
            if data:
                self.data_received(data)
            return

    async def settled(self) -> None:
        """Return when everything that has arrived is read. If the connection has ended, that is known then."""
        while not self.closed and self._is_readable():
            await asyncio.sleep(0)

    def _is_readable(self) -> bool:
        """Return whether bytes or the end wait in the socket, or it is closed and `connection_lost` is due."""
        if self._socket is None:
            return False
        if self._socket.fileno() < 0:
            return True
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            return bool(selector.select(0))

    def pause(self) -> None:
        """Stop reading, so that messages wait in Redis."""
        if not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def resume(self) -> bool:
        """Continue reading. Return True if it was paused."""
        was, self._paused = self._paused, False
        if was and not self.closed:
            self._transport.resume_reading()
        return was

    async def close(self) -> None:
        """Close the connection, without a call of `lost`. May be called twice."""
        self.closed = True
        await self.connection.disconnect(nowait=True)
        if not self._encrypted or self._over.is_set():
            return
        try:  # asyncio would wait 30 s for the closing message of a peer that is gone
            async with time_limit(TLS_CLOSE_SECONDS):
                await self._over.wait()
        except TimeoutError:
            pass
        finally:
            if not self._over.is_set():
                self._transport.abort()

    def data_received(self, data: bytes) -> None:
        values: list[Any] = []
        fault: object = None
        self.bytes_read += len(data)
        try:
            self._parser.feed(data)
            take = self._parser.gets
            while (value := take()) is not _INCOMPLETE:
                values.append(value)
            self._unfinished = 0 if values else self._unfinished + len(data)
            if self._unfinished > MAX_REPLY:
                fault = f"an answer of more than {MAX_REPLY:,} bytes"
        except (hiredis.ProtocolError, MemoryError) as error:
            fault = error or "an answer that does not fit into memory"
        if not self.closed:
            self._received(values)  # also what came before a fault
        if fault is not None and not self.closed:
            self.abort(f"it does not speak the Redis protocol: {fault}")

    def eof_received(self) -> None:
        self._end(CLOSED)  # at the end of TLS, `connection_lost` waits for the server's side to be closed too

    def connection_lost(self, error: Exception | None) -> None:
        self._over.set()
        self._streams.connection_lost(error)  # wakes who waits for the stream to be closed
        self._end(CLOSED if error is None else error_text(error))

    def _end(self, reason: str) -> None:
        if not self.closed:
            self.closed = True
            self._lost(reason)


def _refusal(text: str) -> ResponseError:
    """Return an error reply without the code ERR, which has no meaning of its own."""
    return ResponseError(text.removeprefix("ERR "))
