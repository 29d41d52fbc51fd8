"""Ledger of streams: what was added to them, what was read, and so what was missed.

Redis counts the entries that were ever added to a stream (`entries-added`). A look at a stream fixes a target: its last
id, and that count. Once the reader has passed the id, the entries of the target that it did not read were removed
before; their number is exact. DEL forgets the count of a stream. So each look also compares the calls of XADD at the
server with what was added to the known streams: if all are accounted for, none was lost with a deleted stream, and if
some are not, one was lost only if keys were deleted, expired or evicted meanwhile.

All times are readings of the monotonic clock, ns. Nothing here is sent to a server.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

FORGET_NS = 60_000_000_000
"""Time after which a deleted stream is forgotten; it is found again as a new one."""

Id = tuple[int, int]
"""Id of an entry: milliseconds and sequence number."""
Begin = Literal["end", "start", "new"]
"""Where a stream is read from: its present end; its first entry that is left; its first entry ever, as it is new."""


class Info(NamedTuple):
    """State of a stream."""

    last: Id
    """Last id that it generated."""
    added: int
    """Entries that were ever added to it."""
    length: int


class Counters(NamedTuple):
    """Counters of the server."""

    run: bytes
    """Id of the run of the server."""
    xadds: int
    """Successful calls of XADD."""
    deletions: int
    """Calls and events that may have deleted a key."""


class Look(NamedTuple):
    """A look at all known streams."""

    asked: int
    told: int
    counters: Counters
    infos: Mapping[bytes, Info | None]
    """By key; None if there is no stream."""
    at_once: bool
    """True if all of it is of one moment."""


class Gap(NamedTuple):
    """A time in which entries were missed."""

    reason: str
    since: int
    until: int
    entries: int | None
    """Number of entries; None if it is not known."""
    key: bytes | None = None
    """The stream, if it is one."""


class _Target(NamedTuple):
    last: Id
    added: int
    asked: int
    told: int


@dataclass(slots=True)
class Stream:
    """One stream."""

    key: bytes
    begin: Begin
    proved: int
    """Every entry that was added before this time was read, or is in a gap."""
    cursor: Id = (0, 0)
    """Id of the last entry that was read."""
    read: int = 0
    """Entries that were read or are in a gap, as `entries-added` counts them."""
    added: int | None = None
    """`entries-added` at the last look; None before the first."""
    target: _Target | None = None
    later: _Target | None = None
    """Target of the last look, while an earlier one is not reached."""
    uncertain: bool = False
    """True if it is not known how many of the entries up to the target were read; a gap says so."""
    gone_since: int | None = None
    """Time of the first look at which it was deleted."""


@dataclass(slots=True)
class Ledger:
    """All known streams. `listed` is the start of the last complete listing of the keys of the server."""

    listed: int
    streams: dict[bytes, Stream] = field(default_factory=dict)
    gaps: list[Gap] = field(default_factory=list)
    """Gaps that were found; the owner takes them."""
    _counters: Counters | None = None
    _looked: int = 0
    _unaccounted: int = -1  # time of the last look that found calls of XADD which are not accounted for
    _pending: dict[bytes, Stream] = field(default_factory=dict)  # those with a target

    def add(self, key: bytes, begin: Begin) -> None:
        """Add a stream that was found, unless it is known."""
        if key not in self.streams:
            self.streams[key] = Stream(key, begin, self.listed)

    @property
    def pending(self) -> bool:
        """True while entries that were added before the last look may be unread."""
        return bool(self._pending)

    def complete_until(self) -> int:
        """Return the time before which every entry was read or is in a gap."""
        unlisted = self.listed if self._unaccounted > self.listed else self._looked  # a stream may not be known yet
        return min([self._looked, unlisted, *(stream.proved for stream in self._pending.values())])

    def took(self, read: Mapping[bytes, list[Id]], more: Iterable[bytes]) -> None:
        """Note the ids that one reading of all streams returned; of those in `more` there may be others."""
        unfinished = set(more)
        for key, ids in read.items():
            stream = self.streams[key]
            for entry_id in ids:
                while stream.target is not None and entry_id > stream.target.last:
                    self._settle(stream, stream.target)
                stream.cursor = entry_id
                stream.read += 1
        for stream in list(self._pending.values()):
            while (target := stream.target) is not None and (
                stream.cursor >= target.last or stream.key not in unfinished
            ):
                self._settle(stream, target)

    def looked(self, look: Look) -> None:
        """Compare a look with what was read. The reading that follows it settles its targets."""
        lost = self._are_lost(look)
        restarted = self._counters is not None and self._counters.run != look.counters.run
        if restarted:
            reason = "the server was started again, or another one took its place; entries that it had may be lost"
            self.gaps.append(Gap(reason, self.complete_until(), look.told, None))
            for stream in self.streams.values():
                stream.uncertain = True
        elif lost:
            reason = "entries were added that are in no stream any more, or in none that is recorded; keys were deleted"
            self.gaps.append(Gap(reason, min(self.listed, self._looked), look.told, None))
        self._counters, self._looked = look.counters, look.asked
        for key, info in look.infos.items():
            stream = self.streams[key]
            if info is None:
                self._gone(stream, look)
            elif stream.added is None:
                self._first(stream, info, look)
            elif info.added < stream.added or info.last < stream.cursor:
                self._made_anew(stream, info, look, lost, restarted)
            else:
                self._aim(stream, info, look)

    def ended(self, now: int) -> None:
        """Log a gap for each stream of which entries are unread at the end."""
        for stream in list(self._pending.values()):
            self._gap(stream, "the recording ended before all entries were read", now, None)

    def _are_lost(self, look: Look) -> bool:
        """Return whether entries may have been lost with streams that were deleted since the last look."""
        before, now = self._counters, look.counters
        if before is None:
            return False
        if before.run != now.run:
            return True
        if now.xadds < before.xadds or now.deletions < before.deletions:
            return True
        if now.xadds - before.xadds != (self._accounted(look) if look.at_once else 0):
            self._unaccounted = look.told
        return now.deletions != before.deletions and self._unaccounted > self.listed

    def _accounted(self, look: Look) -> int:
        """Return the entries that were certainly added to known streams since the last look."""
        total = 0
        for key, info in look.infos.items():
            stream = self.streams[key]
            if stream.added is None:
                continue  # when it was made is not known
            if info is None:
                total += max(stream.read - stream.added, 0)
            else:
                total += info.added if info.added < stream.added else info.added - stream.added
        return total

    def _first(self, stream: Stream, info: Info, look: Look) -> None:
        if stream.begin == "end":
            stream.cursor, stream.read = info.last, info.added
        elif stream.begin == "start":
            stream.read += info.added - info.length
        self._aim(stream, info, look)

    def _aim(self, stream: Stream, info: Info, look: Look) -> None:
        stream.added, stream.gone_since = info.added, None
        target = _Target(info.last, info.added, look.asked, look.told)
        if stream.target is not None:
            stream.later = target
            return
        stream.target = target
        self._pending[stream.key] = stream
        if stream.cursor >= target.last:
            self._settle(stream, target)

    def _gone(self, stream: Stream, look: Look) -> None:
        if stream.added is None:
            self._gap(stream, "it was deleted before it was read", look.told, None)
        elif stream.read < stream.added and not stream.uncertain:
            self._gap(stream, "it was deleted before it was read", look.told, stream.added - stream.read)
        self._drop_target(stream)
        if stream.gone_since is None:
            stream.gone_since = look.told
        elif look.told - stream.gone_since > FORGET_NS:
            del self.streams[stream.key]
        stream.cursor, stream.read, stream.added, stream.proved = (0, 0), 0, 0, look.asked
        stream.begin, stream.uncertain = "new", False

    def _made_anew(self, stream: Stream, info: Info, look: Look, lost: bool, restarted: bool) -> None:
        """Go on with a stream that was deleted and made anew, or of which a failover lost entries."""
        assert stream.added is not None
        unread = stream.added - stream.read
        if unread > 0 and not restarted:
            self._gap(stream, "it was deleted before it was read", look.told, unread)
        self._drop_target(stream)
        if info.last >= stream.cursor:
            stream.read, stream.uncertain = max(-unread, 0), lost or unread > 0
        elif restarted:  # a failover lost its last entries; the others have been read
            stream.cursor, stream.read = info.last, info.added
        else:
            stream.cursor, stream.read = (0, 0), 0
        self._aim(stream, info, look)

    def _settle(self, stream: Stream, target: _Target) -> None:
        """Compare what was read up to a target with what was added."""
        missing = target.added - stream.read
        if missing > 0 and not stream.uncertain:
            self._gap(stream, "they were removed before they were read", target.told, missing)
        elif missing < 0 and not stream.uncertain:
            self._gap(stream, "its counters do not fit what was read", target.told, None)
        stream.read, stream.proved, stream.uncertain = target.added, target.asked, False
        stream.cursor = max(stream.cursor, target.last)
        stream.target, stream.later = stream.later, None
        if stream.target is None:
            self._drop_target(stream)

    def _drop_target(self, stream: Stream) -> None:
        stream.target = stream.later = None
        self._pending.pop(stream.key, None)

    def _gap(self, stream: Stream, reason: str, until: int, count: int | None) -> None:
        self.gaps.append(Gap(reason, stream.proved, until, count, stream.key))
