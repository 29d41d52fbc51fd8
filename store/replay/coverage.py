"""Coverage of a pass: which messages were published, as ranges in replay order."""

from __future__ import annotations

from collections.abc import Sequence

from ..log.event import Cursor, Event


class Coverage:
    """The messages that one pass has published, each counted once, however often a seek led back to it.

    Between two seeks every message of the plan is published in order, so a range of cursors describes them.
    """

    def __init__(self) -> None:
        self._earlier: list[tuple[Cursor, Cursor]] = []
        """First and last cursors of the parts before the last seek, sorted and disjoint."""
        self._first: Cursor | None = None
        self._last: Cursor | None = None
        self.different = 0
        """Number of different messages."""

    def add(self, messages: Sequence[Event]) -> int:
        """Add messages that follow those before in the plan; return how many of them were added before."""
        self._first = self._first or messages[0].cursor
        self._last = messages[-1].cursor
        again = 0
        if self._earlier:
            again = sum(any(first <= at <= last for first, last in self._earlier) for at in _cursors(messages))
        self.different += len(messages) - again
        return again

    def jump(self) -> None:
        """Begin a new range: the next message is anywhere in the plan."""
        if self._first is None or self._last is None:
            return
        merged: list[tuple[Cursor, Cursor]] = []
        for first, last in sorted([*self._earlier, (self._first, self._last)]):
            if merged and first <= merged[-1][1]:
                merged[-1] = merged[-1][0], max(last, merged[-1][1])
            else:
                merged.append((first, last))
        self._earlier, self._first, self._last = merged, None, None


def _cursors(messages: Sequence[Event]) -> list[Cursor]:
    return [message.cursor for message in messages]
