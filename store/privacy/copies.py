"""Copies: the events of a fork that repeat events of its parent, found by their origin.

An origin is the uuid of a recorder and a seq there. Copies of an experiment that was imported from JSON Lines are not
found, as an import makes recorders of its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass

from sqlalchemy import BigInteger, ColumnElement, and_, func, literal, or_, select

from ..db.codes import RECORDER, REDACTED, SEQ_BITS, SEQ_MASK
from ..db.database import Database
from ..db.schema import VISIBLE, event, experiment, name, recorder
from ..errors import StoreError
from ..experiments.records import Experiment, RecorderRow, experiment_of
from ..experiments.registry import recorders_of
from ..log.names import LOOKUP, name_hash

PAGE = 5_000
"""Events in one query."""


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
    recorders: dict[int, int]
    """The id of a recorder of the parent by the id of its name in the fork."""


async def copies_of(
    database: Database, of: Experiment, recorders: list[RecorderRow], selected: Collection[int]
) -> list[Copies]:
    """Return the forks of an experiment, and its parent, that hold unredacted copies of events, given by `event.id`."""
    chosen = frozenset(selected)
    found = []
    for relation in await _relations(database, of, recorders):
        if relation.parent.id == of.id:
            copies = [
                number
                async for number, original in _copies(
                    database, relation, await recorders_of(database, relation.fork.id)
                )
                if original in chosen
            ]
        else:
            copies = [original async for number, original in _copies(database, relation, recorders) if number in chosen]
        other = relation.fork if relation.parent.id == of.id else relation.parent
        if count := await _unredacted(database, copies):
            found.append(Copies(other.exp_id, count, other is relation.fork))
    return found


async def redacted_in(
    database: Database, of: Experiment, recorders: list[RecorderRow], there: Experiment
) -> ColumnElement[bool]:
    """Return the condition that an event of `of` is a copy, or the original, of a redacted event of `there`.

    Raises `StoreError` if neither of the two experiments has copies of events of the other.
    """
    other = event.alias("other_event")
    erased = and_(other.c.experiment_id == there.id, other.c.flags.op("&")(REDACTED) != 0)
    conditions: list[ColumnElement[bool]] = []
    for relation in await _relations(database, of, recorders):
        for number, row in relation.recorders.items():
            first = literal(row << SEQ_BITS, BigInteger)
            if relation.parent.id == there.id:
                originals = select(other.c.id).where(erased)
                conditions.append(and_(event.c.origin_id == number, (first + event.c.origin_seq).in_(originals)))
            elif relation.fork.id == there.id:
                copied = select(first + other.c.origin_seq).where(erased, other.c.origin_id == number)
                conditions.append(event.c.id.in_(copied))
    if not conditions:
        raise StoreError(
            f"{of.exp_id} and {there.exp_id} have no events in common. Give redacted-in the parent or a fork of "
            f"{of.exp_id}; `messager info {of.exp_id}` names them."
        )
    return or_(*conditions)


async def _relations(database: Database, of: Experiment, recorders: list[RecorderRow]) -> list[_Relation]:
    """Return the relations to the parent of an experiment and to its forks, as far as they are in the store."""
    found = []
    here = {name_hash(row.uuid.encode()): row.id for row in recorders}
    async with database.reading() as connection:
        rows = await connection.execute(
            select(experiment).where(
                experiment.c.parent_exp_id.is_not(None), experiment.c.status.in_(VISIBLE), experiment.c.id != of.id
            )
        )
        for fork in [experiment_of(row, ()) for row in rows]:
            named = select(name.c.id, name.c.hash).where(name.c.experiment_id == fork.id, name.c.what == RECORDER)
            known = {
                number: here[bytes(digest)]
                for number, digest in await connection.execute(named)
                if bytes(digest) in here
            }
            if known:
                found.append(_Relation(of, fork, known))
        if of.parent_exp_id is None:
            return found
        named = select(name.c.id, name.c.text).where(name.c.experiment_id == of.id, name.c.what == RECORDER)
        uuids = {uuid: number for number, uuid in await connection.execute(named)}
        parents: dict[int, dict[int, int]] = {}
        for at in range(0, len(uuids), LOOKUP):
            query = select(recorder.c.id, recorder.c.uuid, recorder.c.experiment_id).where(
                recorder.c.uuid.in_(list(uuids)[at : at + LOOKUP]), recorder.c.experiment_id != of.id
            )
            for number, uuid, owner in await connection.execute(query):
                parents.setdefault(owner, {})[uuids[uuid]] = number
        owners = select(experiment).where(experiment.c.id.in_(list(parents)), experiment.c.status.in_(VISIBLE))
        for row in await connection.execute(owners):
            found.append(_Relation(experiment_of(row, ()), of, parents[row.id]))
    return found


async def _copies(
    database: Database, relation: _Relation, recorders: list[RecorderRow]
) -> AsyncIterator[tuple[int, int]]:
    """Yield `event.id` of each copy in the fork, and of its original; `recorders` are those of the fork."""
    for row in recorders:
        last, end = row.id << SEQ_BITS, row.id << SEQ_BITS | SEQ_MASK
        while True:
            query = (
                select(event.c.id, event.c.origin_id, event.c.origin_seq)
                .where(event.c.id > last, event.c.id <= end, event.c.origin_id.in_(list(relation.recorders)))
                .order_by(event.c.id)
                .limit(PAGE)
            )
            async with database.reading() as connection:
                entries = (await connection.execute(query)).all()
            for number, origin, seq in entries:
                yield number, relation.recorders[origin] << SEQ_BITS | seq
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
