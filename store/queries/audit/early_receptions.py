"""Early receptions: those whose time is before that of their sending, because the clocks of two recorders differ.

The side table `delivery` has none of them, as it is filled in replay order.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from statistics import median_low

from ...experiments.records import RecorderRow
from ...log.event import Event
from ...log.matching import Listener, key_of
from .receptions import Reception, Receptions

EARLY_NS = 1_000_000_000
"""Time before a sending within which a reception may be its own, beyond the known difference of clocks."""
MEASURED_NS = 1_000_000
"""Smallest difference of clocks that counts: smaller ones are within the error of their measurement."""


class EarlyReceptions:
    """Finds early receptions, for sendings that are asked about in replay order.

    A reception that belongs to no sending is that of the next sending of its content, within a time, that its listener
    did not receive otherwise. Memory use is bounded by the receptions without a sending within that time.
    """

    def __init__(self, receptions: Receptions, recorders: Iterable[RecorderRow]) -> None:
        self._within = EARLY_NS + (clock_difference(recorders) or 0)
        self._pages = receptions.read(unmatched=True)
        self._read: deque[Reception] = deque()
        """Receptions behind the last sending that was asked about."""
        self._ended = False
        self._waiting: dict[bytes, list[Reception]] = {}
        """Receptions before it, by content, in replay order."""
        self._expiring: deque[Reception] = deque()
        """The same, and those that have been found since."""
        self.found = 0
        """Number of early receptions."""

    async def advance(self, times: Sequence[int]) -> None:
        """Read the receptions that may belong to the next sendings, before `of` is called for these.

        `times` are those of the sendings, in order.
        """
        last = times[-1]
        while not self._ended and (not self._read or self._read[-1].ts <= last):
            page = await anext(self._pages, None)
            self._ended = page is None
            for one in page or ():
                if not one.retained and (one.ts > last - self._within or self._is_before(one, times)):
                    self._read.append(one)

    def _is_before(self, one: Reception, times: Sequence[int]) -> bool:
        """Return whether there is a sending within the time after a reception."""
        at = bisect_left(times, one.ts)
        return at < len(times) and times[at] - one.ts <= self._within

    def of(self, channel_id: int | None, sending: Event, received: Collection[Listener]) -> list[Reception]:
        """Return the early receptions of a sending, by other listeners than those that received it later."""
        if not self._read and not self._waiting:
            return []
        self._pass(sending.ts)
        content = key_of(channel_id, sending.payload)
        known, found = set(received), []
        for one in self._waiting.get(content, ()):
            if one.listener not in known:
                known.add(one.listener)
                found.append(one)
        for one in found:
            self._remove(one)
        self.found += len(found)
        return found

    async def aclose(self) -> None:
        """End reading."""
        await self._pages.aclose()

    def _pass(self, ts: int) -> None:
        """Let the receptions before a time wait, and forget those that are too old."""
        while self._read and self._read[0].ts <= ts:
            one = self._read.popleft()
            self._waiting.setdefault(one.content, []).append(one)
            self._expiring.append(one)
        while self._expiring and self._expiring[0].ts < ts - self._within:
            self._remove(self._expiring.popleft())

    def _remove(self, one: Reception) -> None:
        same = self._waiting.get(one.content, [])
        if one in same:
            same.remove(one)
            if not same:
                del self._waiting[one.content]


def clock_difference(recorders: Iterable[RecorderRow]) -> int | None:
    """Return the largest known difference between the clocks of recorders in ns; None below `MEASURED_NS`.

    On one machine, until it restarts, all clocks advance with one monotonic clock, so their anchors give the
    difference. Those of two machines were each compared with the clock of their broker; the error of that is up to half
    a round trip, so the median of the recorders of a machine counts.
    """
    machines: dict[str, list[RecorderRow]] = {}
    for row in recorders:
        machines.setdefault(row.boot_id or row.uuid, []).append(row)
    found = []
    offsets = []
    for rows in machines.values():
        anchors = [
            row.anchor_wall - row.anchor_monotonic
            for row in rows
            if row.anchor_wall is not None and row.anchor_monotonic is not None
        ]
        found.append(_range(anchors))
        if measured := [row.broker_offset for row in rows if row.broker_offset is not None]:
            offsets.append(median_low(measured))
    difference = max([*found, _range(offsets)])
    return difference if difference >= MEASURED_NS else None


def _range(values: Sequence[int]) -> int:
    return max(values) - min(values) if values else 0
