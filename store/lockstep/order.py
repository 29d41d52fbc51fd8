"""Order in which recorded messages are released and live ones awaited: replay order, corrected by what was heard.

If the clocks of recorders differed, a message may lie behind one that was said after it had been heard. Whoever waits
for the latter would wait in vain: so each message comes at the latest where it is needed.
"""

from __future__ import annotations

from ..log.event import Event
from .cast import Cast
from .recording import Recording, key
from .schedule import Key


def release_order(recording: Recording, cast: Cast) -> list[Event]:
    """Return the messages of a recording, in replay order unless a live message depends on a later one."""
    places = {key(entry): place for place, entry in enumerate(recording.messages)}
    needed = _dependencies(cast, places)
    changed = True
    moved = False
    while changed:
        changed = False
        for message, before in needed:
            place = places[message]
            for one in before:
                if places[one] > place:
                    places[one] = place
                    changed = moved = True
    if not moved:
        return recording.messages
    order = enumerate(recording.messages)
    ranked = sorted((places[key(entry)], key(entry) in cast.expected, place) for place, entry in order)
    return [recording.messages[place] for _, _, place in ranked]


def _dependencies(cast: Cast, places: dict[Key, int]) -> list[tuple[Key, list[Key]]]:
    """Return, for each live message, what it directly depends on: what was heard since the last one, and that one."""
    found = []
    for part in cast.parts:
        if not part.exact:
            continue
        before: list[Key] = []
        at = 0
        for saying in part.sayings:
            while at < saying.needs:
                source = part.receptions[at].source
                if source is not None and source in places:
                    before.append(source)
                at += 1
            if key(saying.event) in places:
                found.append((key(saying.event), before))
                before = [key(saying.event)]
    return found
