"""Sendings with their deliveries, in replay order."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import BindParameter, bindparam

from ...db.codes import CHANNEL, SEQ_BITS
from ...db.database import Database
from ...db.schema import event
from ...experiments.records import Experiment
from ...log import event_rows
from ...log.event import Event
from ...log.event_log import EventLog
from ...log.event_query import EventQuery, events_of, recorders_now
from ...log.matching import Listener
from ...log.messages import selected_pages
from ...log.names import NameReader, all_names
from ...log.selection import Selection
from .early_receptions import EarlyReceptions


class Delivery(NamedTuple):
    """A reception of a sending."""

    listener: Listener
    received_at: int
    """ns UTC"""


@dataclass(frozen=True, slots=True)
class Sending:
    """A sending and its deliveries, the earliest first."""

    event: Event
    id: int
    deliveries: Sequence[Delivery]


async def sendings(
    log: EventLog, of: Experiment, selection: Selection, early: EarlyReceptions, *, messages: bool = False
) -> AsyncGenerator[list[Sending], None]:
    """Yield the selected sendings in pages, with the deliveries that the side table has, and early receptions.

    With `messages`, only those that are messages: neither redacted ones nor those that a `failed` event retracts.
    """
    numbers = {row.ordinal: row.id << SEQ_BITS for row in await log.recorders(of)}
    channels = {channel: number for number, channel in (await all_names(log.database, of.id, CHANNEL)).items()}
    reading = selected_pages(log, of, selection.of_kinds({"sent"}), messages=messages)
    async with aclosing(reading) as pages, aclosing(early):
        async for page in pages:
            ids = [numbers.get(entry.recorder, 0) | entry.seq for entry in page]
            found = await _deliveries(log.database, ids)
            await early.advance([entry.ts for entry in page])
            made = []
            for number, entry in zip(ids, page, strict=True):
                deliveries = found.get(number, [])
                heard = [one.listener for one in deliveries]
                before = early.of(channels.get(entry.channel or ""), entry, heard)
                made.append(Sending(entry, number, [*(Delivery(one.listener, one.ts) for one in before), *deliveries]))
            yield made


async def _deliveries(database: Database, ids: list[int]) -> dict[int, list[Delivery]]:
    """Return the deliveries of sendings, by id of the sending."""
    listed = ", ".join(map(str, ids))
    query = (
        "SELECT d.sending_id, d.event_id, d.received_at, e.messager_id "
        "FROM delivery d JOIN event e ON e.id = d.event_id "
        f"WHERE d.sending_id IN ({listed}) ORDER BY d.sending_id, d.received_at, d.event_id"
    )
    found: dict[int, list[Delivery]] = {}
    async with database.reading() as connection:
        for sending_id, event_id, received_at, messager_id in await database.dialect.fetch(connection, query, ()):
            found.setdefault(sending_id, []).append(Delivery((event_id >> SEQ_BITS, messager_id), received_at))
    return found


async def events_by_id(log: EventLog, of: Experiment, ids: Collection[int]) -> dict[int, Event]:
    """Return events by id."""
    recorders = await recorders_now(log.database, of)
    wanted: BindParameter[int] = bindparam(None, sorted(ids), expanding=True, literal_execute=True)
    rows = await EventQuery(event_rows.columns().where(event.c.id.in_(wanted))).rows(log.database)
    found = {}
    async for page in events_of(log.database, rows, recorders, NameReader(log.database)):
        found.update({recorders.ids[entry.recorder] << SEQ_BITS | entry.seq: entry for entry in page})
    return found
