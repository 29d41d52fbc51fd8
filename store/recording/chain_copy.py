"""Copying the chain of one recorder from one store to another: each batch once, and only what its hashes confirm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from sqlalchemy import insert, select, update

from .. import limits
from ..db.codes import AGENT, CHANNEL, KINDS, MESSAGER, RECORDER, SEQ_BITS, SEQ_MASK
from ..db.database import Database
from ..db.schema import batch, event, experiment, recorder
from ..experiments import lifecycle
from ..experiments.records import GATHERED, RecorderRow
from ..experiments.seal import seal_ended, seal_of
from ..log import chain
from ..log.chain_walk import WRONG_TYPE, ChainEvent, WalkedBatch, fetch_from, walk
from ..log.names import intern

FLUSH_EVENTS = 5000
FLUSH_BYTES = 8 * 1024 * 1024
"""Events, and bytes of their payloads, from which on the copied batches are committed."""
MOST_NAMES = 50_000
"""Names kept in memory."""

_Name = tuple[int, bytes]


class _Damaged(Exception):
    """What a store holds of a recorder does not match its hashes or counters."""


class Moved(Exception):
    """The recorder's row in the target was changed by another process."""


@dataclass(slots=True)
class _Counters:
    """The columns of a recorder that are computed from its events."""

    last_seq: int
    head_hash: bytes
    kinds: Counter[str]
    payload_bytes: int
    first_ts: int | None
    last_ts: int | None
    worst_unacknowledged: int

    @classmethod
    def of(cls, row: RecorderRow) -> _Counters:
        """Return the counters in a row."""
        return cls(
            row.last_seq,
            row.head_hash,
            Counter(row.kinds),
            row.payload_bytes,
            row.first_ts,
            row.last_ts,
            row.worst_unacknowledged,
        )

    def add(self, part: Any, kinds: Counter[str], payload_bytes: int) -> None:
        """Add a batch, given by its row and counts of its events."""
        self.last_seq, self.head_hash = part.first_seq + part.count - 1, part.chain_hash
        self.kinds += kinds
        self.payload_bytes += payload_bytes
        self.first_ts = part.min_ts if self.first_ts is None else min(self.first_ts, part.min_ts)
        self.last_ts = part.max_ts if self.last_ts is None else max(self.last_ts, part.max_ts)
        self.worst_unacknowledged = max(self.worst_unacknowledged, part.unacknowledged)

    def columns(self) -> dict[str, Any]:
        """Return the columns of a row."""
        return {f"{kind}_count": self.kinds[kind] for kind in KINDS} | {
            "last_seq": self.last_seq,
            "head_hash": self.head_hash,
            "payload_bytes": self.payload_bytes,
            "first_ts": self.first_ts,
            "last_ts": self.last_ts,
            "worst_unacknowledged": self.worst_unacknowledged,
        }


