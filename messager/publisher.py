"""The outbox: sends that wait at the same time leave together, a lone one leaves at once.

While one wave is being written, further sends gather; the next wave takes them all.
Each wave asks the hooks first, is stamped immediately before it is written, and is
told to the hooks that it asked, and to no others, when its answers are in. A message that
a hook refuses is not written, and its outcome is told together with those of the others, in order.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Sequence
from typing import Literal

from . import channels
from .brokers.protocol import Broker
from .clock import Clock
from .errors import MessagesRefused, PublishError
from .hooks import LogHook
from .record import MessageRecord

WAVE_MESSAGES = 1000
WAVE_BYTES = 1 << 20
TURN_SECONDS = 0.001
"""For how long a sender whose answers are there at once may go on before others get their turn."""

_Result = int | Exception | None
"""Outcome of one message: how many subscribers got it, None where nobody can tell, or why it was not published."""

log = logging.getLogger("messager")


class _Wave:
    """Messages that leave together: records, when their callers began (ns UTC), and what these wait for.

    Three lists, and not a list of triples: whatever there is one of for each message on its way
    is one thing more for the garbage collector to go through, again and again.
    """

    __slots__ = ("asked", "futures", "hooks", "records", "refused", "size", "started")

    def __init__(self) -> None:
        self.records: list[MessageRecord] = []
        self.started: list[int] = []
        self.futures: list[asyncio.Future[None]] = []
        self.hooks: list[LogHook] = []
        """Those that are asked, in turn, before it is written."""
        self.asked = 0
        """How many of them were: these are told of it in the end, whoever comes or goes meanwhile."""
        self.refused: dict[int, tuple[Exception, int]] = {}
        """By id of the record: why a hook refused it, and how many hooks had been asked about it."""
        self.size = 0
        """Bytes of its payloads."""

    @property
    def full(self) -> bool:
        return len(self.records) >= WAVE_MESSAGES or self.size >= WAVE_BYTES

    def add(self, record: MessageRecord, started: int) -> asyncio.Future[None]:
        """Take a message; what its caller is to wait for."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.records.append(record)
        self.started.append(started)
        self.futures.append(future)
        self.size += len(record.payload)
        return future

    @property
    def accepted(self) -> list[MessageRecord]:
        """The records that no hook refused."""
        if not self.refused:
            return self.records
        return [record for record in self.records if id(record) not in self.refused]

    def results(self, written: Sequence[_Result]) -> Sequence[_Result]:
        """One result for each record, from those of the accepted ones."""
        if not self.refused:
            return written
        left = iter(written)
        return [self.refused[id(record)][0] if id(record) in self.refused else next(left) for record in self.records]

    def told(self, record: MessageRecord) -> Sequence[LogHook]:
        """The hooks that were asked about a record."""
        return self.hooks[: self.refused[id(record)][1] if id(record) in self.refused else self.asked]

    def without_cancelled(self) -> _Wave:
        """Those whose callers still wait."""
        if not any(map(asyncio.Future.cancelled, self.futures)):
            return self
        left = _Wave()
        for record, started, future in zip(self.records, self.started, self.futures, strict=True):
            if not future.cancelled():
                left.records.append(record)
                left.started.append(started)
                left.futures.append(future)
        return left

    def cancel(self) -> None:
        """Whoever waits is told that it was cancelled."""
        for future in self.futures:
            future.cancel()


