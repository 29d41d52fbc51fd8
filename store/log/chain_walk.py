"""Walking the chain of one recorder: its batches in order, each with its events, hashed again on the way.

Verifying, packing and redacting all read the log through here. Rows come from the driver, in pages that span batches;
names are fetched once and kept by id; the events of a page are hashed in one loop. Whoever needs an event by its fields
takes `WalkedPage.entries`, which costs more than everything else.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields
from itertools import chain as chained
from operator import itemgetter
from typing import Any, NamedTuple

from sqlalchemy import case, func, null, select
from sqlalchemy.ext.asyncio import AsyncConnection

from ..db.codes import AGENT, CHANNEL, MESSAGER, SEQ_BITS, SEQ_MASK
from ..db.database import Database
from ..db.schema import batch, event
from . import chain
from .event_query import EventQuery, parameter

BATCHES = 1000
"""Batches read at a time."""
PAGE = 2000
"""Maximum of events read at a time."""
PAGE_BYTES = 8 * 1024 * 1024
"""Payload bytes of a page, estimated from the page before."""
MAX_FETCHED = 32 * 1024
"""Bytes of a payload that is read with its page."""
HELD = 8 * 1024 * 1024
"""Bytes of larger payloads that are held together."""
LOOKUP = 1000
"""Names in one query."""
MOST_NAMES, MOST_NAME_BYTES = 50_000, 16 * 1024 * 1024
"""Names that are kept, and their bytes. Then they are fetched again."""
WRONG_TYPE = (struct.error, TypeError, AttributeError, OverflowError)
"""Errors of hashing a value whose type or size its column should not hold."""


@dataclass(frozen=True, slots=True)
class BatchRow:
    """A row of the table `batch`."""

    recorder_id: int
    first_seq: int
    count: int
    min_ts: int
    max_ts: int
    digest: bytes
    checks: bytes
    chain_hash: bytes
    committed_at: int
    unacknowledged: int


_BATCH_FIELDS = tuple(each.name for each in fields(BatchRow))


class ChainEvent(NamedTuple):
    """An event as the chain hashes it: with the bytes of its names."""

    id: int
    experiment_id: int
    ts: int
    kind: int
    flags: int
    channel: bytes | None
    sender: bytes | None
    recipient: bytes | None
    messager: bytes | None
    attributes: str | None
    payload: bytes
    from_id: int | None
    to_id: int | None
    strange_names: bool
    """True if a name is missing, belongs to another experiment, or is of another kind."""

    @property
    def seq(self) -> int:
        """Its number within its recorder."""
        return self.id & SEQ_MASK


_FIELDS = (
    *("id", "experiment_id", "channel_id", "from_id", "to_id", "messager_id"),
    *("ts", "kind", "flags", "attributes", "payload"),
)
"""The columns of a row of `_EVENTS`, in order."""
names_of = itemgetter(slice(2, 6))
"""The ids of the names of a row of `_EVENTS`."""
_PAYLOAD = _FIELDS.index("payload")
id_of, experiment_of, ts_of, kind_of, flags_of, payload_of = (
    itemgetter(_FIELDS.index(name)) for name in ("id", "experiment_id", "ts", "kind", "flags", "payload")
)
"""Columns of a row of `WalkedPage`."""


_BATCHES = EventQuery(
    select(*(batch.c[key] for key in _BATCH_FIELDS))
    .where(
        batch.c.recorder_id == parameter("recorder"),
        batch.c.first_seq > parameter("after"),
        batch.c.first_seq <= parameter("last"),
    )
    .order_by(batch.c.first_seq)
    .limit(BATCHES)
)
_EVENTS = EventQuery(
    select(
        *(
            event.c[name]
            if name != "payload"
            else case((func.length(event.c.payload) <= MAX_FETCHED, event.c.payload), else_=null())
            for name in _FIELDS
        )
    )
    .where(event.c.id >= parameter("low"), event.c.id < parameter("high"))
    .order_by(event.c.id)
    .limit(parameter("size"))
)
_WHOLE = EventQuery(select(event.c.payload).where(event.c.id == parameter("number")))


class Names:
    """Names by id, with their encodings by kind; those of another experiment, or of no kind, have no encoding."""

    def __init__(self, experiment_id: int) -> None:
        self.values: dict[Any, bytes | None] = {None: None}
        self.channels, self.agents, self.messagers = ({None: chain.NO_NAME} for _ in range(3))
        self.size = 0
        """Their bytes."""
        self._experiment_id = experiment_id
        self._by_kind: dict[int, dict[Any, bytes]] = {
            CHANNEL: self.channels,
            AGENT: self.agents,
            MESSAGER: self.messagers,
        }

    def add(self, number: int, what: int, experiment_id: int, value: bytes) -> None:
        """Add a row of the table `name`."""
        self.values[number] = value
        if experiment_id == self._experiment_id and what in self._by_kind and isinstance(value, bytes):
            self._by_kind[what][number] = chain.name(value)
            self.size += len(value)


class Source:
    """The events of one experiment, and the names that were read for them."""

    def __init__(self, database: Database, experiment_id: int, connection: AsyncConnection | None = None) -> None:
        """Each page is read in a transaction of its own, or in that of `connection`, which has begun."""
        self._database = database
        self._connection = connection
        self.names = Names(experiment_id)
        self.kinds: dict[int, int] = {}
        """The kind of each name that was read, by its id."""
        self._experiment_id = experiment_id

    async def rows(self, query: EventQuery, **values: Any) -> Sequence[Any]:
        """Return the rows of a query, as tuples."""
        async with self._reading() as connection:
            return await query.rows_within(connection, self._database, **values)

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[AsyncConnection]:
        if self._connection is not None:
            yield self._connection
        else:
            async with self._database.reading() as connection:
                yield connection

    async def load(self, rows: Sequence[Any]) -> None:
        """Fetch the names of rows that are not known yet."""
        if len(self.names.values) > MOST_NAMES or self.names.size > MOST_NAME_BYTES:
            self.names = Names(self._experiment_id)  # pages that were read before keep theirs
        missing = set(chained.from_iterable(map(names_of, rows))) - self.names.values.keys()
        ids = sorted(number for number in missing if type(number) is int)
        for at in range(0, len(ids), LOOKUP):
            listed = ", ".join(map(str, ids[at : at + LOOKUP]))
            query = f"SELECT id, what, experiment_id, value FROM name WHERE id IN ({listed})"
            async with self._reading() as connection:
                found = await self._database.dialect.fetch(connection, query, ())
            for number, what, of, value in found:
                self.names.add(number, what, of, value)
                self.kinds[number] = what


class WalkedPage:
    """Events of one batch, in order of seq."""

    __slots__ = ("names", "readable", "rows")

    def __init__(self, rows: Sequence[Any], names: Names) -> None:
        self.rows = rows
        """Their rows; `ts_of` and the like give a column."""
        self.names = names
        self.readable = True
        """False if a value has a wrong type, or a name is missing, of another experiment, or of another kind."""

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def seqs(self) -> Sequence[int]:
        """Their seqs, ascending."""
        first, last = id_of(self.rows[0]) & SEQ_MASK, id_of(self.rows[-1]) & SEQ_MASK
        if last - first == len(self.rows) - 1:
            return range(first, last + 1)
        return [id_of(row) & SEQ_MASK for row in self.rows]

    def entries(self) -> list[ChainEvent]:
        """Return the events by their fields."""
        names, found = self.names, []
        for number, of, channel, sender, recipient, messager, ts, kind, flags, attributes, payload in self.rows:
            known = channel in names.channels and sender in names.agents
            known = known and recipient in names.agents and messager in names.messagers
            values = map(names.values.get, (channel, sender, recipient, messager))
            fields = (number, of, ts, kind, flags, *values, attributes, payload, sender, recipient, not known)
            found.append(ChainEvent._make(fields))
        return found

    def encoded(self) -> list[bytes]:
        """Return the encoding of each event. Raises one of `WRONG_TYPE`, and `KeyError` for a name without one."""
        encode, mask = chain.encode_event, SEQ_MASK
        channels, agents, messagers = self.names.channels, self.names.agents, self.names.messagers
        found: list[bytes] = []
        add = found.append
        for number, _, channel, sender, recipient, messager, ts, kind, flags, attributes, payload in self.rows:
            names = channels[channel] + agents[sender] + agents[recipient] + messagers[messager]
            add(encode(number & mask, ts, kind, flags, names, attributes, payload))
        return found


class WalkedBatch:
    """One batch of a recorder's chain."""

    def __init__(self, row: BatchRow, reader: _Reader, until: int) -> None:
        self._reader = reader
        self._until = until
        self.row = row
        """Its row in the table `batch`."""
        self.digest = chain.BatchDigest()
        """The digest and the checks found, of the events read so far."""
        self.unreadable: set[int] = set()
        """The seqs of events read so far that have a value of a wrong type. Their check is -1."""

    @property
    def end(self) -> int:
        """The seq after its last event."""
        return int(self.row.first_seq + self.row.count)

    async def pages(self) -> AsyncIterator[WalkedPage]:
        """Yield its events in order of seq, as far as they exist. A batch may be walked without them."""
        seq, end = self.row.first_seq, self.row.first_seq + self.row.count
        while seq < end:
            rows, seq = await self._reader.take(seq, end, max(end, self._until))
            async for part in self._reader.whole(rows):
                page = WalkedPage(part, self._reader.source.names)
                self._hash(page)
                yield page

    def link(self, previous: bytes, digest: bytes | None = None) -> bytes:
        """Return the chain hash of this batch behind `previous`, with the digest of its row unless another is given."""
        row = self.row
        facts = (row.first_seq, row.count, row.min_ts, row.max_ts, row.committed_at, row.unacknowledged)
        return chain.next_link(previous, digest or row.digest, *facts)

    def _hash(self, page: WalkedPage) -> None:
        try:
            self.digest.extend(page.encoded())
            return
        except (KeyError, *WRONG_TYPE):
            page.readable = False
        for entry in page.entries():
            try:
                self.digest.extend([encode(entry)])
            except WRONG_TYPE:
                self.digest.checks.append(-1)
                self.unreadable.add(entry.seq)


