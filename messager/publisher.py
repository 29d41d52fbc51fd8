"""Publisher: concurrent sends are written in one batch, a single send is written at once.

Sends that arrive while a batch is being written form the next batch. A batch first calls `before_send` of the hooks, is
stamped immediately before it is written, and reports the outcome only to the hooks that it called. A message that a
hook refuses is not written; its outcome is reported with those of the others, in order.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, Protocol

from . import channels
from .clock import Clock
from .errors import MessagesRefused, PublishError
from .hooks import LogHook
from .record import MessageRecord

BATCH_MESSAGES = 1000
BATCH_BYTES = 1 << 20
TURN_SECONDS = 0.001
"""Maximum time for which a sender whose answers arrive at once may run before it yields to other tasks."""

_Result = int | Exception | None
"""Outcome of one message: the number of its subscribers, None if unknown, or the reason why it was not published."""


class _Batch:
    """Messages that are written together: records, the start of their calls (ns UTC), and the futures of the callers.

    Three lists instead of a list of triples, because the garbage collector traverses every object repeatedly.
    """

    __slots__ = ("asked", "futures", "hooks", "records", "refused", "size", "started")

    def __init__(self) -> None:
        self.records: list[MessageRecord] = []
        self.started: list[int] = []
        self.futures: list[asyncio.Future[None]] = []
        self.hooks: list[LogHook] = []
        """Hooks to call, in order, before the batch is written."""
        self.asked = 0
        """Number of hooks that were called: these receive the outcome."""
        self.refused: dict[int, tuple[Exception, int]] = {}
        """By id of the record: the error of the hook that refused it, and the number of hooks called with it."""
        self.size = 0
        """Total bytes of the payloads."""

    @property
    def full(self) -> bool:
        return len(self.records) >= BATCH_MESSAGES or self.size >= BATCH_BYTES

    def add(self, record: MessageRecord, started: int) -> asyncio.Future[None]:
        """Add a message; return the future of its caller."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.records.append(record)
        self.started.append(started)
        self.futures.append(future)
        self.size += len(record.payload)
        return future

    @property
    def accepted(self) -> list[MessageRecord]:
        """Records that no hook refused."""
        if not self.refused:
            return self.records
        return [record for record in self.records if id(record) not in self.refused]

    def results(self, written: Sequence[_Result]) -> Sequence[_Result]:
        """Return one result per record, given those of the accepted ones."""
        if not self.refused:
            return written
        left = iter(written)
        return [self.refused[id(record)][0] if id(record) in self.refused else next(left) for record in self.records]

    def told(self, record: MessageRecord) -> Sequence[LogHook]:
        """Return the hooks that were called with a record."""
        return self.hooks[: self.refused[id(record)][1] if id(record) in self.refused else self.asked]

    def without_cancelled(self) -> _Batch:
        """Return a batch of the messages whose callers are not cancelled."""
        if not any(map(asyncio.Future.cancelled, self.futures)):
            return self
        left = _Batch()
        for record, started, future in zip(self.records, self.started, self.futures, strict=True):
            if not future.cancelled():
                left.records.append(record)
                left.started.append(started)
                left.futures.append(future)
        return left

    def cancel(self) -> None:
        """Cancel all waiting callers."""
        for future in self.futures:
            future.cancel()


class Writes(Protocol):
    """Part of a `Broker` that publishes."""

    @property
    def sends_with(self) -> dict[str, Any] | None: ...

    def publish(self, messages: Sequence[tuple[bytes, bytes]]) -> Awaitable[list[int | PublishError | None]]: ...


