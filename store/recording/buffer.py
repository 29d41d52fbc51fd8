"""The buffer: what a recorder accepted and the store has not acknowledged, in order.

New events wait in memory. Those that wait too long are moved to the spool, on disk. Each
has its seq from the moment it is accepted, so that wherever it is, what the store has is
told by one number.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

from messager.clock import Clock

from ..errors import BadEvent
from ..finishing import finish_then_cancel
from ..log.event import Fields, NewEvent
from .spool import Spool

BATCH_EVENTS = 5000
BATCH_BYTES = 8 * 1024 * 1024
MEMORY_EVENTS = 200_000
MEMORY_BYTES = 256 * 1024 * 1024

T = TypeVar("T")

log = logging.getLogger("messager_store")


class Batch(NamedTuple):
    """Events to commit together."""

    events: list[Fields]
    unacknowledged_ns: int
    """How long the oldest of them has waited."""
    complete_until: int
    """A moment (ns UTC) before which nothing happened that is not in it, before it, or never told;
    0 where that is not known."""


class Buffer:
    """Events by seq: the oldest on disk, the newest in memory.

    `horizon` gives a moment (ns UTC) before which nothing has happened that is still to be told.
    """

    def __init__(self, spool: Spool, clock: Clock, horizon: Callable[[], int]) -> None:
        self.spool = spool
        self._clock = clock
        self.horizon = horizon
        self._memory: list[Fields] = []
        self._times: list[int] = []  # when each of these was accepted, monotonic ns
        self._bytes = 0
        self._thread = ThreadPoolExecutor(1, "messager-spool")  # not the loop's own, which agents may keep busy
        self._first = 1  # seq of the first in memory
        self._done = 0  # the last seq that the store has acknowledged
        self.before = 0
        """How many of the events were another recorder's, before `begin_anew`; the log counts from there."""
        self._next: Spool | None = None  # which `begin_anew` is writing
        self._lock = asyncio.Lock()
        self.lost = 0
        """How many events were not kept, all in all."""
        self.notable = False
        """Whether with the last event something came that whoever commits should see."""
        self._many = min(BATCH_EVENTS, MEMORY_EVENTS // 2)
        self._much = min(BATCH_BYTES, MEMORY_BYTES // 2)
        self._drop_since: int | None = None
        self._dropped = 0

    def __len__(self) -> int:
        """How many events are in memory only."""
        return len(self._memory)

    def __bool__(self) -> bool:
        return True

    @property
    def last(self) -> int:
        """The seq of the newest event."""
        return self._first + len(self._memory) - 1

    @property
    def acknowledged(self) -> int:
        """The seq of the last event that is in the store."""
        return self._done

    @property
    def secured(self) -> int:
        """The seq of the last event that is in the store or on disk: no crash takes it away."""
        return max(self._done, self.spool.last_seq)

    @property
    def spool_only(self) -> int:
        """How many events are in the spool and not in the store."""
        return max(0, self.spool.last_seq - self._done)

    @property
    def waiting(self) -> int:
        """How many events the store has not acknowledged, wherever they are."""
        return self.last - self._done + (1 if self._dropped else 0)

    @property
    def oldest_age(self) -> float:
        """How long (s) the oldest event in memory has been there."""
        return (time.monotonic_ns() - self._times[0]) / 1e9 if self._times else 0.0

    @property
    def full(self) -> bool:
        """Whether the next event would be dropped."""
        return len(self._memory) >= MEMORY_EVENTS or self._bytes >= MEMORY_BYTES

    @property
    def crowded(self) -> bool:
        """Whether so much is in memory that some of it should go to disk, whatever the store does."""
        return len(self._memory) >= MEMORY_EVENTS // 2 or self._bytes >= MEMORY_BYTES // 2

    def add(self, entry: Fields) -> int | None:
        """Accept an event; its seq, or None where there is no room and it was dropped."""
        first = not self._memory
        if self._dropped or len(self._memory) >= MEMORY_EVENTS or self._bytes >= MEMORY_BYTES:
            if self.full:
                self.drop(1)
                return None
            self.tell_drops()
        self._keep(entry)
        waiting = len(self._memory)
        self.notable = first or waiting >= self._many or self._bytes >= self._much
        return self._first + waiting - 1

    def _keep(self, entry: Fields) -> None:
        self._memory.append(entry)
        self._times.append(time.monotonic_ns())
        self._bytes += len(entry[3]) if entry[11] is None else _size(entry)

    def drop(self, number: int) -> None:
        """Count events that are not recorded; a gap tells of them as soon as there is room."""
        if self._drop_since is None:
            self._drop_since = self._clock.now()
        self._dropped += number
        self.lost += number

    def tell_drops(self) -> None:
        """Put the gap for what was dropped behind the events that came before."""
        if self._dropped and not self.full:
            gap = _gap(
                "events were not kept: store and spool took no more, or they could not be read",
                self._drop_since,
                self._clock.now(),
                self._dropped,
            )
            self._drop_since, self._dropped = None, 0
            self._keep(gap)

    def acknowledge(self, seq: int) -> None:
        """Forget the events up to `seq`, as the log counts: the store has them."""
        self._done = seq + self.before
        self._forget(self._done)
        if not self._lock.locked():
            self._empty_spool()

    async def next_batch(self) -> Batch | None:
        """The oldest events that the store has not acknowledged; None for none."""
        self.tell_drops()
        seq = self._done + 1
        if seq <= self.spool.last_seq:
            entries = await self._in_thread(self.spool.read, seq, BATCH_EVENTS, BATCH_BYTES)
            return Batch(list(entries), max(0, self._clock.now() - entries[0].ts), 0)
        if not self._memory:
            return None
        count = self._fitting(BATCH_EVENTS)
        return Batch(self._memory[:count], time.monotonic_ns() - self._times[0], self._complete_behind(count))

    async def to_disk(self) -> None:
        """Move what is in memory now to the spool. Raises `SpoolFull`; what did not fit stays in memory."""
        async with self._lock:
            self.tell_drops()
            last = self.last
            try:
                while self._first <= last:
                    self._empty_spool()  # where the store was faster, what follows is not next to what is there
                    await self._move_some(last)
            finally:
                self._empty_spool()

    async def begin_anew(self, spool: Spool) -> None:
        """Make what the store has not got the first events of another recorder, whose spool this is.

        Raises `SpoolFull`, or `SpoolDamaged` where the old spool cannot be read; all is as before then.
        """
        async with self._lock:
            old, seq = self.spool, self._done + 1
            gone, self._next = self._done - self.before, spool
            try:
                while seq <= old.last_seq:
                    entries = await self._in_thread(old.read, seq, BATCH_EVENTS, BATCH_BYTES)
                    moved = [NewEvent._make(_caused_later(entry, gone)) for entry in entries]
                    await self._in_thread(self._write_to, spool, seq, moved, old.complete_until or 0)
                    seq += len(entries)
            except BaseException:
                spool.remove()
                raise
            finally:
                self._next = None
            self._memory = [_caused_later(entry, gone) for entry in self._memory]
            self.before, self.spool = self._done, spool
            await self._in_thread(old.remove)

    async def spooled(self, seq: int, number: int) -> list[NewEvent]:
        """So many events of the spool, from `seq`, as the log counts, on."""
        return await self._in_thread(self.spool.read, seq + self.before, number, self.spool.size)

    async def end(self, ended_at: int) -> None:
        """Move everything to the spool, and note there that its recorder has ended. Raises `SpoolFull`."""
        await self.to_disk()
        await self._in_thread(self.spool.end, ended_at, self._done + 1)

    def save(self, ended_at: int) -> None:
        """What `end` does, where nothing can be awaited any more. Raises `SpoolFull`."""
        self.tell_drops()
        with contextlib.suppress(RuntimeError):  # the process ends: its threads have
            self._thread.submit(int).result()  # what is being written is written then
        if self._next is not None:
            self._next.remove()  # all of it is in the old one
        self._forget(self.spool.last_seq)
        self._empty_spool()
        while self._memory:
            first, entries, complete = self._oldest(self.last)
            self._write(first, entries, complete)
            self._forget(first + len(entries) - 1)
        self.spool.end(ended_at, self._done + 1)

    async def _move_some(self, last: int) -> None:
        first, entries, complete = self._oldest(last)
        try:
            await self._in_thread(self._write, first, entries, complete)
        finally:
            self._forget(self.spool.last_seq)  # also where we were cancelled and it is written all the same

    def _oldest(self, last: int) -> tuple[int, list[NewEvent], int]:
        """What goes to the spool next: the seq of the first, the events, and what is complete with them."""
        count = self._fitting(min(BATCH_EVENTS, last - self._first + 1))
        entries = [NewEvent._make(entry) for entry in self._memory[:count]]
        return self._first, entries, self._complete_behind(count)

    def _write(self, first: int, entries: list[NewEvent], complete: int) -> None:
        self._write_to(self.spool, first, entries, complete)

    def _write_to(self, spool: Spool, first: int, entries: list[NewEvent], complete: int) -> None:
        while True:
            try:
                return spool.write(first, entries, complete)
            except BadEvent as error:
                log.error("%s; it is not recorded", error)
                entries[error.index] = unfit(entries[error.index], error)

    def close(self) -> None:
        """Let go of the spool, and of the thread that writes it."""
        self._thread.shutdown(wait=False)
        self.spool.close()

    async def _in_thread(self, call: Callable[..., T], *given: Any) -> T:
        return await finish_then_cancel(asyncio.get_running_loop().run_in_executor(self._thread, call, *given))

    def _fitting(self, most: int) -> int:
        """How many of the first `most` in memory make a batch."""
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
        """A moment before which everything that happened is among the first `count` in memory, or before them."""
        return min([self.horizon(), *(entry[1] for entry in self._memory[count:])])

    def _forget(self, seq: int) -> None:
        """Let go of what is in memory up to `seq`."""
        count = seq - self._first + 1
        if count > 0:
            self._bytes = 0 if count == len(self._memory) else self._bytes - sum(map(_size, self._memory[:count]))
            del self._memory[:count], self._times[:count]
            self._first += count

    def _empty_spool(self) -> None:
        if self.spool.first_seq and self._done >= self.spool.last_seq:
            self.spool.remove()


def _caused_later(entry: Fields, gone: int) -> Fields:
    """An event whose recorder begins anew behind so many; what it takes back may be among those."""
    cause = entry[10]
    if cause is None or cause[0]:
        return entry
    return *entry[:10], (0, cause[1] - gone) if cause[1] > gone else None, entry[11]


def _size(entry: Fields) -> int:
    """Bytes an event takes in memory, but for a constant."""
    payload, meta = entry[3], entry[11]
    return len(payload) + (0 if meta is None else len(repr(meta)))


def unfit(entry: Fields, error: BadEvent) -> NewEvent:
    """What stands in the log for an event that it cannot hold."""
    ts = entry[1]
    at = ts if isinstance(ts, int) and abs(ts) < 1 << 63 else time.time_ns()
    return _gap(f"an event that the log cannot hold: {error}"[:1000], at, at, 1)


def _gap(reason: str, since: int | None, until: int, count: int | None) -> NewEvent:
    meta = {"reason": reason, "since": since, "until": until, "count": count}
    return NewEvent("gap", until, None, b"", meta=meta)