class _Reader:
    """The events of a recorder. What is read ahead serves the batches that follow."""

    def __init__(self, source: Source, recorder_id: int) -> None:
        self.source = source
        self._base = recorder_id << SEQ_BITS
        self._size = PAGE // 4
        self._rows: Sequence[Any] = ()
        self._first = self._end = -1
        """`_rows` are all events from the first seq on and before the second."""

    async def take(self, first: int, end: int, until: int) -> tuple[Sequence[Any], int]:
        """Return the events from seq `first` on and before `end`, or some of them, and the seq to continue with.

        If they must be read, those before `until` are read with them.
        """
        if not self._first <= first < self._end:
            await self._read(first, min(until, SEQ_MASK + 1))
        stop = min(end, self._end)
        low, high = (bisect_left(self._rows, self._base + seq, key=id_of) for seq in (first, stop))
        return self._rows[low:high], stop if stop <= SEQ_MASK else end

    async def _read(self, first: int, until: int) -> None:
        low, high = self._base | first, self._base + until
        rows = await self.source.rows(_EVENTS, low=low, high=high, size=self._size)
        await self.source.load(rows)
        self._first, self._rows = first, rows
        self._end = until if len(rows) < self._size else (id_of(rows[-1]) & SEQ_MASK) + 1
        if rows:
            held = sum(len(payload) for row in rows if (payload := payload_of(row)).__class__ is bytes)
            self._size = max(50, min(PAGE, PAGE_BYTES * len(rows) // (held or 1)))

    async def whole(self, rows: Sequence[Any]) -> AsyncIterator[Sequence[Any]]:
        """Yield the rows in parts, with payloads that are too large to be read with their page."""
        begin = held = 0
        filled = rows
        for at, row in enumerate(rows) if None in map(payload_of, rows) else ():
            if payload_of(row) is not None:
                continue
            ((payload,),) = await self.source.rows(_WHOLE, number=id_of(row))
            if filled is rows:
                filled = list(rows)
            filled[at] = (*row[:_PAYLOAD], payload, *row[_PAYLOAD + 1 :])  # type: ignore[index]
            held += len(payload)
            if held > HELD:
                yield filled[begin : at + 1]
                filled[begin : at + 1] = [None] * (at + 1 - begin)  # type: ignore[index]
                begin, held = at + 1, 0
        if begin < len(rows):
            yield filled[begin:] if begin else filled


async def walk(
    source: Source, recorder_id: int, *, after: int = -1, last: int = SEQ_MASK
) -> AsyncIterator[WalkedBatch]:
    """Yield the batches of a recorder that begin behind the seq `after` and not behind `last`, in order."""
    reader = _Reader(source, recorder_id)
    while True:
        found = await source.rows(_BATCHES, recorder=recorder_id, after=after, last=last)
        rows = [BatchRow(*row) for row in found]
        for row, until in zip(rows, _ends(rows), strict=True):
            yield WalkedBatch(row, reader, until)
        if len(rows) < BATCHES:
            return
        after = rows[-1].first_seq


def _ends(rows: list[BatchRow]) -> list[int]:
    """Return, for each batch, the end of the last one that continues it without a gap or a value of a wrong type."""
    ends: list[int] = []
    following = end = -1
    for row in reversed(rows):
        first, count = row.first_seq, row.count
        if type(first) is not int or type(count) is not int or count < 1:
            following = end = -1
        else:
            end = end if first + count == following else first + count
            following = first
        ends.append(end)
    return ends[::-1]


def encode(entry: ChainEvent) -> bytes:
    """Return an event's encoding. Raises one of `WRONG_TYPE`."""
    names = b"".join(map(chain.name, (entry.channel, entry.sender, entry.recipient, entry.messager)))
    return chain.encode_event(entry.seq, entry.ts, entry.kind, entry.flags, names, entry.attributes, entry.payload)
