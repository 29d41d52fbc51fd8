"""Edits of a recording: what the live agents said takes the place of what they had said.

Only the lines that change are written anew; all others keep their bytes, so that a review shows what changed.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from messager import channels
from messager_store.db.codes import FROM_DERIVED, TO_DERIVED
from messager_store.lockstep.cast import CastError, make_cast
from messager_store.lockstep.recording import Recording
from messager_store.log.event import Event, NewEvent
from messager_store.recording.derived_ids import DerivedIds

from .alignment import Pair, Saying
from .event_lines import dumped, event_line, with_payload
from .marks import agents_named
from .recording_file import BadRecording, RecordingFile


@dataclass(slots=True)
class Edits:
    """Edits of the lines of one recording, by the position of the event in it."""

    replaced: dict[int, bytes] = field(default_factory=dict)
    """New lines of events."""
    dropped: set[int] = field(default_factory=set)
    added: list[tuple[int, bytes]] = field(default_factory=list)
    """New lines, each with the position of the event that it follows; -1 for the beginning."""
    changed_messages: int = 0
    dropped_messages: int = 0

    def __bool__(self) -> bool:
        return bool(self.replaced or self.dropped or self.added)

    def to_dict(self) -> dict[str, Any]:
        """Return them as JSON data, for `from_dict`."""
        return {
            "replaced": [[at, line.decode()] for at, line in self.replaced.items()],
            "dropped": sorted(self.dropped),
            "added": [[at, line.decode()] for at, line in self.added],
            "counts": [self.changed_messages, self.dropped_messages],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Edits:
        """Return what `to_dict` gave."""
        added = [(at, line.encode()) for at, line in data["added"]]
        return cls({at: line.encode() for at, line in data["replaced"]}, set(data["dropped"]), added, *data["counts"])

    def add(self, other: Edits) -> None:
        """Add edits of other lines."""
        self.replaced |= other.replaced
        self.dropped |= other.dropped
        self.added += other.added
        self.changed_messages += other.changed_messages
        self.dropped_messages += other.dropped_messages

    def apply(self, lines: Sequence[bytes]) -> list[bytes]:
        """Return the lines of a recording after these edits."""
        header = header_length(lines)
        made = list(lines[:header])
        added: defaultdict[int, list[bytes]] = defaultdict(list)
        for after, line in self.added:
            added[after].append(line)
        labels = {json.loads(lines[header + at]).get("label") for at in self.dropped} - {None}
        for at in range(-1, len(lines) - header):
            if at >= 0 and at not in self.dropped:
                line = self.replaced.get(at, lines[header + at])
                made.append(_without_cause(line, labels) if labels else line)
            made += added[at]
        return made


def edits(file: RecordingFile, pairs: Iterable[Pair]) -> Edits:
    """Return the edits that put the messages of a live agent into the place of the expected ones.

    `pairs` are in the order in which the messages were said. What others received of a message is edited like the
    message itself. A message that is added has no receptions: recorded agents did not hear it. One that moves, because
    it was said at another time or in another order, keeps the receptions that come after its new place.
    """
    found = Edits()
    events = file.events
    lines = file.lines[header_length(file.lines) :]
    several = any(event.recorder != 1 for event in events)
    place = {(event.recorder, event.seq): at for at, event in enumerate(events)}
    copies = _receptions(events)
    listed = [(pair, -1 if (one := pair.expected) is None else place[one.recorder, one.seq]) for pair in pairs]
    staying = _staying(listed)
    last = -1  # position of the last message of the agent
    for pair, at in listed:
        live = pair.live
        if at in staying:
            last = max(last, at)
            if live is not None and not pair.matched:
                found.replaced |= {one: with_payload(lines[one], None, live.payload) for one in copies.get(at, ())}
                kind = None if events[at].kind == "received" else live.kind
                found.replaced[at] = with_payload(lines[at], kind, live.payload)
                found.changed_messages += 1
            continue
        unheard = set(copies.get(at, ()))
        if live is not None:
            follows = -1 if live.follows is None else place.get(live.follows, -1)
            last = max(last, _last_heard(events, live), follows)
            ts = events[max(last, 0)].ts if events else 0  # of equal times, lines keep their order
            recorder = events[last].recorder if last >= 0 else 1
            found.added.append((last, event_line(_new(live, ts), recorder if several else None)))
            later = {one for one in unheard if one > last}
            unheard -= later
            if not pair.matched:
                found.replaced |= {one: with_payload(lines[one], None, live.payload) for one in later}
        if at >= 0:
            found.dropped |= {at, *unheard}
            found.dropped_messages += 1
    return found


def _staying(pairs: Sequence[tuple[Pair, int]]) -> set[int]:
    """Return the positions of the lines that keep their places: as many as stand in the order of the live messages."""
    found = [at for pair, at in pairs if at >= 0 and pair.live is not None and not pair.moved]
    if all(pair.matched and not pair.stays for pair, _ in pairs) and len(found) == len(pairs):
        return set(found)  # messages of several tasks may have changed places
    ends: list[int] = []  # last position of the best order of each length
    before: dict[int, int | None] = {}
    for at in found:
        length = bisect_left(ends, at)
        before[at] = ends[length - 1] if length else None
        ends[length : length + 1] = [at]
    staying: set[int] = set()
    one = ends[-1] if ends else None
    while one is not None:
        staying.add(one)
        one = before[one]
    return staying


def _new(live: Saying, ts: int) -> NewEvent:
    """Return the event of a message that is added, with the ids that a recorder would derive."""
    ids = DerivedIds()
    sender, msg_id = ids.from_message(live.payload, None, sender=live.from_id is None)
    recipient = ids.recipient(live.channel) if live.to_id is None else None
    return NewEvent(
        *(live.kind, ts, live.channel, live.payload),
        *(sender if live.from_id is None else live.from_id, recipient if live.to_id is None else live.to_id),
        (0 if sender is None else FROM_DERIVED) | (0 if recipient is None else TO_DERIVED),
        msg_id=msg_id,
        messager=live.messager,
        arrival=live.heard,
    )


def check_playable(edit: Edits, file: RecordingFile, shown: str, live: Iterable[Any]) -> None:
    """Raise `BadRecording` if the edited recording shows nothing of a live agent, so that no test could play it."""
    left = [event for at, event in enumerate(file.events) if at not in edit.dropped]
    speakers = {str(json.loads(line)["from_id"]) for _, line in edit.added}
    silent = [agent for agent in live if str(agent) not in speakers]
    try:
        make_cast(Recording.of_events(shown, left), silent, channels.encode)
    except CastError:
        raise BadRecording(
            f"{shown} is left as it is: without what {agents_named(silent)} said, it shows nothing of it, "
            "so that no test can replay it. Delete the test and the recording if the agent is to say nothing."
        ) from None


def header_length(lines: Sequence[bytes]) -> int:
    """Return the number of lines before the first event."""
    return 0 if not lines or "ts" in json.loads(lines[0]) else 1


def _receptions(events: Sequence[Event]) -> dict[int, list[int]]:
    """Return the receptions of each message, by position: of equal messages on a channel, each the next ones."""
    said: defaultdict[tuple[str | None, bytes], list[int]] = defaultdict(list)
    heard: defaultdict[tuple[str | None, bytes], defaultdict[Any, list[int]]] = defaultdict(lambda: defaultdict(list))
    for at, event in enumerate(events):
        key = event.channel, event.payload
        if event.kind == "sent":
            said[key].append(at)
        elif event.kind == "received":
            heard[key][event.messager or event.recorder].append(at)
    found: dict[int, list[int]] = {}
    for key, positions in said.items():
        for number, at in enumerate(positions):
            found[at] = [copies[number] for copies in heard[key].values() if number < len(copies)]
    return found


def _last_heard(events: Sequence[Event], live: Saying) -> int:
    """Return the position of the last message that a live agent had received before it spoke; -1 for none."""
    if not live.heard:
        return -1
    return max(
        (
            at
            for at, event in enumerate(events)
            if event.kind == "received" and event.messager == live.messager and 0 < (event.arrival or 0) <= live.heard
        ),
        default=-1,
    )


def _without_cause(line: bytes, labels: set[Any]) -> bytes:
    """Return a line without its cause if that is one of the events with these labels."""
    data = json.loads(line)
    if data.get("cause") not in labels:
        return line
    del data["cause"]
    return dumped(data)
