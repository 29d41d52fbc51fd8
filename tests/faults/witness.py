"""A subscriber that shares no code with what is tested: what was really on the wire."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from tests.support import until

from .carriers import REDIS, Carrier, Line
from .evidence import number_of

LAST = b"the last message"


class Witness:
    """Reads as fast as it can, and keeps the number of every message, in order."""

    def __init__(self, port: int, carrier: Carrier) -> None:
        self.saw: list[int] = []
        """The numbers of the messages, as they came."""
        self._port, self._carrier = port, carrier
        self._lasts = 0

    @classmethod
    @contextlib.asynccontextmanager
    async def watching(cls, port: int, carrier: Carrier = REDIS) -> AsyncIterator[Witness]:
        """A witness whose subscription stands; it ends with the block, or with its connection."""
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
        """Return once it has seen all that was published before this call."""
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
