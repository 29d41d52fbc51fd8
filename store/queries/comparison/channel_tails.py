"""One channel of a comparison while both sides are read: its common opening, and what follows on either side.

The opening is only counted. What follows is kept as digests and positions, without payloads.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

from ...log.event import Cursor, Event
from .canonical import Number

_COMPACTED = 4096
"""Messages that have left a tail before their memory is freed."""


class Content(NamedTuple):
    """The content of a message, for comparison."""

    digest: bytes | None
    """None if it is redacted: nothing is known of it then."""
    numbers: tuple[Number, ...]
    """Its numbers, if they are compared with a tolerance."""
    hash: int
    """Hash of its bytes; equal messages that differ here are equal by a `Match` only."""


class Tail:
    """Messages of one side behind the opening, or without a counterpart so far."""

    __slots__ = ("_first", "_recorders", "_seqs", "_ts", "digests", "hashes", "numbers", "ordinals")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Remove all messages."""
        self._first = 0
        self.digests: list[bytes | None] = []
        self.numbers: list[tuple[Number, ...]] = []
        self.hashes, self.ordinals = array("q"), array("q")
        """Hashes of the bytes, and positions among all messages of the side."""
        self._ts, self._recorders, self._seqs = array("q"), array("i"), array("q")

    def __len__(self) -> int:
        return len(self.digests) - self._first

    def add(self, entry: Event, content: Content, ordinal: int) -> None:
        """Add a message."""
        self.digests.append(content.digest)
        self.numbers.append(content.numbers)
        self.hashes.append(content.hash)
        self.ordinals.append(ordinal)
        self._ts.append(entry.ts)
        self._recorders.append(entry.recorder)
        self._seqs.append(entry.seq)

    def first(self) -> Content:
        """Return the content of the first message."""
        at = self._first
        return Content(self.digests[at], self.numbers[at], self.hashes[at])

    def first_place(self) -> tuple[Cursor, int]:
        """Return the cursor and the ordinal of the first message."""
        return self.cursor(self._first), self.ordinals[self._first]

    def remove_first(self) -> None:
        """Remove the first message."""
        self._first += 1
        if not len(self):
            self.clear()
        elif self._first >= _COMPACTED and self._first > len(self):
            self.compact()

    def compact(self) -> None:
        """Free the memory of removed messages, so that positions in the lists begin with the first message."""
        for column in (
            *(self.digests, self.numbers, self.hashes, self.ordinals),
            *(self._ts, self._recorders, self._seqs),
        ):
            del column[: self._first]
        self._first = 0

    def cursor(self, at: int) -> Cursor:
        """Return the cursor of the message at a position in the lists."""
        return Cursor(self._ts[at], self._recorders[at], self._seqs[at])


class ChannelTails:
    """One channel of a comparison; side 0 is A, side 1 is B."""

    __slots__ = ("_before", "apart", "counts", "last", "level", "matched", "opening", "redacted", "shift", "tails")

    def __init__(self) -> None:
        self.tails = Tail(), Tail()
        self.counts = [0, 0]
        self.opening = 0
        """Number of equal messages at the beginning."""
        self.apart = False
        """True after the first messages that differ."""
        self.level = True
        """True in the opening if no message waits for its counterpart."""
        self.redacted = 0
        self.matched = 0
        """Equal messages of the opening that are not equal byte for byte."""
        self.shift = 0
        """Ordinal of the last message of the opening in A minus that in B."""
        self._before: Cursor | None = None
        self.last: Event | None = None
        """A's last message of the opening, if it was found without digests."""

    @property
    def before(self) -> Cursor | None:
        """Cursor of A's last message of the opening."""
        return self._before if self.last is None else self.last.cursor

    def add(self, side: int, entry: Event, content: Content, ordinal: int, near: bool) -> int | None:
        """Compare a message with its counterpart in the opening, or keep it.

        Return the ordinal of the counterpart if it is equal, else None. `near` is true if the numbers of both are
        within the tolerance; it is only used if there is a counterpart.
        """
        self.counts[side] += 1
        other = self.tails[1 - side]
        if self.apart or not len(other):
            self.level = False
            self.tails[side].add(entry, content, ordinal)
            return None
        counterpart = other.first()
        redacted = content.digest is None or counterpart.digest is None
        if not redacted and (content.digest != counterpart.digest or not near):
            self.apart = True
            self.tails[side].add(entry, content, ordinal)
            return None
        cursor, place = other.first_place()
        self._before, self.last = (entry.cursor if side == 0 else cursor), None
        self.shift = ordinal - place if side == 0 else place - ordinal
        other.remove_first()
        self.level = not len(other)
        self.opening += 1
        self.redacted += redacted
        self.matched += not redacted and content.hash != counterpart.hash
        return place

    def cursor(self, side: int, index: int) -> Cursor | None:
        """Return the cursor of the message at a position of the channel behind the opening; None if there is none."""
        tail = self.tails[side]
        return tail.cursor(index - self.opening) if index - self.opening < len(tail) else None

    def counterpart(self, side: int) -> Content | None:
        """Return the content of the message that the next one of a side is compared with in the opening."""
        other = self.tails[1 - side]
        return other.first() if len(other) and not self.apart else None
