"""The outbox: sends that wait at the same time leave together, a lone one leaves at once.

While one wave is being written, further sends gather; the next wave takes them all.
Each wave asks the hooks first, is stamped immediately before it is written, and is
told to the hooks when its answers are in.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Sequence
from typing import Literal

from . import channels
from .brokers.base import Broker
from .clock import Clock
from .errors import PublishError
from .hooks import LogHook
from .record import MessageRecord

WAVE_MESSAGES = 1000
WAVE_BYTES = 1 << 20
TURN_SECONDS = 0.001
"""For how long a sender whose answers are there at once may go on before others get their turn."""

log = logging.getLogger("messager")


_Entry = tuple[MessageRecord, int, "asyncio.Future[None]"]
"""A record, when its caller began (ns UTC), and what the caller waits for."""


class Outbox:
    """Publishes records through a broker, in the order in which they were handed over."""

    def __init__(self, broker: Broker, clock: Clock, hooks: Sequence[LogHook]) -> None:
        self._broker = broker
        self._clock = clock
        self._hooks = hooks
        self._pending: deque[_Entry] = deque()
        self._task: asyncio.Task[None] | None = None
        self._turned = 0.0  # when a sender last let others run
        self._idle = asyncio.Event()  # nothing is on its way
        self._idle.set()

    async def send(self, record: MessageRecord, started: int) -> None:
        """Publish one record; `started` is when its caller began (ns UTC).

        Raises `PublishError`, or what a hook's `before_send` raised. A caller that is
        cancelled while its message still waits has not sent it; once it is being
        written, it goes out and is logged.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (record, started, future)
        if not self._idle.is_set():
            self._pending.append(entry)
            await future
            return
        # Nobody else is on the way, so this one goes by itself: a task for it would cost a third more.
        self._idle.clear()
        try:
            answer = await self._write([record])
        except BaseException as error:
            future.cancel()  # as this is where its caller waits
            self._settle([entry], [_not_sent(error)])
            self._go_on()
            raise
        if answer.done():
            self._landed(entry, answer)
            if future.exception() is None and time.monotonic() - self._turned >= TURN_SECONDS:
                self._turned = time.monotonic()
                await asyncio.sleep(0)  # a sender that never waits would keep everybody else from running
        else:
            answer.add_done_callback(lambda answer: self._landed(entry, answer))
        await future

    async def flushed(self) -> None:
        """Return once everything that was handed over has left."""
        await self._idle.wait()

    def tell(self, record: MessageRecord) -> None:
        """Tell every hook of an event. A hook that raises is logged, and harms nobody else."""
        for hook in self._hooks:
            try:
                hook.after(record)
            except Exception:
                log.exception("the log hook %r raised on %s", hook, record.kind)

    def _landed(self, entry: _Entry, answer: asyncio.Future[list[int | PublishError | None]]) -> None:
        """A message that went by itself is answered."""
        result: int | Exception | None
        if answer.cancelled():
            result = _cancelled("unknown")
        else:
            error = answer.exception()
            result = answer.result()[0] if error is None else _not_sent(error)
        self._settle([entry], [result])
        self._go_on()

    def _go_on(self) -> None:
        """Send what has gathered meanwhile."""
        if self._pending:
            self._task = asyncio.create_task(self._drain())
            self._task.add_done_callback(self._drained)
        else:
            self._idle.set()

    async def _drain(self) -> None:
        while self._pending:
            await self._wave(self._take())

    def _drained(self, task: asyncio.Task[None]) -> None:
        """Also where it was cancelled before its first step: whoever waits must not wait for ever."""
        if task.cancelled():  # the loop is shutting down
            for _, _, future in self._pending:
                future.cancel()
            self._pending.clear()
        self._go_on()

    def _take(self) -> list[_Entry]:
        wave: list[_Entry] = []
        size = 0
        while self._pending and len(wave) < WAVE_MESSAGES and size < WAVE_BYTES:
            entry = self._pending.popleft()
            if not entry[2].cancelled():
                wave.append(entry)
                size += len(entry[0].payload)
        return wave

    async def _wave(self, wave: list[_Entry]) -> None:
        results: Sequence[int | Exception | None]
        outcome: Literal["not_sent", "unknown"] = "not_sent"
        try:
            answer = await self._write([record for record, _, _ in wave])
            outcome = "unknown"
            results = await answer
        except asyncio.CancelledError:
            for _, _, future in wave:
                future.cancel()
            self._settle(wave, [_cancelled(outcome)] * len(wave))
            raise
        except Exception as error:
            results = [error] * len(wave)
        self._settle(wave, results)

    async def _write(self, records: list[MessageRecord]) -> asyncio.Future[list[int | PublishError | None]]:
        """Ask the hooks, stamp, and write; the broker's answers. Raises what a hook raised."""
        for hook in self._hooks:
            await hook.before_send(records)
        wire = [(channels.encode(record.channel or ""), record.payload) for record in records]
        now = self._clock.now()
        for record in records:
            record.ts = now
        return asyncio.ensure_future(self._broker.publish(wire))

    def _settle(self, wave: list[_Entry], results: Sequence[int | Exception | None]) -> None:
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


def _not_sent(error: BaseException) -> Exception:
    """Why a message was not written."""
    return error if isinstance(error, Exception) else _cancelled("not_sent")


def _cancelled(outcome: Literal["not_sent", "unknown"]) -> PublishError:
    return PublishError("it was cancelled on the way", outcome)
