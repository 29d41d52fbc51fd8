"""Summary of an experiment from the side table `activity`: who sent and received on which channels.

It takes a second or two for ten million events, where reading the events themselves takes ten times as long.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import BigInteger, ColumnElement, case, cast, func, literal_column, select
from sqlalchemy.ext.asyncio import AsyncConnection

from ..db.codes import BUCKET_NS, KINDS
from ..db.database import Database
from ..db.schema import activity, indexed_recorder, recorder
from ..experiments.records import Experiment
from .event_query import EventQuery
from .late_receptions import Interval, Times

KIND: ColumnElement[int] = func.abs(activity.c.kind)
"""The code of the kind, also of redacted events, which have negative ones in `activity`."""
LARGE = 0.2
"""Part of the table that is large."""
_RECEIVED, _FAILED = (KINDS.index(kind) + 1 for kind in ("received", "failed"))


@dataclass(frozen=True, slots=True)
class Summary:
    """The sources of an experiment's events, redacted ones included."""

    counts: Sequence[tuple[int | None, int, int, int]]
    """The number of events: (id of the channel, code of the kind, id of the recorder, events). It is right for
    receptions on a channel with several listeners; any other is above 0 unless all were asked for."""
    failed: Sequence[Interval]
    """Times that include all `failed` events."""


async def summary(
    database: Database, of: Experiment, last_seqs: Mapping[int, int], *, counted: bool = False
) -> Summary | None:
    """Return the summary of an experiment; None if `activity` lacks events up to `last_seqs` (by id of the recorder).

    With `counted`, every number is right, which takes about three times as long.
    """
    mine = rows_of(of)
    places = select(activity.c.channel_id, activity.c.kind, activity.c.recorder_id)  # `abs` here takes twice as long
    minutes = select(activity.c.bucket).distinct().where(mine, KIND == _FAILED)
    async with database.reading() as connection:  # one snapshot
        if not await is_complete(connection, of, last_seqs):
            return None
        if counted:
            places = places.add_columns(sum_of(activity.c.messages)).group_by(*places.selected_columns)
            places = places.where(await rows_to_sum(connection, of))
        else:
            places = places.add_columns(literal_column("1")).distinct().where(mine)  # from the index alone
        found: Counter[tuple[int, int, int]] = Counter()
        for channel, kind, number, events in await EventQuery(places).rows_within(connection, database):
            found[channel, abs(kind), number] += events
        rows = [(*place, events) for place, events in found.items()]
        failed: list[tuple[int]] = []
        if any(kind == _FAILED for _, kind, _, _ in rows):
            failed = await EventQuery(minutes).rows_within(connection, database)
        if not counted:
            rows = await _with_receptions(connection, database, of, rows)
    return Summary(
        [(channel or None, kind, number, events) for channel, kind, number, events in rows],
        Times((at, at + BUCKET_NS - 1) for (at,) in failed).intervals,
    )


async def _with_receptions(
    connection: AsyncConnection, database: Database, of: Experiment, rows: list[tuple[int, int, int, int]]
) -> list[tuple[int, int, int, int]]:
    """Return rows with the numbers of receptions on channels with several listeners, which decide among these."""
    listeners = Counter(channel for channel, kind, _, _ in rows if kind == _RECEIVED)
    several = {channel for channel, number in listeners.items() if number > 1}
    if not several:
        return rows
    a = activity.c
    query = (
        select(a.channel_id, KIND, a.recorder_id, sum_of(a.messages))
        .where(await rows_to_sum(connection, of), KIND == _RECEIVED)
        .where(a.channel_id.in_([literal_column(str(channel)) for channel in several]))
        .group_by(a.channel_id, KIND, a.recorder_id)
    )
    known = [row for row in rows if row[1] != _RECEIVED or row[0] not in several]
    return known + [tuple(row) for row in await EventQuery(query).rows_within(connection, database)]


def rows_of(of: Experiment) -> ColumnElement[bool]:
    """Return the condition on the rows of an experiment in `activity`."""
    return activity.c.recorder_id.in_(select(recorder.c.id).where(recorder.c.experiment_id == of.id))


async def rows_to_sum(connection: AsyncConnection, of: Experiment, part: float = 1.0) -> ColumnElement[bool]:
    """Return the same condition for a sum over a part of the time of the experiment.

    SQLite finds each row by the index, which takes several times as long as reading the whole table. So a query for a
    large part of the table does not use the index: that is what `+` does.
    """
    mine = recorder.c.experiment_id == of.id
    events = select(func.sum(case((mine, recorder.c.last_seq), else_=0)), func.sum(recorder.c.last_seq))
    own, total = (await connection.execute(events)).one()
    if float(own or 0) * part < LARGE * float(total or 0):
        return rows_of(of)
    unindexed: ColumnElement[int] = literal_column("+activity.recorder_id")
    return unindexed.in_(select(recorder.c.id).where(mine))


def sum_of(column: ColumnElement[int]) -> ColumnElement[int]:
    """Return a sum as an integer, which PostgreSQL makes a decimal number."""
    return cast(func.sum(column), BigInteger)


async def is_complete(connection: AsyncConnection, of: Experiment, last_seqs: Mapping[int, int]) -> bool:
    """Return whether `activity` has all events up to `last_seqs`: a redaction may have cleared it meanwhile."""
    known = indexed_recorder.c
    query = (
        select(known.recorder_id, known.text_seq)
        .join(recorder, recorder.c.id == known.recorder_id)
        .where(recorder.c.experiment_id == of.id)
    )
    reached = {row.recorder_id: row.text_seq for row in await connection.execute(query)}
    return all(reached.get(number, 0) >= last for number, last in last_seqs.items())
