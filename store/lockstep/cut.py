"""Cut: the part of a recording before a point that is closed under what was heard.

The clocks of recorders differ, so an event before a point in replay order may have been caused by one behind it: its
reception is stamped earlier than its sending, or an agent spoke after it had heard such a message. A fork cannot
repeat that. The cut is the largest set of events before the point in which nothing depends on an event outside:

- a reception depends on the sending it belongs to, and on the earlier receptions of its Messager;
- what a Messager said or marked depends on what it had heard, and on what it said and marked before;
- the outcome of a sending belongs to it, on whichever side of the point it was logged.

Events without a schedule (of taps, and of older recordings) are taken by their place in replay order.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..log.event import Cursor, Event
from .recording import Recording, key
from .schedule import Key

_NEVER = 1 << 62


@dataclass(slots=True)
class Cut:
    """A closed part of a recording."""

    cursor: Cursor
    """The point: no event at or behind it is part of the cut, except outcomes of sendings before it."""
    keys: frozenset[Key]
    """(recorder, seq) of the events of the cut."""
    excluded: int
    """Number of events before the point that were caused from behind it, and so are not part of the cut."""

    def __contains__(self, entry: Event) -> bool:
        return key(entry) in self.keys


@dataclass(slots=True)
class _Bounds:
    """First event of each kind of a Messager that is outside."""

    arrival: int = _NEVER
    """Number of a reception."""
    act: int = _NEVER
    """Place among what it said and marked."""


def closed_cut(recording: Recording, cursor: Cursor) -> Cut:
    """Return the largest closed part of a complete recording before a point."""
    before = {key(entry) for entry in recording.events if entry.cursor < cursor}
    messagers = {entry.messager for entry in recording.events if entry.messager is not None}
    sources = recording.sources(messagers)
    bounds = {messager: _Bounds() for messager in messagers}
    inside = set(before)
    changed = True
    while changed:
        changed = False
        acts = dict.fromkeys(messagers, 0)
        for entry in recording.events:
            place, messager = key(entry), entry.messager
            if messager is None or _is_outcome(entry):
                continue
            bound = bounds[messager]
            if entry.kind == "received":
                number = _NEVER - 1 if entry.arrival is None else entry.arrival
                source = sources.get(place)
                out = place not in before or number >= bound.arrival or (source is not None and source not in inside)
                if out and entry.arrival is not None and number < bound.arrival:
                    bound.arrival = number
                    changed = True
            else:
                act = acts[messager]
                acts[messager] += 1
                heard = entry.arrival or 0
                out = place not in before or act >= bound.act or heard >= bound.arrival
                if out and act < bound.act:
                    bound.act = act
                    changed = True
            if out and place in inside:
                inside.discard(place)
                changed = True
    outcomes = {key(entry): entry.cause for entry in recording.events if _is_outcome(entry)}
    excluded = sum(1 for place in before if place not in inside and place not in outcomes)
    inside -= outcomes.keys()
    inside |= {place for place, cause in outcomes.items() if cause in inside}
    return Cut(cursor, frozenset(inside), excluded)


def _is_outcome(entry: Event) -> bool:
    """Return True for the outcome of a sending that was logged before it was sent."""
    return entry.kind == "failed" and entry.cause is not None
