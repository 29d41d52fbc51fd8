"""Lineage: the parent of an experiment that was forked, and the forks of an experiment.

A fork repeats the events of its parent before a cursor, and continues differently. It is complete by itself: it has
copies of those events, each with its origin, and its row names the parent by exp_id, head and cursor. The parent may
be in another store, and may be removed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..db.database import Database
from ..errors import ExperimentExists, StoreError
from ..experiments import lifecycle, registry, validation
from ..experiments.records import Experiment
from . import chain, reading
from .cursor import Point, resolve, span
from .event import Cursor
from .selection import Selection
from .span import Span

PREFIX = "prefix"
"""Key of the meta of a fork: whether its prefix is complete. A fork that was killed is still being repeated."""
REPEATING, COMPLETE = "being repeated", "complete"
STOPPED = "stopped: "
"""Beginning of the state of a prefix that is not complete. The reason follows."""

_CURSOR = re.compile(r"(-?\d{1,19}):([^:]+):(\d{1,13})", re.A)


@dataclass(frozen=True, slots=True)
class Parent:
    """The parent of a fork, as the fork knows it."""

    exp_id: str
    head: str
    """Head of the parent when it was forked, in hex."""
    cursor: str
    """End of the copied part, `ts:uuid of a recorder:seq`: the first event of the parent that is not part of it."""

    @property
    def ts(self) -> int | None:
        """Time of the cursor (ns UTC); None if the cursor, as that of a forged file, is none."""
        found = _CURSOR.fullmatch(self.cursor)
        return None if found is None else int(found[1])

    @property
    def recorder(self) -> str | None:
        """UUID of the cursor's recorder."""
        found = _CURSOR.fullmatch(self.cursor)
        return None if found is None else found[2]

    def position(self, ordinals: Mapping[str, int]) -> Cursor | None:
        """Return the cursor in the parent; `ordinals` are those of the parent's recorders by uuid.

        None if the parent does not have the recorder, as after an import.
        """
        found = _CURSOR.fullmatch(self.cursor)
        if found is None or found[2] not in ordinals:
            return None
        return Cursor(int(found[1]), ordinals[found[2]], int(found[3]))

    def as_json(self) -> dict[str, Any]:
        """Return the parent as exports have it."""
        return {"exp_id": self.exp_id, "head": self.head, "cursor": self.cursor}


def parent_of(of: Experiment) -> Parent | None:
    """Return the parent of an experiment; None if it is not a fork."""
    if of.parent_exp_id is None or of.parent_head is None or of.parent_cursor is None:
        return None
    return Parent(of.parent_exp_id, of.parent_head.hex(), of.parent_cursor)


async def create_fork(
    database: Database,
    parent: str | Experiment,
    exp_id: str,
    at: Point = None,
    *,
    name: str | None = None,
    tags: Iterable[str] = (),
    meta: Mapping[str, Any] | None = None,
) -> Experiment:
    """Create an open, empty experiment that knows its parent and the end (excluded) of the part to be copied.

    `at` is a point of the parent, None its end. Raises `ExperimentNotFound` for the parent, `ExperimentExists`,
    `BadCursor`, and `StoreError` if the parent has no events, if it would be its own parent, or for an invalid exp_id,
    name or tag.
    """
    validation.checked_exp_id(exp_id)
    of = parent if isinstance(parent, Experiment) else await registry.find(database, parent)
    if exp_id == of.exp_id:
        raise StoreError(f"{exp_id!r} cannot be a fork of itself. Choose another exp_id for the fork.")
    cut = await first_behind(database, of, at)
    if cut is None:
        raise StoreError(f"{of.exp_id!r} has no events, so there is nothing to fork. Fork another experiment.")
    recorders = await registry.recorders_of(database, of.id)
    uuid = next(row.uuid for row in recorders if row.ordinal == cut.recorder)
    known = Parent(of.exp_id, chain.head_of(recorders), f"{cut.ts}:{uuid}:{cut.seq}")
    made = await lifecycle.create(database, exp_id, name=name, tags=tags, meta=dict(meta or {}), parent=known.as_json())
    if made is None:
        raise ExperimentExists(exp_id, "Choose another exp_id for the fork.")
    return made


async def first_behind(database: Database, of: Experiment, at: Point) -> Cursor | None:
    """Return the cursor of the first event at or behind a point; at the end, one behind the last event.

    None if there are no events. Raises `BadCursor`.
    """
    cut = await resolve(database, of, at)
    if cut is not None and (found := await _events(database, of, cut, 1)):
        return found[0]
    last_ts = (await span(database, of))[1]
    if last_ts is None:
        return None
    last = (await _events(database, of, Cursor(last_ts, 0, 0), None))[-1]
    return last._replace(seq=last.seq + 1)


async def _events(database: Database, of: Experiment, since: Cursor, limit: int | None) -> list[Cursor]:
    found: list[Cursor] = []
    async for page in reading.pages(database, of, Selection(), Span(start=since, limit=limit)):
        found += [entry.cursor for entry in page]
    return found
