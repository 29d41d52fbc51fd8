"""A server that speaks enough of the Redis protocol for a client, and answers what a test wants."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import hiredis

Answers = dict[str, bytes]
"""Answers by the first word of a command, in capitals, as bytes on the wire."""


def bulk(data: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(data), data)


def array(*items: bytes) -> bytes:
    return b"*%d\r\n%b" % (len(items), b"".join(items))


def push(pattern: bytes, channel: bytes, data: bytes) -> bytes:
    """Return a message for a subscriber."""
    return array(bulk(b"pmessage"), bulk(pattern), bulk(channel), bulk(data))


class FakeRedis:
    """A server on the loopback interface. `answers` may change while it runs; without one, it answers as Redis does."""

    def __init__(self, answers: Answers | None = None) -> None:
        self.answers = answers or {}
        self.port = 0
        self.commands: list[str] = []
        """First words of the commands that came."""
        self.subscribers: list[asyncio.StreamWriter] = []
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: list[asyncio.Task[None]] = []

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[FakeRedis]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for writer in self._writers:
                writer.transport.abort()
            await asyncio.gather(*self._tasks)
            await server.wait_closed()

    def send(self, data: bytes) -> None:
        """Send bytes to every subscriber."""
        for writer in self.subscribers:
            writer.write(data)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.append(task)
        self._writers.add(writer)
        parser = hiredis.Reader()
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                parser.feed(data)
                while (command := parser.gets()) is not False:
                    self._answer(writer, command)
        with contextlib.suppress(ValueError):
            self.subscribers.remove(writer)
        self._writers.discard(writer)
        writer.transport.abort()

    def _answer(self, writer: asyncio.StreamWriter, command: list[bytes]) -> None:
        word = command[0].decode().upper()
        self.commands.append(word)
        if word in self.answers:
            writer.write(self.answers[word])
        elif word == "PSUBSCRIBE":
            self.subscribers.append(writer)
            writer.writelines(array(bulk(b"psubscribe"), bulk(name), b":1\r\n") for name in command[1:])
        elif word == "PING":
            writer.write(array(bulk(b"pong"), bulk(b"")) if writer in self.subscribers else b"+PONG\r\n")
        elif word == "PUBLISH":
            writer.write(b":0\r\n")
        elif word == "TIME":
            writer.write(array(bulk(b"1700000000"), bulk(b"0")))
        elif word in ("INFO", "CLIENT") and command[1:2] != [b"SETINFO"]:
            writer.write(bulk(b""))
        else:
            writer.write(b"+OK\r\n")
