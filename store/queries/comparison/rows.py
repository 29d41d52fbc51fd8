"""All messages of a comparison side by side: every pair that was aligned, and what is on one side only, in one order.

Messages are given by their positions among the compared messages of their side, in replay order, from 0.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Literal, NamedTuple, get_args

RowKind = Literal["equal", "changed", "moved", "only_a", "only_b"]
KINDS: tuple[RowKind, ...] = get_args(RowKind)
_CODES = {kind: code for code, kind in enumerate(KINDS)}
_EQUAL, _CHANGED, _MOVED, _, _ONLY_B = range(len(KINDS))
_NONE = -1


class RowRun(NamedTuple):
    """Successive rows of one kind, whose messages follow each other on both sides."""

    kind: RowKind
    a: int | None
    """Position of the first message of A; None for rows that only B has."""
    b: int | None
    length: int


class AlignedRows:
    """The rows of one comparison, which `compare` adds. Memory use is about 20 bytes for each, and 100 in `runs`."""

    def __init__(self) -> None:
        self._channels: dict[str, int] = {}
        self._kind, self._channel = array("B"), array("I")
        self._a, self._b = array("i"), array("i")

    def __len__(self) -> int:
        return len(self._kind)

    def add(self, channel: str, kind: RowKind, a: int = _NONE, b: int = _NONE) -> None:
        """Add a row of a channel, -1 for no message on a side."""
        self._channel.append(self._channels.setdefault(channel, len(self._channels)))
        self._kind.append(_CODES[kind])
        self._a.append(a)
        self._b.append(b)

    def runs(self) -> Iterator[RowRun]:
        """Yield the rows in one order, in runs.

        It is the replay order of A. A message that only B has stands behind those before it, on its channel and, as far
        as that is possible, in B; a moved one stands where the first of both sides has it.
        """
        kinds, rows_a, rows_b = self._kind, self._a, self._b
        kind, a, b, count = 0, _NONE, _NONE, 0
        for row in self._order():
            follows_a = rows_a[row] == (_NONE if a == _NONE else a + count)
            follows_b = rows_b[row] == (_NONE if b == _NONE else b + count)
            if count and kinds[row] == kind and follows_a and follows_b:
                count += 1
                continue
            if count:
                yield _run(kind, a, b, count)
            kind, a, b, count = kinds[row], rows_a[row], rows_b[row], 1
        if count:
            yield _run(kind, a, b, count)

    def _order(self) -> list[int]:
        behind = self._behind()
        places = array("q", bytes(8 * len(self)))
        for row, (kind, a, b) in enumerate(zip(self._kind, self._a, self._b, strict=True)):
            place, of_b = (a, 0) if a != _NONE else (behind[b], 1)
            if kind == _MOVED and behind[b] < a:
                place, of_b = behind[b], 1
            places[row] = ((place + 1) * 2 + of_b) << 31 | (b if of_b else 0)
        return sorted(range(len(self)), key=places.__getitem__)

    def _behind(self) -> array[int]:
        """Return for each message of B the position of the one of A behind which it stands, unless A has it there."""
        size = max(self._b, default=_NONE) + 1
        row_of = array("i", [_NONE]) * size
        for row, b in enumerate(self._b):
            if b != _NONE:
                row_of[b] = row
        found = array("q", bytes(8 * size))
        following: dict[int, int] = {}
        for b in range(size - 1, -1, -1):  # before the next equal message of its channel
            row = row_of[b]
            found[b] = following.get(self._channel[row], 1 << 31) - 1
            if self._kind[row] == _EQUAL:
                following[self._channel[row]] = self._a[row]
        last: dict[int, int] = {}
        recent = _NONE
        for b in range(size):
            row = row_of[b]
            kind, channel = self._kind[row], self._channel[row]
            if kind in (_EQUAL, _CHANGED):
                recent = self._a[row]
                if kind == _EQUAL:
                    last[channel] = recent
            if kind != _EQUAL:
                found[b] = min(max(recent, last.get(channel, _NONE)), found[b])
                if kind == _ONLY_B:
                    last[channel] = found[b]
        return found


def _run(kind: int, a: int, b: int, count: int) -> RowRun:
    return RowRun(KINDS[kind], None if a == _NONE else a, None if b == _NONE else b, count)
