"""Copier: records the events of a prefix into its fork, in replay order, except those that live agents repeat."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from messager.clock import Clock

from ..log.event import Cursor, Event, repeated
from .recording import Recording, is_own_mark
from .schedule import Key, key

if TYPE_CHECKING:
    from ..recording.recorder import Recorder

HandOver = Callable[[Callable[[], None]], None]
"""Calls a function now, or in the thread of the recorder, in the order of the calls."""


class Copier:
    """Copies the events of a prefix, each once.

    An event that is published from the recording is copied when it is released, every other one when all events before
    it are there. `repeats` are the events that live agents are expected to repeat; what they leave out is copied by
    `finish`. `is_settled` says whether a live message is out. Copies have the time at which they are made, the channels
    of the fork, and their origin. Marks of the Messagers that are live (`replaced`) themselves, of subscriptions and
    closing, and what these leave out, name no Messager: they would be a schedule without messages in the fork.
    """

    def __init__(
        self,
        recording: Recording,
        repeats: frozenset[Key],
        replaced: frozenset[str],
        is_settled: Callable[[Key], bool],
        channel: Callable[[str], str],
        recorder: Recorder,
        clock: Clock,
        hand_over: HandOver,
    ) -> None:
        self.copied = 0
        """Number of events."""
        self.dropped = 0
        """Number of copies that the recorder did not accept."""
        self._recording = recording
        self._repeats = repeats
        self._replaced = replaced
        self._is_settled = is_settled
        self._channel = channel
        self._recorder = recorder
        self._clock = clock
        self._hand_over = hand_over
        self._published = {key(entry) for entry in recording.messages} - repeats
        self._done: set[Key] = set()
        self._positions: dict[Key, int] = {}  # of the copies, by event; used where the recorder is
        self._next = 0

    def release(self, batch: Iterable[Event]) -> None:
        """Copy messages that are about to be published, and all other events before them."""
        for entry in batch:
            self.advance(until=entry)
            if key(entry) not in self._repeats:  # as the reception of a message whose sender was not recorded
                self._copy(entry)
        self.advance()

    @property
    def done(self) -> int:
        """Number of events up to which all are done."""
        return self._next

    @property
    def cursor(self) -> Cursor | None:
        """Cursor of the last event up to which all are done; None before the first."""
        return self._recording.events[self._next - 1].cursor if self._next else None

    def finish(self, repeated: Iterable[Key]) -> int:
        """Copy the rest, without what live agents have repeated. Return the number of events that they left out."""
        self._done.update(repeated)
        left_out = 0
        for entry in self._recording.events:
            if key(entry) not in self._done:
                left_out += key(entry) in self._repeats
                self._copy(entry, named=key(entry) not in self._repeats)
        return left_out

    def advance(self, until: Event | None = None) -> None:
        """Copy the next events, up to the first one that somebody else is still to publish or to repeat."""
        events = self._recording.events
        while self._next < len(events):
            entry = events[self._next]
            place = key(entry)
            if entry is until:
                return
            if place in self._repeats:
                if not self._is_settled(place):
                    return
            elif place in self._published and place not in self._done:
                return
            else:
                self._copy(entry)
            self._next += 1

    def _copy(self, entry: Event, *, named: bool = True) -> None:
        place = key(entry)
        if place in self._done:
            return
        self._done.add(place)
        self.copied += 1
        kind = "sent" if place in self._published else entry.kind  # a message of a tap was sent by the fork
        channel = None if entry.channel is None else self._channel(entry.channel)
        ts, uuid = self._clock.now(), self._recording.uuids[entry.recorder]
        messager, arrival = entry.messager, entry.arrival
        meta = entry.meta
        if is_own_mark(entry):
            meta, named = self._with_patterns(entry), messager not in self._replaced
        if not named:
            messager = arrival = None

        def accept() -> None:
            cause = None if entry.cause is None else self._positions.get(entry.cause)
            copy = repeated(entry)._replace(
                kind=kind,
                ts=ts,
                channel=channel,
                cause=None if cause is None else (0, cause),
                meta=meta,
                messager=messager,
                arrival=arrival,
                origin=(uuid, entry.seq),
            )
            position = self._recorder.copy(copy)
            if position is None:
                self.dropped += 1
            else:
                self._positions[place] = position

        self._hand_over(accept)

    def _with_patterns(self, entry: Event) -> dict[str, Any]:
        """Return the meta of such a mark with the channels of the fork."""
        meta = dict(entry.meta or {})
        fields = meta.get("fields")
        if isinstance(fields, dict) and isinstance(fields.get("patterns"), list):
            patterns = [self._channel(str(pattern)) for pattern in fields["patterns"]]
            meta["fields"] = {**fields, "patterns": patterns}
        return meta
