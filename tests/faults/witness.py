"""A subscriber that shares no code with what is tested: what was really on the wire."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from tests.support import until

from .evidence import number_of

LAST = b"the last message"


class Witness:
    """Reads from Redis as fast as it can, and keeps the number of every message, in order."""

    def __init__(self, port: int) -> None:
        self.saw: list[int] = []
        """The numbers of the messages, as they came."""
        self._port = port
        self._lasts = 0

    @classmethod
    @contextlib.asynccontextmanager
    async def watching(cls, port: int) -> AsyncIterator[Witness]:
        """A witness whose subscription stands; it ends with the block, or with its connection."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
        witness = cls(port)
        writer.write(b"PSUBSCRIBE *\r\n")
        await _value(reader)
        task = asyncio.create_task(witness._read(reader))
        try:
            yield witness
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await _closed(writer)

    async def caught_up(self) -> None:
        """Return once it has seen all that was published before this call."""
        wanted = self._lasts + 1
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(b"*3\r\n$7\r\nPUBLISH\r\n$1\r\n-\r\n$%d\r\n%s\r\n" % (len(LAST), LAST))
        await reader.readline()
        await _closed(writer)
        await until(lambda: self._lasts >= wanted, 30)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                message = await _value(reader)
                assert isinstance(message, list)
                payload = message[-1]
                if payload == LAST:
                    self._lasts += 1
                elif isinstance(payload, bytes) and (number := number_of(payload)) is not None:
                    self.saw.append(number)


async def _closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def _value(reader: asyncio.StreamReader) -> bytes | int | list[object] | None:
    """One value of the Redis protocol."""
    line = (await reader.readuntil(b"\r\n"))[:-2]
    sign, rest = line[:1], line[1:]
    if sign == b"*":
        return [await _value(reader) for _ in range(int(rest))]
    if sign == b"$":
        return None if rest == b"-1" else (await reader.readexactly(int(rest) + 2))[:-2]
    return int(rest) if sign == b":" else rest
