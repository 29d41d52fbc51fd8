"""Buffer: the events that a recorder accepted and the store has not acknowledged, in order.

New events are kept in memory. Those that wait too long are moved to the spool, on disk. Accepted events are numbered
1, 2, 3 ...; the position of the last acknowledged event separates those in the store from the rest.

Any thread adds events. Everything else runs in the event loop of the recorder, which alone removes events; a lock keeps
the numbers, the bytes and the counts right.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

from messager.clock import Clock

from ..errors import BadEvent
from ..finishing import finish_then_cancel
from ..log.event import Fields, NewEvent
from .spool import Spool, rebased

BATCH_EVENTS = 5000
BATCH_BYTES = 8 * 1024 * 1024
MEMORY_EVENTS = 200_000
MEMORY_BYTES = 256 * 1024 * 1024

T = TypeVar("T")

_ts: Callable[[Fields], int] = itemgetter(NewEvent._fields.index("ts"))
_content = itemgetter(NewEvent._fields.index("payload"), NewEvent._fields.index("meta"))

log = logging.getLogger("messager_store")


class Batch(NamedTuple):
    """Events to commit together."""

    events: list[Fields]
    unacknowledged_ns: int
    """Time for which the oldest of them has waited."""
    complete_until: int
    """Low watermark (ns UTC): all earlier events are in this batch or before it; 0 if unknown."""


class Buffer:
    """Events by position: the oldest on disk, the newest in memory.

    `watermark` returns the low watermark (ns UTC): no event that is still to be reported is older. `notable` is called,
    in the thread of the caller, for the first event in memory, and whenever a batch is full. The events of a recorder,
    as the log counts them, begin behind `offset`, which is 0 unless the recorder is a successor.
    """

    def __init__(self, spool: Spool, clock: Clock, watermark: Callable[[], int], notable: Callable[[], None]) -> None:
        self.spool = spool
        self.watermark = watermark
        self.acknowledged = 0
        """Position of the last event that is in the store."""
        self.lost = 0
        """Total number of dropped events."""
        self.accepting = True
        """False once events are only counted as lost."""
        self._clock = clock
        self._notable = notable
        self._memory: list[Fields] = []
        self._times: list[int] = []  # when each of these was accepted, monotonic ns
        self._bytes = 0
        self._first = 1  # position of the first event in memory
        self._thread = ThreadPoolExecutor(1, "messager-spool")  # agents may keep the default executor of the loop busy
        self._moving = asyncio.Lock()  # held while the spool is written or assigned
        # A signal handler or a log handler may add an event in a thread that holds the lock.
        self._lock = threading.RLock()
        many = max(1, min(BATCH_EVENTS, MEMORY_EVENTS // 2))
        self._notable_at = {0, 1, *range(many - 1, MEMORY_EVENTS, many)}  # numbers of events in memory
        self._much = min(BATCH_BYTES, MEMORY_BYTES // 2)
        self._gaps = 0  # number of gap events that count dropped ones
        self._dropped = 0  # since this moment, ns UTC:
        self._drop_since = 0

    def __len__(self) -> int:
        """Number of events that are only in memory."""
        return len(self._memory)

    def __bool__(self) -> bool:
        return True

    @property
    def offset(self) -> int:
        """Position of the last event of a former recorder; 0 without one."""
        return self.spool.offset

    @property
    def last(self) -> int:
        """Position of the newest event."""
        return self._first + len(self._memory) - 1

    @property
    def durable(self) -> int:
        """Position of the last event that is in the store or on disk, and so survives a crash."""
        return max(self.acknowledged, self.spool.last_seq)

    @property
    def spool_only(self) -> int:
        """Number of events that are in the spool and not in the store."""
        return max(0, self.spool.last_seq - self.acknowledged)

    @property
    def waiting(self) -> int:
        """Number of events in memory and spool that the store has not acknowledged."""
        return self.last - self.acknowledged + (1 if self._dropped else 0)

    @property
    def oldest_age(self) -> float:
        """Age (s) of the oldest event in memory."""
        return (time.monotonic_ns() - self._times[0]) / 1e9 if self._times else 0.0

    @property
    def full(self) -> bool:
        """True if the next event would be dropped."""
        return len(self._memory) >= MEMORY_EVENTS or self._bytes >= MEMORY_BYTES

    @property
    def crowded(self) -> bool:
        """True if memory is half full, so that events should go to disk even if the store is reachable."""
        return len(self._memory) >= MEMORY_EVENTS // 2 or self._bytes >= MEMORY_BYTES // 2

    @property
    def accepted(self) -> int:
        """Total number of events that were added."""
        with self._lock:
            return self.last - self._gaps

    def add(self, entry: Fields) -> int | None:
        """Accept an event; return its position, or None if it was dropped. May be called from any thread."""
        with self._lock:
            before = len(self._memory)
            if self._dropped or before >= MEMORY_EVENTS or self._bytes >= MEMORY_BYTES or not self.accepting:
                if self.full or not self.accepting:
                    self.drop(1)
                    return None
                self.tell_drops()
                before = len(self._memory)
            self._keep(entry)
            position = self._first + before
        if before in self._notable_at or self._bytes >= self._much:
            self._notable()
        return position

    def stop_accepting(self) -> None:
        """Drop all later events. None is added after this returns."""
        with self._lock:
            self.accepting = False

    def _keep(self, entry: Fields) -> None:
        self._times.append(time.monotonic_ns())  # first: an event that the event loop sees has its time
        self._memory.append(entry)
        payload, meta = _content(entry)
        self._bytes += len(payload) if meta is None else _size(entry)

    def drop(self, number: int) -> None:
        """Count events that are not recorded; a gap event reports them as soon as there is capacity.

        No gap reports those that come too late. May be called from any thread.
        """
        with self._lock:
            self.lost += number
            if self.accepting:
                if not self._dropped:
                    self._drop_since = self._clock.now()
                self._dropped += number

    def lose(self, number: int) -> None:
        """Count events as lost without a gap event."""
        with self._lock:
            self.lost += number

    def tell_drops(self) -> None:
        """Append a gap event that counts the dropped events."""
        with self._lock:
            if self._dropped and not self.full:
                reason = "events were dropped: store and spool were full or unreachable, or they could not be read"
                gap = _gap(reason, self._drop_since, self._clock.now(), self._dropped)
                self._dropped = 0
                self._gaps += 1
                self._keep(gap)

    def acknowledge(self, seq: int) -> None:
        """Remove the events up to `seq` (in the log), which are in the store."""
        self.acknowledged = seq + self.offset
        self._forget(self.acknowledged)
        if not self._moving.locked():
            self._empty_spool()

    async def next_batch(self) -> Batch | None:
        """Return the oldest events that the store has not acknowledged, or None."""
        self.tell_drops()
        position = self.acknowledged + 1
        if position <= self.spool.last_seq:
            entries = await self._in_thread(self.spool.read, position, BATCH_EVENTS, BATCH_BYTES)
            return Batch(list(entries), max(0, self._clock.now() - entries[0].ts), 0)
        if not self._memory:
            return None
        count = self._fitting(BATCH_EVENTS)
        events = self._memory[:count]
        if self.offset:
            events = [rebased(NewEvent._make(entry), self.offset) for entry in events]
        return Batch(events, time.monotonic_ns() - self._times[0], self._complete_behind(count))

    async def times(self, count: int) -> list[int]:
        """Return the ts (ns UTC) of at most `count` of the oldest events that the store has not acknowledged."""
        position = self.acknowledged + 1
        found: list[int] = []
        if position <= self.spool.last_seq:
            entries = await self._in_thread(self.spool.read, position, count, self.spool.size)
            found = [entry.ts for entry in entries]
        start = position + len(found) - self._first
        return found + [_ts(entry) for entry in self._memory[start : start + count - len(found)]]

    async def to_disk(self) -> None:
        """Move the events in memory to the spool. Raises `SpoolFull`; the rest stays in memory then."""
        async with self._moving:
            self.tell_drops()
            last = self.last
            try:
                while self._first <= last:
                    # Positions in a spool are contiguous, and the store may have acknowledged all of them meanwhile.
                    self._empty_spool()
                    await self._move_some(last)
            finally:
                self._empty_spool()

    async def succeed(self, recorder: str, registration: dict[str, Any]) -> None:
        """Assign the unacknowledged events to another recorder. Raises `SpoolFull`, and changes nothing then."""
        async with self._moving:
            await self._in_thread(self.spool.succeed, recorder, self.acknowledged, registration)

    async def end(self, ended_at: int) -> None:
        """Move all events to the spool, and note there that the recorder has ended. Raises `SpoolFull`."""
        await self.to_disk()
        await self._in_thread(self.spool.end, ended_at, self.acknowledged + 1)

    def save(self, ended_at: int) -> None:
        """Synchronous form of `end`, for the end of a process. Raises `SpoolFull`."""
        self.tell_drops()
        with contextlib.suppress(RuntimeError):  # at interpreter exit, the thread has ended already
            self._thread.submit(int).result()  # wait for a running write
        self._forget(self.spool.last_seq)
        self._empty_spool()
        while self._memory:
            first, entries, complete = self._oldest(self.last)
            self._write(first, entries, complete)
            self._forget(first + len(entries) - 1)
        self.spool.end(ended_at, self.acknowledged + 1)

    async def _move_some(self, last: int) -> None:
        first, entries, complete = self._oldest(last)
        try:
            await self._in_thread(self._write, first, entries, complete)
        finally:
            self._forget(self.spool.last_seq)  # a cancelled write is completed by the thread

    def _oldest(self, last: int) -> tuple[int, list[NewEvent], int]:
        """Return the next events for the spool: position of the first, the events, and their low watermark."""
        count = self._fitting(min(BATCH_EVENTS, last - self._first + 1))
        entries = [NewEvent._make(entry) for entry in self._memory[:count]]
        return self._first, entries, self._complete_behind(count)

    def _write(self, first: int, entries: list[NewEvent], complete: int) -> None:
        while True:
            try:
                return self.spool.write(first, entries, complete)
            except BadEvent as error:
                log.error("%s; the event is not recorded", error)
                entries[error.index] = replacement_gap(entries[error.index], error)

    def close(self) -> None:
        """Close the spool, and end its thread."""
        self._thread.shutdown(wait=False)
        self.spool.close()

    async def _in_thread(self, call: Callable[..., T], *given: Any) -> T:
        return await finish_then_cancel(asyncio.get_running_loop().run_in_executor(self._thread, call, *given))

    def _fitting(self, most: int) -> int:
        """Return the number of events in the next batch, at most `most`."""
        there = len(self._memory)
        if there <= most and self._bytes <= BATCH_BYTES:
            return there
        count = total = 0
        for entry in self._memory[:most]:
            total += _size(entry)
            if count and total > BATCH_BYTES:
                break
            count += 1
        return count

    def _complete_behind(self, count: int) -> int:
        """Return the low watermark of a batch of the first `count` events in memory: no other event is older."""
        return min([self.watermark(), *map(_ts, self._memory[count:])])

    def _forget(self, position: int) -> None:
        """Remove the events in memory up to this position."""
        with self._lock:
            count = position - self._first + 1
            if count > 0:
                self._bytes = 0 if count == len(self._memory) else self._bytes - sum(map(_size, self._memory[:count]))
                del self._memory[:count], self._times[:count]
                self._first += count

    def _empty_spool(self) -> None:
        if self.spool.first_seq and self.acknowledged >= self.spool.last_seq:
            self.spool.remove()


def _size(entry: Fields) -> int:
    """Return the variable part of the size of an event in memory, in bytes."""
    payload, meta = _content(entry)
    size: int = len(payload)
    return size if meta is None else size + len(repr(meta))


def replacement_gap(entry: Fields, error: BadEvent) -> NewEvent:
    """Return the gap event that replaces an event that the log cannot hold."""
    ts = NewEvent._make(entry).ts
    at = ts if isinstance(ts, int) and abs(ts) < 1 << 63 else time.time_ns()
    return _gap(f"an event that the log cannot hold: {error}"[:1000], at, at, 1)


def _gap(reason: str, since: int, until: int, count: int) -> NewEvent:
    meta = {"reason": reason, "since": since, "until": until, "count": count}
    return NewEvent("gap", until, None, b"", meta=meta)
