"""The outbox: sends that wait at the same time leave together, a lone one leaves at once.

While one wave is being written, further sends gather; the next wave takes them all.
Each wave asks the hooks first, is stamped immediately before it is written, and is
told to the hooks when its answers are in.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence

from . import channels
from .brokers.base import Broker
from .clock import Clock
from .errors import PublishError
from .hooks import LogHook
from .record import MessageRecord

WAVE_MESSAGES = 1000
WAVE_BYTES = 1 << 20

log = logging.getLogger("messager")


class Outbox:
    """Publishes records through a broker, in the order in which they were handed over."""

    def __init__(self, broker: Broker, clock: Clock, hooks: Sequence[LogHook]) -> None:
        self._broker = broker
        self._clock = clock
        self._hooks = hooks
        self._pending: deque[tuple[MessageRecord, int, asyncio.Future[None]]] = deque()
        self._task: asyncio.Task[None] | None = None

    async def send(self, record: MessageRecord, started: int) -> None:
        """Publish one record; `started` is when its caller began (ns UTC).

        Raises `PublishError`, or what a hook's `before_send` raised. A caller that is
        cancelled while its message still waits has not sent it; once it is being
        written, it goes out and is logged.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pending.append((record, started, future))
        if self._task is None:
            self._task = asyncio.create_task(self._drain())
        await future

    async def flushed(self) -> None:
        """Return once everything that was handed over has left."""
        if self._task is not None:
            await asyncio.wait([self._task])

    def tell(self, record: MessageRecord) -> None:
        """Tell every hook of an event. A hook that raises is logged, and harms nobody else."""
        for hook in self._hooks:
            try:
                hook.after(record)
            except Exception:
                log.exception("the log hook %r raised on %s", hook, record.kind)

    async def _drain(self) -> None:
        wave: list[tuple[MessageRecord, int, asyncio.Future[None]]] = []
        try:
            while self._pending:
                wave = self._take()
                await self._wave(wave)
        finally:
            self._task = None
            for _, _, future in (*wave, *self._pending):  # undecided only if the loop is shutting down
                future.cancel()

    def _take(self) -> list[tuple[MessageRecord, int, asyncio.Future[None]]]:
        wave: list[tuple[MessageRecord, int, asyncio.Future[None]]] = []
        size = 0
        while self._pending and len(wave) < WAVE_MESSAGES and size < WAVE_BYTES:
            entry = self._pending.popleft()
            if not entry[2].cancelled():
                wave.append(entry)
                size += len(entry[0].payload)
        return wave

    async def _wave(self, wave: list[tuple[MessageRecord, int, asyncio.Future[None]]]) -> None:
        records = [record for record, _, _ in wave]
        results: Sequence[int | Exception | None]
        writing = False
        try:
            for hook in self._hooks:
                await hook.before_send(records)
            wire = [(channels.encode(record.channel or ""), record.payload) for record in records]
            now = self._clock.now()
            for record in records:
                record.ts = now
            writing = True
            results = await self._broker.publish(wire)
        except asyncio.CancelledError:
            gone = PublishError("it was cancelled on the way", "unknown" if writing else "not_sent")
            for _, _, future in wave:
                future.cancel()
            self._settle(wave, [gone] * len(wave))
            raise
        except Exception as error:
            results = [error] * len(wave)
        self._settle(wave, results)

    def _settle(
        self, wave: list[tuple[MessageRecord, int, asyncio.Future[None]]], results: Sequence[int | Exception | None]
    ) -> None:
        """Tell the hooks, and those who wait, what became of each message."""
        done = self._clock.now()
        for (record, started, future), result in zip(wave, results, strict=True):
            record.duration_ns = done - started
            if isinstance(result, Exception):
                record.kind = "failed"
                outcome = result.outcome if isinstance(result, PublishError) else "not_sent"
                record.meta = {"outcome": outcome, "error": str(result) or type(result).__name__}
            else:
                record.receivers = result
            self.tell(record)
            if future.cancelled():
                continue
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(None)
