"""Decoded text and activity: filling of the side tables `said` and `activity`, in order of recorder and seq."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from sqlalchemy import bindparam, case, delete, func, null, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from ..db.codes import BUCKET_NS, KINDS, NO_TEXT, REDACTED, SEQ_BITS, SEQ_MASK
from ..db.database import Database
from ..db.schema import activity, event, indexed_recorder, recorder, said
from ..log.attributes import meta_of
from ..log.event_query import EventQuery, parameter
from ..log.text import MAX_TEXT, normalised, readable, text_of_meta
from . import side_tables

PAGE = 2000
"""Maximum of events in one transaction."""
PAGE_BYTES = 8 * 1024 * 1024
"""Payload bytes after which a page ends."""
MAX_FETCHED = 32 * 1024
"""Bytes of a payload that is read together with others."""
_OF_THE_LOG = {KINDS.index(kind) + 1: kind for kind in ("gap", "mark")}
"""Kinds without a payload."""
_FIRST_NS = -(2**63)

Progress = Callable[[int, int], None]
"""Called with the number of events that are done, and the total."""


class _Part(NamedTuple):
    """Events of one recorder: those behind the seq `after`, up to the seq `upto`."""

    recorder: int
    after: int
    upto: int


class _Row(NamedTuple):
    """An event as `_QUERY` selects it."""

    id: int
    ts: int
    kind: int
    channel_id: int | None
    from_id: int | None
    to_id: int | None
    flags: int
    attributes: str | None
    length: int
    payload: bytes | None
    """None above `MAX_FETCHED` bytes."""


_Key = tuple[int, int, int, int, int, int]
"""The primary key of `activity`."""


@dataclass(slots=True)
class _Page:
    """Rows to write in one transaction."""

    redactions: int
    parts: list[_Part] = field(default_factory=list)
    said: list[tuple[int, str | None, str | None]] = field(default_factory=list)
    activity: dict[_Key, list[int]] = field(default_factory=dict)
    """Number of events and payload bytes."""
    size: int = 0
    """Payload bytes of its events."""

    @property
    def full(self) -> bool:
        return len(self.said) >= PAGE or self.size >= PAGE_BYTES

    def add(self, row: _Row, payload: bytes) -> None:
        self.size += row.length
        text = _text(row, payload)
        self.said.append((row.id, text, None if text is None else normalised(text)[:MAX_TEXT]))
        bucket = max(row.ts - row.ts % BUCKET_NS, _FIRST_NS)
        names = row.channel_id or 0, row.from_id or 0, row.to_id or 0
        kind = -row.kind if row.flags & REDACTED else row.kind
        counts = self.activity.setdefault((row.id >> SEQ_BITS, bucket, kind, *names), [0, 0])
        counts[0] += 1
        counts[1] += row.length


def _text(row: _Row, payload: bytes) -> str | None:
    if row.flags & REDACTED or (row.flags & NO_TEXT and not _is_utf_8(payload)):
        return None
    if row.kind in _OF_THE_LOG:
        return text_of_meta(_OF_THE_LOG[row.kind], meta_of(row.attributes))[:MAX_TEXT]
    return readable(payload)[:MAX_TEXT]


def _is_utf_8(payload: bytes) -> bool:
    """Return whether a payload with the flag NO_TEXT is text all the same: JSON with an escaped half of a character."""
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True


_LENGTH = func.length(event.c.payload)
_QUERY = (
    select(
        *(event.c.id, event.c.ts, event.c.kind, event.c.channel_id, event.c.from_id, event.c.to_id, event.c.flags),
        case((event.c.kind.in_(_OF_THE_LOG), event.c.attributes), else_=null()),
        _LENGTH,
        case((_LENGTH <= MAX_FETCHED, event.c.payload), else_=null()),
    )
    .where(event.c.id > parameter("after"), event.c.id <= parameter("upto"))
    .order_by(event.c.id)
    .limit(parameter("size"))
)


async def fill(database: Database, experiment_id: int, progress: Progress | None = None) -> int | None:
    """Index the events that are in the log now; return their number, None if the state was cleared meanwhile."""
    done, total = 0, 0
    while behind := await _behind(database, experiment_id):
        total = total or sum(part.upto - part.after for part in behind)
        filling = _Filling(database, experiment_id)
        while behind:
            page = await filling.read(behind)
            written = await filling.write(page)
            if written is None:
                return None
            if not written:
                break  # another indexer wrote these events
            done += len(page.said)
            if progress is not None:
                progress(min(done, total), total)
            if done >= total:
                return done  # later events are left for the next time
    return done


async def _behind(database: Database, experiment_id: int) -> list[_Part]:
    """Return what is not indexed yet, the last recorder first."""
    query = (
        select(recorder.c.id, indexed_recorder.c.text_seq, recorder.c.last_seq)
        .join(indexed_recorder, indexed_recorder.c.recorder_id == recorder.c.id)
        .where(recorder.c.experiment_id == experiment_id, indexed_recorder.c.text_seq < recorder.c.last_seq)
        .order_by(recorder.c.id.desc())
    )
    async with database.reading() as connection:
        return [_Part(*row) for row in await connection.execute(query)]


class _Filling:
    """Reads and writes pages of one experiment."""

    def __init__(self, database: Database, experiment_id: int) -> None:
        self._database = database
        self._experiment_id = experiment_id
        self._query = EventQuery(_QUERY)

    async def read(self, behind: list[_Part]) -> _Page:
        """Return the next page, and take its events from `behind`."""
        async with self._database.reading() as connection:
            page = _Page(await side_tables.redactions(connection, self._experiment_id))
            while behind and not page.full:
                number, after, upto = behind.pop()
                reached = await self._read_part(connection, page, number, after, upto)
                page.parts.append(_Part(number, after, reached))
                if reached < upto:
                    behind.append(_Part(number, reached, upto))
        return page

    async def _read_part(self, connection: AsyncConnection, page: _Page, number: int, after: int, upto: int) -> int:
        """Add events of one recorder to a page; return the seq that was reached."""
        base, size = number << SEQ_BITS, PAGE - len(page.said)
        bounds = {"after": base | after, "upto": base | upto, "size": size}
        rows = await self._query.rows_within(connection, self._database, **bounds)
        for values in rows:
            row = _Row._make(values)
            payload = row.payload
            if payload is None:
                query = select(event.c.payload).where(event.c.id == row.id)
                payload = (await connection.execute(query)).scalar_one()
            page.add(row, bytes(payload))
            if page.size >= PAGE_BYTES and row.id != rows[-1][0]:
                return row.id & SEQ_MASK
        return rows[-1][0] & SEQ_MASK if len(rows) == size else upto

    async def write(self, page: _Page) -> bool | None:
        """Write a page, unless another indexer has written one of its events: return whether it was written.

        None if the state was cleared.
        """
        async with self._database.writing() as connection:
            if await side_tables.locked(connection, self._experiment_id) is None:
                return None
            if await side_tables.redactions(connection, self._experiment_id) != page.redactions:
                return None
            numbers = [part.recorder for part in page.parts]
            query = select(indexed_recorder).where(indexed_recorder.c.recorder_id.in_(numbers))
            reached = {row.recorder_id: row.text_seq for row in await connection.execute(query)}
            if any(reached.get(part.recorder) != part.after for part in page.parts):
                return False
            await self._make_room(connection, page)
            await self._database.dialect.insert(connection, said, page.said)
            if page.activity:
                rows = [dict(zip(activity.c.keys(), (*key, *sums), strict=True)) for key, sums in page.activity.items()]
                await connection.execute(
                    self._database.dialect.insert_or_add(activity, "messages", "payload_bytes"), rows
                )
            await connection.execute(
                update(indexed_recorder)
                .where(indexed_recorder.c.recorder_id == bindparam("number"))
                .values(text_seq=bindparam("reached")),
                [{"number": part.recorder, "reached": part.upto} for part in page.parts],
            )
        return True

    async def _make_room(self, connection: AsyncConnection, page: _Page) -> None:
        """Delete rows of an earlier version of the decoder."""
        low, high = bindparam("low", type_=event.c.id.type), bindparam("high", type_=event.c.id.type)
        await connection.execute(
            delete(said).where(said.c.event_id > low, said.c.event_id <= high),
            [{"low": part.recorder << SEQ_BITS | part.after, "high": part.recorder << SEQ_BITS | part.upto}
             for part in page.parts],
        )  # fmt: skip
        if begun := [{"number": part.recorder} for part in page.parts if part.after == 0]:
            await connection.execute(delete(activity).where(activity.c.recorder_id == bindparam("number")), begun)
