"""Copying the chain of one recorder from one store to another: each batch once, and only what its hashes confirm."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from ...db.database import Database
from ...db.schema import batch, experiment, recorder
from ...experiments import lifecycle
from ...experiments.records import GATHERED, RecorderRow
from ...experiments.seal import seal_ended
from ...log.attributes import checked
from ...log.chain_counters import Counters
from ...log.chain_walk import ChainEvent, Source, walk
from ..chain_loader import Chain, Loader, check_seal
from ..fields import InvalidEntry
from ..pack.layout import BATCH, row_to_json
from .parts import Columns, Part


class Moved(Exception):
    """The recorder's row in the target was changed by another process."""


class ChainCopy:
    """Copies batches of the recorders of one experiment. Each flush is one transaction in the target."""

    def __init__(self, part: Part, target: Database, experiment_id: int, progress: Callable[[int], None]) -> None:
        self._part = part
        self._loader = Loader(target, experiment_id)
        self._experiment_id = experiment_id
        """In the target."""
        self._uuids = {row.uuid for row in part.recorders}
        """The recorders that causes may name."""
        self._progress = progress
        """Called with the number of events of each committed flush."""

    async def copy(self, row: RecorderRow, here: Columns, ending: Mapping[str, Any]) -> tuple[int, str | None]:
        """Copy what the target lacks of a recorder, `row` in the source and `here` in the target.

        The last transaction also writes the columns `ending`. Returns the seq reached, and a description of the damage
        if the source is damaged behind it; then `ending` is not written. Raises `Moved`.
        """
        copied = Chain(f"recorder {row.ordinal}", Counters.of(here))
        before = {key: here[key] for key in ("last_seq", "head_hash", "epoch")}
        taken = min(here["epoch"], GATHERED)
        reached = before | copied.counters.columns()

        async def flush(more: Mapping[str, Any]) -> None:
            async def advance(connection: AsyncConnection) -> None:
                await self._advance(connection, here, before, {"epoch": taken, **reached, **more})

            self._progress(await self._loader.flush(advance))

        try:
            source = Source(self._part.database, self._part.id)
            async for walked in walk(source, row.id, after=before["last_seq"], last=row.last_seq):
                if self._loader.is_full:
                    await flush({})
                    before = {key: reached[key] for key in ("last_seq", "head_hash")} | {"epoch": taken}
                stated = asdict(walked.row)
                row_to_json(BATCH, stated)
                entries = [entry async for page in copied.pages(walked, stated) for entry in page.entries()]
                for entry in entries:
                    self._check(entry)
                for entry in entries:
                    names = self._loader.named(entry.channel, entry.sender, entry.recipient, entry.messager)
                    self._loader.add_event(
                        *(here["id"], entry.seq, entry.ts, entry.kind),
                        *(names, entry.flags, entry.attributes, entry.payload),
                    )
                self._loader.add_batch(here["id"], stated)
                reached = copied.counters.columns()
            columns = self._part.recorder_columns[row.uuid]
            copied.check_row(columns)
            check_seal(f"recorder {row.ordinal}", columns)
        except InvalidEntry as error:
            if reached["last_seq"] > before["last_seq"]:
                await flush({})
            return reached["last_seq"], str(error)
        await flush(ending)
        return reached["last_seq"], None

    async def _advance(
        self, connection: AsyncConnection, here: Columns, before: Columns, columns: Mapping[str, Any]
    ) -> None:
        """Write the columns of a recorder if it is as it was `before`, or raise `Moved`.

        With further events, the recorder and a closed experiment are open again.
        """
        await lifecycle.lock(connection, self._experiment_id)
        if columns["last_seq"] > before["last_seq"]:
            closed = update(experiment).where(experiment.c.id == self._experiment_id, experiment.c.status == "closed")
            await connection.execute(closed.values(status="open", closed_at=None))
        expected = [recorder.c[key] == value for key, value in before.items()]
        of = update(recorder).where(recorder.c.id == here["id"], recorder.c.uuid == here["uuid"], *expected)
        opened = {"ended_at": None, "unclean": 0, "spool": None, "seal": None}
        if (await connection.execute(of.values({**opened, **columns}))).rowcount != 1:
            raise Moved
        await seal_ended(connection, recorder.c.id == here["id"])

    def _check(self, entry: ChainEvent) -> None:
        """Raise `InvalidEntry` for an event that its recorder could not have written."""
        try:
            cause = checked(entry.attributes).get("cause")
        except ValueError as error:
            raise InvalidEntry(f"the event of seq {entry.seq}: {error}") from None
        if isinstance(cause, list) and cause[0] not in self._uuids:
            raise InvalidEntry(f"the cause of the event of seq {entry.seq} is of an unknown recorder")


async def chain_hash_at(database: Database, recorder_id: int, seq: int) -> bytes | None:
    """Return the chain hash of the batch that ends at a seq, None if none does."""
    query = select(batch.c.chain_hash, batch.c.first_seq, batch.c.count)
    query = query.where(batch.c.recorder_id == recorder_id, batch.c.first_seq <= seq)
    async with database.reading() as connection:
        found = (await connection.execute(query.order_by(batch.c.first_seq.desc()).limit(1))).one_or_none()
    if found is None or found.first_seq + found.count - 1 != seq:
        return None
    return bytes(found.chain_hash)