@dataclass(slots=True)
class ChainCopy:
    """Copies batches of the recorders of one experiment. Each flush is one transaction in the target."""

    source: Database
    recorders: list[RecorderRow]
    """The recorders of the experiment in the source."""
    target: Database
    experiment_id: int
    """In the target."""
    ids: dict[int, int]
    """The ids of the recorders in the target, by their ids in the source."""
    progress: Callable[[int], None]
    """Called with the number of events of each committed flush."""
    _names: dict[_Name, int] = field(default_factory=dict)
    _entries: list[ChainEvent] = field(default_factory=list)
    _batches: list[dict[str, Any]] = field(default_factory=list)
    _bytes: int = 0

    async def copy(
        self, row: RecorderRow, columns: Mapping[str, Any], here: RecorderRow, ending: Mapping[str, Any]
    ) -> tuple[int, str | None]:
        """Copy what the target lacks of a recorder, `row` with these columns in the source and `here` in the target.

        The last transaction also writes the columns `ending`. Returns the seq reached, and a description of the damage
        if the source is damaged behind it; then `ending` is not written. Raises `Moved`.
        """
        counters = _Counters.of(here)
        before = here.last_seq, here.head_hash, here.epoch
        encoder = chain.encoder(self.recorders)
        try:
            async for walked in walk(
                fetch_from(self.source), row.id, encoder, after=counters.last_seq, last=row.last_seq
            ):
                if self._is_full:
                    await self._flush(here, before, counters.columns())
                    before = counters.last_seq, counters.head_hash, _taken(here.epoch)
                entries = await _confirmed(walked, counters, self.ids)
                self._add(walked, entries, here.id)
                kinds = Counter(KINDS[entry.kind - 1] for entry in entries)
                counters.add(walked.row, kinds, sum(len(entry.payload) for entry in entries))
            _check_end(row, columns, counters)
        except _Damaged as error:
            if self._batches:
                await self._flush(here, before, counters.columns())
            return counters.last_seq, str(error)
        await self._flush(here, before, {**counters.columns(), **ending})
        return counters.last_seq, None

    @property
    def _is_full(self) -> bool:
        return len(self._entries) >= FLUSH_EVENTS or self._bytes >= FLUSH_BYTES or len(self._batches) >= FLUSH_EVENTS

    def _add(self, walked: WalkedBatch, entries: list[ChainEvent], recorder_id: int) -> None:
        self._batches.append({**asdict(walked.row), "recorder_id": recorder_id})
        self._entries += entries
        self._bytes += sum(len(entry.payload) + len(entry.meta or "") for entry in entries)

    async def _flush(self, here: RecorderRow, before: tuple[int, bytes, int], columns: Mapping[str, Any]) -> None:
        """Write the waiting batches and the columns of their recorder in one transaction, or raise `Moved`.

        `before` are the last seq, the head and the epoch that it must have. With the batches, the recorder and a closed
        experiment are open again.
        """
        entries, batches = self._entries, self._batches
        self._entries, self._batches, self._bytes = [], [], 0
        await self._intern(entries)
        rows = [self._row(entry, here.id) for entry in entries]
        expected = (
            recorder.c.id == here.id,
            recorder.c.uuid == here.uuid,
            recorder.c.epoch == before[2],
            recorder.c.last_seq == before[0],
            recorder.c.head_hash == before[1],
        )
        opened = {"ended_at": None, "unclean": 0, "epoch": _taken(here.epoch), "spool": None, "seal": None}
        async with self.target.writing() as connection:
            await lifecycle.lock(connection, self.experiment_id)
            if batches:
                closed = update(experiment).where(
                    experiment.c.id == self.experiment_id, experiment.c.status == "closed"
                )
                await connection.execute(closed.values(status="open", closed_at=None))
            advanced = await connection.execute(update(recorder).where(*expected).values({**opened, **columns}))
            if advanced.rowcount != 1:
                raise Moved
            if rows:
                await self.target.dialect.insert(connection, event, rows)
                await connection.execute(insert(batch), batches)
            await seal_ended(connection, recorder.c.id == here.id)
        self.progress(len(rows))

    async def _intern(self, entries: list[ChainEvent]) -> None:
        wanted = {key for entry in entries for key in _names_of(entry) if key is not None}
        if len(self._names) > MOST_NAMES:
            self._names.clear()
        if new := wanted - self._names.keys():
            self._names |= await intern(self.target, self.experiment_id, new)

    def _row(self, entry: ChainEvent, recorder_id: int) -> tuple[Any, ...]:
        """Return the row of an event in the target."""
        channel, sender, recipient, messager, origin = (
            None if key is None else self._names[key] for key in _names_of(entry)
        )
        cause = entry.cause
        if cause is not None:
            cause = self.ids[cause >> SEQ_BITS] << SEQ_BITS | cause & SEQ_MASK
        return (
            *(recorder_id << SEQ_BITS | entry.seq, self.experiment_id, entry.ts, entry.kind),
            *(channel, sender, recipient, entry.flags, entry.msg_id, entry.duration_ns, entry.receivers),
            *(cause, entry.meta, entry.payload, messager, entry.arrival, origin, entry.origin_seq),
        )


