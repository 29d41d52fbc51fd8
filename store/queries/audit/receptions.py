"""Receptions with a digest of their content; those that belong to no sending in the side table `delivery`."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import NamedTuple

from sqlalchemy import bindparam, case, func, null, select, tuple_

from ...db.codes import KINDS, REDACTED, SEQ_BITS
from ...db.schema import delivery, event, replay_place
from ...experiments.records import Experiment
from ...log.attributes import meta_of
from ...log.event_log import EventLog
from ...log.event_query import EventQuery, parameter
from ...log.matching import Listener, key_of
from ..texts import MAX_FETCHED

PAGE = 500
"""Receptions in one query."""
FIRST_NS, LAST_NS = -(2**63), 2**63 - 1
_SENT, _RECEIVED = (KINDS.index(kind) + 1 for kind in ("sent", "received"))


class Reception(NamedTuple):
    """A reception."""

    id: int
    ts: int
    channel_id: int
    listener: Listener
    sending_id: int | None
    """None if it belongs to no sending."""
    retained: bool
    content: bytes
    """Digest of channel and payload (`matching.key_of`)."""


class Receptions:
    """The receptions of an experiment on channels with recorded sendings, without redacted ones."""

    def __init__(self, log: EventLog, of: Experiment) -> None:
        self._log = log
        self._of = of
        self._channels: list[int] | None = None

    async def channels(self) -> list[int]:
        """Return the ids of the channels with recorded sendings."""
        if self._channels is None:
            query = select(event.c.channel_id).where(event.c.experiment_id == self._of.id, event.c.kind == _SENT)
            async with self._log.database.reading() as connection:
                found = (await connection.execute(query.distinct())).scalars()
                self._channels = [number for number in found if number is not None]
        return self._channels

    async def read(
        self, *, channels: list[int] | None = None, first: int = FIRST_NS, last: int = LAST_NS, unmatched: bool = False
    ) -> AsyncGenerator[list[Reception], None]:
        """Yield the receptions between two times, both included, in replay order; or only those without a sending."""
        channels = await self.channels() if channels is None else channels
        if not channels:
            return
        query = self._query(channels, unmatched=unmatched)
        place = first, -1
        while True:
            values = {"ts": place[0], "number": place[1], "last": last, "size": PAGE}
            rows = await query.rows(self._log.database, **values)
            yield [await self._reception(*row) for row in rows]
            if len(rows) < PAGE:
                return
            place = rows[-1][1], rows[-1][0]

    def _query(self, channels: list[int], *, unmatched: bool) -> EventQuery:
        payload = case((func.length(event.c.payload) <= MAX_FETCHED, event.c.payload), else_=null())
        statement = (
            select(event.c.id, event.c.ts, event.c.channel_id, event.c.messager_id, event.c.attributes, payload)
            .add_columns(delivery.c.sending_id)
            .outerjoin(delivery, delivery.c.event_id == event.c.id)
            .where(
                event.c.experiment_id == self._of.id,
                event.c.kind == _RECEIVED,
                event.c.flags.op("&")(REDACTED) == 0,
                event.c.channel_id.in_(bindparam(None, channels, expanding=True, literal_execute=True)),
                replay_place > tuple_(parameter("ts"), parameter("number")),
                event.c.ts <= parameter("last"),
            )
            .order_by(event.c.ts, event.c.id)
            .limit(parameter("size"))
        )
        return EventQuery(statement.where(delivery.c.event_id.is_(None)) if unmatched else statement)

    async def _reception(
        self,
        number: int,
        ts: int,
        channel_id: int,
        messager_id: int | None,
        attributes: str | None,
        payload: bytes | None,
        sending_id: int | None,
    ) -> Reception:
        if payload is None:
            async with self._log.database.reading() as connection:
                query = select(event.c.payload).where(event.c.id == number)
                payload = (await connection.execute(query)).scalar_one()
        retained = bool(meta_of(attributes).get("retained"))
        content = key_of(channel_id, bytes(payload or b""))
        return Reception(number, ts, channel_id, (number >> SEQ_BITS, messager_id), sending_id, retained, content)
