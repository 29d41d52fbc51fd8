"""The experiment of a pack in the store: hidden until all of its rows are there, unchanged."""

from __future__ import annotations

import time
from typing import Any
from uuid import uuid4

from sqlalchemy import bindparam, delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from ...db.database import Database
from ...db.schema import experiment, recorder, redaction, tag
from ...errors import ExperimentExists, RecorderExists, StoreError
from ...experiments.provenance import this_process
from ...experiments.records import Experiment
from ...log.chain_counters import COUNTED, Counters
from ...log.writer import new_uuid
from ...queries.retention import EVENT_BYTES
from ..chain_loader import FLUSH_EVENTS, Loader
from ..fields import InvalidEntry


class HiddenExperiment:
    """An experiment that is being restored. Its rows are written in the order of the pack."""

    def __init__(self, database: Database, of: Experiment, worker: int) -> None:
        self.of = of
        self.loader = Loader(database, of.id)
        self.claims: list[dict[str, Any]] = []
        """By ordinal: the counters in the row of a recorder, with its uuid, role and seal, and its id in this store."""
        self._database = database
        self._worker = worker
        self._complete: list[dict[str, Any]] = []

    @classmethod
    async def begin(cls, database: Database, of: dict[str, Any], exp_id: str, tags: list[str]) -> HiddenExperiment:
        """Insert the row of the experiment, and a recorder 0 whose heartbeat shows that this process is unpacking."""
        here, now = this_process(), time.time_ns()
        hidden = {**of, "exp_id": f"importing {exp_id} {uuid4().hex}", "status": "importing", "recorders": 0}
        uuid = new_uuid()
        sign = Counters.before(uuid).columns() | {
            "uuid": uuid,
            "ordinal": 0,
            "epoch": 1,
            "role": "import",
            "patterns": "[]",
            "meta": "{}",
            "host": here.host,
            "pid": here.pid,
            "boot_id": here.boot_id,
            "started_at": now,
            "heartbeat_at": now,
            "unclean": 0,
            "durability": "buffered",
        }
        async with database.writing() as connection:
            made = await connection.execute(insert(experiment).values(hidden))
            number = made.inserted_primary_key[0]  # type: ignore[index]
            signed = await connection.execute(insert(recorder).values(**sign, experiment_id=number))
            if tags:
                await connection.execute(insert(tag), [{"experiment_id": number, "tag": word} for word in tags])
        named = Experiment(number, hidden["exp_id"], None, "importing", now, None, {}, [], 0)
        return cls(database, named, signed.inserted_primary_key[0])  # type: ignore[index]

    async def add_recorders(self, page: list[dict[str, Any]], path: str) -> None:
        """Insert recorders of the pack at `path`, with counters of zero until their events are complete."""
        uuids = [row["uuid"] for row in page]
        there = select(recorder.c.uuid, experiment.c.exp_id, experiment.c.id, experiment.c.status).join(experiment)
        async with self._database.writing() as connection:
            found = (await connection.execute(there.where(recorder.c.uuid.in_(uuids)).limit(1))).one_or_none()
            if len(set(uuids)) < len(uuids) or (found is not None and found.id == self.of.id):
                raise InvalidEntry("two recorders have the same uuid")
            if found is not None:
                raise RecorderExists(path, found.uuid, found.exp_id if found.status in ("open", "closed") else None)
            for row in page:
                claims = {key: row[key] for key in COUNTED}
                nothing = Counters.before(row["uuid"]).columns()
                made = await connection.execute(
                    insert(recorder).values({**row, **nothing, "experiment_id": self.of.id})
                )
                number = made.inserted_primary_key[0]  # type: ignore[index]
                self.claims.append({**claims, "id": number, **{key: row[key] for key in ("uuid", "role", "seal")}})

    async def add_redaction(self, row: dict[str, Any]) -> None:
        """Insert the record of a redaction."""
        async with self._database.writing() as connection:
            await connection.execute(insert(redaction).values(**row, experiment_id=self.of.id))

    def check_space(self) -> None:
        """Raise `StoreError` if the disk is too small for the events of the pack."""
        room = self._database.dialect.free_bytes()
        need = sum(row["payload_bytes"] + row["last_seq"] * EVENT_BYTES for row in self.claims)
        if room is not None and need > room:
            raise StoreError(
                f"unpacking takes about {need / 1e6:,.0f} MB, and {room / 1e6:,.0f} MB are free beside "
                f"{self._database.location}. Free some space, or unpack into a store elsewhere with --store."
            )

    def complete(self, claims: dict[str, Any]) -> None:
        """Set the counters of a recorder, as all its events were added."""
        self._complete.append({f"new_{key}": claims[key] for key in (*COUNTED, "id")})

    @property
    def is_full(self) -> bool:
        """True if enough rows wait to be written."""
        return self.loader.is_full or len(self._complete) >= FLUSH_EVENTS

    async def flush(self) -> None:
        """Write the waiting rows in one transaction."""
        await self.loader.flush(self._advance)
        self._complete = []

    async def _advance(self, connection: AsyncConnection) -> None:
        alive = await connection.execute(
            update(recorder).where(recorder.c.id == self._worker).values(heartbeat_at=time.time_ns())
        )
        if alive.rowcount != 1:
            raise StoreError("the heartbeat of this unpacking was late, and its rows were removed. Unpack again")
        for number, last_seq in self.loader.reached.items():
            await connection.execute(update(recorder).where(recorder.c.id == number).values(last_seq=last_seq))
        if self._complete:
            values: dict[str, Any] = {key: bindparam(f"new_{key}") for key in COUNTED}
            done = update(recorder).where(recorder.c.id == bindparam("new_id")).values(**values)
            await connection.execute(done, self._complete)

    async def publish(self, of: dict[str, Any], exp_id: str) -> None:
        """Make the experiment visible, in one transaction."""
        async with self._database.writing() as connection:
            taken = select(experiment.c.id).where(experiment.c.exp_id == exp_id)
            if (await connection.execute(taken)).first() is not None:
                raise ExperimentExists(exp_id, "Unpack it under another --exp.")
            await connection.execute(delete(recorder).where(recorder.c.id == self._worker))
            published = await connection.execute(
                update(experiment)
                .where(experiment.c.id == self.of.id, experiment.c.status == "importing")
                .values(exp_id=exp_id, status=of["status"], recorders=len(self.claims))
            )
            if published.rowcount != 1:
                raise StoreError("the heartbeat of this unpacking was late, and its rows were removed. Unpack again")
