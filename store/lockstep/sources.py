"""Sources: to which message each reception of a recording belongs.

The rule of messages decides it (`messager_store.log.message_rule`). It compares clocks, and does not know what had been
fetched. So two corrections follow: a reception that belongs to no sending within the 5 seconds that the rule allows for
clocks belongs to a sending of the next minute, or the minute before, that its listener did not receive; and none
belongs to a message that its own Messager sent after it had fetched that reception.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    misplaced += [by_number[number] for number in sorted(rule.heard)]
    overtaken = _overtaken(belongs)
    if misplaced or overtaken:
        _correct(events, found, misplaced, {_content(entry) for entry in (*misplaced, *overtaken)})
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


def _correct(events: Sequence[Event], found: _Sources, misplaced: list[Event], contents: set[_Content]) -> None:
    """Find other sendings for these receptions, and for those that belong to the same message.

    Equal messages of one sender are received in the order in which they were sent.
    """
    sent: dict[_Content, list[Event]] = {}
    received: dict[tuple[_Content, str | None], list[Event]] = {}
    for entry in events:
        content = _content(entry)
        if content not in contents or key(entry) not in found:
            continue
        if entry.kind == "sent":
            sent.setdefault(content, []).append(entry)
        else:
            received.setdefault((content, entry.messager), []).append(entry)
    left = set(map(key, misplaced))
    for (content, _), receptions in received.items():
        receptions.sort(key=lambda entry: entry.arrival or 0)
        _pair_left([one for one in receptions if key(one) in left], receptions, sent.get(content, []), found)
    for place, message in found.items():
        while found[message] != message:
            message = found[message]
        found[place] = message
    for (content, _), receptions in received.items():
        _put_in_order(receptions, {key(one): one for one in sent.get(content, ())}, found)


def _pair_left(left: list[Event], receptions: list[Event], sent: list[Event], found: _Sources) -> None:
    """Pair receptions that are left with sendings that their listener did not receive, or exchange own later ones."""
    sendings = {key(one): one for one in sent}
    known = {found[key(one)] for one in receptions}
    free = [one for place, one in sendings.items() if place not in known]
    for reception in left if sendings else ():
        place = key(reception)
        own = sendings.get(found[place])
        sending = next((one for one in free if _may_belong(reception, one)), None)
        if sending is not None:
            free.remove(sending)
            found[place] = key(sending)
            free += [own] if own is not None else []
        elif own is not None:
            other = next((one for one in receptions if _may_exchange(reception, own, one, sendings, found)), None)
            found[place] = place if other is None else found[key(other)]
            if other is not None:
                found[key(other)] = key(own)


def _put_in_order(receptions: list[Event], sendings: dict[Key, Event], found: _Sources) -> None:
    """Let the receptions of one listener belong to the messages of each sender in the order in which these were
    sent."""
    by_sender: dict[str | None, list[Event]] = {}
    for reception in receptions:
        if (sending := sendings.get(found[key(reception)])) is not None:
            by_sender.setdefault(sending.messager, []).append(reception)
    for listed in by_sender.values():
        ordered = sorted((sendings[found[key(one)]] for one in listed), key=lambda one: one.cursor)
        found |= {key(reception): key(sending) for reception, sending in zip(listed, ordered, strict=True)}


def _may_exchange(reception: Event, own: Event, other: Event, sendings: dict[Key, Event], found: _Sources) -> bool:
    """Return whether two receptions of a Messager may belong to the sendings of each other."""
    sending = sendings.get(found[key(other)])
    return sending is not None and _may_belong(reception, sending) and _may_belong(other, own)


def _may_belong(reception: Event, sending: Event) -> bool:
    return abs(reception.ts - sending.ts) <= WITHIN_NS and not _fetched_before(reception, sending)


def _fetched_before(reception: Event, message: Event) -> bool:
    """Return whether a Messager had fetched a reception before it sent this message itself."""
    own = reception.messager is not None and reception.messager == message.messager and message.kind == "sent"
    return own and (message.arrival or 0) >= (reception.arrival or 0)
