"""Recording: the events of an experiment in memory, as a lockstep replay needs them.

What two recorders recorded of one Messager at the same time counts once (`doubled`). Recorders of a Messager that
follow each other complete each other, so events are compared, not recorders: a reception is the same if it has the same
number, any other event if it has the same time. A strict recorder stamps sendings itself: if two recorders have the
same events otherwise, sendings are the same if their messages are.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Container, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from messager.record import SUBSCRIBED, is_own

from ..db.codes import FROM_DERIVED
from ..errors import StoreError
from ..log.event import Cursor, Event
from ..recording.derived_ids import DEFAULT_SENDER
from .schedule import Key, key
from .sources import sources_of

if TYPE_CHECKING:
    from ..experiments.records import RecorderRow


@dataclass(slots=True)
class Recording:
    """Events of one experiment, or of a part of it, in replay order."""

    exp_id: str
    events: list[Event]
    """All of them, whatever their kind."""
    messages: list[Event]
    """Those that a replay publishes: sendings, and the first receptions of messages whose sending is unknown."""
    sources: dict[Key, Key] = field(default_factory=dict)
    """Message of each reception (see `sources`)."""
    uuids: dict[int, str] = field(default_factory=dict)
    """UUID of each recorder, by ordinal."""
    store: str | None = None
    """Location of the store that it was read from."""
    recorders: Sequence[RecorderRow] = ()

    @classmethod
    def of_events(
        cls,
        exp_id: str,
        events: Iterable[Event],
        uuids: dict[int, str] | None = None,
        *,
        recorders: Sequence[RecorderRow] = (),
        internal: Container[str] = (),
        store: str | None = None,
    ) -> Recording:
        """Return the recording of these events, which need not be in order.

        What a second recorder of the same Messager recorded as well is left out. Messages on the channels `internal`
        are not published.
        """
        listed = sorted(events, key=lambda entry: entry.cursor)
        twice = doubled(listed)
        listed = [entry for entry in listed if entry.cursor not in twice]
        sources = sources_of(listed, recorders)
        published = set(sources.values())
        messages = [entry for entry in listed if key(entry) in published]
        return cls(
            exp_id,
            listed,
            [entry for entry in messages if not entry.redacted and entry.channel not in internal],
            sources,
            uuids or {row.ordinal: row.uuid for row in recorders},
            store,
            recorders,
        )

    @property
    def sender_rules(self) -> list[str]:
        """Rules by which its recorders derived senders (see `messager_store.recording.derived_ids`)."""
        given = (row.meta.get("sender") for row in self.recorders)
        rules = (rule for listed in given for rule in (listed if isinstance(listed, list) else DEFAULT_SENDER))
        return list(dict.fromkeys(map(str, rules))) or list(DEFAULT_SENDER)

    def filtered(self, takes: Callable[[Event], bool]) -> Recording:
        """Return the recording of the events that `takes` accepts. Marks of the Messagers themselves are kept."""
        taken = [entry for entry in self.events if is_own_mark(entry) or takes(entry)]
        return Recording.of_events(self.exp_id, taken, self.uuids, recorders=self.recorders, store=self.store)

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


def is_own_mark(entry: Event) -> bool:
    """Return True for a mark that a Messager logs itself, of its subscriptions or of its closing."""
    return is_own(entry.mark or "")


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
