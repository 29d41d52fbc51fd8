"""What readers see of an experiment: `ix_event_replay` must give the events that its recorders' chains hold.

Readers go through that index, and the chains are walked by primary key. So the index is read on its own, in its order:
each id must be one of a recorder of the experiment, and the events of the walk must be there with their times.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

from sqlalchemy import ColumnElement, column, select, text, tuple_

from ..db.codes import SEQ_BITS, SEQ_MASK
from ..db.database import Database
from ..experiments.records import Experiment
from ..experiments.registry import recorders_of
from ..log.chain_walk import WRONG_TYPE
from ..log.event_query import EventQuery, parameter

PAGE = 5000
_PRIME = 2**130 - 5
"""Larger than all differences of two places, which have 128 bits."""
_BEFORE_ALL = (-(2**63), -(2**63))
_REMEDY = "readers see something else than what was recorded; the SQL `REINDEX` makes the index again from the events"


class Places:
    """The number of (ts, id) of events, and a hash of them in any order.

    The hash is the product of (key + place) modulo a prime: with a secret key, other places give another one.
    """

    def __init__(self, key: int) -> None:
        self.key = key
        self.count = 0
        self._product = 1

    @classmethod
    def new(cls) -> Places:
        """Return no places, with a key of its own."""
        return cls(secrets.randbelow(_PRIME))

    def add(self, places: Iterable[tuple[int, int]]) -> None:
        """Add places. Raises one of `WRONG_TYPE`."""
        key, product, count = self.key, self._product, self.count
        for ts, number in places:
            product = product * (key + (ts << 64 | number)) % _PRIME
            count += 1
        self.count, self._product = count, product

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Places) and (self.count, self._product) == (other.count, other._product)

    __hash__ = None  # type: ignore[assignment]


async def check_replay_index(
    database: Database, of: Experiment, walked: Places, ends: Mapping[int, int]
) -> AsyncIterator[str]:
    """Check that the replay index gives the events that were walked, in order, and no others of the experiment.

    `ends` are, by recorder id, the seqs after the last events that were walked. Later events may be those that a
    recorder has committed since then.
    """
    indexed = Places(walked.key)
    others: dict[int, list[int]] = {}
    async for page in _pages(database, of.id):
        try:
            if page != sorted(page):
                yield f"the index ix_event_replay is out of order: {_REMEDY}"
                return
            known = [row for row in page if 0 < row[1] & SEQ_MASK < ends.get(row[1] >> SEQ_BITS, 0)]
            indexed.add(known)
        except WRONG_TYPE:
            yield "an event in the index ix_event_replay has a value of the wrong type"
            return
        if len(known) < len(page):
            for _, number in page:
                if not 0 < number & SEQ_MASK < ends.get(number >> SEQ_BITS, 0):
                    others.setdefault(number >> SEQ_BITS, []).append(number & SEQ_MASK)
    now = {row.id: row for row in await recorders_of(database, of.id)}
    for recorder_id, seqs in others.items():
        count = f"{len(seqs)} {'event belongs' if len(seqs) == 1 else 'events belong'}"
        if (row := now.get(recorder_id)) is None:
            yield f"{count} to recorder {recorder_id} of the store, which is none of this experiment"
        elif min(seqs) < ends.get(recorder_id, 1) or not isinstance(row.last_seq, int) or max(seqs) > row.last_seq:
            yield f"recorder {row.ordinal}: {count} to no batch, the first is seq {min(seqs)}"
    if indexed != walked:
        yield (
            f"the index ix_event_replay gives {indexed.count} events of the {walked.count} in batches"
            f"{'' if indexed.count != walked.count else ', with other times or ids'}: {_REMEDY}"
        )


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
