"""Doubled events: what two recorders recorded of one Messager at the same time counts once.

Recorders of a Messager that follow each other complete each other, so events are compared, not recorders. A reception
is the same if it has the same number, any other event if it has the same time. A strict recorder stamps sendings
itself: if two recorders have the same events otherwise, sendings are the same if their messages are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence

from ..log.event import Cursor, Event


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
