"""Sources: to which message each reception of a recording belongs.

The rule of messages decides it (`messager_store.log.message_rule`). It compares clocks, and does not know what had been
fetched. So two corrections follow: a reception that belongs to no sending within the 5 seconds that the rule allows for
clocks belongs to a sending of the next minute, or the minute before, that its listener did not receive; and none
belongs to a message that its own Messager sent after it had fetched that reception.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING

from ..db.codes import KINDS, SEQ_BITS
from ..log.event import Event
from ..log.message_rule import WITHIN_NS, MessageRule
from ..log.rule_feed import RuleFeed, began
from ..log.subscriptions import Subscriptions
from .schedule import Key, key

if TYPE_CHECKING:
    from ..experiments.records import RecorderRow

_Sources = dict[Key, Key]
_Content = tuple[str | None, bytes]


def sources_of(events: Sequence[Event], recorders: Sequence[RecorderRow]) -> _Sources:
    """Return the message of each sending and reception, by its key; a message is its own.

    `events` are in replay order. Retracted sendings are left out, and what may belong to a redacted message.
    """
    ids = {entry.recorder: entry.recorder for entry in events} | {row.ordinal: row.id for row in recorders}
    numbers: dict[str | None, int] = {}
    names: dict[int, str] = {}
    subscriptions = Subscriptions(recorders, names)
    undone = {ids.get(recorder, recorder) << SEQ_BITS | seq for recorder, seq in retracted(events)}
    rule = MessageRule(undone, began(recorders), subscriptions.copies_of)
    feed = RuleFeed(rule, subscriptions, ids)
    by_number: dict[int, Event] = {}

    def number_of(name: str | None) -> int | None:
        if name is None:
            return None
        number = numbers.setdefault(name, len(numbers) + 1)
        names[number] = name
        return number

    for entry in events:
        number = ids[entry.recorder] << SEQ_BITS | entry.seq
        by_number[number] = entry
        channel, messager = number_of(entry.channel), number_of(entry.messager)
        kind = KINDS.index(entry.kind) + 1
        feed.add(number, entry.ts, kind, channel, messager, entry.payload, entry.redacted, entry.meta or {})
    rule.end()
    found = {key(by_number[number]): key(by_number[number]) for number in rule.messages}
    belongs = [(by_number[one.id], by_number[one.message]) for one in rule.deliveries if one.message is not None]
    found |= {key(reception): key(message) for reception, message in belongs}
    misplaced = [reception for reception, message in belongs if _fetched_before(reception, message)]
    misplaced += [*_overtaken(belongs), *(by_number[number] for number in rule.heard)]
    if misplaced:
        _correct(events, found, {_content(entry) for entry in misplaced})
    return found


def retracted(events: Sequence[Event]) -> set[Key]:
    """Return the sendings that other events retract."""
    return {entry.cause for entry in events if entry.kind in ("failed", "blocked") and entry.cause is not None}


def _content(entry: Event) -> _Content:
    return entry.channel, entry.payload


def _overtaken(belongs: list[tuple[Event, Event]]) -> list[Event]:
    """Return receptions that belong to an earlier message than another one of their sender that came before."""
    last: dict[tuple[str | None, str | None], Event] = {}
    found = []
    for reception, message in sorted(belongs, key=lambda pair: (pair[0].arrival or 0, pair[0].cursor)):
        before = last.setdefault((reception.messager, message.messager), message)
        if message.cursor < before.cursor:
            found.append(reception)
        else:
            last[reception.messager, message.messager] = message
    return found


def _correct(events: Sequence[Event], found: _Sources, contents: set[_Content]) -> None:
    """Find other sendings for receptions of these contents: each listener receives them in the order of their times."""
    sent: dict[_Content, list[Event]] = {}
    received: dict[tuple[_Content, str | int], list[Event]] = {}
    for entry in events:
        content = _content(entry)
        if content not in contents or key(entry) not in found:
            continue
        if entry.kind == "sent":
            sent.setdefault(content, []).append(entry)
        else:
            received.setdefault((content, entry.messager or entry.recorder), []).append(entry)
    for (content, _), receptions in received.items():
        taken = {found[key(one)] for one in receptions}
        free = [one for one in sent.get(content, ()) if key(one) not in taken]
        for reception in receptions:
            if found[key(reception)] == key(reception):
                _take(reception, free, found, WITHIN_NS)
    for place, message in found.items():
        while found[message] != message:
            message = found[message]
        found[place] = message
    for (content, _), receptions in received.items():
        sendings = {key(one): one for one in sent.get(content, ())}
        belong = sorted((one for one in receptions if found[key(one)] in sendings), key=lambda one: one.arrival or 0)
        taken = {found[key(one)] for one in belong}
        free = [one for place, one in sendings.items() if place not in taken]
        pool = sorted((sendings[found[key(one)]] for one in belong), key=lambda one: one.cursor)
        for reception in belong:
            if not (_take(reception, pool, found) or _take(reception, free, found)):
                found[key(reception)] = key(reception)


def _take(reception: Event, sendings: list[Event], found: _Sources, within_ns: float = inf) -> bool:
    """Let a reception belong to the first of these sendings that is possible; return False without one."""
    for at, sending in enumerate(sendings):
        if abs(reception.ts - sending.ts) <= within_ns and not _fetched_before(reception, sending):
            found[key(reception)] = key(sendings.pop(at))
            return True
    return False


def _fetched_before(reception: Event, message: Event) -> bool:
    """Return whether a Messager had fetched a reception before it sent this message itself."""
    own = reception.messager is not None and reception.messager == message.messager and message.kind == "sent"
    return own and (message.arrival or 0) >= (reception.arrival or 0)
