"""Copies: the events of a fork that repeat events of its parent, found by their origin.

An origin is the uuid of a recorder and a seq there. Copies of an experiment that was imported from JSON Lines are not
found, as an import makes recorders of its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from ..db.codes import REDACTED, SEQ_BITS, SEQ_MASK
from ..db.database import Database
from ..db.schema import VISIBLE, event, experiment, recorder
from ..errors import StoreError
from ..experiments.records import Experiment, RecorderRow, experiment_of
from ..experiments.registry import recorders_of
from ..log.attributes import KEYS, decode
from ..log.names import LOOKUP

PAGE = 5_000
"""Events in one query."""
_ORIGIN = KEYS["origin"]
_IS_COPY = event.c.attributes.contains(f'"{_ORIGIN}":[')
"""True for copies, and perhaps for events with such a text in their meta."""


@dataclass(frozen=True, slots=True)
class Copies:
    """Events of another experiment that are copies, or the originals, of selected events, and are not redacted."""

    exp_id: str
    events: int
    is_fork: bool
    """True if the experiment is a fork of the one with the selected events, False if it is its parent."""


@dataclass(frozen=True, slots=True)
class _Relation:
    """Two experiments of the store, one of which has copies of events of the other."""

    parent: Experiment
    fork: Experiment
    recorders: dict[str, int]
    """The ids of recorders of the parent by uuid."""


async def copies_of(
    database: Database, of: Experiment, recorders: list[RecorderRow], selected: Collection[int]
) -> list[Copies]:
    """Return the forks of an experiment, and its parent, that hold unredacted copies of events, given by `event.id`."""
    chosen = frozenset(selected)
    found = []
    for relation in await _relations(database, of, recorders):
        theirs = [number async for own, number in _pairs(database, of, relation) if own in chosen]
        is_fork = relation.parent.id == of.id
        if count := await _unredacted(database, theirs):
            found.append(Copies((relation.fork if is_fork else relation.parent).exp_id, count, is_fork))
    return found


async def redacted_in(
    database: Database, of: Experiment, recorders: list[RecorderRow], there: Experiment
) -> frozenset[int]:
    """Return `event.id` of the events of `of` that are copies, or the originals, of redacted events of `there`.

    Raises `StoreError` if neither of the two experiments has copies of events of the other.
    """
    relations = [
        each for each in await _relations(database, of, recorders) if there.id in (each.parent.id, each.fork.id)
    ]
    if not relations:
        raise StoreError(
            f"{of.exp_id} and {there.exp_id} have no events in common. Give redacted-in the parent or a fork of "
            f"{of.exp_id}; `messager info {of.exp_id}` names them."
        )
    async with database.reading() as connection:
        query = select(event.c.id).where(event.c.experiment_id == there.id, event.c.flags.op("&")(REDACTED) != 0)
        redacted = frozenset((await connection.execute(query)).scalars())
    return frozenset(
        [own for relation in relations async for own, number in _pairs(database, of, relation) if number in redacted]
    )


async def _relations(database: Database, of: Experiment, recorders: list[RecorderRow]) -> list[_Relation]:
    """Return the relations to the parent of an experiment and to its forks, as far as they are in the store."""
    found = []
    here = {row.uuid: row.id for row in recorders}
    async with database.reading() as connection:
        rows = await connection.execute(
            select(experiment).where(
                experiment.c.parent_exp_id.is_not(None), experiment.c.status.in_(VISIBLE), experiment.c.id != of.id
            )
        )
        for fork in [experiment_of(row, ()) for row in rows]:
            if await _first_origin(connection, fork) in here:
                found.append(_Relation(of, fork, here))
        if of.parent_exp_id is None:
            return found
        owner = select(recorder.c.experiment_id).where(
            recorder.c.uuid == await _first_origin(connection, of), recorder.c.experiment_id != of.id
        )
        parents = select(experiment).where(experiment.c.id.in_(owner), experiment.c.status.in_(VISIBLE))
        for row in (await connection.execute(parents)).all():
            theirs = select(recorder.c.uuid, recorder.c.id).where(recorder.c.experiment_id == row.id)
            known = {known.uuid: known.id for known in await connection.execute(theirs)}
            found.append(_Relation(experiment_of(row, ()), of, known))
    return found


async def _first_origin(connection: AsyncConnection, fork: Experiment) -> str | None:
    """Return the uuid of the parent's recorder that the first copy in a fork names; copies come first in a fork."""
    query = select(event.c.attributes).where(event.c.experiment_id == fork.id, _IS_COPY)
    text = (await connection.execute(query.order_by(event.c.ts, event.c.id).limit(1))).scalar_one_or_none()
    uuid, _ = decode(text).get("origin") or (None, 0)
    return uuid


async def _pairs(database: Database, of: Experiment, relation: _Relation) -> AsyncIterator[tuple[int, int]]:
    """Yield `event.id` of each event of an experiment that the other one of a relation has too, here and there."""
    for row in await recorders_of(database, relation.fork.id):
        last, end = row.id << SEQ_BITS, row.id << SEQ_BITS | SEQ_MASK
        while True:
            query = (
                select(event.c.id, event.c.attributes)
                .where(event.c.id > last, event.c.id <= end, _IS_COPY)
                .order_by(event.c.id)
                .limit(PAGE)
            )
            async with database.reading() as connection:
                entries = (await connection.execute(query)).all()
            for copy, text in entries:
                uuid, seq = decode(text).get("origin") or (None, 0)
                if uuid in relation.recorders:
                    original = relation.recorders[uuid] << SEQ_BITS | seq
                    yield (original, copy) if relation.parent.id == of.id else (copy, original)
            if len(entries) < PAGE:
                break
            last = entries[-1].id


async def _unredacted(database: Database, ids: list[int]) -> int:
    """Return the number of events among these that exist and are not redacted."""
    count = 0
    for at in range(0, len(ids), LOOKUP):
        query = select(func.count()).where(event.c.id.in_(ids[at : at + LOOKUP]), event.c.flags.op("&")(REDACTED) == 0)
        async with database.reading() as connection:
            count += int((await connection.execute(query)).scalar_one())
    return count
