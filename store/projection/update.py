"""Bringing a projection up to date.

    parts      1 -----------| 2 -----------| 3 ------|   tail
                       state 1        state 2   state 3
    late event      ^
    made again [state 0 ... state 1' = state 1] as before

A part begins with the state behind the one before. New events make it go on from the last part; a late event, from the
last state before it, until the state behind a part is what it was: the parts behind that one stay. Only the last part
may be small, and is made again with what follows.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import case, func, null, select, tuple_

from ..db.codes import SEQ_BITS
from ..db.database import Database
from ..db.schema import batch, event, name, replay_place
from ..experiments.records import Experiment, RecorderRow
from ..experiments.registry import recorders_of
from ..log.event_query import EventQuery, parameter
from ..log.event_rows import MAX_FETCHED
from ..log.names import LOOKUP
from ..log.retractions import RETRACTING, retracted
from ..log.rule_feed import began, no_collection
from ..log.subscriptions import Subscriptions
from . import schema
from .builder import Builder
from .cache import mode_of
from .columns import Columns
from .layout import STATE, Manifest, OpenFolder, Part, Place, state_of, tail_of, write_part, write_tail, writing
from .schema import Row

PAGE = 5000
"""Events that are read together."""
PART = 200_000
"""Events of a part, at most."""
PART_BYTES = 128 * 1024 * 1024
"""Bytes of payload after which a part is written."""
TAIL = 10_000
"""Events that are decided again when there are new ones."""
_FIRST: Place = (-(2**63), -1)
_LAST: Place = (2**63 - 1, 2**63 - 1)
_PAYLOAD = case((func.length(event.c.payload) <= MAX_FETCHED, event.c.payload), else_=null())
_ROW = (*(event.c[column] for column in Row._fields[:-1]), _PAYLOAD)
_EVENTS = EventQuery(
    select(*_ROW)
    .where(
        event.c.experiment_id == parameter("experiment"),
        replay_place > tuple_(parameter("ts"), parameter("id")),
        replay_place <= tuple_(parameter("last_ts"), parameter("last_id")),
    )
    .order_by(event.c.ts, event.c.id)
    .limit(parameter("size"))
)
_PAYLOAD_OF = EventQuery(select(event.c.payload).where(event.c.id == parameter("id")))
_FIRST_NEW = EventQuery(
    select(event.c.ts, event.c.id)
    .where(
        event.c.id > parameter("first"),
        event.c.id <= parameter("last"),
        replay_place > tuple_(parameter("ts"), parameter("id")),
    )
    .order_by(event.c.ts, event.c.id)
    .limit(1)
)
_HEAD = EventQuery(
    select(batch.c.first_seq, batch.c.count, batch.c.chain_hash)
    .where(batch.c.recorder_id == parameter("recorder"), batch.c.first_seq <= parameter("seq"))
    .order_by(batch.c.first_seq.desc())
    .limit(1)
)


class Updater:
    """Brings the projection of one experiment up to date. For one call of `update`."""

    def __init__(
        self, database: Database, of: Experiment, folder: Path, progress: Callable[[int, int], None] | None = None
    ) -> None:
        self._database = database
        self._of = of
        self._folder = folder
        self._mode = mode_of(database)
        self._progress = progress
        self._open: OpenFolder
        self._columns: Columns
        self._done = 0
        """Number of events that were read."""
        self._new = 0
        """Number of events that the projection does not have."""
        self.manifest = Manifest()
        self._rows_of_recorders: list[RecorderRow] = []
        self._last_ids: dict[int, int] = {}
        """Ids of the last events, by the recorder's id."""
        self._known: dict[int, int] = {}
        """Ids of the last events that the projection has, the same."""
        self._began: dict[int, int] = {}
        self._names = schema.Names("", (), {}, {})
        self._retracted: set[int] = set()
        self._new_places: list[Place] = []
        """Those of sendings that the projection does not know as retracted."""
        self._looked: tuple[Place, Place] = (_LAST, _LAST)
        """A place, and that of the first new event behind it."""

    async def update(self) -> Any:
        """Write what is new; return the events behind the parts as a `pyarrow.Table`.

        Raises `OSError` if the folder cannot be written.
        """
        schema.pyarrow()
        manifest = await asyncio.to_thread(Manifest.read, self._folder)
        if manifest.tail is not None and manifest.recorders == _covered(
            await recorders_of(self._database, self._of.id)
        ):
            self.manifest = manifest
            with contextlib.suppress(FileNotFoundError):  # another process has replaced it meanwhile
                return await asyncio.to_thread(tail_of, self._folder, manifest.tail)
        lock = writing(self._folder, self._mode)
        self._open = await asyncio.to_thread(lock.__enter__)
        try:
            with no_collection():
                return await self._update()
        except OSError:  # the disk may be full
            self._open.tidy(Manifest.read(self._folder))
            raise
        finally:
            lock.__exit__(None, None, None)

    async def _update(self) -> Any:
        self.manifest = await asyncio.to_thread(Manifest.read, self._folder)
        self._open.tidy(self.manifest)
        await self._read_recorders()
        await self._read_retractions()
        with Columns(self._names, self._new) as self._columns:
            return await self._decide()

    async def _decide(self) -> Any:
        old = self.manifest.parts
        parts, builder, place = await self._known_parts(old)
        if not await self._add_rest(parts, builder, place):
            parts, builder, place = await self._known_parts([part for part in old if part.whole])
            await self._add_rest(parts, builder, place)
        builder.end()
        await builder.settle()
        tail = await asyncio.to_thread(builder.take)
        name = await asyncio.to_thread(write_tail, self._open, tail)
        covered, undone = _covered(self._rows_of_recorders), sorted(self._retracted)
        self.manifest = Manifest(covered, undone, parts, name, builder.take_hurried())
        await asyncio.to_thread(self._open.replace, self.manifest)
        return tail

    async def _known_parts(self, old: list[Part]) -> tuple[list[Part], Builder, Place]:
        """Return the parts of the time of the old ones, what goes on behind them, and its place.

        An old part stays if the state before it is what it was, and nothing new is in it.
        """
        parts: list[Part] = []
        builder = self._builder()
        place, same = _FIRST, True
        for part in old:
            if same and part.place < await self._first_new(place):
                parts.append(part)
                place = part.place
                continue
            if same and parts:
                builder = await self._behind(parts[-1])
            made = await self._part(builder, place, part.place, whole=part.whole)
            same = made.sha256[STATE] == part.sha256[STATE]
            parts.append(made)
            place = part.place
        if same and parts:
            builder = await self._behind(parts[-1])
        return parts, builder, place

    async def _add_rest(self, parts: list[Part], builder: Builder, place: Place) -> bool:
        """Add the parts behind a place; return False if the last one is not whole, and another one must follow."""
        last = parts[-1] if parts and not parts[-1].whole else None
        events = 0
        writing: asyncio.Task[Part] | None = None
        try:
            async for page in self._pages(place, _LAST):
                builder.add(page)
                events += len(page)
                place = page[-1][:2]
                if last is not None and events > TAIL:
                    return False
                if events >= PART or builder.bytes >= PART_BYTES:
                    if writing is not None:
                        parts.append(await writing)
                    await builder.settle()
                    writing = asyncio.create_task(self._write(builder, place, events, whole=True))
                    await asyncio.sleep(0)  # it takes what the builder has
                    events = 0
        finally:
            if writing is not None:
                parts.append(await writing)
        if events > TAIL:
            parts.append(await self._write(builder, place, events, whole=False))
        return True

    def _builder(self) -> Builder:
        subscriptions = Subscriptions(self._rows_of_recorders, self._names.values)
        return Builder(self._retracted, self._began, self._names, subscriptions, self._columns)

    async def _behind(self, part: Part) -> Builder:
        """Return a builder in the state behind a part."""
        builder = self._builder()
        state = await asyncio.to_thread(state_of, self._folder, part)
        builder.restore(state, await self._rows(builder.held(state)))
        return builder

    async def _read_recorders(self) -> None:
        """Read recorders and names; begin anew if the log is not the one that the projection was made from."""
        rows = self._rows_of_recorders = await recorders_of(self._database, self._of.id)
        self._last_ids = {row.id: row.id << SEQ_BITS | row.last_seq for row in rows}
        self._began = began(rows)
        known = self.manifest.recorders
        here = {row.uuid: row for row in rows}
        for uuid, (seq, head) in known.items():
            if uuid not in here or (seq and await self._head_at(here[uuid], seq) != head):
                self.manifest, known = Manifest(), {}
                self._open.clear()
                break
        self._known = {row.id: row.id << SEQ_BITS | known.get(row.uuid, (0, ""))[0] for row in rows}
        self._new = sum(last - self._known[number] for number, last in self._last_ids.items())
        query = select(name.c.id, name.c.what, name.c.value).where(name.c.experiment_id == self._of.id)
        async with self._database.reading() as connection:
            found = [tuple(row) for row in await connection.execute(query)]
        self._names = schema.Names(
            self._database.location,
            found,
            {row.id: row.ordinal for row in rows},
            {row.uuid: row.ordinal for row in rows},
        )

    async def _head_at(self, row: RecorderRow, seq: int) -> str | None:
        """Return the chain hash of a recorder at a seq; None if no batch ends there."""
        if row.last_seq == seq:
            return row.head_hash.hex()
        for first, count, chain_hash in await _HEAD.rows(self._database, recorder=row.id, seq=seq):
            if first + count - 1 == seq:
                return bytes(chain_hash).hex()
        return None

    async def _read_retractions(self) -> None:
        """Read the sendings that new events retract."""
        rows: list[Any] = []
        async with self._database.reading() as connection:
            for number, last in self._last_ids.items():
                if last > self._known[number]:
                    those = event.c.id > self._known[number], event.c.id <= last
                    rows += await connection.execute(RETRACTING.where(*those))
        before = set(self.manifest.retracted)
        ids = {row.uuid: row.id for row in self._rows_of_recorders}
        new = retracted(rows, ids).keys() - before
        self._retracted = before | new
        known = sorted(number for number in new if not self._is_new(number))
        self._new_places = sorted(row[:2] for row in await self._rows(known))

    def _is_new(self, number: int) -> bool:
        return number > self._known.get(number >> SEQ_BITS, 0)

    async def _first_new(self, after: Place) -> Place:
        """Return the place of the first new event behind a place, or of the first sending that one retracts."""
        since, first = self._looked
        if since <= after < first:
            return first
        found = [_LAST, *(place for place in self._new_places if place > after)][:2]
        for number, last in self._last_ids.items():
            known = self._known[number]
            if last > known:
                rows = await _FIRST_NEW.rows(self._database, first=known, last=last, ts=after[0], id=after[1])
                found += [(ts, at) for ts, at in rows]
        self._looked = after, min(found)
        return min(found)

    async def _rows(self, ids: Sequence[int]) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = []
        async with self._database.reading() as connection:
            for at in range(0, len(ids), LOOKUP):
                rows = await connection.execute(select(*_ROW).where(event.c.id.in_(ids[at : at + LOOKUP])))
                found += map(tuple, rows)
        return [await self._with_payload(row) for row in found]

    async def _with_payload(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return a row with its payload, which a query for several rows leaves out if it is large."""
        *others, payload = row
        if payload is not None:
            return row
        ((payload,),) = await _PAYLOAD_OF.rows(self._database, id=others[1])
        return *others, bytes(payload)

    async def _pages(self, after: Place, upto: Place) -> AsyncIterator[list[tuple[Any, ...]]]:
        """Yield the events between two places, without those behind the recorders' last seqs."""
        last_ids = self._last_ids
        while True:
            bounds = {"ts": after[0], "id": after[1], "last_ts": upto[0], "last_id": upto[1]}
            rows = await _EVENTS.rows(self._database, experiment=self._of.id, size=PAGE, **bounds)
            page: list[tuple[Any, ...]] = []
            large = 0
            for row in rows:
                if row[1] > last_ids.get(row[1] >> SEQ_BITS, 0):
                    continue
                if row[-1] is None:
                    row = await self._with_payload(row)
                    large += len(row[-1])
                page.append(row)
                if large >= PART_BYTES:  # so that few of them are in memory at a time
                    yield page
                    page, large = [], 0
            if page:
                yield page
            self._done += len(rows)
            if self._progress is not None:
                self._progress(self._done, max(self._done, self._new))
            if len(rows) < PAGE:
                return
            after = rows[-1][:2]

    async def _part(self, builder: Builder, after: Place, upto: Place, *, whole: bool) -> Part:
        """Write the part between two places."""
        events = 0
        async for page in self._pages(after, upto):
            builder.add(page)
            events += len(page)
        return await self._write(builder, upto, events, whole=whole)

    async def _write(self, builder: Builder, place: Place, events: int, *, whole: bool) -> Part:
        await builder.settle()
        table, hurried = builder.take(), builder.take_hurried()
        state = json.dumps(builder.state()).encode()
        label, sums = await asyncio.to_thread(write_part, self._open, table, state)
        return Part(label, place, events, whole, sums, hurried)


def _covered(rows: Iterable[RecorderRow]) -> dict[str, tuple[int, str]]:
    """Return what `Manifest.recorders` has of a log that is covered whole."""
    return {row.uuid: (row.last_seq, row.head_hash.hex()) for row in rows}
