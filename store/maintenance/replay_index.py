"""What readers see of an experiment: `ix_event_replay` must give the events that its recorders' chains hold.

Readers go through that index, and the chains are walked by primary key. So the index is read on its own, in its order:
each id must be one of a recorder of the experiment, and the events of the walk must be there with their times.
"""

from __future__ import annotations

from array import array
from collections.abc import AsyncIterator, Mapping
from typing import Any

from sqlalchemy import ColumnElement, column, select, text, tuple_

from ..db.codes import SEQ_BITS, SEQ_MASK
from ..db.database import Database
from ..experiments.records import Experiment
from ..experiments.registry import recorders_of
from ..log.event_query import EventQuery, parameter

PAGE = 20_000
_BEFORE_ALL = (-(2**63), -(2**63))
_REMEDY = "readers see something else than what was recorded; the SQL `REINDEX` makes the index again from the events"

Times = Mapping[int, "array[int]"]
"""The times of the events that were walked, in order of seq, by recorder id: 8 bytes an event."""


async def check_replay_index(database: Database, of: Experiment, walked: Times) -> AsyncIterator[str]:
    """Check that the replay index gives the events that were walked, in order, and no others of the experiment.

    Later events may be those that a recorder has committed since the walk began.
    """
    count = moved = 0
    others: dict[int, list[int]] = {}
    none: array[int] = array("q")
    async for page in _pages(database, of.id):
        if not all(isinstance(ts, int) for ts, _ in page) or page != sorted(page):
            yield f"the index ix_event_replay is out of order, or has times that are no numbers: {_REMEDY}"
            return
        for ts, number in page:
            seq = number & SEQ_MASK
            times = walked.get(number >> SEQ_BITS, none)
            if not 0 < seq <= len(times):
                others.setdefault(number >> SEQ_BITS, []).append(seq)
                continue
            count += 1
            if times[seq - 1] != ts:
                moved += 1
    now = {row.id: row for row in await recorders_of(database, of.id)}
    for recorder_id, seqs in others.items():
        found = f"{len(seqs)} {'event belongs' if len(seqs) == 1 else 'events belong'}"
        if (row := now.get(recorder_id)) is None:
            yield f"{found} to recorder {recorder_id} of the store, which is none of this experiment"
        elif min(seqs) == 0 or not isinstance(row.last_seq, int) or max(seqs) > row.last_seq:
            yield f"recorder {row.ordinal}: {found} to no batch, the first is seq {min(seqs)}"
    total = sum(map(len, walked.values()))
    if count != total or moved:
        times_of = f", and other times of {moved}" if moved else ""
        yield f"the index ix_event_replay gives {count} events of the {total} in batches{times_of}: {_REMEDY}"


async def _pages(database: Database, experiment_id: int) -> AsyncIterator[list[tuple[int, int]]]:
    """Yield the (ts, id) of the events of an experiment, as the index has them."""
    ts: ColumnElement[Any] = column("ts")
    number: ColumnElement[Any] = column("id")
    place, after = tuple_(ts, number), tuple_(parameter("ts"), parameter("number"))
    query = EventQuery(
        select(ts, number)
        .select_from(text(database.dialect.replay_index))
        .where(column("experiment_id") == parameter("experiment"), place > after)
        .order_by(ts, number)
        .limit(PAGE)
    )
    last = _BEFORE_ALL
    while True:
        async with database.reading() as connection:
            await database.dialect.prefer_indexes(connection)
            rows = await query.rows_within(connection, database, experiment=experiment_id, ts=last[0], number=last[1])
        if rows:
            yield rows
        if len(rows) < PAGE:
            return
        last = rows[-1]