def _taken(epoch: int) -> int:
    """Return the epoch of a recorder of this epoch once `gather` appends to it. No writer has it."""
    return min(epoch, GATHERED)


def _names_of(entry: ChainEvent) -> tuple[_Name | None, ...]:
    """Return the names of an event, in the order of the columns of its row."""
    values = (entry.channel, entry.sender, entry.recipient, entry.messager, entry.origin)
    kinds = (CHANNEL, AGENT, AGENT, MESSAGER, RECORDER)
    return tuple(None if value is None else (what, value) for what, value in zip(kinds, values, strict=True))


async def _confirmed(walked: WalkedBatch, counters: _Counters, known: Container[int]) -> list[ChainEvent]:
    """Return the events of a batch that continues a recorder. Raises `_Damaged` if its hashes do not confirm it.

    `known` are the ids of the recorders that causes may name.
    """
    part = walked.row
    try:
        if part.first_seq != counters.last_seq + 1:
            raise _Damaged(f"the batch after seq {counters.last_seq} starts at {part.first_seq}")
        entries = [entry async for page in walked.pages() for entry in page.entries()]
        if len(entries) != part.count:
            raise _Damaged(f"{part.count - len(entries)} events of the batch at seq {part.first_seq} are missing")
        checks = chain.unpack_checks(part.checks)
        for at, (entry, check) in enumerate(zip(entries, walked.digest.checks, strict=True)):
            if entry.seq in walked.unreadable or entry.strange_names or checks[at : at + 1] != (check,):
                raise _Damaged(f"the event of seq {entry.seq} was changed")
        whole = (
            walked.digest.digest() == part.digest
            and len(part.checks) == 4 * part.count
            and walked.link(counters.head_hash) == part.chain_hash
            and all(1 <= entry.kind <= len(KINDS) for entry in entries)
        )
    except (*WRONG_TYPE, ValueError) as error:
        raise _Damaged(f"the batch at seq {part.first_seq} holds a value of the wrong type") from error
    for entry in entries:
        if entry.cause is not None and entry.cause >> SEQ_BITS not in known:
            raise _Damaged(f"the cause of the event of seq {entry.seq} is of an unknown recorder")
        if entry.meta is not None and len(entry.meta) > limits.MOST_META:
            raise _Damaged(f"the meta of the event of seq {entry.seq} has more than {limits.MOST_META:,} characters")
    if not whole:
        raise _Damaged(f"the batch at seq {part.first_seq} does not continue the chain")
    return entries


def _check_end(row: RecorderRow, columns: Mapping[str, Any], counters: _Counters) -> None:
    """Raise `_Damaged` if the row of a recorder contradicts its batches or its seal."""
    stated = _Counters.of(row).columns()
    wrong = [name for name, value in counters.columns().items() if stated[name] != value]
    if "last_seq" in wrong:
        raise _Damaged(f"its batches end at seq {counters.last_seq}, its row says {row.last_seq}")
    if wrong:
        raise _Damaged(f"its row says another {', '.join(wrong)} than its events")
    if columns["seal"] != seal_of(columns):
        raise _Damaged("its row was changed: it does not have its seal")


async def chain_hash_at(database: Database, recorder_id: int, seq: int) -> bytes | None:
    """Return the chain hash of the batch that ends at a seq, None if none does."""
    query = select(batch.c.chain_hash, batch.c.first_seq, batch.c.count)
    query = query.where(batch.c.recorder_id == recorder_id, batch.c.first_seq <= seq)
    async with database.reading() as connection:
        found = (await connection.execute(query.order_by(batch.c.first_seq.desc()).limit(1))).one_or_none()
    if found is None or found.first_seq + found.count - 1 != seq:
        return None
    return bytes(found.chain_hash)
