"""A connection to Redis, from its handshake on.

redis-py opens it: addresses, sockets, TLS and authentication are its work. From there on its
client is left aside, for two reasons. Its PUBLISH is sent again when the answer is lost, which
doubles messages. And it awaits every answer by itself, under a timeout of its own: that is most of
what a message costs. Here bytes are written as they are, and what arrives is parsed by hiredis,
all replies of a chunk at once, in the callback of the event loop.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, cast

import hiredis
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ResponseError

from .addresses import Addresses
from .reasons import reason_of

FAREWELL_SECONDS = 0.5
"""For how long the end of a TLS connection waits for the other side's, before it is cut."""
_NOTHING = object()


def publish_commands(messages: Sequence[tuple[bytes, bytes]]) -> bytes:
    """PUBLISH for each (channel, payload), as it is on the wire."""
    return b"".join(
        [
            b"*3\r\n$7\r\nPUBLISH\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (len(channel), channel, len(payload), payload)
            for channel, payload in messages
        ]
    )


class Wire(asyncio.Protocol):
    """An open connection.

    `taken` is called for each chunk that arrives, with the replies it completes (error replies as
    `ResponseError`); `lost` once, with the reason, when the connection is gone.
    """

    def __init__(
        self, connection: AbstractConnection, taken: Callable[[list[Any]], None], lost: Callable[[str], None]
    ) -> None:
        self.closed = False
        self.connection = connection
        self._taken = taken
        self._lost = lost
        self._paused = False
        self._parser = hiredis.Reader(replyError=_refusal, notEnoughData=_NOTHING)
        writer = connection._writer  # redis-py has no public way to its transport; this one is there from 5.2 to 8.1
        assert writer is not None
        self._transport = cast(asyncio.Transport, writer.transport)
        self._encrypted = self._transport.get_extra_info("ssl_object") is not None
        socket = self._transport.get_extra_info("socket")
        plain = os.name == "posix" and not self._encrypted
        self._file = socket.fileno() if plain and socket is not None else None
        self._over = asyncio.Event()
        self._streams = self._transport.get_protocol()
        self._transport.set_protocol(self)
        self._transport.resume_reading()

    @classmethod
    async def open(cls, addresses: Addresses, taken: Callable[[list[Any]], None], lost: Callable[[str], None]) -> Wire:
        """Connect, and pass the handshake. Raises `BrokerUnavailable`."""
        return cls(await addresses.connect(), taken, lost)

    def write(self, data: bytes) -> None:
        """Send bytes. Where the connection is lost meanwhile, `lost` tells."""
        self._transport.write(data)

    def packed(self, *words: str | bytes) -> bytes:
        """A command as it is on the wire."""
        return b"".join(self.connection.pack_command(*words))

    def command(self, *words: str | bytes) -> None:
        """Send one command."""
        self.write(self.packed(*words))

    def abort(self, reason: str) -> None:
        """Give the connection up at once, whatever is on its way, and call `lost`."""
        self._transport.abort()
        self._end(reason)

    def glance(self, nanoseconds: int) -> None:
        """Take in what comes within this time, without a turn of the event loop.

        A server on the same machine answers in some 20 us; the way through the event loop, to sleep and
        back, takes several times as long. Where nothing comes, or the bytes are encrypted, nothing happens.
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
                return  # the transport will find out
            if data:
                self.data_received(data)
            return

    def pause(self) -> None:
        """Take nothing more in, so that what comes waits in Redis."""
        if not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def resume(self) -> bool:
        """Take in what comes again; whether it was paused."""
        was, self._paused = self._paused, False
        if was and not self.closed:
            self._transport.resume_reading()
        return was

    async def close(self) -> None:
        """Give the connection up, without a call of `lost`. May be called twice."""
        self.closed = True
        await self.connection.disconnect(nowait=True)
        if not self._encrypted or self._over.is_set():
            return
        try:  # each side of TLS says goodbye; asyncio would wait for half a minute where the other one is gone
            async with asyncio.timeout(FAREWELL_SECONDS):
                await self._over.wait()
        except TimeoutError:
            pass
        finally:
            if not self._over.is_set():
                self._transport.abort()

    def data_received(self, data: bytes) -> None:
        values: list[Any] = []
        try:
            self._parser.feed(data)
            take = self._parser.gets
            while (value := take()) is not _NOTHING:
                values.append(value)
        except hiredis.ProtocolError as error:
            self.abort(f"it does not speak Redis' protocol: {error}")
            return
        if not self.closed:
            self._taken(values)

    def connection_lost(self, error: Exception | None) -> None:
        self._over.set()
        self._streams.connection_lost(error)  # whoever waits for the stream to be closed
        self._end("the connection was closed by the server" if error is None else reason_of(error))

    def _end(self, reason: str) -> None:
        if not self.closed:
            self.closed = True
            self._lost(reason)


def _refusal(text: str) -> ResponseError:
    """An error reply; its first word is a code, of which ERR says nothing."""
    return ResponseError(text.removeprefix("ERR "))
