"""Find experiments and their recorders."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from ..db.database import Database
from ..db.schema import VISIBLE, experiment, recorder, tag
from ..errors import AmbiguousExperiment, ExperimentNotFound
from .records import Experiment, RecorderRow, experiment_of, recorder_of

TOGETHER = 500
"""Ids in one query."""


async def tags_of(connection: AsyncConnection, ids: Sequence[int]) -> dict[int, list[str]]:
    """Return the tags of these experiments, by id."""
    found: dict[int, list[str]] = {}
    for at in range(0, len(ids), TOGETHER):
        query = select(tag.c.experiment_id, tag.c.tag).where(tag.c.experiment_id.in_(ids[at : at + TOGETHER]))
        for number, word in await connection.execute(query):
            found.setdefault(number, []).append(word)
    return found


async def by_exp_id(database: Database, exp_id: str) -> Experiment | None:
    """Return the experiment of exactly this exp_id, or None."""
    async with database.reading() as connection:
        query = select(experiment).where(experiment.c.exp_id == exp_id, experiment.c.status.in_(VISIBLE))
        row = (await connection.execute(query)).one_or_none()
        return None if row is None else experiment_of(row, (await tags_of(connection, [row.id])).get(row.id, ()))


async def find(database: Database, wanted: str) -> Experiment:
    """Return the experiment of this exp_id, name, unique prefix of an exp_id, or `@last`.

    Raises `ExperimentNotFound`, which names similar ones, or `AmbiguousExperiment`.
    """
    visible = select(experiment).where(experiment.c.status.in_(VISIBLE))
    async with database.reading() as connection:
        if wanted == "@last":
            rows = (await connection.execute(visible.order_by(experiment.c.id.desc()).limit(1))).all()
        else:
            rows = (await connection.execute(visible.where(experiment.c.exp_id == wanted))).all()
            if not rows:
                rows = (await connection.execute(visible.where(experiment.c.name == wanted))).all()
            if not rows and wanted:
                prefix = func.substr(experiment.c.exp_id, 1, len(wanted)) == wanted
                rows = (await connection.execute(visible.where(prefix))).all()
        if len(rows) > 1:
            raise AmbiguousExperiment(wanted, (row.exp_id for row in rows))
        if not rows:
            known = (await connection.execute(visible.with_only_columns(experiment.c.exp_id, experiment.c.name))).all()
            raise ExperimentNotFound(wanted, _similar(wanted, [tuple(row) for row in known]))
        return experiment_of(rows[0], (await tags_of(connection, [rows[0].id])).get(rows[0].id, ()))


async def every(
    database: Database,
    *,
    name: str | None = None,
    tags: Iterable[str] = (),
    since: int | None = None,
    limit: int | None = None,
) -> list[Experiment]:
    """Return experiments, oldest first, that match all conditions.

    `name` is a part of their name or exp_id in any case, `tags` are all required, `since` (ns UTC) is the earliest
    time of creation. With `limit`, at most so many: the newest.
    """
    query = select(experiment).where(experiment.c.status.in_(VISIBLE)).order_by(experiment.c.id.desc())
    if since is not None:
        query = query.where(experiment.c.created_at >= since)
    for word in tags:
        query = query.where(experiment.c.id.in_(select(tag.c.experiment_id).where(tag.c.tag == word)))
    if name is None and limit is not None:
        query = query.limit(limit)
    async with database.reading() as connection:
        rows = list((await connection.execute(query)).all())
        if name is not None:  # not in SQL: databases compare upper and lower case differently
            part = name.casefold()
            rows = [row for row in rows if part in (row.name or "").casefold() or part in row.exp_id.casefold()]
        rows = rows[:limit][::-1]
        words = await tags_of(connection, [row.id for row in rows])
    return [experiment_of(row, words.get(row.id, ())) for row in rows]


async def recorders_of(
    database: Database, experiment_id: int | None = None, *, unended: bool = False
) -> list[RecorderRow]:
    """Return the recorders of an experiment in order of ordinal, or of all experiments.

    With `unended`, only those without an end.
    """
    query = select(recorder).order_by(recorder.c.experiment_id, recorder.c.ordinal)
    if experiment_id is not None:
        query = query.where(recorder.c.experiment_id == experiment_id)
    if unended:
        query = query.where(recorder.c.ended_at.is_(None))
    async with database.reading() as connection:
        return [recorder_of(row) for row in await connection.execute(query)]


async def spool_files(database: Database) -> list[str]:
    """Return the files to which recorders write, or wrote, while the store is unreachable."""
    async with database.reading() as connection:
        query = select(recorder.c.spool).where(recorder.c.spool.is_not(None)).distinct()
        return list((await connection.execute(query)).scalars())


async def recorder_by_uuid(database: Database, name: str) -> RecorderRow | None:
    """Return the recorder of this uuid, or None."""
    async with database.reading() as connection:
        row = (await connection.execute(select(recorder).where(recorder.c.uuid == name))).one_or_none()
    return None if row is None else recorder_of(row)


def _similar(wanted: str, known: Sequence[tuple[str, str | None]]) -> list[str]:
    """Return up to three exp_ids and names that are similar; the exp_ids of a name that several experiments have."""
    exp_ids: dict[str, list[str]] = {}
    for exp_id, name in known:
        exp_ids[exp_id] = [exp_id]
        if name:
            exp_ids.setdefault(name, []).append(exp_id)
    near = difflib.get_close_matches(wanted, exp_ids, n=3, cutoff=0.5)
    return [word for name in near for word in ([name] if len(exp_ids[name]) == 1 else exp_ids[name])][:3]
