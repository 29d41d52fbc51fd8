"""Matching of receptions with the sendings they belong to, in replay order.

The same payload may be sent on a channel more than once. The first reception by a listener belongs to the first such
sending, its second reception to the second, and so on. Only sendings of the last minute count, and only those since
the recorder of the listener began, or since its last gap. A listener is a Messager, or a tap.

A Messager that has subscribed since belongs to the sendings after that, if there are any: the time of the mark that
says so is not exact enough to exclude the others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from messager.record import SUBSCRIBED

WITHIN_NS = 60_000_000_000
"""Maximum time from a sending to its reception; a later reception belongs to another message."""
COMPACTED = 512
"""Sendings with the same key that have expired before their list is shortened."""


Listener = tuple[int, int | None]
"""The recorder's id, and the id of the Messager's name; None for a tap."""


def key_of(channel_id: int | None, payload: bytes) -> bytes:
    """Return what a reception and its sending have in common: a digest of channel and payload."""
    return sha256(b"%d " % (channel_id or 0) + payload).digest()


def begins_listening(mark: Mapping[str, Any]) -> bool:
    """Return whether this is the meta of the mark with which a Messager logs that it has subscribed."""
    fields = mark.get("fields")
    return mark.get("name") == SUBSCRIBED and not (isinstance(fields, dict) and fields.get("added"))


@dataclass(slots=True)
class _Sendings:
    """Sendings with the same key in replay order, numbered from 0."""

    places: list[tuple[int, int]] = field(default_factory=list)
    """Event id and ts."""
    dropped: int = 0
    """Number of sendings that are no longer in `places`."""
    expired: int = 0
    """Number of sendings that are older than a minute, the dropped ones included."""
    following: dict[Listener, int] = field(default_factory=dict)
    """By listener, the number of the sending behind the last one that it received."""

    @property
    def count(self) -> int:
        return self.dropped + len(self.places)

    def first_since(self, ts: int, number: int) -> int:
        """Return the number of the first sending at or after a time, from a number on; `count` if there is none."""
        while number < self.count and self.places[number - self.dropped][1] < ts:
            number += 1
        return number


class Matching:
    """State of the matching at one moment of the replay order.

    It depends only on the sendings, gaps and matched receptions of the last minute, so it can be restored by passing
    these to `sent`, `gap` and `restore` again.
    """

    def __init__(self, began: dict[int, int], retracted: dict[int, int] | None = None) -> None:
        self._since = dict(began)
        """By recorder, the time from which sendings may be received by its listeners."""
        self._subscribed: dict[Listener, int] = {}
        self._retracted = retracted or {}
        """By event id of a sending, the ts of the event that says that it was not sent."""
        self._sendings: dict[bytes, _Sendings] = {}
        self._old: deque[tuple[int, bytes]] = deque()
        self._numbers: dict[int, tuple[bytes, int]] | None = {}
        """Key and number of each sending by event id, until the first reception is matched: for `restore`."""

    def sent(self, event_id: int, ts: int, key: bytes) -> None:
        """Add a sending, unless a later event retracts it."""
        if self._retracted.get(event_id, ts - 1) >= ts:
            return
        self._expire(ts)
        same = self._sendings.get(key)
        if same is None:
            same = self._sendings[key] = _Sendings()
        if self._numbers is not None:
            self._numbers[event_id] = key, same.count
        same.places.append((event_id, ts))
        self._old.append((ts, key))

    def gap(self, recorder: int, ts: int) -> None:
        """Note that the listeners of a recorder may have missed what was sent before."""
        self._since[recorder] = ts

    def subscribed(self, listener: Listener, ts: int) -> None:
        """Note that a listener began."""
        self._subscribed[listener] = ts

    def restore(self, listener: Listener, sending_id: int) -> None:
        """Add a reception that was matched earlier."""
        if self._numbers is not None and sending_id in self._numbers:
            key, number = self._numbers[sending_id]
            if key in self._sendings:
                self._sendings[key].following[listener] = number + 1

    def received(self, listener: Listener, ts: int, key: bytes) -> int | None:
        """Return the event id of the sending that a reception belongs to; None if there is none."""
        self._numbers = None
        self._expire(ts)
        same = self._sendings.get(key)
        if same is None:
            return None
        number = max(same.following.get(listener, 0), same.expired)
        if (since := self._since.get(listener[0])) is not None:
            number = same.first_since(since, number)
        if (since := self._subscribed.get(listener)) is not None:
            later = same.first_since(since, number)
            number = later if later < same.count else number
        same.following[listener] = min(number + 1, same.count)
        return same.places[number - same.dropped][0] if number < same.count else None

    def _expire(self, now: int) -> None:
        while self._old and now - self._old[0][0] > WITHIN_NS:
            key = self._old.popleft()[1]
            same = self._sendings[key]
            same.expired += 1
            if same.expired == same.count:
                del self._sendings[key]
            elif same.expired - same.dropped >= max(COMPACTED, len(same.places) // 2):
                del same.places[: same.expired - same.dropped]
                same.dropped = same.expired
