"""Recording: the events of an experiment in memory, as a lockstep replay needs them.

What two recorders recorded of one Messager at the same time counts once (`doubled`). Recorders of a Messager that
follow each other complete each other, so events are compared, not recorders: a reception is the same if it has the same
number, any other event if it has the same time. A strict recorder stamps sendings itself: if two recorders have the
same events otherwise, sendings are the same if their messages are.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from messager.record import SUBSCRIBED, is_own

from ..db.codes import FROM_DERIVED, KINDS, SEQ_BITS
from ..errors import StoreError
from ..log.event import Cursor, Event
from ..log.message_rule import WITHIN_NS, MessageRule
from ..log.rule_feed import RuleFeed
from ..log.subscriptions import Subscriptions
from ..recording.derived_ids import DEFAULT_SENDER
from .schedule import Key

if TYPE_CHECKING:
    from ..experiments.records import RecorderRow

_Same = tuple[str | None, bytes]
"""Channel and payload."""


def key(entry: Event) -> Key:
    """Return (recorder, seq) of an event."""
    return entry.recorder, entry.seq


@dataclass(slots=True)
class Recording:
    """Events of one experiment, or of a part of it, in replay order."""

    exp_id: str
    events: list[Event]
    """All of them, whatever their kind."""
    messages: list[Event]
    """Those that a replay publishes (see `messager_store.log.message_rule`)."""
    uuids: dict[int, str] = field(default_factory=dict)
    """UUID of each recorder, by ordinal."""
    store: str | None = None
    """Location of the store that it was read from."""
    sender_rules: Sequence[str] = DEFAULT_SENDER
    """Rules by which its recorders derived senders (see `messager_store.recording.derived_ids`)."""

    def __post_init__(self) -> None:
        """Leave out what a second recorder of the same Messager recorded as well."""
        if twice := doubled(self.events):
            self.events = [entry for entry in self.events if entry.cursor not in twice]
            once = {one.cursor: one for one in (twice.get(entry.cursor, entry) for entry in self.messages)}
            self.messages = [once[cursor] for cursor in sorted(once) if not once[cursor].redacted]
        # The schedule pairs more than the rule of messages does if the clocks differed by more than its 5 seconds.
        if heard := {entry.messager for entry in self.messages if entry.kind == "received" and entry.messager}:
            paired = self.sources(heard)
            self.messages = [entry for entry in self.messages if key(entry) not in paired]

    @classmethod
    def of_events(cls, exp_id: str, events: Iterable[Event], uuids: dict[int, str] | None = None) -> Recording:
        """Return the recording of a complete experiment."""
        listed = sorted(events, key=lambda entry: entry.cursor)
        numbers: dict[str | None, int] = {}
        names: dict[int, str] = {}

        def number_of(name: str) -> int:
            number = numbers.setdefault(name, len(numbers) + 1)
            names[number] = name
            return number

        recorders = sorted({entry.recorder for entry in listed})
        subscriptions = Subscriptions((), names)
        undone = {recorder << SEQ_BITS | seq for recorder, seq in retracted(listed)}
        rule = MessageRule(undone, {}, subscriptions.copies_of)
        feed = RuleFeed(rule, subscriptions, dict(zip(recorders, recorders, strict=True)))
        by_number: dict[int, Event] = {}
        for entry in listed:
            number, kind = entry.recorder << SEQ_BITS | entry.seq, KINDS.index(entry.kind) + 1
            by_number[number] = entry
            channel, messager = (None if one is None else number_of(one) for one in (entry.channel, entry.messager))
            feed.add(number, entry.ts, kind, channel, messager, entry.payload, entry.redacted, entry.meta or {})
        rule.end()
        messages = [by_number[number] for number in rule.messages]
        return cls(exp_id, listed, [entry for entry in messages if not entry.redacted], uuids or {})

    def filtered(self, takes: Callable[[Event], bool]) -> Recording:
        """Return the recording of the events that `takes` accepts. Marks of the Messagers themselves are kept."""
        return Recording(
            self.exp_id,
            [entry for entry in self.events if is_own_mark(entry) or takes(entry)],
            [entry for entry in self.messages if takes(entry)],
            self.uuids,
            self.store,
            self.sender_rules,
        )

    def check(self, hook: object) -> None:
        """Raise `StoreError` for a log hook that records into this very experiment."""
        if getattr(hook, "records_into", None) == (self.store, self.exp_id):
            raise StoreError(
                f"{self.exp_id} cannot be replayed into itself: record the live Messagers into another experiment, and "
                "give them its exp_id"
            )

    def check_environment(self, exp_id: str) -> None:
        """Raise `StoreError` if `MESSAGER_STORE` would record Messagers of `exp_id` into this very experiment."""
        location = os.environ.get("MESSAGER_STORE")
        if exp_id != self.exp_id or not location:
            return
        from ..db.database import Database  # slow to import, and not needed for a recording in memory

        if Database(location).location == self.store:
            raise StoreError(
                f"{self.exp_id} cannot be replayed into itself: give the live Messagers another exp_id (`to_exp`), or "
                "unset MESSAGER_STORE"
            )

    def patterns(self) -> dict[str, list[str]]:
        """Return the subscriptions of each Messager, by its id, as far as they were recorded."""
        found: dict[str, list[str]] = {}
        for entry in self.events:
            if entry.messager is not None and entry.mark == SUBSCRIBED:
                fields = (entry.meta or {}).get("fields")
                patterns = fields.get("patterns") if isinstance(fields, dict) else None
                listed = found.setdefault(entry.messager, [])
                if not (isinstance(fields, dict) and fields.get("added")):
                    listed.clear()
                listed += map(str, patterns if isinstance(patterns, list) else ())
        return found

    def sources(self, listeners: set[str]) -> dict[Key, Key]:
        """Return the sending that each reception of these Messagers belongs to; those without one are left out.

        The clocks of recorders may differ, so that a reception is stamped earlier than its sending. Hence a Messager's
        receptions of a payload are paired with its sendings by their number, if it received all of them, equally often;
        else by time, and what is left then with the next sendings. A reception never belongs to a message that the
        same Messager sent after it had fetched that reception.
        """
        undone = retracted(self.events)
        sent: dict[_Same, list[Event]] = {}
        received: dict[_Same, dict[str, list[Event]]] = {}
        for entry in self.events:
            same = entry.channel, entry.payload
            if entry.kind == "sent" and key(entry) not in undone:
                sent.setdefault(same, []).append(entry)
            elif entry.kind == "received" and entry.messager in listeners:
                received.setdefault(same, {}).setdefault(entry.messager, []).append(entry)
        found: dict[Key, Key] = {}
        for same, by_messager in received.items():
            sendings = sent.get(same, [])
            for receptions in by_messager.values():
                receptions.sort(key=lambda entry: entry.arrival or 0)
                for reception, sending in _by_number(receptions, sendings) or _by_time(receptions, sendings):
                    found[key(reception)] = key(sending)
        return found


def _by_number(receptions: list[Event], sendings: list[Event]) -> list[tuple[Event, Event]]:
    """Pair receptions of a Messager with sendings of the same payload, if it received each equally often."""
    if not sendings or len(receptions) % len(sendings):
        return []
    copies = len(receptions) // len(sendings)
    left = list(sendings)
    pairs: list[tuple[Event, Event]] = []
    for at in range(0, len(receptions), copies):
        first = receptions[at]
        place = next((place for place, one in enumerate(left) if _is_possible(first, one)), None)
        if place is None:
            return []
        sending = left.pop(place)
        pairs += [(one, sending) for one in receptions[at : at + copies]]
    return pairs if all(abs(one.ts - sending.ts) <= WITHIN_NS for one, sending in pairs) else []


def _is_possible(reception: Event, sending: Event) -> bool:
    """Return whether a reception may be that of a sending: not if its Messager had fetched it before it sent this."""
    return sending.messager != reception.messager or (sending.arrival or 0) < (reception.arrival or 0)


def _by_time(receptions: list[Event], sendings: list[Event]) -> list[tuple[Event, Event]]:
    """Pair receptions of a Messager with sendings of the same payload in replay order."""
    both = sorted([*receptions, *sendings], key=lambda one: one.cursor)
    rule = MessageRule()
    for number, entry in enumerate(both):
        if entry.kind == "sent":
            rule.sent(number, entry.ts, None, b"")
        else:
            rule.received(number, entry.ts, None, b"", (0, None))
    rule.end()
    pairs: list[tuple[Event, Event]] = []
    paired: set[int] = set()
    for number, message, _ in sorted(rule.deliveries):
        if message is not None and both[message].kind == "sent" and _is_possible(both[number], both[message]):
            pairs.append((both[number], both[message]))
            paired |= {number, message}
    for number, entry in enumerate(both):  # what is left belongs to the next sendings
        if entry.kind == "received" and number not in paired:
            found = next((at for at in _next(both, number) if at not in paired and _is_possible(entry, both[at])), None)
            if found is not None:
                pairs.append((entry, both[found]))
                paired.add(found)
    return pairs


def _next(events: list[Event], number: int) -> Iterator[int]:
    """Yield the numbers of the sendings of the next minute."""
    for at in range(number, len(events)):
        if events[at].ts - events[number].ts > WITHIN_NS:
            return
        if events[at].kind == "sent":
            yield at


def sender_rules(recorders: Iterable[RecorderRow]) -> list[str]:
    """Return the rules by which these recorders derived senders, without repetition."""
    given = (row.meta.get("sender") for row in recorders)
    rules = (rule for listed in given for rule in (listed if isinstance(listed, list) else DEFAULT_SENDER))
    return list(dict.fromkeys(map(str, rules))) or list(DEFAULT_SENDER)


def is_own_mark(entry: Event) -> bool:
    """Return True for a mark that a Messager logs itself, of its subscriptions or of its closing."""
    return is_own(entry.mark or "")


def retracted(events: Iterable[Event]) -> set[Key]:
    """Return the sendings that other events retract."""
    return {entry.cause for entry in events if entry.kind in ("failed", "blocked") and entry.cause is not None}


def given_sender(entry: Event) -> object:
    """Return the sender that the recorded program gave; None if it gave none, also if one was derived."""
    return None if entry.flags & FROM_DERIVED else entry.from_id


def doubled(events: Iterable[Event]) -> dict[Cursor, Event]:
    """Return the events that another recorder of their Messager has as well, each with the other event.

    The events of the recorder that has most of a Messager are kept, then those of the first.
    """
    by_messager: dict[str, dict[int, list[Event]]] = {}
    for entry in events:
        if entry.messager is not None:
            by_messager.setdefault(entry.messager, {}).setdefault(entry.recorder, []).append(entry)
    found: dict[Cursor, Event] = {}
    for by_recorder in by_messager.values():
        if len(by_recorder) == 1:
            continue
        kept, *others = sorted(by_recorder.values(), key=lambda listed: (-len(listed), listed[0].recorder))
        for listed in others:
            same = _same(kept, listed, _moment)
            if same:
                paired = {entry.cursor for entry in same.values()}
                free = [entry for entry in kept if entry.cursor not in paired]
                same |= _same(free, [entry for entry in listed if entry.cursor not in same], _message)
            kept = kept + [entry for entry in listed if entry.cursor not in same]
            found |= same
    return found


def _same(kept: Sequence[Event], others: Sequence[Event], identity: Callable[[Event], Hashable]) -> dict[Cursor, Event]:
    """Return the others that have the identity of a kept event, each paired with another one, in order."""
    free: dict[Hashable, deque[Event]] = {}
    for entry in kept:
        free.setdefault(identity(entry), deque()).append(entry)
    return {entry.cursor: same.popleft() for entry in others if (same := free.get(identity(entry)))}


def _moment(entry: Event) -> Hashable:
    if entry.kind == "received" and entry.arrival is not None:
        return entry.arrival
    return entry.kind, entry.ts, entry.channel, entry.arrival


def _message(entry: Event) -> Hashable:
    return (entry.channel, entry.payload, entry.arrival) if entry.kind == "sent" else entry.cursor
