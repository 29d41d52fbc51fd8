"""Selection of the events to redact: conditions on their columns, evaluated in SQL, and on their text."""

from __future__ import annotations

import re
from array import array
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, and_, false, select

from .. import json_text
from ..db.codes import KINDS, REDACTED, SEQ_BITS
from ..db.database import Database
from ..db.schema import event, place_at, replay_place
from ..errors import StoreError
from ..experiments import registry
from ..experiments.records import Experiment, RecorderRow
from ..log.attributes import decode
from ..log.cursor import resolve
from ..log.event import Cursor
from ..log.event_log import EventLog
from ..log.reading import place_of
from ..log.selection import Selection
from .copies import redacted_in
from .text_search import TextConditions

PAGE = 500
PAGE_BYTES = 16 * 1024 * 1024
"""Payload bytes per page, estimated from the recorder's average."""
_SEQ_MASK = (1 << SEQ_BITS) - 1


@dataclass(frozen=True, slots=True)
class RedactionFilter:
    """Conditions on events, at least one. An event is selected if all conditions hold.

    Each entry of a field is a condition of its own. `agents`, `senders` and `recipients` are
    lists of alternative ids; `channels` are glob patterns; `cursors`, `since` and `until`
    are points (see `messager_store.log.cursor`). `contains` is a text that the payload, the meta or the msg_id
    contains, as raw bytes or after decoding JSON; `matches` is a regular expression searched in the same
    places. A pattern with nested repetitions can take very long; the search runs before anything is changed,
    so it may be interrupted. `redacted_in` are exp_ids: the events are copies, or the originals, of events that are
    redacted there, in the parent or a fork.
    """

    channels: tuple[str, ...] = ()
    agents: tuple[tuple[Any, ...], ...] = ()
    senders: tuple[tuple[Any, ...], ...] = ()
    recipients: tuple[tuple[Any, ...], ...] = ()
    kinds: tuple[str, ...] = ()
    cursors: tuple[str | Cursor, ...] = ()
    since: tuple[Any, ...] = ()
    until: tuple[Any, ...] = ()
    contains: tuple[str, ...] = ()
    matches: tuple[str, ...] = ()
    redacted_in: tuple[str, ...] = ()

    def checked(self) -> RedactionFilter:
        """Return self. Raises `StoreError` if there is no condition, an empty text or an invalid pattern."""
        if not any(getattr(self, name) for name in self.__dataclass_fields__):
            raise StoreError("a redaction without a condition would select every event: give at least one condition")
        if "" in self.contains or "" in self.matches:
            raise StoreError("contains and matches need a text: the empty text is in every event")
        for pattern in self.matches:
            try:
                re.compile(pattern)
            except (re.error, RecursionError, OverflowError) as error:
                raise StoreError(f"{pattern!r} is not a regular expression: {error}") from None
        return self

    def matcher(self, *, any_condition: bool = False) -> Callable[[bytes], bool] | None:
        """Return a predicate on bytes: True if all of `contains` and `matches` are found in them.

        With `any_condition`, True if at least one of them is found. Without text conditions, return None.
        """
        if not self.contains and not self.matches:
            return None
        conditions = TextConditions(self.contains, self.matches)
        return conditions.any_in if any_condition else conditions.all_in

    async def conditions(
        self, database: Database, of: Experiment, recorders: list[RecorderRow]
    ) -> list[ColumnElement[bool]]:
        """Return the conditions on columns in SQL. Raises `BadCursor`, and `StoreError` for an unknown kind."""
        selections = [
            *(Selection(kinds=[kind]) for kind in self.kinds),
            *(Selection(channels=[channel]) for channel in self.channels),
            *(Selection(agents=ids) for ids in self.agents),
            *(Selection(from_ids=ids) for ids in self.senders),
            *(Selection(to_ids=ids) for ids in self.recipients),
        ]
        found: list[ColumnElement[bool]] = []
        for selection in selections:
            found += await selection.condition(database, of)
        numbers = {row.ordinal: row.id for row in recorders}
        for point in self.cursors:
            cursor = point if isinstance(point, Cursor) else Cursor.parse(point)
            number = numbers.get(cursor.recorder)
            here = false() if number is None else event.c.id == number << SEQ_BITS | cursor.seq
            found.append(and_(here, event.c.ts == cursor.ts))
        for point in self.since:
            if (bound := await resolve(database, of, point)) is not None:
                found.append(replay_place >= place_at(*place_of(bound, numbers)))
        for point in self.until:
            if (bound := await resolve(database, of, point)) is not None:
                found.append(replay_place < place_at(*place_of(bound, numbers)))
        return found

    async def common(self, database: Database, of: Experiment, recorders: list[RecorderRow]) -> frozenset[int] | None:
        """Return `event.id` of the events that `redacted_in` selects; None without it. Raises `StoreError`."""
        found = [
            await redacted_in(database, of, recorders, await registry.find(database, exp)) for exp in self.redacted_in
        ]
        return frozenset.intersection(*found) if found else None


