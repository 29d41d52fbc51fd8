"""Minimal clients of Redis and MQTT for the harness, which share no code with the tested package."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Self
from uuid import uuid4

from messager.testing import MqttServer, RedisServer, mqtt_server, redis_server


class Line(ABC):
    """Connection to a broker on this machine."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    @contextlib.asynccontextmanager
    async def to(cls, port: int, name: str = "") -> AsyncIterator[Self]:
        """Context with an open connection. `name` is the client identifier, for brokers that have one."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
        line = cls(reader, writer)
        try:
            await line.greet(name)
            yield line
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    @abstractmethod
    async def greet(self, name: str) -> None:
        """Perform the handshake."""

    @abstractmethod
    async def listen(self) -> None:
        """Subscribe to everything; active when this returns."""

    @abstractmethod
    async def message(self) -> bytes:
        """Return the payload of the next message."""

    @abstractmethod
    async def publish(self, channel: bytes, payload: bytes) -> None:
        """Publish a message, and return when the broker has accepted it."""


class RedisLine(Line):
    """Connection with RESP2."""

    async def greet(self, name: str) -> None:
        """Do nothing: RESP2 has no handshake."""

    async def listen(self) -> None:
        self._writer.write(b"PSUBSCRIBE *\r\n")
        await self._value()

    async def message(self) -> bytes:
        message = await self._value()
        assert isinstance(message, list) and isinstance(message[-1], bytes)
        return message[-1]

    async def publish(self, channel: bytes, payload: bytes) -> None:
        await self.commands([(b"PUBLISH", channel, payload)])

    async def commands(self, commands: Sequence[Sequence[bytes]]) -> None:
        """Send commands together, and return when all are answered. Raises `OSError` for an error."""
        for words in commands:
            self._writer.write(b"*%d\r\n" % len(words))
            self._writer.write(b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words))
        for _ in commands:
            await self._value()

    async def _value(self) -> bytes | int | list[object] | None:
        line = (await self._reader.readuntil(b"\r\n"))[:-2]
        sign, rest = line[:1], line[1:]
        if sign == b"*":
            return [await self._value() for _ in range(int(rest))]
        if sign == b"$":
            return None if rest == b"-1" else (await self._reader.readexactly(int(rest) + 2))[:-2]
        if sign == b"-":
            raise OSError(rest.decode())
        return int(rest) if sign == b":" else rest


_CONNACK, _PUBLISH, _PUBACK, _SUBACK = 2, 3, 4, 9


class MqttLine(Line):
    """Connection with MQTT 3.1.1, QoS 1."""

    async def greet(self, name: str) -> None:
        # a clean session, without keep alive
        self._write(0x10, _field(b"MQTT") + b"\x04\x02\x00\x00" + _field((name or uuid4().hex).encode()))
        await self._answer(_CONNACK)

    async def listen(self) -> None:
        self._write(0x82, b"\x00\x01" + _field(b"#") + b"\x01")
        await self._answer(_SUBACK)

    async def message(self) -> bytes:
        while True:
            head, body = await self._packet()
            if head >> 4 != _PUBLISH:
                continue
            at = 2 + int.from_bytes(body[:2])
            if head & 0x06:
                self._write(0x40, body[at : at + 2])
                at += 2
            return body[at:]

    async def publish(self, channel: bytes, payload: bytes, *, again: bool = False) -> None:
        """Publish a message; with `again`, as a retransmission (DUP)."""
        self.offer(channel, payload, again=again)
        await self._answer(_PUBACK)

    def offer(self, channel: bytes, payload: bytes, *, again: bool = False) -> None:
        """Publish a message without waiting for the answer."""
        self._write(0x3A if again else 0x32, _field(channel) + b"\x00\x01" + payload)

    async def forward(self, other: MqttLine, drops: Callable[[bytes], bool]) -> None:
        """Forward packets until the end, without the messages that `drops` selects, which are acknowledged."""
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                head, body = await self._packet()
                at = 2 + int.from_bytes(body[:2])
                behind = at + 2 if head & 0x06 else at
                if head >> 4 != _PUBLISH or not drops(body[behind:]):
                    other._write(head, body)
                elif behind > at:
                    self._write(0x40, body[at:behind])

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()

    async def _answer(self, kind: int) -> None:
        while (await self._packet())[0] >> 4 != kind:
            pass

    async def _packet(self) -> tuple[int, bytes]:
        head = (await self._reader.readexactly(1))[0]
        length = shift = 0
        while (byte := (await self._reader.readexactly(1))[0]) & 0x80:
            length |= (byte & 0x7F) << shift
            shift += 7
        return head, await self._reader.readexactly(length | byte << shift)

    def _write(self, head: int, body: bytes) -> None:
        length, left = b"", len(body)
        while left > 0x7F:
            length, left = length + bytes([left & 0x7F | 0x80]), left >> 7
        self._writer.write(bytes([head]) + length + bytes([left]) + body)


def _field(text: bytes) -> bytes:
    return len(text).to_bytes(2) + text


@contextlib.asynccontextmanager
async def dropping(port: int, drops: Callable[[bytes], bool]) -> AsyncIterator[int]:
    """Context with the port of a proxy to an MQTT broker. It drops the messages to listeners that `drops` selects.

    It acknowledges them itself: broker and listener see what they see if the broker drops a message.
    """

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        here, there = MqttLine(reader, writer), MqttLine(*await asyncio.open_connection("127.0.0.1", port))
        with contextlib.suppress(OSError, EOFError):
            async with asyncio.TaskGroup() as group:
                back = group.create_task(there.forward(here, drops))
                await here.forward(there, lambda _: False)
                back.cancel()
        for line in (here, there):
            line.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@dataclass(frozen=True, slots=True)
class Carrier:
    """One kind of broker."""

    server: Callable[[], AbstractContextManager[RedisServer | MqttServer]]
    line: type[Line]
    scheme: str
    pause: float
    """Pause of a sender after each message (s), so that the broker does not drop messages for slow listeners."""

    def url(self, port: int, query: str = "") -> str:
        """Return the URL of a broker, or of a proxy, on this port."""
        return f"{self.scheme}://127.0.0.1:{port}{query}"


REDIS = Carrier(redis_server, RedisLine, "redis", 0.0)
MQTT = Carrier(mqtt_server, MqttLine, "mqtt", 0.002)
