"""Unrecorded senders: receptions of live Messagers whose sendings are not in the recording.

They are published from the recording, so that the live Messagers receive them. A message that several of them received
is published once.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..log.event import Event
from .recording import Recording, key
from .schedule import Key, Part

_Same = tuple[str | None, bytes]
"""Channel and payload."""


def add_unrecorded(recording: Recording, parts: Iterable[Part]) -> None:
    """Add such receptions to the messages of a recording, and name them as the sources of the receptions of `parts`."""
    waiting = {
        reception.origin: reception for part in parts for reception in part.receptions if reception.source is None
    }
    if not waiting:
        return
    sent = {(entry.channel, entry.payload) for entry in recording.events if entry.kind == "sent"}
    heard: dict[_Same, dict[str | None, list[Event]]] = {}
    for entry in recording.events:
        if key(entry) in waiting and not entry.redacted and (entry.channel, entry.payload) not in sent:
            heard.setdefault((entry.channel, entry.payload), {}).setdefault(entry.messager, []).append(entry)
    played: dict[_Same, list[Key]] = {}
    for entry in recording.messages:
        if entry.kind == "received":
            played.setdefault((entry.channel, entry.payload), []).append(key(entry))
    added = []
    for same, by_messager in heard.items():
        if same not in played:
            most = max(by_messager.values(), key=len)
            added += most
            played[same] = [key(entry) for entry in most]
        for events in by_messager.values():
            for entry, source in zip(events, played[same], strict=False):
                waiting[key(entry)].source = source
    if added:
        recording.messages = sorted([*recording.messages, *added], key=lambda entry: entry.cursor)