class Publisher:
    """Publishes records through a broker, in the order of the calls of `send`. `tell` passes a record to hooks."""

    def __init__(
        self,
        broker: Writes,
        clock: Clock,
        hooks: Sequence[LogHook],
        tell: Callable[[MessageRecord, Sequence[LogHook]], None],
    ) -> None:
        self._broker = broker
        self._clock = clock
        self._hooks = hooks
        self._tell = tell
        self._waiting: deque[_Batch] = deque()  # batches that wait until the one in flight is done
        self._task: asyncio.Task[None] | None = None
        self._turned = 0.0  # time at which a sender last yielded
        self._idle = asyncio.Event()  # set while no batch is in flight
        self._idle.set()

    def send(self, record: MessageRecord, started: int) -> Awaitable[None]:
        """Publish one record; `started` is the start of the call (ns UTC). Must be awaited at once.

        Raises `PublishError`, or the error of a hook's `before_send`. If the caller is cancelled while the message
        waits, it is not sent; if it is being written already, it is sent and logged.
        """
        if self._idle.is_set():
            return self._send_alone(record, started)
        if not self._waiting or self._waiting[-1].full:
            self._waiting.append(_Batch())
        return self._waiting[-1].add(record, started)

    async def _send_alone(self, record: MessageRecord, started: int) -> None:
        """Send a single message without a task, which would cost a third more."""
        self._idle.clear()
        batch = _Batch()
        future = batch.add(record, started)
        try:
            answer = await self._write(batch)
        except BaseException as error:
            future.cancel()  # its caller waits here, and not for it
            self._settle(batch, [_not_sent(error)])
            self._continue()
            raise
        if answer.done():
            self._landed(batch, answer)
            if future.exception() is None and time.monotonic() - self._turned >= TURN_SECONDS:
                self._turned = time.monotonic()
                await asyncio.sleep(0)  # otherwise a sender that never waits would block all others
        else:
            answer.add_done_callback(lambda answer: self._landed(batch, answer))
        await future

    async def flushed(self) -> None:
        """Return once the outcome of every record is known."""
        await self._idle.wait()

    def _landed(self, batch: _Batch, answer: asyncio.Future[list[int | PublishError | None]]) -> None:
        """Report the outcome of a message that was sent alone."""
        results: Sequence[_Result]
        if answer.cancelled():
            results = [_cancelled("unknown")]
        else:
            error = answer.exception()
            results = answer.result() if error is None else [_not_sent(error)]
        self._settle(batch, results)
        self._continue()

    def _continue(self) -> None:
        """Send the messages that have gathered meanwhile."""
        if self._waiting:
            self._task = asyncio.create_task(self._drain())
            self._task.add_done_callback(self._drained)
        else:
            self._idle.set()

    async def _drain(self) -> None:
        while self._waiting:
            batch = self._waiting.popleft().without_cancelled()
            if batch.records:
                await self._send_batch(batch)

    def _drained(self, task: asyncio.Task[None]) -> None:
        """Continue, also if the task was cancelled before its first step, so that no caller waits for ever."""
        if task.cancelled():  # the loop is shutting down
            for batch in self._waiting:
                batch.cancel()
            self._waiting.clear()
        self._continue()

    async def _send_batch(self, batch: _Batch) -> None:
        results: Sequence[_Result]
        outcome: Literal["not_sent", "unknown"] = "not_sent"
        try:
            answer = await self._write(batch)
            outcome = "unknown"
            results = await answer
        except asyncio.CancelledError:
            batch.cancel()
            self._settle(batch, [_cancelled(outcome)] * len(batch.accepted))
            raise
        except Exception as error:
            results = [error] * len(batch.accepted)
        self._settle(batch, results)

    async def _write(self, batch: _Batch) -> asyncio.Future[list[int | PublishError | None]]:
        """Call the hooks, stamp and write what they accept; return the broker's answers. Raises errors of hooks."""
        records = batch.records
        if (meta := self._broker.sends_with) is not None:
            for record in records:
                record.meta = meta
        batch.hooks = list(self._hooks)  # hooks added or removed meanwhile do not affect this batch
        for hook in batch.hooks:
            batch.asked += 1  # also if it raises; later hooks are not called
            try:
                await hook.before_send(records)
            except MessagesRefused as refusal:
                for index, error in refusal.errors.items():
                    batch.refused[id(records[index])] = error, batch.asked
                records = batch.accepted
            if not records:
                break
        if not records:
            nothing: asyncio.Future[list[int | PublishError | None]] = asyncio.get_running_loop().create_future()
            nothing.set_result([])
            return nothing
        wire = [(channels.encode(record.channel or ""), record.payload) for record in records]
        now = self._clock.now()
        for record in records:
            record.ts = now
        return asyncio.ensure_future(self._broker.publish(wire))

    def _settle(self, batch: _Batch, written: Sequence[_Result]) -> None:
        """Report the outcome of each message to hooks and senders. `written` has the results of the accepted ones."""
        done, told, results = self._clock.now(), batch.hooks[: batch.asked], batch.results(written)
        for record, started, future, result in zip(batch.records, batch.started, batch.futures, results, strict=True):
            record.duration_ns = done - started
            if isinstance(result, Exception):
                record.kind = "failed"
                outcome = result.outcome if isinstance(result, PublishError) else "not_sent"
                record.meta = {"outcome": outcome, "error": str(result) or type(result).__name__}
            else:
                record.receivers = result
            self._tell(record, batch.told(record) if batch.refused else told)
            if future.cancelled():
                continue
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(None)


def _not_sent(error: BaseException) -> Exception:
    """Return the reason why a message was not written."""
    return error if isinstance(error, Exception) else _cancelled("not_sent")


def _cancelled(outcome: Literal["not_sent", "unknown"]) -> PublishError:
    return PublishError("it was cancelled on the way", outcome)
