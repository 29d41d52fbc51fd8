"""Redaction: delete the content of events after recording, with all hashes of it, and record who did so and why.

One transaction blanks the events, recomputes digests, checks, counters and the chain from the first blanked event on,
and inserts a redaction record. A process killed before the commit leaves the log unchanged. Afterwards the store is
rewritten (`scrubbing`). The conditions under which a redaction is refused are in `refusal`.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import bindparam, delete, except_, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from .. import json_text
from ..db.schema import (
    AGENT,
    FROM_DERIVED,
    NO_TEXT,
    REDACTED,
    SEQ_BITS,
    TO_DERIVED,
    batch,
    event,
    name,
    recorder,
    redaction,
)
from ..experiments.registry import Experiment, RecorderRow, lock, recorders_of
from ..log import chain
from ..log.event_log import EventLog
from ..log.hashed_fields import events_page, facts, origin
from ..log.names import NameReader
from ..log.redaction_records import SEAL, Ranges, redactions_of, seal, sealed, written
from .redaction_filter import Found, RedactionFilter, find
from .refusal import chain_broken, check_allowed, written_meanwhile
from .scrubbing import finish_scrub, scrub

PAGE = 200
TRIES = 3
"""Attempts, if recorders write between the search and the transaction."""
BLANK = "[redacted]"
_SEQ_MASK = (1 << SEQ_BITS) - 1
_STRUCTURE: dict[str, tuple[type, ...]] = {"name": (str,), "outcome": (str,), "reason": (str,)} | dict.fromkeys(
    ("since", "until", "count"), (int, type(None))
)


@dataclass(slots=True)
class Redaction:
    """Result of a redaction, or of its dry run."""

    exp_id: str
    events: int = 0
    """Events blanked."""
    done_before: int = 0
    """Other matching events, which were redacted before."""
    kinds: dict[str, int] = field(default_factory=dict)
    channels: dict[str, int] = field(default_factory=dict)
    """Events blanked by channel, most first."""
    head_before: str = ""
    head_after: str = ""
    dry_run: bool = False


async def redact(
    log: EventLog,
    exp: str | Experiment,
    chosen: RedactionFilter,
    *,
    who: str,
    why: str,
    ids: bool = False,
    dry_run: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Redaction:
    """Blank the content of the events that match `chosen`, permanently.

    Payload and msg_id are deleted; of the meta, only fields written by the log itself remain (the name of a mark, an
    outcome, the bounds of a gap). With `ids`, from_id and to_id are deleted too, and names of agents that no other
    event uses. Channel, kind, times, order and number of events remain. The head changes.
    With `dry_run`, nothing is changed, and `who` and `why` are not checked. `progress` is called with the number of
    searched events and the total.

    Raises the errors listed in `refusal.check_allowed`, and `ScrubUnfinished` if the redaction is committed but the
    file could not be rewritten yet.
    """
    database = log.database
    of = exp if isinstance(exp, Experiment) else await log.experiment(exp)
    for _ in range(TRIES):
        recorders = await recorders_of(database, of.id)
        if not dry_run:
            check_allowed(of, recorders, chosen, who=who, why=why)
        found = await find(log, of, chosen, recorders, ids=ids, progress=progress)
        result = await _described(log, of, found, recorders, dry_run)
        if dry_run:
            return result
        if not found.ids and not found.done:
            await finish_scrub(log)
            return result
        if not found.ids or await _blank(log, of, chosen, found.ids, recorders, who, why, ids, result):
            await scrub(log)
            return result
    raise written_meanwhile(of)


async def _described(
    log: EventLog, of: Experiment, found: Found, recorders: list[RecorderRow], dry_run: bool
) -> Redaction:
    names = NameReader(log.database)
    await names.load({number for number in found.channels if number is not None})
    most = sorted(found.channels.items(), key=lambda pair: -pair[1])
    head = chain.head_of(recorders)
    return Redaction(
        of.exp_id,
        len(found.ids),
        found.done,
        found.kinds,
        {names.values.get(number) or "(no channel)": count for number, count in most},
        head,
        head,
        dry_run,
    )


def _ranges(ids: array[int], ordinals: dict[int, int]) -> Ranges:
    """Return ascending event ids as ranges of seqs by recorder ordinal."""
    found: Ranges = {}
    for number in ids:
        stretches = found.setdefault(ordinals[number >> SEQ_BITS], [])
        seq = number & _SEQ_MASK
        if stretches and stretches[-1][1] == seq - 1:
            stretches[-1] = (stretches[-1][0], seq)
        else:
            stretches.append((seq, seq))
    return found


async def _blank(
    log: EventLog,
    of: Experiment,
    chosen: RedactionFilter,
    numbers: array[int],
    recorders: list[RecorderRow],
    who: str,
    why: str,
    ids: bool,
    result: Redaction,
) -> bool:
    """Redact in one transaction. Return False, and change nothing, if the log changed since `recorders` were read."""
    database = log.database
    ordinals = {row.id: row.ordinal for row in recorders}
    before = await redactions_of(database, of.id)
    events = written(_ranges(numbers, ordinals), [row.last_seq for row in recorders])
    at = time.time_ns()
    last = (sealed(before)[-1], before[-1].head_after) if before else None
    mark = seal(last, who, at, why, events, bytes.fromhex(result.head_before))
    act = _Act(of, ordinals, set(numbers), mark, ids, chosen.matcher(any_condition=True), database.location)
    async with database.writing(long=True) as connection:
        await lock(connection, of.id)
        await database.dialect.overwrite_deleted(connection)
        await database.dialect.want_rewrite(connection)
        if not await _unchanged(connection, of, recorders, len(before)):
            return False
        # fence recorders that have not ended: they would continue a chain that no longer exists
        await connection.execute(
            update(recorder)
            .where(recorder.c.experiment_id == of.id, recorder.c.ended_at.is_(None))
            .values(epoch=recorder.c.epoch + 1)
        )
        heads = {row.id: row.head_hash for row in recorders}
        touched = {number >> SEQ_BITS for number in numbers}
        for row in recorders:
            if row.id in touched:
                heads[row.id] = await act.reseal(connection, row)
        if ids:
            used = [select(column).where(event.c.experiment_id == of.id) for column in (event.c.from_id, event.c.to_id)]
            mine = select(name.c.id).where(name.c.experiment_id == of.id, name.c.what == AGENT)
            # PostgreSQL would scan all events for each name of a NOT IN if they do not fit in memory
            await connection.execute(delete(name).where(name.c.id.in_(except_(mine, *used))))
        result.head_after = chain.head((row.uuid, heads[row.id]) for row in recorders)
        await connection.execute(
            insert(redaction).values(
                experiment_id=of.id,
                who=who,
                at=at,
                why=why,
                events=events,
                head_before=bytes.fromhex(result.head_before),
                head_after=bytes.fromhex(result.head_after),
            )
        )
    return True


async def _unchanged(
    connection: AsyncConnection, of: Experiment, recorders: list[RecorderRow], redactions: int
) -> bool:
    columns = (recorder.c.id, recorder.c.last_seq, recorder.c.head_hash, recorder.c.epoch, recorder.c.ended_at)
    query = select(*columns).where(recorder.c.experiment_id == of.id).order_by(recorder.c.ordinal).with_for_update()
    now = [tuple(row) for row in await connection.execute(query)]
    rows = select(redaction.c.id).where(redaction.c.experiment_id == of.id)
    return len((await connection.execute(rows)).all()) == redactions and now == [
        (row.id, row.last_seq, row.head_hash, row.epoch, row.ended_at) for row in recorders
    ]


_BATCH = (
    update(batch)
    .where(batch.c.recorder_id == bindparam("of_recorder"), batch.c.first_seq == bindparam("at_seq"))
    .values({key: bindparam(f"new_{key}") for key in ("digest", "checks", "chain_hash")})
)
_LINK = (
    update(batch)
    .where(batch.c.recorder_id == bindparam("of_recorder"), batch.c.first_seq == bindparam("at_seq"))
    .values(chain_hash=bindparam("new_chain_hash"))
)
_EVENT = (
    update(event)
    .where(event.c.id == bindparam("of_event"))
    .values(
        payload=b"",
        msg_id=None,
        **{key: bindparam(f"new_{key}") for key in ("flags", "meta", "from_id", "to_id")},
    )
)


@dataclass(slots=True)
class _Act:
    """One redaction at work inside its transaction."""

    of: Experiment
    ordinals: dict[int, int]
    numbers: set[int]
    mark: str
    ids: bool
    holds: Callable[[bytes], bool] | None
    store: str

    async def reseal(self, connection: AsyncConnection, row: RecorderRow) -> bytes:
        """Blank a recorder's events and compute its chain anew from the first of them on; its new head."""
        first = min(number for number in self.numbers if number >> SEQ_BITS == row.id) & _SEQ_MASK
        old = new = chain.first_link(row.uuid)
        query = select(batch.c.chain_hash, batch.c.first_seq, batch.c.count).where(batch.c.recorder_id == row.id)
        behind = query.where(batch.c.first_seq + batch.c.count <= first).order_by(batch.c.first_seq.desc()).limit(1)
        before = (await connection.execute(behind)).one_or_none()
        at = 0
        if before is not None:
            old = new = before.chain_hash
            at = before.first_seq
        removed = 0
        while True:
            page = select(batch).where(batch.c.recorder_id == row.id, batch.c.first_seq > at)
            parts = (await connection.execute(page.order_by(batch.c.first_seq).limit(PAGE))).all()
            links = []
            for part in parts:
                covers = facts(part._mapping)
                if chain.next_link(self.of.schema_version, old, part.digest, *covers) != part.chain_hash:
                    raise chain_broken(self.store, self.of, row, part.first_seq)
                old = part.chain_hash
                base = row.id << SEQ_BITS
                covered = range(base | covers[0], (base | covers[0]) + covers[1])
                keys = {"of_recorder": row.id, "at_seq": part.first_seq}
                if any(number in self.numbers for number in covered):
                    digest, bytes_gone = await self._blank(connection, row, covers[0], covers[1], part.digest)
                    removed += bytes_gone
                    new = chain.next_link(self.of.schema_version, new, digest.digest(), *covers)
                    values = {"new_digest": digest.digest(), "new_checks": digest.packed_checks()}
                    await connection.execute(_BATCH, {**keys, **values, "new_chain_hash": new})
                else:
                    new = chain.next_link(self.of.schema_version, new, part.digest, *covers)
                    links.append({**keys, "new_chain_hash": new})
            if links:
                await connection.execute(_LINK, links)
            if len(parts) < PAGE:
                break
            at = parts[-1].first_seq
        if old != row.head_hash:
            raise chain_broken(self.store, self.of, row, row.last_seq)
        await connection.execute(
            update(recorder)
            .where(recorder.c.id == row.id)
            .values(head_hash=new, payload_bytes=recorder.c.payload_bytes - removed)
        )
        return new

    async def _blank(
        self, connection: AsyncConnection, row: RecorderRow, first: int, count: int, expected: bytes
    ) -> tuple[chain.BatchDigest, int]:
        """Blank the events of one batch; its new digest, and how many payload bytes are gone."""
        old, new, removed = chain.BatchDigest(), chain.BatchDigest(), 0
        async for entries in _events(connection, row.id, first, first + count):
            changes = []
            for entry in entries:
                seq = entry.id & _SEQ_MASK
                given = (entry.duration_ns, entry.receivers, origin(entry.cause, self.ordinals))
                names = (entry.channel, entry.sender, entry.recipient)
                encoded = (seq, entry.ts, entry.kind, entry.flags, *names, entry.msg_id, *given)
                old.add(*encoded, entry.meta, entry.payload)
                if entry.id not in self.numbers:
                    new.add(*encoded, entry.meta, entry.payload)
                    continue
                flags = (entry.flags & ~NO_TEXT) | REDACTED
                from_id, to_id = entry.from_id, entry.to_id
                if self.ids:
                    flags &= ~(FROM_DERIVED | TO_DERIVED)
                    names, from_id, to_id = (entry.channel, None, None), None, None
                meta = json_text.dump({**self._kept(entry.meta), SEAL: self.mark})
                new.add(seq, entry.ts, entry.kind, flags, *names, None, *given, meta, b"")
                removed += len(entry.payload)
                values = {"new_flags": flags, "new_meta": meta, "new_from_id": from_id, "new_to_id": to_id}
                changes.append({"of_event": entry.id, **values})
            if changes:
                await connection.execute(_EVENT, changes)
        if old.digest() != expected:
            raise chain_broken(self.store, self.of, row, first)
        return new, removed

    def _kept(self, meta: str | None) -> dict[str, Any]:
        """What of an event's meta says nothing that an agent said."""
        return structure(json_text.load_object(meta), self.holds)


def structure(meta: dict[str, Any], holds: Callable[[bytes], bool] | None = None) -> dict[str, Any]:
    """Return the fields of an event's meta that the log wrote itself; texts for which `holds` is true are blanked."""
    kept = {key: meta[key] for key, types in _STRUCTURE.items() if key in meta and type(meta[key]) in types}
    if holds is None:
        return kept
    return {
        key: BLANK if isinstance(value, str) and holds(value.encode("utf-8", "surrogatepass")) else value
        for key, value in kept.items()
    }


async def _events(connection: AsyncConnection, recorder_id: int, first: int, end: int) -> AsyncIterator[Sequence[Any]]:
    """Pages of the events of a stretch of seqs, with their names' bytes."""
    while True:
        rows = (await connection.execute(events_page(recorder_id, first, end, PAGE))).all()
        if rows:
            yield rows
        if len(rows) < PAGE:
            return
        first = (rows[-1].id & _SEQ_MASK) + 1
