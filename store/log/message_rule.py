"""Which events are messages. Nothing else decides it.

    A message is a sending that was not retracted; or a reception that belongs to no sending, the first of its kind:
    receptions of it by other listeners belong to it.

`MessageRule` gets the events of an experiment in replay order. The same payload may be sent more than once on a
channel: the first reception by a listener belongs to the first such message, its second one to the second, and so on.
So a message has one sending at most, and one reception by each listener:

    channel and payload    message 1       message 2
    sender                 sending         -            nobody recorded this sender
    listener a             reception       reception
    listener b             -               reception    b subscribed after message 1

Clocks of two hosts differ, so a reception may stand before its sending. One that belongs to no sending is undecided
until `EARLY_NS` later; a sending takes it over if it comes until then.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Set
from functools import partial
from hashlib import sha256
from typing import Any, NamedTuple

WITHIN_NS = 60_000_000_000
"""Maximum time from a message to its receptions; a later reception belongs to another message."""
EARLY_NS = 5_000_000_000
"""Maximum time from a reception to its sending, and from what a listener received to its start: clocks differ."""
MOST_UNDECIDED = 100_000
"""Messages that wait for a decision, at most. The oldest one is decided early if there are more."""
_COMPACTED = 512
"""Messages with the same content that have expired before their list is shortened."""
_SHORT = 100
"""Bytes of a payload that is compared itself; of a longer one, the first bytes of its SHA-256 are."""
_DIGEST = 16
_NEVER = 2**64
_REDACTED = b"r"
"""Content of redacted events, which have no payload: they are matched by their order."""

Listener = tuple[int, int | None]
"""The recorder's id, and the id of the Messager's name; None for a tap."""


class Delivery(NamedTuple):
    """A reception that is not a message itself."""

    id: int
    message: int | None
    """The message that it belongs to; None if that is redacted, or older than all that is known."""
    is_copy: bool
    """True if the listener had received the message before, or the broker had kept it."""


_delivery: Callable[[tuple[int, int | None, bool]], Delivery] = partial(tuple.__new__, Delivery)
"""Returns a `Delivery` in half of the time of a call of it."""


class DecidedEvents(NamedTuple):
    """What a `MessageRule` has decided."""

    messages: list[int]
    """Events that are messages, in replay order."""
    heard: list[int]
    """Those of them that are receptions, in any order."""
    deliveries: list[Delivery]
    """Receptions that belong to a message, in any order."""


class _Message:
    """A message that is known by its sending, by receptions, or by both."""

    __slots__ = ("final", "id", "ts", "waiting")

    def __init__(self, event_id: int, ts: int, final: bool) -> None:
        self.id: int | None = event_id
        """The event that represents it; None if it is hidden by a redaction."""
        self.ts = ts
        self.final = final
        """True if no sending can take it over."""
        self.waiting: list[tuple[int, bool]] | None = None
        """Receptions until it is final: id, and True for copies."""


class _Same:
    """Messages with the same channel and content, numbered from 0."""

    __slots__ = ("channel", "content", "copied", "count", "dropped", "expired", "following", "messages", "unsent")

    def __init__(self, channel: _Channel, content: bytes) -> None:
        self.channel = channel
        self.content = content
        self.messages: list[_Message] = []
        self.count = 0
        """Number of messages, the dropped ones included."""
        self.dropped = 0
        """Number of messages that are no longer in `messages`."""
        self.expired = 0
        """Number of messages that are older than a minute, the dropped ones included."""
        self.unsent = 0
        """Number of the first message that a sending may take over."""
        self.following: dict[Listener, int] = {}
        """By listener, the number of the message behind the last one that it received."""
        self.copied: dict[Listener, int] = {}
        """By listener that receives copies, how many times it received its last message."""

    def listeners(self) -> list[Any]:
        """Return recorder and Messager of each listener that received one of the messages, with its numbers."""
        found = [
            [*by, following - self.expired, self.copied.get(by, 0)]
            for by, following in self.following.items()
            if following > self.expired
        ]
        return found[0] if len(found) == 1 else [number for one in _sorted(found) for number in one]

    def first_since(self, ts: int, number: int) -> int:
        """Return the number of the first message at or after a time, from a number on; `count` if there is none."""
        while number < self.count and self.messages[number - self.dropped].ts < ts:
            number += 1
        return number

    def next_for(self, listener: Listener, since: int | None) -> int:
        """Return the number of the next message that a listener has not received; `count` if there is none."""
        number = max(self.following.get(listener, 0), self.expired)
        if since is None or number == self.count or self.messages[number - self.dropped].ts >= since:
            return number
        later = self.first_since(since, number)
        return later if later < self.count else self.first_since(since - EARLY_NS, number)


class _Channel:
    """Messages on one channel."""

    __slots__ = ("hidden_until", "id", "last", "same")

    def __init__(self, channel_id: int | None) -> None:
        self.id = channel_id
        self.same: dict[bytes, _Same] = {}
        self.last: tuple[bytes, int | None] | None = None
        """Content of the last message, and the message: an MQTT broker keeps one for each topic."""
        self.hidden_until: int | None = None
        """Until then, a reception without a sending may be one of a redacted sending."""

    def same_as(self, content: bytes) -> _Same:
        same = self.same.get(content)
        if same is None:
            same = self.same[content] = _Same(self, content)
        return same


class MessageRule:
    """Decides which events are messages. `messages`, `heard` and `deliveries` have the decisions, until `take` is
    called.

    `retracted` are the sendings that another event retracts; `began` has, by recorder, the time (ns UTC) from which its
    listeners may have received messages; `copies_of` returns how many times a listener gets each message on a channel;
    `early_ns` is the time for which a reception waits for its sending.
    """

    def __init__(
        self,
        retracted: Set[int] = frozenset(),
        began: Mapping[int, int] | None = None,
        copies_of: Callable[[Listener, int | None], int] | None = None,
        early_ns: int = EARLY_NS,
    ) -> None:
        self.messages: list[int] = []
        self.heard: list[int] = []
        self.deliveries: list[Delivery] = []
        self.hurried = 0
        """Number of messages that were decided early, because too many were undecided."""
        self._retracted = retracted
        self._since: dict[int, int] = dict(began or {})
        """By recorder, the time from which its listeners may have received messages."""
        self._gaps: dict[int, int] = {}
        self._now = -(2**63)
        self._subscribed: dict[Listener, int] = {}
        self._copies_of = copies_of
        self._early_ns = early_ns
        self._channels: dict[int | None, _Channel] = {}
        self._kept: deque[_Same] = deque()
        """For each message of the last minute, those with the same content."""
        self._expires = _NEVER
        """The time after which the first of them is older than a minute."""
        self._undecided: deque[tuple[int, int, _Message, _Channel]] = deque()
        """Messages behind one that may be taken over: event, ts, message, channel."""

    def sent(self, event_id: int, ts: int, channel_id: int | None, payload: bytes, *, redacted: bool = False) -> None:
        """Add a sending."""
        if event_id in self._retracted:
            return
        if self._undecided or ts > self._expires:
            self._advance(ts)
        self._now = ts
        channel, content = self._channel(channel_id), _content(payload, redacted)
        same = channel.same_as(content)
        while same.unsent < same.count and same.messages[same.unsent - same.dropped].final:
            same.unsent += 1
        if same.unsent < same.count:
            message = same.messages[same.unsent - same.dropped]
            self._belong(message, event_id)
        else:
            message = self._add(same, event_id, ts, True)
        if redacted:
            self._hide(channel, ts)
        channel.last = content, event_id
        if self._undecided:
            self._undecided.append((event_id, ts, message, channel))
            self._decide(ts)
        else:
            self.messages.append(event_id)

    def received(
        self,
        event_id: int,
        ts: int,
        channel_id: int | None,
        payload: bytes,
        listener: Listener,
        *,
        retained: bool = False,
        redacted: bool = False,
    ) -> None:
        """Add a reception. `retained` is the flag of MQTT: the broker had kept the message."""
        if self._undecided or ts > self._expires:
            self._advance(ts)
        self._now = ts
        channel, content = self._channel(channel_id), _content(payload, redacted)
        if retained and channel.last is not None and channel.last[0] == content:
            self.deliveries.append(Delivery(event_id, channel.last[1], True))
            return
        same = channel.same_as(content)
        copies = 1 if self._copies_of is None else self._copies_of(listener, channel_id)
        if copies > 1 and self._is_copy(same, listener, event_id, copies):
            return
        since = self._since.get(listener[0])
        if (subscribed := self._subscribed.get(listener)) is not None:
            since = subscribed if since is None else max(since, subscribed)
        number = same.next_for(listener, since)
        same.following[listener] = number + 1
        if number < same.count:
            self._deliver(same.messages[number - same.dropped], event_id, False)
            return
        message = self._add(same, event_id, ts, False)
        if channel.hidden_until is not None and ts <= channel.hidden_until and not redacted:
            self._belong(message, None)
            return
        channel.last = content, event_id
        self._undecided.append((event_id, ts, message, channel))
        if len(self._undecided) > MOST_UNDECIDED:
            oldest, _, first, _ = self._undecided[0]
            if not first.final:
                self.hurried += 1
                self._finish(first, oldest)
            self._decide(ts)

    def take(self) -> DecidedEvents:
        """Return what was decided since the last call."""
        decided = DecidedEvents(self.messages, self.heard, self.deliveries)
        self.messages, self.heard, self.deliveries = [], [], []
        return decided

    def gap(self, recorder: int, ts: int) -> None:
        """Note that the listeners of a recorder may have missed what was sent before."""
        self._since[recorder] = self._gaps[recorder] = ts

    def subscribed(self, listener: Listener, ts: int) -> None:
        """Note that a listener began."""
        self._subscribed[listener] = ts

    def reach(self, ts: int) -> None:
        """Decide about what waits for a sending before a time; no event before it follows."""
        self._decide(ts)

    def end_undecided(self) -> None:
        """Decide about everything that waits for a sending."""
        self._decide(None)

    def end(self) -> None:
        """Decide everything. No event follows."""
        self._advance(None)

    def state(self) -> dict[str, Any]:
        """Return what `restore` needs to go on from here, as JSON holds it.

        Rules with equal states decide equally about the same events. Decisions that were not taken are not in it, nor
        is what the constructor gets.
        """
        found: dict[_Same, int] = {}
        numbers: dict[int, tuple[int, int]] = {}
        sames: list[Any] = []
        order: list[int] = []
        for same in self._kept:
            at = found.get(same)
            if at is None:
                at = found[same] = len(sames)
                messages = same.messages[same.expired - same.dropped :]
                if self._undecided:
                    numbers.update({id(one): (at, number) for number, one in enumerate(messages)})
                sames.append([same.channel.id, same.content.hex(), same.listeners()])
                for one in messages:
                    sames[-1] += one.id, one.ts, 1 if one.final else [*map(list, one.waiting or ())]
            order.append(at)
        channels = []
        for channel in self._channels.values():
            hidden = channel.hidden_until if (channel.hidden_until or self._now) > self._now else None
            if channel.last is not None or hidden is not None:
                content, number = channel.last or (b"", None)
                channels.append([channel.id, content.hex(), number, hidden])
        since = self._now - WITHIN_NS
        return {
            "now": self._now,
            "same": sames,
            "order": order,
            "undecided": [[number, ts, *numbers[id(one)]] for number, ts, one, _ in self._undecided],
            "channels": sorted(channels, key=lambda channel: channel[0] or 0),
            "gaps": sorted([at, ts] for at, ts in self._gaps.items() if ts > since),
            "subscribed": _sorted([[*by], ts] for by, ts in self._subscribed.items() if ts > since),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from the `state` of another rule. This one has seen no event."""
        self._now = state["now"]
        for number, content, last, hidden in state["channels"]:
            channel = self._channel(number)
            channel.hidden_until = hidden
            if last is not None:
                channel.last = bytes.fromhex(content), last
        sames = []
        for number, content, listeners, *rows in state["same"]:
            same = self._channel(number).same_as(bytes.fromhex(content))
            for event_id, ts, waiting in _by(3, rows):
                message = _Message(event_id, ts, waiting == 1)
                if isinstance(waiting, list):
                    message.waiting = [(reception, is_copy) for reception, is_copy in waiting]
                same.messages.append(message)
                same.count += 1
            for recorder, messager, following, copied in _by(4, listeners):
                same.following[recorder, messager] = following
                if copied:
                    same.copied[recorder, messager] = copied
            sames.append((same, iter(same.messages)))
        for at in state["order"]:
            same, messages = sames[at]
            self._keep(same, next(messages).ts)
        for event_id, ts, at, number in state["undecided"]:
            same, _ = sames[at]
            self._undecided.append((event_id, ts, same.messages[number], same.channel))
        for recorder, ts in state["gaps"]:
            self.gap(recorder, ts)
        for by, ts in state["subscribed"]:
            self.subscribed((by[0], by[1]), ts)

    def _channel(self, channel_id: int | None) -> _Channel:
        channel = self._channels.get(channel_id)
        if channel is None:
            channel = self._channels[channel_id] = _Channel(channel_id)
        return channel

    def _add(self, same: _Same, event_id: int, ts: int, final: bool) -> _Message:
        message = _Message(event_id, ts, final)
        same.messages.append(message)
        same.count += 1
        self._keep(same, ts)
        return message

    def _keep(self, same: _Same, ts: int) -> None:
        if not self._kept:
            self._expires = ts + WITHIN_NS
        self._kept.append(same)

    def _is_copy(self, same: _Same, listener: Listener, event_id: int, copies: int) -> bool:
        """Note a reception by a listener of several copies; return True if it is not the first one."""
        number, received = same.following.get(listener, 0) - 1, same.copied.get(listener, 0)
        if number < same.expired or received >= copies:
            same.copied[listener] = 1
            return False
        same.copied[listener] = received + 1
        self._deliver(same.messages[number - same.dropped], event_id, True)
        return True

    def _deliver(self, message: _Message, event_id: int, is_copy: bool) -> None:
        if message.final:
            self.deliveries.append(_delivery((event_id, message.id, is_copy)))
        elif message.waiting is None:
            message.waiting = [(event_id, is_copy)]
        else:
            message.waiting.append((event_id, is_copy))

    def _hide(self, channel: _Channel, ts: int) -> None:
        """Hide the receptions around a redacted sending that belong to no other one: they may have its payload."""
        channel.hidden_until = ts + WITHIN_NS
        for _, since, message, of in self._undecided:
            if of is channel and not message.final and ts - since <= EARLY_NS:
                self._belong(message, None)

    def _belong(self, message: _Message, event_id: int | None) -> None:
        """Make the receptions of an undecided message those of another event, or of a hidden one."""
        assert message.id is not None
        self.deliveries.append(Delivery(message.id, event_id, False))
        self.deliveries += [Delivery(reception, event_id, is_copy) for reception, is_copy in message.waiting or ()]
        message.id, message.final, message.waiting = event_id, True, None

    def _finish(self, message: _Message, event_id: int) -> None:
        """Make a message final that no sending took over."""
        self.deliveries += [Delivery(one, event_id, is_copy) for one, is_copy in message.waiting or ()]
        message.final, message.waiting = True, None
        self.heard.append(event_id)

    def _advance(self, now: int | None) -> None:
        """Decide what was undecided until now, and drop what is older than a minute."""
        if self._undecided:
            self._decide(now)
        kept = self._kept
        while kept and (now is None or now > self._expires):
            same = kept.popleft()
            same.expired += 1
            if same.expired == same.count:
                del same.channel.same[same.content]
            elif same.expired - same.dropped >= max(_COMPACTED, len(same.messages) // 2):
                del same.messages[: same.expired - same.dropped]
                same.dropped = same.expired
            if kept:
                first = kept[0]
                self._expires = first.messages[first.expired - first.dropped].ts + WITHIN_NS
            else:
                self._expires = _NEVER

    def _decide(self, now: int | None) -> None:
        undecided = self._undecided
        while undecided:
            event_id, ts, message, _ = undecided[0]
            if not message.final:
                if now is not None and now - ts <= self._early_ns:
                    return
                self._finish(message, event_id)
            if message.id == event_id:
                self.messages.append(event_id)
            undecided.popleft()


def _content(payload: bytes, redacted: bool) -> bytes:
    """Return what equal messages have in common. Its first byte is that of its kind."""
    if redacted:
        return _REDACTED
    return b"p" + payload if len(payload) <= _SHORT else b"d" + sha256(payload).digest()[:_DIGEST]


def _by(number: int, values: list[Any]) -> Iterable[Any]:
    """Return the values in groups of so many."""
    return zip(*[iter(values)] * number, strict=True)


def _sorted(rows: Iterable[list[Any]]) -> list[list[Any]]:
    """Return rows in an order of their own; None is before numbers."""
    found = list(rows)
    return sorted(found, key=json.dumps) if len(found) > 1 else found  # most often it is one listener
