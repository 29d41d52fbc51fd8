"""Walking the chain of one recorder: its batches in order, each with its events, hashed again on the way.

Verifying, packing and redacting all read the log through here. One query reads the batches of a page, and one the
events of a page of a batch; a large payload is fetched by itself.
"""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Select, case, func, null, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from ..db.database import Database
from ..db.schema import AGENT, CHANNEL, MESSAGER, RECORDER, SEQ_BITS, SEQ_MASK, batch, event, name
from . import chain

PAGE = 1000
"""Batches, and events, read at a time."""
MAX_FETCHED = 32 * 1024
"""Bytes of a payload that is read with its page."""
WRONG_TYPE = (struct.error, TypeError, AttributeError, OverflowError)
"""Errors of hashing a value whose type or size its column should not hold."""

Fetch = Callable[[Select[Any]], Awaitable[Sequence[Any]]]
"""Runs a query and returns its rows."""


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
    msg_id: str | None
    duration_ns: int | None
    receivers: int | None
    cause: int | None
    meta: str | None
    payload: bytes
    from_id: int | None
    to_id: int | None
    messager: bytes | None
    arrival: int | None
    origin: bytes | None
    """UUID of the recorder of the parent experiment."""
    origin_seq: int | None
    strange_names: bool
    """True if a name is missing, belongs to another experiment, or is of another kind."""

    @property
    def seq(self) -> int:
        """Its number within its recorder."""
        return self.id & SEQ_MASK


class WalkedBatch:
    """One batch of a recorder's chain."""

    def __init__(self, fetch: Fetch, row: Any, encoder: chain.Encoder) -> None:
        self._fetch = fetch
        self._encoder = encoder
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

    async def events(self) -> AsyncIterator[list[ChainEvent]]:
        """Yield its events in order of seq, as far as they exist, in pages. A batch may be walked without them."""
        seq, end = self.row.first_seq, self.row.first_seq + self.row.count
        while seq < end:
            rows = await self._fetch(_events_page(self.row.recorder_id, seq, end))
            page = [ChainEvent._make(row) for row in rows]
            for at, entry in enumerate(page):
                if entry.payload is None:
                    (whole,) = await self._fetch(select(event.c.payload).where(event.c.id == entry.id))
                    page[at] = entry = entry._replace(payload=whole.payload)
                self._hash(entry)
            if page:
                yield page
            if len(page) < PAGE:
                return
            seq = page[-1].seq + 1

    def link(self, previous: bytes, digest: bytes | None = None) -> bytes:
        """Return the chain hash of this batch behind `previous`, with the digest of its row unless another is given."""
        facts = chain.facts(self.row._mapping)
        return chain.next_link(self._encoder.version, previous, digest or self.row.digest, *facts)

    def _hash(self, entry: ChainEvent) -> None:
        try:
            self.digest.extend([encode(entry, self._encoder)])
        except WRONG_TYPE:
            self.digest.checks.append(-1)
            self.unreadable.add(entry.seq)


async def walk(
    fetch: Fetch, recorder_id: int, encoder: chain.Encoder, *, after: int = -1, last: int = SEQ_MASK
) -> AsyncIterator[WalkedBatch]:
    """Yield the batches of a recorder that begin behind the seq `after` and not behind `last`, in order.

    `encoder` is that of the recorder.
    """
    while True:
        query = (
            select(batch)
            .where(batch.c.recorder_id == recorder_id, batch.c.first_seq > after, batch.c.first_seq <= last)
            .order_by(batch.c.first_seq)
            .limit(PAGE)
        )
        rows = await fetch(query)
        for row in rows:
            yield WalkedBatch(fetch, row, encoder)
        if len(rows) < PAGE:
            return
        after = rows[-1].first_seq


def fetch_from(database: Database) -> Fetch:
    """Return a fetch that reads each page in a transaction of its own."""

    async def fetch(query: Select[Any]) -> Sequence[Any]:
        async with database.reading() as connection:
            return list(await connection.execute(query))

    return fetch


def fetch_within(connection: AsyncConnection) -> Fetch:
    """Return a fetch that reads within the transaction of a connection."""

    async def fetch(query: Select[Any]) -> Sequence[Any]:
        return list(await connection.execute(query))

    return fetch


def encode(entry: ChainEvent, encoder: chain.Encoder) -> bytes:
    """Return an event's encoding. Raises one of `WRONG_TYPE`."""
    names = chain.names(entry.channel, entry.sender, entry.recipient, entry.messager)
    head = (entry.seq, entry.ts, entry.kind, entry.flags)
    numbers = (entry.duration_ns, entry.receivers, encoder.cause(entry.cause))
    origin = None if entry.origin is None and entry.origin_seq is None else (entry.origin or b"", entry.origin_seq)
    schedule = (entry.arrival, origin)
    return encoder.encode(*head, *names, entry.msg_id, *numbers, entry.meta, entry.payload, *schedule)


_CHANNEL, _SENDER, _RECIPIENT, _MESSAGER, _ORIGIN = (name.alias(letter) for letter in "cftmo")
_STRANGE_NAMES = or_(
    *(
        func.coalesce(alias.c.what != what, number.is_not(None))
        | func.coalesce(alias.c.experiment_id != event.c.experiment_id, False)
        for alias, what, number in (
            (_CHANNEL, CHANNEL, event.c.channel_id),
            (_SENDER, AGENT, event.c.from_id),
            (_RECIPIENT, AGENT, event.c.to_id),
            (_MESSAGER, MESSAGER, event.c.messager_id),
            (_ORIGIN, RECORDER, event.c.origin_id),
        )
    )
)


def _events_page(recorder_id: int, first: int, end: int) -> Select[Any]:
    """Return the SELECT of a recorder's next events from seq `first` on and before `end`, in the form of ChainEvent."""
    base, row = recorder_id << SEQ_BITS, event.c
    payload = case((func.length(row.payload) <= MAX_FETCHED, row.payload), else_=null())
    return (
        select(
            *(row.id, row.experiment_id, row.ts, row.kind, row.flags),
            *(
                _CHANNEL.c.value.label("channel"),
                _SENDER.c.value.label("sender"),
                _RECIPIENT.c.value.label("recipient"),
            ),
            *(row.msg_id, row.duration_ns, row.receivers, row.cause, row.meta, payload.label("payload")),
            *(row.from_id, row.to_id, _MESSAGER.c.value.label("messager"), row.arrival),
            *(_ORIGIN.c.value.label("origin"), row.origin_seq, _STRANGE_NAMES.label("strange_names")),
        )
        .select_from(
            event.outerjoin(_CHANNEL, _CHANNEL.c.id == row.channel_id)
            .outerjoin(_SENDER, _SENDER.c.id == row.from_id)
            .outerjoin(_RECIPIENT, _RECIPIENT.c.id == row.to_id)
            .outerjoin(_MESSAGER, _MESSAGER.c.id == row.messager_id)
            .outerjoin(_ORIGIN, _ORIGIN.c.id == row.origin_id)
        )
        .where(row.id >= base | first, row.id < base | end)
        .order_by(row.id)
        .limit(PAGE)
    )