@dataclass(slots=True)
class Found:
    """Events selected by a filter."""

    ids: array[int] = field(default_factory=lambda: array("q"))
    """event.id of the events that are not redacted yet, ascending."""
    kinds: dict[str, int] = field(default_factory=dict)
    channels: dict[int | None, int] = field(default_factory=dict)
    """Number of events by the id of the channel's name."""
    done: array[int] = field(default_factory=lambda: array("q"))
    """event.id of selected events that were redacted before."""


async def find(
    log: EventLog,
    of: Experiment,
    chosen: RedactionFilter,
    recorders: list[RecorderRow],
    *,
    ids: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Found:
    """Return the events of an experiment that a filter selects, up to the last seqs of `recorders`.

    With `ids`, also redacted events that still have a sender or recipient. Events are read in pages, so memory use
    is small. `progress` is called with the number of searched events and the total.
    """
    matches = chosen.checked().matcher()
    conditions = await chosen.conditions(log.database, of, recorders)
    common = await chosen.common(log.database, of, recorders)
    columns = [event.c.id, event.c.kind, event.c.channel_id, event.c.flags, event.c.from_id, event.c.to_id]
    if matches is not None:
        columns += [event.c.payload, event.c.attributes]
    found = Found()
    done, total = 0, sum(row.last_seq for row in recorders)
    for row in sorted(recorders, key=lambda row: row.id):
        async for seq in _find(log.database, row, conditions, common, columns, matches, found, ids=ids):
            if progress is not None:
                progress(done + seq, total)
        done += row.last_seq
    return found


def _content(entry: Any) -> Iterator[str | bytes]:
    """Yield what an event says: its payload, its meta as JSON, and its msg_id."""
    yield entry.payload
    known = decode(entry.attributes)
    if known.get("meta") is not None:
        yield json_text.dump(known["meta"])
    if known.get("msg_id") is not None:
        yield known["msg_id"]


async def _find(
    database: Database,
    row: RecorderRow,
    conditions: list[ColumnElement[bool]],
    common: frozenset[int] | None,
    columns: list[Any],
    matches: Callable[[bytes], bool] | None,
    found: Found,
    *,
    ids: bool,
) -> AsyncIterator[int]:
    """Add the selected events of one recorder to `found`; yield the last searched seq after each page.

    Pages are in order of id, the order of the table: the replay index would have to be sorted for each page.
    """
    size = PAGE
    if matches is not None and row.payload_bytes > 0:
        size = max(10, min(PAGE, PAGE_BYTES * row.last_seq // row.payload_bytes))
    last, end = row.id << SEQ_BITS, row.id << SEQ_BITS | row.last_seq
    while True:
        query = select(*columns).where(*conditions, event.c.id > last, event.c.id <= end)
        async with database.reading() as connection:
            entries = (await connection.execute(query.order_by(event.c.id).limit(size))).all()
        for entry in entries:
            if common is not None and entry.id not in common:
                continue
            if matches is not None and not any(
                matches(part if isinstance(part, bytes) else part.encode("utf-8", "surrogatepass"))
                for part in _content(entry)
            ):
                continue
            if entry.flags & REDACTED and not (ids and (entry.from_id is not None or entry.to_id is not None)):
                found.done.append(entry.id)
                continue
            found.ids.append(entry.id)
            kind = KINDS[entry.kind - 1]
            found.kinds[kind] = found.kinds.get(kind, 0) + 1
            found.channels[entry.channel_id] = found.channels.get(entry.channel_id, 0) + 1
        if len(entries) < size:
            return
        last = entries[-1].id
        yield last & _SEQ_MASK
