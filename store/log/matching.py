"""Matching of receptions with the sendings they belong to, by channel and payload, in replay order."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from ..db.schema import SEQ_BITS

WITHIN_NS = 60_000_000_000
"""Maximum time from a sending to its reception; a later reception belongs to another message."""

_Key = tuple[int | None, bytes]
"""Channel and digest of the payload."""


@dataclass(slots=True)
class _Sending:
    id: int
    ts: int


class Matching:
    """Matches receptions with the sendings of the last minute, by channel and payload."""

    def __init__(self, since: dict[int, int]) -> None:
        self.found: list[dict[str, int]] = []
        """Rows of the side table."""
        self.since = since
        """By listener, the time from which sendings may be received by it."""
        self._sendings: dict[_Key, deque[_Sending]] = {}
        self._received: dict[_Key, dict[int, int]] = {}
        """By listener, the number of those sendings that it has received."""
        self._old: deque[tuple[int, _Key]] = deque()

    def sent(self, number: int, ts: int, key: _Key) -> None:
        """Add a sending; events come in replay order."""
        self._expire(ts)
        self._sendings.setdefault(key, deque()).append(_Sending(number, ts))
        self._old.append((ts, key))

    def received(self, number: int, ts: int, key: _Key) -> None:
        """Match a reception with the next sending that its listener has not received yet."""
        self._expire(ts)
        listener = number >> SEQ_BITS
        sendings = self._sendings.get(key)
        if sendings is None:
            return
        received = self._received.setdefault(key, {})
        nth, since = received.get(listener, 0), self.since.get(listener)
        while since is not None and nth < len(sendings) and sendings[nth].ts < since:
            nth += 1
        received[listener] = min(nth + 1, len(sendings))
        if nth < len(sendings):
            self.found.append({"event_id": number, "sending_id": sendings[nth].id, "received_at": ts})

    def _expire(self, now: int) -> None:
        while self._old and now - self._old[0][0] > WITHIN_NS:
            key = self._old.popleft()[1]
            sendings = self._sendings[key]
            sendings.popleft()
            if not sendings:
                del self._sendings[key]
                self._received.pop(key, None)
                continue
            received = self._received.get(key, {})
            for listener in received:
                received[listener] = max(received[listener] - 1, 0)
