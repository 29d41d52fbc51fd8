"""Queries for events, run page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import BigInteger, Select, bindparam, select
from sqlalchemy.ext.asyncio import AsyncConnection

from ..db.codes import SEQ_BITS
from ..db.database import Database
from ..db.schema import event, recorder
from ..db.statements import Row
from ..errors import DamagedStore
from ..experiments.records import Experiment
from . import event_rows
from .event import Event
from .names import NameReader

HELD = 8 * 1024 * 1024
"""Maximum bytes of large payloads in one list of events."""
TOGETHER = 500
"""Maximum of events in one list."""


@dataclass(frozen=True, slots=True)
class Recorders:
    """The recorders of an experiment as they were at one moment, in order of ordinal."""

    ids: dict[int, int]
    """Ids by ordinal."""
    ordinals: dict[int, int]
    """Ordinals by id."""
    last_seqs: dict[int, int]
    """Last seqs by id: later events were committed after that moment."""
    by_uuid: dict[str, int]
    """Ordinals by uuid."""


async def recorders_now(database: Database, of: Experiment) -> Recorders:
    """Return the recorders of an experiment."""
    query = (
        select(recorder.c.id, recorder.c.ordinal, recorder.c.last_seq, recorder.c.uuid)
        .where(recorder.c.experiment_id == of.id)
        .order_by(recorder.c.ordinal)
    )
    async with database.reading() as connection:
        rows = (await connection.execute(query)).all()
    return Recorders(
        {row.ordinal: row.id for row in rows},
        {row.id: row.ordinal for row in rows},
        {row.id: row.last_seq for row in rows},
        {row.uuid: row.ordinal for row in rows},
    )


class EventQuery:
    """A SELECT with parameters, compiled once per kind of database and run for every page with other values."""

    def __init__(self, statement: Select[Any]) -> None:
        self.statement = statement
        self._compiled: dict[str, tuple[str, Sequence[str], dict[str, Any]]] = {}
        """The SQL, the names of its parameters in order, and their values unless given, by name of the database."""

    async def rows(self, database: Database, **values: Any) -> list[Any]:
        """Return the rows, as tuples, directly from the driver."""
        async with database.reading() as connection:
            return await self.rows_within(connection, database, **values)

    async def rows_within(self, connection: AsyncConnection, database: Database, **values: Any) -> list[Any]:
        """Return the rows as `rows` does, read with a given connection."""
        kind = connection.dialect.name
        if kind not in self._compiled:
            compiled = self.statement.compile(dialect=connection.dialect, compile_kwargs={"render_postcompile": True})
            self._compiled[kind] = str(compiled), compiled.positiontup or (), dict(compiled.params)
        sql, names, defaults = self._compiled[kind]
        known = defaults | values
        return list(await database.dialect.fetch(connection, sql, [known[name] for name in names]))


async def events_of(
    database: Database, rows: list[Row], recorders: Recorders, names: NameReader
) -> AsyncIterator[list[Event]]:
    """Yield rows as events, at most `TOGETHER` at a time, without those behind their recorder's last seq.

    The garbage collector visits every event that is alive several times, which costs as much as making it. So few
    are alive at a time.
    """
    ordinals, last_seqs = recorders.ordinals, recorders.last_seqs
    for at in range(0, len(rows), TOGETHER):
        part = rows[at : at + TOGETHER]
        try:
            entries = event_rows.unpack(part, ordinals, names.values, last_seqs, recorders.by_uuid)
        except KeyError:
            await names.load(event_rows.name_ids(rows[at:]))
            try:
                entries = event_rows.unpack(part, ordinals, names.values, last_seqs, recorders.by_uuid)
            except KeyError:
                reason = "the name of a channel or an agent is missing; `messager verify` says where"
                raise DamagedStore(database.location, reason) from None
        begin = held = 0
        for place, entry in enumerate(entries):
            if entry.payload is None:
                entry.payload = await _payload(database, recorders.ids[entry.recorder] << SEQ_BITS | entry.seq)
                held += len(entry.payload)
                if held > HELD:
                    yield entries[begin : place + 1]
                    entries[begin : place + 1] = [None] * (place + 1 - begin)  # free them
                    begin, held = place + 1, 0
        if begin < len(entries):
            yield entries[begin:] if begin else entries


async def _payload(database: Database, number: int) -> bytes:
    async with database.reading() as connection:
        query = select(event.c.payload).where(event.c.id == number)
        return bytes((await connection.execute(query)).scalar_one())


def parameter(name: str) -> Any:
    """Return a parameter of a statement, a 64-bit integer."""
    return bindparam(name, 0, BigInteger)
