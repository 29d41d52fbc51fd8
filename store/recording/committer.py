"""The committer: brings what a recorder accepted into the store, and keeps it while that is away.

One task commits, in order, whatever waits. What the store has not acknowledged in time goes
to the spool, so that no crash takes it away; from there it goes into the store when that is back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

from ..errors import BadEvent, RecorderFenced, SpoolDamaged, SpoolFull, StoreError, StoreUnavailable
from ..experiments.registry import recorder_by_uuid
from ..log.event_log import EventLog
from ..log.writer import Writer
from .buffer import BATCH_EVENTS, Buffer, unfit
from .spool import Spool

FLUSH_SECONDS = 0.02
SPOOL_SECONDS = 1.0
"""After so long without an acknowledgement, events go to the spool ..."""
SPOOL_AGAIN_SECONDS = 0.1
"""... and after so long while the store is known to be away."""
HOLD_SECONDS = 5.0
"""How long, in one outage, senders are held back when neither store nor spool takes more."""
HEARTBEAT_SECONDS = 5.0
STOP_SECONDS = 10.0

log = logging.getLogger("messager_store")


class Committer:
    """Commits one recorder's buffer in the name of its writer; made in the event loop that it works in.

    Where there is no writer yet, `join` is asked for one, again and again while it raises `StoreUnavailable`.
    What goes wrong then, whoever gave `join` tells. Where the experiment takes no more events, the recorder ends;
    with `anew`, which gives the spool of another one, it goes on as that, and asks `join` for its place.
    """

    def __init__(
        self,
        events: EventLog,
        writer: Writer | None,
        buffer: Buffer,
        facts: dict[str, Any],
        join: Callable[[], Awaitable[Writer]],
        anew: Callable[[], Spool] | None = None,
    ) -> None:
        self.failure: StoreError | None = None
        """Why nothing more is recorded, if so."""
        self.ending = False
        """Whether nothing new is taken any more."""
        self._writer = writer
        self._join = join
        self._anew = anew
        self._shut_out = False  # the log takes no more from this writer
        self._log = events
        self._buffer = buffer
        self._facts = facts  # what is to be noted about this recorder with the next heartbeat
        self._wake = asyncio.Event()
        self._flush_now = False
        self._waiters: list[tuple[int, bool, asyncio.Future[None]]] = []  # seq, whether the store must have it
        self._moved = asyncio.Event()  # something left the memory
        self._alarm: asyncio.TimerHandle | None = None
        self._spooling: asyncio.Task[None] | None = None
        self._away = False  # the store did not take the last batch
        self._spool_error: SpoolFull | None = None
        self._held_out = False  # senders were held back in vain; not again before something is taken
        self._ended = False
        self._give_up = 0.0
        self._uncertain = False  # whether the batch may have been committed without our knowing
        self._in_flight = 0  # how many events it has
        self._last_commit = time.monotonic()
        self.loop = asyncio.get_running_loop()
        """In which it works."""
        self._task = self.loop.create_task(self._run())
        if buffer.waiting or facts:
            self.look()

    @property
    def joined(self) -> bool:
        """Whether the store has taken it in."""
        return self._writer is not None

    @property
    def writer(self) -> Writer:
        """Its place in the log. Raises `StoreUnavailable` while it has none."""
        if self._writer is None:
            raise StoreUnavailable(self._log.location, f"a recorder of {self._exp_id} has no place in it yet")
        return self._writer

    def look(self) -> None:
        """Something was accepted into an empty memory, or more than a batch is waiting there."""
        self._wake.set()
        self._set_alarm()
        if self._buffer.crowded and self._spool_error is None:
            self._start_spooling()

    def note(self, facts: dict[str, Any]) -> None:
        """Write these into the recorder's row."""
        self._facts.update(facts)
        self._wake.set()

    async def hold(self, most: int | None = None) -> None:
        """Hold a sender back until there is room, or at most so many events are in memory, but not for ever."""
        deadline = time.monotonic() + HOLD_SECONDS
        while self._buffer.full or (most is not None and len(self._buffer) > most):
            left = deadline - time.monotonic()
            if left <= 0:
                self._held_out = True
            if self._held_out or self.failure is not None:
                return
            self._spool_in_need()
            self._moved.clear()
            self._flush_now = True
            self._wake.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._moved.wait()

    async def secured(self, seq: int) -> None:
        """Return once everything up to `seq` is in the store or on disk. Raises where neither takes it.

        Where somebody was held back in vain already, at once.
        """
        while self._buffer.secured < seq:
            if self._held_out and self._spool_error is not None:
                raise StoreUnavailable(self._log.location, f"not sent, and {self._spool_error}")
            self._spool_in_need()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HOLD_SECONDS):
                    await self._wait_for(seq, store=False)
                    return
            if self._spool_error is not None:
                self._held_out = True

    async def flush(self) -> None:
        """Return once everything accepted so far is in the store. Raises `StoreError` where a commit fails."""
        if self.failure is not None:
            raise self.failure
        if self._ended and self._buffer.waiting:
            raise StoreError(
                f"the recorder has ended; {self._buffer.spool_only} events wait in {self._buffer.spool.path}"
            )
        if self._buffer.waiting:
            self._buffer.tell_drops()
            await self._wait_for(self._buffer.last, store=True)

    async def stop(self) -> None:
        """Commit what waits and say that the recorder has ended; what the store does not take stays in the spool."""
        if not self.ending:
            self.ending = True
            self._give_up = time.monotonic() + STOP_SECONDS
        self._wake.set()
        stuck = False
        while not self._task.done() and not stuck:
            before = self._buffer.acknowledged
            await asyncio.wait([self._task], timeout=2 * STOP_SECONDS)
            if not self._task.done() and self._buffer.acknowledged == before:
                stuck = True
                self._task.cancel()
                await asyncio.wait([self._task], timeout=STOP_SECONDS)
        if not self._ended and not stuck and self._task.cancelled():
            await self._run()  # the loop ends and cancels every task: whoever stops us then does what is left
        if not self._ended:
            cancelled = not self._task.done() or self._task.cancelled()
            reason = "its task was cancelled" if cancelled else f"{self._task.exception()!r}"
            await self._end(StoreError(f"{self._who} could not go on: {reason}"))

    @property
    def _who(self) -> str:
        return f"{f'recorder {self._writer.ordinal}' if self._writer else 'a recorder'} of {self._exp_id}"

    @property
    def _exp_id(self) -> str:
        return str(self._buffer.spool.facts["exp_id"])

    async def _wait_for(self, seq: int, *, store: bool) -> None:
        done: asyncio.Future[None] = self.loop.create_future()
        self._waiters.append((seq, store, done))
        self._flush_now = True
        self._wake.set()
        await done

    def _answer(self) -> None:
        """Tell those who wait for something to be safe that it is, and senders that there is room."""
        if self._waiters:
            acknowledged, secured = self._buffer.acknowledged, self._buffer.secured
            for seq, store, done in self._waiters:
                if seq <= (acknowledged if store else secured) and not done.done():
                    done.set_result(None)
            self._waiters = [waiter for waiter in self._waiters if not waiter[2].done()]
        self._moved.set()

    def _refuse(self, error: Exception, *, everybody: bool) -> None:
        """Tell those who wait for the store that it did not take a batch; or that nothing more is recorded."""
        for _, store, done in self._waiters:
            if (store or everybody) and not done.done():
                done.set_exception(error)
        self._moved.set()

    async def _run(self) -> None:
        """Commit what waits, again and again; say that we are alive in between. Nobody else commits."""
        pause = FLUSH_SECONDS
        while True:
            if not self.ending and not self._place_wanted:
                await self._something_to_do()
            self._flush_now = False
            ending = self.ending  # once this is set, nothing new comes
            try:
                if self._shut_out:
                    await self._begin_anew()
                if self._place_wanted:
                    self._writer = await self._join()
                while self._buffer.waiting:
                    await self._commit()
                    self._answer()
                    if not self._pressing:
                        break  # what came meanwhile gathers first
                if self.joined:
                    await self._touch(ending=ending)
                pause = FLUSH_SECONDS
                if ending:
                    return await self._end()
            except SpoolDamaged as error:
                return await self._end(error)
            except RecorderFenced as error:
                if not self.joined or not await self._take_place_again():
                    if not self.joined or self._anew is None:
                        return await self._end(error)
                    self._shut_out = True
                self._wake.set()
            except Exception as error:
                self._refuse(error, everybody=False)
                refused = not self.joined and isinstance(error, StoreError) and not isinstance(error, StoreUnavailable)
                if refused or (self.ending and (not self.joined or time.monotonic() > self._give_up)):
                    return await self._end(error)
                self._miss_store(error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, 1.0)
                self._wake.set()

    @property
    def _place_wanted(self) -> bool:
        """Whether to join: at the beginning, and where a place was lost, once there is something for another."""
        return self._writer is None and (not self._buffer.before or self._buffer.waiting > 0)

    @property
    def _pressing(self) -> bool:
        """Whether to commit without waiting for more."""
        waiting = len(self._buffer)
        return self.ending or self._flush_now or waiting >= BATCH_EVENTS or self._buffer.waiting > waiting

    async def _something_to_do(self) -> None:
        if not self._buffer.waiting:
            await self._woken(HEARTBEAT_SECONDS)
        self._wake.clear()
        if not self._pressing:
            await self._woken(FLUSH_SECONDS)

    async def _woken(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()

    async def _commit(self) -> None:
        """Append the next batch. One whose fate is unknown is looked for before it is sent again."""
        if self._uncertain:
            await self._recover()
        batch = await self._buffer.next_batch()
        if batch is None:
            return
        events = batch.events
        self._uncertain, self._in_flight = True, len(events)
        while True:
            try:
                await self._log.append(
                    self.writer, events, unacknowledged_ns=batch.unacknowledged_ns, complete_until=batch.complete_until
                )
                break
            except BadEvent as error:  # must not stop those behind it
                log.error("%s; it is not recorded", error)
                events[error.index] = unfit(events[error.index], error)
                self._buffer.lost += 1
            except StoreUnavailable:
                if not await self._recover():
                    raise
                break
        self._uncertain = self._held_out = False
        self._buffer.acknowledge(self.writer.last_seq)
        self._last_commit = time.monotonic()
        if self._away:
            self._away = False
            log.warning("the store %s takes events again", self._log.location)

    async def _recover(self) -> int:
        """See what the store has; how many events more than we knew of."""
        found = await self._log.recover(self.writer)
        self._uncertain = self._held_out = False
        self._buffer.acknowledge(self.writer.last_seq)
        return found

    async def _take_place_again(self) -> bool:
        """Go on after a repair took us for dead; False where the experiment takes no more events."""
        known = self.writer
        expected = {known.last_seq, known.last_seq + (self._in_flight if self._uncertain else 0)}
        try:
            writer = await self._log.take_over(known.uuid)
        except StoreUnavailable:
            return True  # tried again with the next batch
        except StoreError:
            return False
        if writer.last_seq not in expected and not await self._drained_by_others(known.last_seq, writer):
            return False  # somebody else wrote in our name
        self._writer, self._uncertain = writer, False
        self._buffer.acknowledge(writer.last_seq)
        log.warning("%s had been taken for dead; it goes on", self._who)
        return True

    async def _begin_anew(self) -> None:
        """Go on as another recorder with what the log has not got of this one."""
        assert self._anew is not None
        row = await recorder_by_uuid(self._log.database, self.writer.uuid)
        if row is not None and self._buffer.acknowledged < row.last_seq + self._buffer.before <= self._buffer.last:
            self._buffer.acknowledge(row.last_seq)  # committed, although we were not told
        await self._buffer.begin_anew(self._anew())
        log.warning("%s takes no more events: what comes, and what it has not got, goes elsewhere", self._exp_id)
        self._writer, self._uncertain, self._shut_out = None, False, False

    async def _drained_by_others(self, known: int, writer: Writer) -> bool:
        """Whether what is there behind `known` is what our spool holds: somebody did not see that we hold it."""
        if not known < writer.last_seq <= self._buffer.spool.last_seq - self._buffer.before:
            return False
        ours = await self._buffer.spooled(known + 1, writer.last_seq - known)
        return [entry.ts for entry in ours] == await self._log.times(writer, known + 1)

    async def _touch(self, *, ending: bool) -> None:
        """Say that we are alive, or that we end, with whatever else is new."""
        facts, self._facts = self._facts, {}
        if ending:
            facts |= {"ended_at": time.time_ns(), "unclean": 0}
        if facts or time.monotonic() - self._last_commit >= HEARTBEAT_SECONDS:
            complete = {} if self._buffer.waiting else {"complete_until": self._buffer.horizon()}
            try:
                await self._log.touch(self.writer, **complete, **facts)
            except BaseException:
                self._facts = {**facts, **self._facts}
                raise
            self._last_commit = time.monotonic()

    def _miss_store(self, error: Exception) -> None:
        if not isinstance(error, StoreError):
            log.exception("%s cannot commit; trying again", self._who)
        elif not self._away and self.joined:
            log.warning("%s; trying again, and keeping events in %s meanwhile", error, self._buffer.spool.path)
        self._away = True

    def _set_alarm(self, wait: float | None = None) -> None:
        """See to it that what the store does not acknowledge in time goes to the spool."""
        if self._alarm is None and not self._ended:
            if wait is None:
                wait = max(0.0, self._patience() - self._buffer.oldest_age)
            self._alarm = self.loop.call_later(wait, self._overdue)

    def _patience(self) -> float:
        """How long (s) an event may wait in memory for the store."""
        return SPOOL_AGAIN_SECONDS if self._away or self._buffer.spool.first_seq else SPOOL_SECONDS

    def _overdue(self) -> None:
        self._alarm = None
        if self._ended or not len(self._buffer):
            return
        if self._buffer.oldest_age >= self._patience():
            self._start_spooling()
        else:
            self._set_alarm()

    def _spool_in_need(self) -> None:
        """Somebody waits, and the store will not answer soon."""
        if (self._away or self._buffer.spool_only) and self._spool_error is None:
            self._start_spooling()

    def _start_spooling(self) -> None:
        if not self._ended and (self._spooling is None or self._spooling.done()):
            self._spooling = self.loop.create_task(self._spool())

    async def _spool(self) -> None:
        try:
            await self._buffer.to_disk()
            self._spool_error, self._held_out = None, False
        except SpoolFull as error:
            if self._spool_error is None:
                log.error("%s", error)
            self._spool_error = error
        self._answer()
        if len(self._buffer):
            self._set_alarm(SPOOL_SECONDS if self._spool_error else self._patience())

    async def _end(self, error: Exception | None = None) -> None:
        """The last act: what the store has not got stays in the spool."""
        self.ending = self._ended = True
        if self._alarm is not None:
            self._alarm.cancel()
        if self._spooling is not None:
            await asyncio.wait([self._spooling])
        if error is not None:
            if isinstance(error, RecorderFenced):
                self.failure = error
            try:
                if self.failure is None and (self.joined or self._buffer.waiting):
                    await self._buffer.end(time.time_ns())
                else:
                    await self._buffer.to_disk()
            except Exception as full:
                self._buffer.lost += len(self._buffer)
                told = f"{self._buffer.lost} events are lost: {error}; and {full}"
                self.failure = StoreUnavailable(self._log.location, told)
            waiting, path = self._buffer.spool_only, self._buffer.spool.path
            left = f"{waiting} events wait in {path}: put them into the store with `messager drain`"
            if self.joined:
                log.error("%s; nothing more is recorded; %s", error, left if waiting else "nothing is left over")
        self._refuse(error or StoreError("the recorder has ended"), everybody=True)
        self._buffer.close()
