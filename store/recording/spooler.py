"""Spooler: moves events from memory to the spool if the store does not accept them in time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ..errors import SpoolFull
from .buffer import Buffer

log = logging.getLogger("messager_store")


class Spooler:
    """Writes a buffer's memory to its spool once its oldest event is older than `patience()` seconds.

    `moved` is called after each attempt. Belongs to the event loop that runs when it is made, and may be called between
    two runs of that loop.
    """

    def __init__(self, buffer: Buffer, patience: Callable[[], float], moved: Callable[[], None]) -> None:
        self.error: SpoolFull | None = None
        """Error of the last attempt; None if it succeeded."""
        self._buffer = buffer
        self._patience = patience
        self._moved = moved
        self._loop = asyncio.get_running_loop()
        self._alarm: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None

    def watch(self) -> None:
        """Schedule a write for the time when the oldest event in memory has waited too long."""
        if self._alarm is None:
            self._set_alarm(max(0.0, self._patience() - self._buffer.oldest_age))

    def write(self) -> None:
        """Start a write of the events in memory, unless one is running."""
        if self._writing is None or self._writing.done():
            self._writing = self._loop.create_task(self._write())

    async def close(self) -> None:
        """Finish the running write; start no other."""
        if self._writing is not None:
            await asyncio.wait([self._writing])
        if self._alarm is not None:
            self._alarm.cancel()

    def _set_alarm(self, wait: float) -> None:
        self._alarm = self._loop.call_later(wait, self._overdue)

    def _overdue(self) -> None:
        self._alarm = None
        if not len(self._buffer):
            return
        if self._buffer.oldest_age >= self._patience():
            self.write()
        else:
            self.watch()

    async def _write(self) -> None:
        try:
            await self._buffer.to_disk()
            self.error = None
        except SpoolFull as error:
            if self.error is None:
                log.error("%s", error)
            self.error = error
        self._moved()
        if len(self._buffer) and self._alarm is None:
            self._set_alarm(self._patience())
