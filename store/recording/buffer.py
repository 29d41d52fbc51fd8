"""Buffer: the events that a recorder accepted and the store has not acknowledged, in order.

New events wait in memory. Those that wait too long are moved to the spool, on disk. An event has its
position, 1, 2, 3 ..., from the moment it is accepted, so that one number tells what the store has.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
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
    """Moment (ns UTC) before which nothing happened that is not in this batch, before it, or never reported;
    0 if that is not known."""


class Buffer:
    """Events by position: the oldest on disk, the newest in memory.

    `watermark` returns the low watermark (ns UTC): no event that is still to be reported is older. The events of a
    recorder, as the log counts them, begin behind `offset`, which is 0 unless the recorder is a successor.
    """

    def __init__(self, spool: Spool, clock: Clock, watermark: Callable[[], int]) -> None:
        self.spool = spool
        self.watermark = watermark
        self.acknowledged = 0
        """The position of the last event that is in the store."""
        self.lost = 0
        """The number of events that were not kept, in all."""
        self._clock = clock
        self._memory: list[Fields] = []
        self._times: list[int] = []  # when each of these was accepted, monotonic ns
        self._bytes = 0
        self._first = 1  # the position of the first in memory
        self._thread = ThreadPoolExecutor(1, "messager-spool")  # not the loop's own, which agents may keep busy
        self._lock = asyncio.Lock()
        self._dropped = 0  # since this moment, ns UTC:
        self._drop_since = 0

    def __len__(self) -> int:
        """The number of events that are in memory only."""
        return len(self._memory)

    def __bool__(self) -> bool:
        return True

    @property
    def offset(self) -> int:
        """The position of the last event that belongs to a former recorder; 0 for none."""
        return self.spool.offset

    @property
    def last(self) -> int:
        """The position of the newest event."""
        return self._first + len(self._memory) - 1

    @property
    def durable(self) -> int:
        """The position of the last event that is in the store or on disk, where no crash takes it away."""
        return max(self.acknowledged, self.spool.last_seq)

    @property
    def spool_only(self) -> int:
        """The number of events that are in the spool and not in the store."""
        return max(0, self.spool.last_seq - self.acknowledged)

    @property
    def waiting(self) -> int:
        """The number of events that the store has not acknowledged, wherever they are."""
        return self.last - self.acknowledged + (1 if self._dropped else 0)

    @property
    def oldest_age(self) -> float:
        """The time (s) that the oldest event in memory has been there."""
        return (time.monotonic_ns() - self._times[0]) / 1e9 if self._times else 0.0

    @property
    def full(self) -> bool:
        """True if the next event would be dropped."""
        return len(self._memory) >= MEMORY_EVENTS or self._bytes >= MEMORY_BYTES

    @property
    def crowded(self) -> bool:
        """True if so much is in memory that some of it should go to disk, whatever the store does."""
        return len(self._memory) >= MEMORY_EVENTS // 2 or self._bytes >= MEMORY_BYTES // 2

    @property
    def notable(self) -> bool:
        """True if the committer should see the event that was just added: the first one, or one of many."""
        waiting = len(self._memory)
        return waiting <= 2 or waiting >= BATCH_EVENTS or self._bytes >= BATCH_BYTES or self.crowded

    def add(self, entry: Fields) -> int | None:
        """Accept an event; return its position, or None if there was no capacity and it was dropped."""
        if self._dropped or len(self._memory) >= MEMORY_EVENTS or self._bytes >= MEMORY_BYTES:
            if self.full:
                self.drop(1)
                return None
            self.tell_drops()
        self._keep(entry)
        return self._first + len(self._memory) - 1

    def _keep(self, entry: Fields) -> None:
        self._memory.append(entry)
        self._times.append(time.monotonic_ns())
        self._bytes += _size(entry)

    def drop(self, number: int) -> None:
        """Count events that are not recorded; a gap event reports them as soon as there is capacity."""
        if not self._dropped:
            self._drop_since = self._clock.now()
        self._dropped += number
        self.lost += number

    def tell_drops(self) -> None:
        """Put a gap event for what was dropped behind the events that came before."""
        if self._dropped and not self.full:
            reason = "events were not kept: store and spool took no more, or they could not be read"
            gap = _gap(reason, self._drop_since, self._clock.now(), self._dropped)
            self._dropped = 0
            self._keep(gap)

    def acknowledge(self, seq: int) -> None:
        """Forget the events up to `seq`, as the log counts them: the store has them."""
        self.acknowledged = seq + self.offset
        self._forget(self.acknowledged)
        if not self._lock.locked():
            self._empty_spool()

    async def next_batch(self) -> Batch | None:
        """Return the oldest events that the store has not acknowledged; None if there are none."""
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
        """Return the ts (ns UTC) of the next `count` events that the store has not acknowledged, or of all."""
        position = self.acknowledged + 1
        found: list[int] = []
        if position <= self.spool.last_seq:
            entries = await self._in_thread(self.spool.read, position, count, self.spool.size)
            found = [entry.ts for entry in entries]
        start = position + len(found) - self._first
        return found + [_ts(entry) for entry in self._memory[start : start + count - len(found)]]

    async def to_disk(self) -> None:
        """Move what is in memory now to the spool. Raises `SpoolFull`; what did not fit stays in memory."""
        async with self._lock:
            self.tell_drops()
            last = self.last
            try:
                while self._first <= last:
                    self._empty_spool()  # if the store was faster, what follows is not next to what is there
                    await self._move_some(last)
            finally:
                self._empty_spool()

    async def succeed(self, recorder: str, registration: dict[str, Any]) -> None:
        """Give what the store has not acknowledged to another recorder. Raises `SpoolFull`; nothing changes then."""
        async with self._lock:
            await self._in_thread(self.spool.succeed, recorder, self.acknowledged, registration)

    async def end(self, ended_at: int) -> None:
        """Move everything to the spool, and note there that its recorder has ended. Raises `SpoolFull`."""
        await self.to_disk()
        await self._in_thread(self.spool.end, ended_at, self.acknowledged + 1)

    def save(self, ended_at: int) -> None:
        """Do what `end` does when nothing can be awaited any more. Raises `SpoolFull`."""
        self.tell_drops()
        with contextlib.suppress(RuntimeError):  # the process ends: its threads have
            self._thread.submit(int).result()  # what is being written is written then
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
            self._forget(self.spool.last_seq)  # also if we were cancelled: it is written all the same

    def _oldest(self, last: int) -> tuple[int, list[NewEvent], int]:
        """Return what goes to the spool next: position of the first, the events, and what is complete with them."""
        count = self._fitting(min(BATCH_EVENTS, last - self._first + 1))
        entries = [NewEvent._make(entry) for entry in self._memory[:count]]
        return self._first, entries, self._complete_behind(count)

    def _write(self, first: int, entries: list[NewEvent], complete: int) -> None:
        while True:
            try:
                return self.spool.write(first, entries, complete)
            except BadEvent as error:
                log.error("%s; it is not recorded", error)
                entries[error.index] = unfit(entries[error.index], error)

    def close(self) -> None:
        """Close the spool, and end the thread that writes it."""
        self._thread.shutdown(wait=False)
        self.spool.close()

    async def _in_thread(self, call: Callable[..., T], *given: Any) -> T:
        return await finish_then_cancel(asyncio.get_running_loop().run_in_executor(self._thread, call, *given))

    def _fitting(self, most: int) -> int:
        """Return how many of the first `most` in memory make a batch."""
        if len(self._memory) <= most and self._bytes <= BATCH_BYTES:
            return len(self._memory)
        count = total = 0
        for entry in self._memory[:most]:
            total += _size(entry)
            if count and total > BATCH_BYTES:
                break
            count += 1
        return count

    def _complete_behind(self, count: int) -> int:
        """Return the low watermark of a batch of the first `count` in memory: no other event is older."""
        return min([self.watermark(), *map(_ts, self._memory[count:])])

    def _forget(self, position: int) -> None:
        """Remove what is in memory up to this position."""
        count = position - self._first + 1
        if count > 0:
            self._bytes = 0 if count == len(self._memory) else self._bytes - sum(map(_size, self._memory[:count]))
            del self._memory[:count], self._times[:count]
            self._first += count

    def _empty_spool(self) -> None:
        if self.spool.first_seq and self.acknowledged >= self.spool.last_seq:
            self.spool.remove()


def _size(entry: Fields) -> int:
    """Return the bytes that an event takes in memory, but for a constant."""
    payload, meta = _content(entry)
    size: int = len(payload)
    return size if meta is None else size + len(repr(meta))


def unfit(entry: Fields, error: BadEvent) -> NewEvent:
    """Return the gap event that stands in the log for an event that the log cannot hold."""
    ts = NewEvent._make(entry).ts
    at = ts if isinstance(ts, int) and abs(ts) < 1 << 63 else time.time_ns()
    return _gap(f"an event that the log cannot hold: {error}"[:1000], at, at, 1)


def _gap(reason: str, since: int, until: int, count: int) -> NewEvent:
    meta = {"reason": reason, "since": since, "until": until, "count": count}
    return NewEvent("gap", until, None, b"", meta=meta)