class Publisher:
    """Publishes records through a broker, in the order in which they were handed over."""

    def __init__(self, broker: Broker, clock: Clock, hooks: Sequence[LogHook]) -> None:
        self._broker = broker
        self._clock = clock
        self._hooks = hooks
        self._waiting: deque[_Wave] = deque()  # to go when what is on its way has arrived
        self._asking: _Wave | None = None  # whose hooks are being asked
        self._task: asyncio.Task[None] | None = None
        self._turned = 0.0  # when a sender last let others run
        self._idle = asyncio.Event()  # nothing is on its way
        self._idle.set()

    def send(self, record: MessageRecord, started: int) -> Awaitable[None]:
        """Publish one record; `started` is when its caller began (ns UTC). To be awaited at once.

        Raises `PublishError`, or what a hook's `before_send` raised. A caller that is
        cancelled while its message still waits has not sent it; once it is being
        written, it goes out and is logged.
        """
        if self._idle.is_set():
            return self._send_alone(record, started)
        if not self._waiting or self._waiting[-1].full:
            self._waiting.append(_Wave())
        return self._waiting[-1].add(record, started)

    async def _send_alone(self, record: MessageRecord, started: int) -> None:
        """Nobody else is on the way, so this one goes by itself: a task for it would cost a third more."""
        self._idle.clear()
        wave = _Wave()
        future = wave.add(record, started)
        try:
            answer = await self._write(wave)
        except BaseException as error:
            future.cancel()  # as this is where its caller waits
            self._settle(wave, [_not_sent(error)])
            self._go_on()
            raise
        if answer.done():
            self._landed(wave, answer)
            if future.exception() is None and time.monotonic() - self._turned >= TURN_SECONDS:
                self._turned = time.monotonic()
                await asyncio.sleep(0)  # a sender that never waits would keep everybody else from running
        else:
            answer.add_done_callback(lambda answer: self._landed(wave, answer))
        await future

    async def flushed(self) -> None:
        """Return once everything that was handed over has left."""
        await self._idle.wait()

    def gone(self, hook: LogHook, heir: LogHook | None = None) -> None:
        """A hook left. Where it had not been asked yet, it will not be: its heir is, if it made way for one."""
        wave = self._asking
        if wave is not None and hook in (waiting := wave.hooks[wave.asked :]):
            at = wave.asked + waiting.index(hook)
            wave.hooks[at : at + 1] = [] if heir is None or heir in wave.hooks else [heir]

    def tell(self, record: MessageRecord, hooks: Sequence[LogHook] | None = None) -> None:
        """Tell these hooks, or else all, of an event. A hook that raises is logged, and harms nobody else."""
        for hook in tuple(self._hooks) if hooks is None else hooks:
            try:
                hook.after(record)
            except Exception:
                log.exception("the log hook %r raised on %s", hook, record.kind)

    def _landed(self, wave: _Wave, answer: asyncio.Future[list[int | PublishError | None]]) -> None:
        """A message that went by itself is answered."""
        results: Sequence[_Result]
        if answer.cancelled():
            results = [_cancelled("unknown")]
        else:
            error = answer.exception()
            results = answer.result() if error is None else [_not_sent(error)]
        self._settle(wave, results)
        self._go_on()

    def _go_on(self) -> None:
        """Send what has gathered meanwhile."""
        if self._waiting:
            self._task = asyncio.create_task(self._drain())
            self._task.add_done_callback(self._drained)
        else:
            self._idle.set()

    async def _drain(self) -> None:
        while self._waiting:
            wave = self._waiting.popleft().without_cancelled()
            if wave.records:
                await self._send_wave(wave)

    def _drained(self, task: asyncio.Task[None]) -> None:
        """Also where it was cancelled before its first step: whoever waits must not wait for ever."""
        if task.cancelled():  # the loop is shutting down
            for wave in self._waiting:
                wave.cancel()
            self._waiting.clear()
        self._go_on()

    async def _send_wave(self, wave: _Wave) -> None:
        results: Sequence[_Result]
        outcome: Literal["not_sent", "unknown"] = "not_sent"
        try:
            answer = await self._write(wave)
            outcome = "unknown"
            results = await answer
        except asyncio.CancelledError:
            wave.cancel()
            self._settle(wave, [_cancelled(outcome)] * len(wave.accepted))
            raise
        except Exception as error:
            results = [error] * len(wave.accepted)
        self._settle(wave, results)

    async def _write(self, wave: _Wave) -> asyncio.Future[list[int | PublishError | None]]:
        """Ask the hooks, stamp, and write what they accept; the broker's answers. Raises what a hook raised."""
        records = wave.records
        if (meta := getattr(self._broker, "sends_with", None)) is not None:
            for record in records:
                record.meta = meta
        wave.hooks = list(self._hooks)
        self._asking = wave
        try:
            while records and wave.asked < len(wave.hooks):
                wave.asked += 1  # also where it raises: those behind it are not
                try:
                    await wave.hooks[wave.asked - 1].before_send(records)
                except MessagesRefused as refusal:
                    for index, error in refusal.errors.items():
                        wave.refused[id(records[index])] = error, wave.asked
                    records = wave.accepted
        finally:
            self._asking = None
        if not records:
            nothing: asyncio.Future[list[int | PublishError | None]] = asyncio.get_running_loop().create_future()
            nothing.set_result([])
            return nothing
        wire = [(channels.encode(record.channel or ""), record.payload) for record in records]
        now = self._clock.now()
        for record in records:
            record.ts = now
        return asyncio.ensure_future(self._broker.publish(wire))

    def _settle(self, wave: _Wave, written: Sequence[_Result]) -> None:
        """Tell the hooks and the senders the outcome of each message. `written` has those of the accepted ones."""
        done, told, results = self._clock.now(), wave.hooks[: wave.asked], wave.results(written)
        for record, started, future, result in zip(wave.records, wave.started, wave.futures, results, strict=True):
            record.duration_ns = done - started
            if isinstance(result, Exception):
                record.kind = "failed"
                outcome = result.outcome if isinstance(result, PublishError) else "not_sent"
                record.meta = {"outcome": outcome, "error": str(result) or type(result).__name__}
            else:
                record.receivers = result
            self.tell(record, wave.told(record) if wave.refused else told)
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
