"""Blanking: delete the content of events and recompute the hash chain of their recorder, within a transaction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from ..db.codes import FROM_DERIVED, KINDS, NO_TEXT, REDACTED, SEQ_BITS, SEQ_MASK, TO_DERIVED
from ..db.database import Database
from ..db.schema import batch, event, recorder
from ..experiments.records import Experiment, RecorderRow
from ..log import chain
from ..log.attributes import decode, meta_of
from ..log.attributes import encode as encode_attributes
from ..log.chain_walk import Source, WalkedBatch, encode, walk
from ..log.event import SEAL
from .refusal import chain_broken

BLANK = "[redacted]"
PAGE = 200
"""Batches updated with one statement."""
_LOG_FIELDS: dict[str, tuple[type, ...]] = {"name": (str,), "outcome": (str,), "reason": (str,)} | dict.fromkeys(
    ("since", "until", "count"), (int, type(None))
)
"""Fields of an event's meta that the log writes itself, and their types; `reason` only of a gap."""
_SAME_BATCH = (batch.c.recorder_id == bindparam("of_recorder"), batch.c.first_seq == bindparam("at_seq"))
_UPDATE_BATCH = (
    update(batch)
    .where(*_SAME_BATCH)
    .values({key: bindparam(f"new_{key}") for key in ("digest", "checks", "chain_hash")})
)
_UPDATE_LINK = update(batch).where(*_SAME_BATCH).values(chain_hash=bindparam("new_chain_hash"))
_CHANGED = ("flags", "attributes", "from_id", "to_id")
_UPDATE_EVENT = (
    update(event)
    .where(event.c.id == bindparam("of_event"))
    .values(
        payload=b"",
        **{key: bindparam(f"new_{key}") for key in _CHANGED},
    )
)


@dataclass(frozen=True, slots=True)
class Blanking:
    """The events of one redaction, and what remains of them."""

    of: Experiment
    recorders: list[RecorderRow]
    """The experiment's recorders."""
    numbers: set[int]
    """event.id of the events to blank."""
    seal: str
    """Stored in the meta of each blanked event: the hash of the redaction record."""
    ids: bool
    """Delete from_id and to_id too."""
    contains_redacted: Callable[[bytes], bool] | None
    database: Database

    async def rewrite(self, connection: AsyncConnection, row: RecorderRow) -> bytes:
        """Blank the events of a recorder and recompute its chain from the first one on; return its new head.

        Raises `DamagedStore` if the old chain does not match.
        """
        after, old = await self._start(connection, row)
        new, removed = old, 0
        links: list[dict[str, Any]] = []
        async for walked in walk(Source(self.database, self.of.id, connection), row.id, after=after):
            part = walked.row
            if walked.link(old) != part.chain_hash:
                raise chain_broken(self.database.location, self.of, row, part.first_seq)
            old = part.chain_hash
            base = row.id << SEQ_BITS
            keys = {"of_recorder": row.id, "at_seq": part.first_seq}
            if self.numbers.isdisjoint(range(base | part.first_seq, base | walked.end)):
                new = walked.link(new)
                links.append({**keys, "new_chain_hash": new})
            else:
                digest, removed_here = await self._blank(connection, row, walked)
                removed += removed_here
                new = walked.link(new, digest.digest())
                values = {"new_digest": digest.digest(), "new_checks": digest.packed_checks()}
                await connection.execute(_UPDATE_BATCH, {**keys, **values, "new_chain_hash": new})
            if len(links) == PAGE:
                await connection.execute(_UPDATE_LINK, links)
                links = []
        if links:
            await connection.execute(_UPDATE_LINK, links)
        if old != row.head_hash:
            raise chain_broken(self.database.location, self.of, row, row.last_seq)
        await connection.execute(
            update(recorder)
            .where(recorder.c.id == row.id)
            .values(head_hash=new, payload_bytes=recorder.c.payload_bytes - removed)
        )
        return new

    async def _start(self, connection: AsyncConnection, row: RecorderRow) -> tuple[int, bytes]:
        """Return the first seq and the chain hash of the last batch before the first blanked event; -1 without one."""
        first = min(number for number in self.numbers if number >> SEQ_BITS == row.id) & SEQ_MASK
        query = select(batch.c.chain_hash, batch.c.first_seq).where(
            batch.c.recorder_id == row.id, batch.c.first_seq + batch.c.count <= first
        )
        before = (await connection.execute(query.order_by(batch.c.first_seq.desc()).limit(1))).one_or_none()
        return (-1, chain.first_link(row.uuid)) if before is None else (before.first_seq, before.chain_hash)

    async def _blank(
        self, connection: AsyncConnection, row: RecorderRow, walked: WalkedBatch
    ) -> tuple[chain.BatchDigest, int]:
        """Blank the events of one batch; return its new digest and the number of payload bytes removed."""
        new, removed = chain.BatchDigest(), 0
        async for page in walked.pages():
            if walked.unreadable:
                raise chain_broken(self.database.location, self.of, row, walked.row.first_seq)
            changes = []
            for entry in page.entries():
                if entry.id not in self.numbers:
                    new.extend([encode(entry)])
                    continue
                kept = log_fields(KINDS[entry.kind - 1], meta_of(entry.attributes), self.contains_redacted)
                known = decode(entry.attributes) | {"msg_id": None, "meta": {**kept, SEAL: self.seal}}
                flags = (entry.flags & ~NO_TEXT) | REDACTED
                blank = entry._replace(flags=flags, attributes=encode_attributes(known), payload=b"")
                if self.ids:
                    flags &= ~(FROM_DERIVED | TO_DERIVED)
                    blank = blank._replace(flags=flags, sender=None, recipient=None, from_id=None, to_id=None)
                new.extend([encode(blank)])
                removed += len(entry.payload)
                values = {f"new_{key}": getattr(blank, key) for key in _CHANGED}
                changes.append({"of_event": entry.id, **values})
            if changes:
                await connection.execute(_UPDATE_EVENT, changes)
        if walked.digest.digest() != walked.row.digest:
            raise chain_broken(self.database.location, self.of, row, walked.row.first_seq)
        return new, removed


def log_fields(
    kind: str, meta: dict[str, Any], contains_redacted: Callable[[bytes], bool] | None = None
) -> dict[str, Any]:
    """Return the fields of an event's meta that the log wrote itself; those with redacted text are blanked.

    The reason of a blocked message is its interceptor's, and may quote the message.
    """
    kept = {key: meta[key] for key, types in _LOG_FIELDS.items() if key in meta and type(meta[key]) in types}
    if kind != "gap":
        kept.pop("reason", None)
    if contains_redacted is None:
        return kept
    return {
        key: BLANK if isinstance(value, str) and contains_redacted(value.encode("utf-8", "surrogatepass")) else value
        for key, value in kept.items()
    }
