"""Subscriptions of a live Messager, compared with those of the recorded one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from messager.brokers.kind import BrokerKind

MOST_CHANNELS = 100_000
"""Channels whose number of copies is remembered."""


class Subscriptions:
    """Subscriptions of one live Messager. `recorded` are those of the recorded one, as patterns on the wire."""

    def __init__(self, kind: BrokerKind, recorded: Iterable[bytes]) -> None:
        self.patterns: list[str] = []
        self._kind = kind
        self._recorded = recorded
        self._missed: set[bytes] = set()
        self._copies: dict[bytes, int] = {}

    def set(self, patterns: Sequence[str]) -> None:
        """Replace all patterns."""
        self.patterns = list(patterns)
        self._copies.clear()

    def copies(self, channel: bytes) -> int:
        """Return the number of copies that the live Messager gets of a message on a channel."""
        found = self._copies.get(channel)
        if found is None:
            found = sum(1 for pattern in self.patterns if self._kind.matches(pattern, channel))
            if len(self._copies) < MOST_CHANNELS:
                self._copies[channel] = found
        return found

    def hears(self, channel: bytes) -> bool:
        """Return whether the live Messager is subscribed to a channel."""
        return self.copies(channel) > 0

    def miss(self, channel: bytes) -> None:
        """Note that the live Messager did not subscribe to a channel in time."""
        self._missed.add(channel)

    def may_come(self, channel: bytes) -> bool:
        """Return whether the recorded Messager was subscribed to a channel, and the live one may still be late."""
        return channel not in self._missed and any(self._kind.matches(one, channel) for one in self._recorded)
