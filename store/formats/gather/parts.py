"""Parts of an experiment: what other stores hold of it, and the conditions under which they belong together."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select

from ... import json_text
from ...db.database import Database
from ...db.schema import VISIBLE, experiment, recorder
from ...experiments.records import RecorderRow, recorder_of
from ...experiments.registry import tags_of
from ...recording.registration import NOTED

Columns = Mapping[str, Any]
"""A row, by column."""


@dataclass(slots=True, eq=False)
class Part:
    """An experiment as one store holds it, read in one snapshot."""

    database: Database
    columns: Columns
    """The row of the experiment."""
    tags: list[str]
    recorders: list[RecorderRow]
    """In order of ordinal."""
    recorder_columns: dict[str, Columns]
    """The rows of the recorders, by uuid."""

    @property
    def id(self) -> int:
        """Its id in its store."""
        return int(self.columns["id"])

    @property
    def exp_id(self) -> str:
        """The exp_id."""
        return str(self.columns["exp_id"])

    @property
    def store(self) -> str:
        """The location of its store."""
        return self.database.location

    @property
    def meta(self) -> dict[str, Any]:
        """The meta of the experiment."""
        return json_text.load_object(self.columns["meta"])

    @property
    def parent(self) -> tuple[Any, ...] | None:
        """What it was forked from; None if from nothing."""
        found = tuple(self.columns[key] for key in PARENT)
        return None if found == (None,) * len(PARENT) else found

    @property
    def span(self) -> tuple[int, int] | None:
        """First and last time (ns UTC) at which it was recorded; None without recorders and events."""
        times = [time for row in self.recorders for time in _times(row)]
        return (min(times), max(times)) if times else None


PARENT = tuple(column.name for column in experiment.c if column.name.startswith("parent_"))


def _times(row: RecorderRow) -> list[int]:
    """Return times between which a recorder recorded. A repair and an import were made later, so their events count."""
    found = [row.first_ts, row.last_ts]
    if row.role not in ("import", "repair"):
        end = row.heartbeat_at if row.ended_at is None or row.unclean else row.ended_at
        found += [row.started_at, end]
    return [time for time in found if time is not None]


async def read_parts(database: Database, exp_ids: Collection[str] = ()) -> list[Part]:
    """Return the visible experiments of a store, or those with the given exp_ids, oldest first."""
    query = select(experiment).where(experiment.c.status.in_(VISIBLE)).order_by(experiment.c.id)
    if exp_ids:
        query = query.where(experiment.c.exp_id.in_(exp_ids))
    found = []
    async with database.reading() as connection:
        for row in (await connection.execute(query)).all():
            members = select(recorder).where(recorder.c.experiment_id == row.id).order_by(recorder.c.ordinal)
            rows = (await connection.execute(members)).all()
            tags = (await tags_of(connection, [row.id])).get(row.id, [])
            columns: dict[str, Columns] = {each.uuid: dict(each._mapping) for each in rows}
            found.append(Part(database, dict(row._mapping), tags, [recorder_of(each) for each in rows], columns))
    return found


@dataclass(slots=True)
class Whole:
    """The experiment as far as parts were accepted: what further parts are compared with."""

    where: str = ""
    """The store that the first part came from."""
    uuids: set[str] = field(default_factory=set)
    span: tuple[int, int] | None = None
    name: str | None = None
    meta: dict[str, Any] = field(default_factory=dict)
    parent: tuple[Any, ...] | None = None
    parts: int = 0

    def add(self, part: Part) -> None:
        """Accept a part. Names and meta of earlier parts win."""
        self.where = self.where or part.store
        self.uuids |= part.recorder_columns.keys()
        times = [*(self.span or ()), *(part.span or ())]
        self.span = (min(times), max(times)) if times else None
        self.name = self.name or part.columns["name"]
        self.meta = {**part.meta, **self.meta}
        self.parent = self.parent or part.parent
        self.parts += 1

    def forked_elsewhere(self, part: Part) -> str | None:
        """Return the reason why a part is certainly of another experiment, None if it may be of this one."""
        if not self.parts or None in (self.parent, part.parent) or self.parent == part.parent:
            return None
        return (
            f"its {part.exp_id} was forked from another experiment than that in {self.where}: they are two experiments "
            "with one exp_id. Gather it into another --store."
        )

    def doubts(self, part: Part) -> str | None:
        """Return the reason why a part may be of another experiment, None if there is none.

        A part that shares a recorder with the others belongs to them.
        """
        if not self.parts or not self.uuids.isdisjoint(part.recorder_columns):
            return None
        mine, its = self.span, part.span
        doubt = None
        if mine and its and not (mine[0] <= its[1] and its[0] <= mine[1]):
            gap = max(its[0] - mine[1], mine[0] - its[1]) / 1e9
            order = "after" if its[0] > mine[1] else "before"
            doubt = f"was recorded {gap:,.1f} s {order} that in {self.where}, not at the same time"
        elif self.name and part.columns["name"] and self.name != part.columns["name"]:
            doubt = f"is named {part.columns['name']!r}, that in {self.where} {self.name!r}"
        elif keys := [key for key, value in part.meta.items() if _contradicts(self.meta, key, value)]:
            doubt = f"has another meta than that in {self.where} ({', '.join(sorted(keys)[:5])})"
        if doubt is None:
            return None
        return (
            f"its {part.exp_id} {doubt}: they may be two experiments with one exp_id. Gather it with --force if they "
            "are one, or into another --store."
        )


def _contradicts(meta: dict[str, Any], key: str, value: Any) -> bool:
    """Return whether a value of a meta contradicts another meta. Each host notes its own facts there."""
    return key not in NOTED and key in meta and meta[key] != value


def belonging(whole: Whole, parts: list[Part], *, force: bool) -> tuple[list[Part], dict[Part, str]]:
    """Return the parts that belong to one experiment, and the others with the reason; add the former to `whole`.

    The result does not depend on the order of the parts, except that the first one decides if there is no `whole` yet.
    With `force`, doubts are ignored.
    """
    accepted: list[Part] = []
    waiting = list(parts)
    while waiting:
        reasons = {part: whole.forked_elsewhere(part) or (None if force else whole.doubts(part)) for part in waiting}
        chosen = next((part for part in waiting if reasons[part] is None), None)
        if chosen is None:
            return accepted, {part: reason for part, reason in reasons.items() if reason is not None}
        whole.add(chosen)
        accepted.append(chosen)
        waiting.remove(chosen)
    return accepted, {}
