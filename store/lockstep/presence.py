"""Presence: to what live Messagers are subscribed, so that nothing is published before its recipient is there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

from messager.brokers.kind import BrokerKind

from .schedule import Key, Part

Hears = Callable[[bytes], bool]
Place = tuple[str, bytes]
"""Key of a part, and a channel on which it receives."""


class Presence:
    """Subscriptions of the live Messagers of this process, and of others that announced themselves."""

    def __init__(self, parts: Iterable[Part]) -> None:
        self.remote: dict[str, Hears] = {}
        """Parts of other processes, by key."""
        self.local: dict[str, Hears] = {}
        """Parts of this process, by key."""
        self._started: set[str] = set()
        self._absent: set[str] = set()
        self._closed = False  # True once nobody is waited for any more
        self._waits: list[tuple[list[str], asyncio.Future[None]]] = []  # keys of all parts that are absent
        self._there: set[Place] = set()  # those that are subscribed
        self._recipients: dict[Key, list[Place]] = {}
        self._keys: set[str] = set()
        for part in parts:
            self._keys.add(part.key)
            for reception in part.receptions:
                self._recipients.setdefault(reception.source, []).append((part.key, reception.channel))

    def attached(self, part: Part, hears: Hears) -> None:
        """Note that a Messager of this process plays a part."""
        self.local[part.key] = hears
        self._absent.discard(part.key)

    def left(self, part: Part) -> None:
        """Note that the agents of a part have ended: nobody waits for them any more."""
        self._absent.add(part.key)
        self.wake()

    def close(self) -> None:
        """Wait for nobody any more."""
        self._closed = True
        self.wake()

    def reopen(self) -> None:
        """Wait for others again."""
        self._closed = False

    def subscribed(self, part: Part) -> None:
        """Note that the Messager of a part, in this process, has subscribed, or is subscribed no more."""
        self._started.add(part.key)
        self._changed_subscriptions(part.key)

    def begun(self, part: Part) -> None:
        """Note that the Messager of a part has subscribed or spoken."""
        self._started.add(part.key)
        self.wake()

    async def started(self, parts: Iterable[Part]) -> None:
        """Wait until the Messagers of these parts have subscribed or spoken, or have announced themselves."""
        for part in parts:
            while not (self._closed or {part.key} & (self._started | self._absent | self.remote.keys())):
                await self._changed([part.key])

    def announced(self, key: str, hears: Hears) -> None:
        """Note that a Messager of another process plays a part, or is closed and hears nothing."""
        self.remote[key] = hears
        self._absent.discard(key)
        self._changed_subscriptions(key)

    def only(self, live: set[str]) -> None:
        """Note that only these parts are live, besides those of this process: nobody else is waited for."""
        self._absent |= self._keys - live - self.local.keys()
        self.wake()

    def unannounced(self, parts: Iterable[Part]) -> None:
        """Wait for none of these parts: their programs have no Messager and announce nothing."""
        self._absent.update(part.key for part in parts)
        self.wake()

    def forget(self, parts: Iterable[Part]) -> None:
        """Forget parts that were joined with others."""
        keys = {part.key for part in parts}
        for listed in self._recipients.values():
            listed[:] = [one for one in listed if one[0] not in keys]

    def unsubscribed(self, part: Part) -> list[bytes]:
        """Return the channels of a part's receptions to which its Messager, in another process, did not subscribe."""
        hears = self.remote.get(part.key)
        received = dict.fromkeys(one.channel for one in part.receptions)
        return [] if hears is None else [channel for channel in received if not hears(channel)]

    def wait_for(self, message: Key) -> Awaitable[None] | None:
        """Return a wait until all recipients of a message are subscribed to its channel; None if they are."""
        return self._wait(self._recipients[message]) if self.lacks_recipient(message) else None

    def lacks_recipient(self, message: Key) -> bool:
        """Return whether a recipient of a message is not subscribed to its channel."""
        recipients = self._recipients.get(message, ())
        return not (self._there.issuperset(recipients) or all(map(self._is_there, recipients)))

    def wake(self) -> None:
        """Look again, after something has changed."""
        if not self._waits:
            return
        waits, self._waits = self._waits, []
        for _, waiting in waits:
            if not waiting.done():
                waiting.set_result(None)

    @property
    def awaited(self) -> set[str]:
        """Keys of the parts that are waited for."""
        return {key for keys, _ in self._waits for key in keys}

    def give_up(self) -> str | None:
        """Give up all that are waited for; return one of them, None if there is none."""
        given_up = [key for keys, _ in self._waits for key in keys]
        self._absent.update(given_up)
        self.wake()
        return given_up[0] if given_up else None

    def _changed_subscriptions(self, key: str) -> None:
        self._there = {place for place in self._there if place[0] != key}
        self.wake()

    async def _wait(self, recipients: Iterable[Place]) -> None:
        while absent := [place[0] for place in recipients if not self._is_there(place)]:
            await self._changed(absent)

    async def _changed(self, absent: list[str]) -> None:
        """Wait until something has changed, or these parts are given up."""
        waiting = asyncio.get_running_loop().create_future()
        self._waits.append((absent, waiting))
        await waiting

    def _is_there(self, place: Place) -> bool:
        key, channel = place
        if self._closed or place in self._there or key in self._absent:
            return True
        hears = self.local.get(key) or self.remote.get(key)
        if hears is None or not hears(channel):
            return False
        self._there.add(place)
        return True


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
