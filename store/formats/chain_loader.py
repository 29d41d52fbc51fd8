"""Chains that come from elsewhere: checked against their hashes, and written into the store as they are.

Packing and gathering read chains of a store (`Chain.pages`), unpacking reads lines (`Chain.add`); both check the same.
Unpacking and gathering write what was checked with a `Loader`: `formats/pack/restoring.py` into an experiment that is
hidden until it is complete, `formats/gather/chain_copy.py` behind what the store has.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from ..db.codes import AGENT, CHANNEL, KINDS, MESSAGER, SEQ_BITS, SEQ_MASK
from ..db.database import Database
from ..db.schema import batch, event
from ..experiments.seal import seal_of
from ..log import chain
from ..log.chain_counters import COUNTED, Counters
from ..log.chain_walk import MOST_NAME_BYTES, MOST_NAMES, WRONG_TYPE, WalkedBatch, WalkedPage, kind_of, ts_of
from ..log.names import intern
from .fields import InvalidEntry, integer

FLUSH_EVENTS = 5000
FLUSH_BYTES = 8 * 1024 * 1024
"""Events, and bytes of their payloads, from which on a loader is full."""
MOST_BATCH_EVENTS = 1_000_000
_TOGETHER_BYTES = 256 * 1024
"""Bytes of events that are hashed together."""
_KINDS_OF_NAME = (CHANNEL, AGENT, AGENT, MESSAGER)


class Chain:
    """Checks of the events of one recorder, in order, against its batches, its chain and its row."""

    def __init__(self, name: str, counters: Counters) -> None:
        self.counters = counters
        """Those of the batches before; with those of the present batch until `end`."""
        self.last_seq = counters.events
        self._name = name
        self._digest = chain.BatchDigest()
        self._waiting: list[tuple[bytes, int, int, int]] = []
        """Events that were added and not counted: each encoding, with ts, kind and bytes of the payload."""
        self._waiting_bytes = 0
        self._part: Mapping[str, Any] = {}
        self._times: tuple[int, int] | None = None

    async def pages(self, walked: WalkedBatch, part: Mapping[str, Any]) -> AsyncIterator[WalkedPage]:
        """Yield the events of the next batch, given by its row as well. It is confirmed once all were taken."""
        self.begin(part, walked.digest)
        async for page in walked.pages():
            self._count_page(page, walked)
            yield page
        if self.last_seq + 1 != walked.end:
            raise self._missing()
        self.end()

    def begin(self, part: Mapping[str, Any], digest: chain.BatchDigest | None = None) -> None:
        """Begin the next batch, given by its row. Without a `digest`, which the caller fills, call `add`."""
        if part["first_seq"] != self.last_seq + 1:
            raise InvalidEntry(f"{self._name}: the batch after seq {self.last_seq} starts at {part['first_seq']}")
        integer(part["count"], "count", 1, MOST_BATCH_EVENTS)
        if self.last_seq + part["count"] >= 1 << SEQ_BITS:
            raise InvalidEntry(f"{self._name} has more events than a recorder can have")
        self._part = part
        self._digest = chain.BatchDigest() if digest is None else digest
        self._times = None

    def add(
        self,
        ts: int,
        kind: int,
        flags: int,
        names: bytes,
        attributes: str | None,
        payload: bytes,
    ) -> None:
        """Add the next event of the batch; `names` are the results of `chain.name`, joined."""
        seq = self.last_seq + 1
        try:
            encoded = chain.encode_event(seq, ts, kind, flags, names, attributes, payload)
        except WRONG_TYPE:
            raise self._unreadable(seq) from None
        self._waiting.append((encoded, ts, kind, len(payload)))
        self._waiting_bytes += len(encoded)
        self.last_seq = seq
        if self._waiting_bytes > _TOGETHER_BYTES:
            self._count()

    def end(self) -> None:
        """Check the complete batch against its row and the chain."""
        self._count()
        part = self._part
        place = f"{self._name}, batch at seq {part['first_seq']}"
        if self._digest.packed_checks() != part["checks"]:
            raise InvalidEntry(f"{place}: {self._changed(part['checks'])}")
        if self._digest.digest() != part["digest"]:
            raise InvalidEntry(f"{place}: its events do not have its digest")
        if self._times != (part["min_ts"], part["max_ts"]):
            raise InvalidEntry(f"{place}: its events do not have its times")
        link = chain.next_link(self.counters.head_hash, part["digest"], *chain.facts(part))
        if link != part["chain_hash"]:
            raise InvalidEntry(f"{place}: the chain does not continue that of the batch before it")
        self.counters.end_batch(link, self._times, part["unacknowledged"])

    def check_row(self, row: Mapping[str, Any]) -> None:
        """Check the row of the recorder against its counted events."""
        counted = self.counters.columns()
        for what in COUNTED:
            if row[what] != counted[what]:
                raise InvalidEntry(
                    f"{self._name}: its row says {what} {_shown(row[what])}, it is {_shown(counted[what])}"
                )

    def _count_page(self, page: WalkedPage, walked: WalkedBatch) -> None:
        first = self.last_seq + 1
        readable = page.readable and all(1 <= kind <= len(KINDS) for kind in {*map(kind_of, page.rows)})
        if not readable or page.seqs != range(first, first + len(page)):
            for seq, entry in enumerate(page.entries(), first):
                self.last_seq = seq - 1
                if entry.seq != seq:
                    raise self._missing()
                if seq in walked.unreadable or not 1 <= entry.kind <= len(KINDS):
                    raise self._unreadable(seq)
        self.last_seq = first + len(page) - 1
        self.counters.add_page(page)
        self._widen(min(map(ts_of, page.rows)), max(map(ts_of, page.rows)))

    def _widen(self, low: int, high: int) -> None:
        known = self._times
        self._times = (low, high) if known is None else (min(known[0], low), max(known[1], high))

    def _count(self) -> None:
        """Hash and count the events that were added."""
        if self._waiting:
            encoded, times, kinds, sizes = zip(*self._waiting, strict=True)
            self._digest.extend(encoded)
            self.counters.add_all(kinds, sum(sizes))
            self._widen(min(times), max(times))
            self._waiting, self._waiting_bytes = [], 0

    def _unreadable(self, seq: int) -> InvalidEntry:
        return InvalidEntry(f"{self._name}: the event of seq {seq} holds a value of the wrong type")

    def _missing(self) -> InvalidEntry:
        place = f"{self._name}, batch at seq {self._part['first_seq']}"
        return InvalidEntry(f"{place}: the event of seq {self.last_seq + 1} is missing")

    def _changed(self, checks: bytes) -> str:
        kept = chain.unpack_checks(checks)
        if len(checks) != 4 * len(self._digest.checks):
            return f"it has {len(checks)} bytes of checks for {len(self._digest.checks)} events"
        at = next(at for at, check in enumerate(self._digest.checks) if check != kept[at])
        return f"the event of seq {self._part['first_seq'] + at} was changed, or its check"


def check_seal(name: str, row: Mapping[str, Any]) -> None:
    """Raise `InvalidEntry` if the row of a recorder does not have its seal."""
    if row["seal"] != seal_of(row):
        raise InvalidEntry(f"{name}: its row was changed: it does not have its seal")


def _shown(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value


@dataclass(slots=True, eq=False)
class Named:
    """The names of an event; many events share one."""

    values: tuple[tuple[int, bytes] | None, ...]
    """Its channel, sender, recipient and Messager, as (what, value)."""
    ids: tuple[int | None, ...] = ()
    """Their ids in the store, from the `Loader.flush` on that wrote the first event with them."""


class Loader:
    """Rows of events and batches that wait to be written, in pages."""

    def __init__(self, database: Database, experiment_id: int) -> None:
        self._database = database
        self._experiment_id = experiment_id
        self._ids: dict[tuple[int, bytes], int] = {}
        """Names in the store."""
        self._name_bytes = 0
        self._named: dict[tuple[bytes | None, ...], Named] = {}
        self._new: list[Named] = []
        """Those that have no ids yet."""
        self._rows: list[tuple[int, int, int, Named, int, str | None, bytes]] = []
        self._row_bytes = 0
        self._batches: list[dict[str, Any]] = []
        self.reached: dict[int, int] = {}
        """The last seq of each recorder in the transaction of `flush`, by the id of the recorder."""

    def knows(self, agent: bytes) -> bool:
        """Return whether an agent id is in the cache of names."""
        return (AGENT, agent) in self._ids

    def named(self, *values: bytes | None) -> Named:
        """Return the names of an event, given by channel, sender, recipient and Messager."""
        found = self._named.get(values)
        if found is None:
            pairs = zip(_KINDS_OF_NAME, values, strict=True)
            found = Named(tuple(None if value is None else (what, value) for what, value in pairs))
            if len(self._named) >= MOST_NAMES or self._name_bytes > MOST_NAME_BYTES:
                self._named.clear()
                self._ids.clear()
                self._name_bytes = 0
            self._named[values] = found
            self._name_bytes += sum(len(value) for value in values if value is not None)
            self._new.append(found)
        return found

    def add_event(
        self,
        recorder_id: int,
        seq: int,
        ts: int,
        kind: int,
        names: Named,
        flags: int,
        attributes: str | None,
        payload: bytes,
    ) -> bool:
        """Add an event. Return whether enough rows wait to be written."""
        self._rows.append((recorder_id << SEQ_BITS | seq, ts, kind, names, flags, attributes, payload))
        self._row_bytes += len(payload) + len(attributes or "")
        return len(self._rows) >= FLUSH_EVENTS or self._row_bytes >= FLUSH_BYTES

    def add_batch(self, recorder_id: int, part: Mapping[str, Any]) -> None:
        """Add the row of a batch whose events were added."""
        self._batches.append({**part, "recorder_id": recorder_id})

    @property
    def is_full(self) -> bool:
        """True if enough rows of events or of batches wait to be written."""
        return len(self._rows) >= FLUSH_EVENTS or self._row_bytes >= FLUSH_BYTES or len(self._batches) >= FLUSH_EVENTS

    async def flush(self, change: Callable[[AsyncConnection], Awaitable[None]]) -> int:
        """Write the waiting rows in one transaction, behind `change`. Return the number of events.

        They are gone even if the transaction fails.
        """
        rows, batches = self._rows, self._batches
        self._rows, self._batches, self._row_bytes = [], [], 0
        self.reached = {number >> SEQ_BITS: number & SEQ_MASK for number, *_ in rows}
        await self._intern()
        of = self._experiment_id
        events = [(number, of, ts, kind, *names.ids, *rest) for number, ts, kind, names, *rest in rows]
        async with self._database.writing() as connection:
            await change(connection)
            if events:
                await self._database.dialect.insert(connection, event, events)
            if batches:
                await connection.execute(insert(batch), batches)
        return len(events)

    async def _intern(self) -> None:
        """Give the new names their ids."""
        wanted = {name for new in self._new for name in new.values if name is not None} - self._ids.keys()
        if wanted:
            self._ids |= await intern(self._database, self._experiment_id, wanted)
        for new in self._new:
            new.ids = tuple(None if name is None else self._ids[name] for name in new.values)
        self._new = []
