"""Subscriber that shares no code with the tested package and records which messages were published."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from tests.support import until

from .carriers import REDIS, Carrier, Line
from .evidence import number_of

LAST = b"the last message"


class Witness:
    """Reader of all messages. Keeps the number of each, in order."""

    def __init__(self, port: int, carrier: Carrier) -> None:
        self.saw: list[int] = []
        """Numbers of the messages in order of arrival."""
        self._port, self._carrier = port, carrier
        self._lasts = 0

    @classmethod
    @contextlib.asynccontextmanager
    async def watching(cls, port: int, carrier: Carrier = REDIS) -> AsyncIterator[Witness]:
        """Context with a subscribed witness, until the end of the context or of its connection."""
        witness = cls(port, carrier)
        async with carrier.line.to(port) as line:
            await line.listen()
            task = asyncio.create_task(witness._read(line))
            try:
                yield witness
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def caught_up(self) -> None:
        """Return once it has received all messages published before this call."""
        wanted = self._lasts + 1
        async with self._carrier.line.to(self._port) as line:
            await line.publish(b"-", LAST)
        await until(lambda: self._lasts >= wanted, 30)

    async def _read(self, line: Line) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                payload = await line.message()
                if payload == LAST:
                    self._lasts += 1
                elif (number := number_of(payload)) is not None:
                    self.saw.append(number)
