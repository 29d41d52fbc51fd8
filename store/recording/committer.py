"""Committer: brings the events of a recorder from its buffer into the store.

One task commits the waiting events in order. `State` decides its next step. Events that the store does not accept in
time are written to the spool, so that a crash does not lose them, and committed from there later.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from messager.time_limit import time_limit

from ..errors import BadEvent, RecorderFenced, SpoolDamaged, StoreError, StoreUnavailable
from ..experiments.registry import recorder_by_uuid
from ..log.event_log import EventLog
from ..log.writer import Writer
from .buffer import BATCH_EVENTS, Buffer, replacement_gap
from .spooler import Spooler
from .state import State

FLUSH_SECONDS = 0.02
SPOOL_SECONDS = 1.0
"""Time without an acknowledgement after which events go to the spool ..."""
SPOOL_AGAIN_SECONDS = 0.1
"""... and this time while the store is known to be unreachable."""
HOLD_SECONDS = 5.0
"""Maximum time per outage for which senders are blocked if neither store nor spool accepts events."""
HEARTBEAT_SECONDS = 5.0
STOP_SECONDS = 10.0

log = logging.getLogger("messager_store")


class _Waiter(NamedTuple):
    """A caller that waits until the events up to `seq` are in the store, or at least on disk."""

    seq: int
    in_store: bool
    done: asyncio.Future[None]


class Committer:
    """Commits the buffer of one recorder. Create it in the event loop in which it will run.

    Without a `writer`, it awaits `register` for one, and retries after `StoreUnavailable`; `register` reports
    such errors itself. If the log accepts no more events of the recorder, the committer awaits `succeed`, which turns
    the recorder into a successor, and registers again; without `succeed`, the recorder ends.
    """

    def __init__(
        self,
        events: EventLog,
        buffer: Buffer,
        writer: Writer | None,
        register: Callable[[], Awaitable[Writer]],
        succeed: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.state = State.REGISTERING if writer is None else State.COMMITTING
        self.failure: StoreError | None = None
        """Error that ended the recording, or None."""
        self.loop = asyncio.get_running_loop()
        self._log = events
        self._buffer = buffer
        self._writer = writer
        self._register = register
        self._succeed = succeed
        self._facts: dict[str, Any] = {}  # columns to write with the next heartbeat
        self._deadline = math.inf  # monotonic; set when the recorder ends
        self._overflowing = False  # senders waited in vain; do not block them again before an event is accepted
        self._waiters: list[_Waiter] = []
        self._inspecting = False  # True while the event loop is to call `_inspect`
        self._wake = asyncio.Event()
        self._moved = asyncio.Event()  # events left the memory
        self._last_commit = time.monotonic()
        self._spooler = Spooler(buffer, self._patience, self._answer)
        self._task = self.loop.create_task(self._run())

    @property
    def ending(self) -> bool:
        """True once new events are not accepted any more."""
        return not self._buffer.accepting

    @property
    def registered(self) -> bool:
        """True while this recorder has a row in an open experiment."""
        return self.state in (State.COMMITTING, State.RETRYING, State.FENCED)

    @property
    def writer(self) -> Writer:
        """Writer of the recorder. Raises `StoreUnavailable` before the registration."""
        if self._writer is None:
            raise StoreUnavailable(self._log.location, f"{self._name} is not registered yet")
        return self._writer

    def in_loop(self, call: Callable[..., object], *arguments: Any) -> None:
        """Call a function in the event loop of the recorder: at once if it runs in this thread, else soon.

        May be called from any thread. Does nothing if the event loop is closed.
        """
        if asyncio._get_running_loop() is self.loop:
            call(*arguments)
        else:
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(call, *arguments)

    def inspect(self) -> None:
        """Wake the committer for new events in memory. May be called from any thread."""
        if asyncio._get_running_loop() is self.loop:
            self._inspect()
        elif not self._inspecting:  # threads that add many events wake the loop once
            self._inspecting = True
            self.in_loop(self._inspect)

    def _inspect(self) -> None:
        self._inspecting = False
        self._wake.set()
        self._spooler.watch()
        if self._buffer.crowded and self._spooler.error is None:
            self._spooler.write()

    def note(self, facts: dict[str, Any]) -> None:
        """Write these columns into the row of the recorder with the next heartbeat. May be called from any thread."""
        self.in_loop(self._note, facts)

    def _note(self, facts: dict[str, Any]) -> None:
        self._facts.update(facts)
        self._wake.set()

    async def wait_for_capacity(self, most: int | None = None) -> None:
        """Return once the buffer is not full and has at most `most` events in memory.

        Blocks for at most `HOLD_SECONDS` per outage.
        """
        deadline = time.monotonic() + HOLD_SECONDS
        while self._buffer.full or (most is not None and len(self._buffer) > most):
            left = deadline - time.monotonic()
            if left <= 0:
                self._overflowing = True
            if self._overflowing or self.state is State.ENDED:
                return
            self._relieve()
            self._moved.clear()
            self._wake.set()
            with contextlib.suppress(TimeoutError):
                async with time_limit(left):
                    await self._moved.wait()

    async def wait_until_durable(self, seq: int) -> None:
        """Return once all events up to `seq` are in the store or on disk. Raises `StoreError` if neither accepts them.

        Raises at once if senders have waited in vain in the same outage.
        """
        while self._buffer.durable < seq:
            if self.state is State.ENDED:
                raise self.failure or StoreError(f"not sent: {self._name} has ended")
            if self._overflowing and self._spooler.error is not None:
                raise StoreUnavailable(self._log.location, f"not sent, and {self._spooler.error}")
            self._relieve()
            with contextlib.suppress(TimeoutError):
                async with time_limit(HOLD_SECONDS):
                    await self._wait_for(seq, in_store=False)
                    return
            if self._spooler.error is not None:
                self._overflowing = True

    async def flush(self) -> None:
        """Return once all accepted events are in the store. Raises `StoreError` if a commit fails."""
        if self.failure is not None:
            raise self.failure
        if self.state is State.ENDED and self._buffer.waiting:
            raise StoreError(
                f"the recorder has ended; {self._buffer.spool_only} events are in the spool {self._buffer.spool.path}. "
                "Put them into the store with `messager drain`."
            )
        if self._buffer.waiting:
            self._buffer.tell_drops()
            await self._wait_for(self._buffer.last, in_store=True)

    def abandon(self) -> None:
        """Accept no more events, and stop without the store: the caller saves the buffer."""
        self._deadline = 0.0
        self._buffer.stop_accepting()

    async def stop(self) -> None:
        """Commit the waiting events and end the recorder; events that the store does not accept stay in the spool."""
        if not self.ending:
            self._deadline = time.monotonic() + STOP_SECONDS
            self._buffer.stop_accepting()
        self._wake.set()
        stuck = False
        while not self._task.done() and not stuck:
            before = self._buffer.acknowledged
            await asyncio.wait([self._task], timeout=2 * STOP_SECONDS)
            if not self._task.done() and self._buffer.acknowledged == before:
                stuck = True
                self._task.cancel()
                await asyncio.wait([self._task], timeout=STOP_SECONDS)
        if self.state is not State.ENDED and not stuck and self._task.cancelled():
            if self.state is State.COMMITTING:
                self.state = State.RETRYING  # the fate of the last batch is unknown
            await self._run()  # the event loop ends and has cancelled all tasks: finish here
        if self.state is not State.ENDED:
            cancelled = not self._task.done() or self._task.cancelled()
            reason = "its task was cancelled" if cancelled else f"{self._task.exception()!r}"
            await self._end(StoreError(f"{self._name} could not continue: {reason}"))

    @property
    def _name(self) -> str:
        who = "a recorder" if self._writer is None else f"recorder {self._writer.ordinal}"
        return f"{who} of {self._exp_id}"

    @property
    def _exp_id(self) -> str:
        return str(self._buffer.spool.facts["exp_id"])

    async def _wait_for(self, seq: int, *, in_store: bool) -> None:
        done: asyncio.Future[None] = self.loop.create_future()
        self._waiters.append(_Waiter(seq, in_store, done))
        self._wake.set()
        await done

    def _answer(self) -> None:
        """Release the callers whose events are safe, and those that wait for capacity."""
        if self._waiters:
            acknowledged, durable = self._buffer.acknowledged, self._buffer.durable
            for seq, in_store, done in self._waiters:
                if seq <= (acknowledged if in_store else durable) and not done.done():
                    done.set_result(None)
            self._waiters = [waiter for waiter in self._waiters if not waiter.done.done()]
        if self._spooler.error is None:
            self._overflowing = False
        self._moved.set()

    def _refuse(self, error: Exception, *, all_callers: bool) -> None:
        """Raise an error in the callers that wait for the store, or in all callers."""
        for waiter in self._waiters:
            if (waiter.in_store or all_callers) and not waiter.done.done():
                waiter.done.set_exception(error)
        self._waiters = [waiter for waiter in self._waiters if not waiter.done.done()]
        self._moved.set()

    async def _run(self) -> None:
        """Commit waiting events until the recorder ends, and send heartbeats. No other task commits."""
        pause = FLUSH_SECONDS
        while True:
            if not self.ending and self.state not in (State.REGISTERING, State.FENCED):
                await self._wait_for_work()
            ending = self.ending  # once set, no event is added
            try:
                await self._ensure_writer()
                while self.registered and self._buffer.waiting:
                    await self._commit()
                    self._answer()
                    if not self._pressing:
                        break  # gather more events for the next batch
                if self.registered:
                    await self._touch(ending=ending)
                pause = FLUSH_SECONDS
                if ending:
                    return await self._end()
            except SpoolDamaged as error:
                return await self._end(error)
            except RecorderFenced as error:
                if self.state not in (State.COMMITTING, State.RETRYING):
                    return await self._end(error)
                self.state = State.FENCED
            except Exception as error:
                self._refuse(error, all_callers=False)
                registering = self.state is State.REGISTERING
                refused = registering and isinstance(error, StoreError) and not isinstance(error, StoreUnavailable)
                if refused or (self.ending and (registering or time.monotonic() > self._deadline)):
                    return await self._end(error)
                self._miss_store(error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, 1.0)
                self._wake.set()

    @property
    def _pressing(self) -> bool:
        """True if a commit is due without waiting for more events."""
        waiting = len(self._buffer)
        return bool(self.ending or self._waiters or waiting >= BATCH_EVENTS or self._buffer.waiting > waiting)

    async def _wait_for_work(self) -> None:
        if not self._buffer.waiting:
            await self._woken(HEARTBEAT_SECONDS)
        self._wake.clear()
        if not self._pressing:
            await self._woken(FLUSH_SECONDS)

    async def _woken(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with time_limit(seconds):
                await self._wake.wait()

    async def _ensure_writer(self) -> None:
        """Register the recorder, or take over its row, if it has no valid writer."""
        if self.state is State.FENCED:
            await self._take_over()
        if self.state is State.CLOSED and self._buffer.waiting:
            self.state = State.REGISTERING
        if self.state is State.REGISTERING:
            self._writer = await self._register()
            self.state = State.COMMITTING

    async def _take_over(self) -> None:
        """Take over the row of this recorder again; if its experiment is closed, continue as a successor.

        Raises `RecorderFenced` if the recorder may not have a successor.
        """
        uuid = self.writer.uuid
        try:
            writer = await self._log.take_over(uuid)
        except StoreUnavailable:
            raise
        except StoreError as error:
            reason = str(error)
            row = await recorder_by_uuid(self._log.database, uuid)
            if row is not None:
                self.writer.last_seq = row.last_seq
                await self._acknowledge_own(self.writer)
        else:
            if await self._acknowledge_own(writer):
                self._writer, self.state = writer, State.COMMITTING
                log.warning("%s was ended by another process, but is running; it continues", self._name)
                return
            reason = "another writer used its row"
        if self._succeed is None:
            raise RecorderFenced(uuid, reason)
        await self._succeed()  # now: an event that comes next may have to be saved while the process ends
        log.warning("%s has ended (%s); its other events are recorded by a successor", self._name, reason)
        self.state = State.CLOSED

    async def _acknowledge_own(self, writer: Writer) -> bool:
        """Acknowledge what was committed without an answer, or drained by another process.

        Return False if the events in the log behind the last acknowledged one are not those of this recorder.
        """
        known = self._buffer.acknowledged - self._buffer.offset
        count = writer.last_seq - known
        if count and (count < 0 or await self._log.times(writer, known + 1) != await self._buffer.times(count)):
            return False
        self._buffer.acknowledge(writer.last_seq)
        return True

    async def _commit(self) -> None:
        """Append the next batch. If the fate of the last one is unknown, read it from the store first."""
        if self.state is State.RETRYING:
            await self._recover()
        batch = await self._buffer.next_batch()
        if batch is None:
            return
        events = batch.events
        while True:
            try:
                await self._log.append(
                    self.writer, events, unacknowledged_ns=batch.unacknowledged_ns, complete_until=batch.complete_until
                )
                break
            except BadEvent as error:  # replace it, so that later events are still recorded
                log.error("%s; the event is not recorded", error)
                events[error.index] = replacement_gap(events[error.index], error)
                self._buffer.lose(1)
            except StoreUnavailable:
                if not await self._recover():
                    raise
                break
        self._overflowing = False
        self._buffer.acknowledge(self.writer.last_seq)
        self._last_commit = time.monotonic()
        if self.state is State.RETRYING and not self._task.done():  # a cancelled task is finished by `stop`
            log.warning("the store %s accepts events again", self._log.location)
        self.state = State.COMMITTING

    async def _recover(self) -> int:
        """Acknowledge the events in the store; return the number of those acknowledged only now."""
        found = await self._log.recover(self.writer)
        self._overflowing = False
        self._buffer.acknowledge(self.writer.last_seq)
        return found

    async def _touch(self, *, ending: bool) -> None:
        """Write a heartbeat, or the end, and the columns that changed."""
        facts, self._facts = self._facts, {}
        if ending:
            facts |= {"ended_at": time.time_ns(), "unclean": 0}
        if facts or time.monotonic() - self._last_commit >= HEARTBEAT_SECONDS:
            complete = {} if self._buffer.waiting else {"complete_until": self._buffer.watermark()}
            try:
                await self._log.touch(self.writer, **complete, **facts)
            except BaseException:
                self._facts = {**facts, **self._facts}
                raise
            self._last_commit = time.monotonic()

    def _miss_store(self, error: Exception) -> None:
        if not isinstance(error, StoreError):
            log.exception("%s cannot commit; retrying", self._name)
        elif self.state is State.COMMITTING:
            log.warning("%s; retrying, and keeping events in %s meanwhile", error, self._buffer.spool.path)
        if self.state is State.COMMITTING:
            self.state = State.RETRYING

    def _patience(self) -> float:
        """Time (s) for which an event may wait in memory for the store."""
        if self._spooler.error is not None:
            return SPOOL_SECONDS
        away = self.state is not State.COMMITTING or self._buffer.spool_only
        return SPOOL_AGAIN_SECONDS if away else SPOOL_SECONDS

    def _relieve(self) -> None:
        """Write to the spool at once if a caller waits and the store is unreachable."""
        away = self.state is not State.COMMITTING or self._buffer.spool_only
        if away and self.state is not State.ENDED and self._spooler.error is None:
            self._spooler.write()

    async def _end(self, error: Exception | None = None) -> None:
        """End the recorder; unacknowledged events stay in the spool."""
        registered = self.registered
        self.state = State.ENDED
        self._buffer.stop_accepting()
        await self._spooler.close()
        if error is not None:
            if isinstance(error, RecorderFenced):
                self.failure = error
            try:
                if self.failure is None and (registered or self._buffer.waiting):
                    await self._buffer.end(time.time_ns())
                else:
                    await self._buffer.to_disk()
            except Exception as full:
                self._buffer.lose(len(self._buffer))
                lost = f"{self._buffer.lost} events are lost: {error}; and {full}"
                self.failure = StoreUnavailable(self._log.location, lost)
            waiting, path = self._buffer.spool_only, self._buffer.spool.path
            left = f"{waiting} events are in the spool {path}: put them into the store with `messager drain`"
            if registered:
                log.error("%s; the recording has ended; %s", error, left if waiting else "no events are left")
        self._refuse(error or StoreError("the recorder has ended"), all_callers=True)
        self._buffer.close()
