"""New experiments that are filled from a file: visible when all are complete, otherwise nothing of them remains."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import uuid4

from sqlalchemy import select, update

from ..db.database import Database
from ..db.schema import experiment, recorder
from ..errors import ExperimentExists, StoreError
from ..experiments import lifecycle, validation
from ..experiments.records import Experiment
from ..experiments.seal import seal_ended
from ..log.event import Fields, kind_of
from ..log.event_log import EventLog
from ..log.writer import Writer
from ..maintenance.removal import discard, sweep_unfinished
from .fields import InvalidEntry


@dataclass(frozen=True, slots=True)
class Imported:
    """An import: its experiments, and what was assumed or left out, in lines for people."""

    experiments: tuple[Experiment, ...]
    notes: tuple[str, ...] = ()

    @property
    def experiment(self) -> Experiment:
        """The only experiment, unless the file was split."""
        return self.experiments[0]


class Split(NamedTuple):
    """A division of a file into experiments, one for each value of a property of its events."""

    by: str
    """Name of the property, for people."""
    value: Callable[[Fields], str | None]
    """Returns the value of an event; None if it has none."""


BATCH_EVENTS = 5000
BATCH_BYTES = 8 * 1024 * 1024
MOST_EXPERIMENTS = 1000
"""Maximum number of experiments that one file is split into."""
MOST_RECORDERS = 10_000
"""Maximum number of recorders of one file, in all its experiments."""


@dataclass(slots=True)
class Part:
    """An invisible experiment that is being filled."""

    exp_id: str
    """Its exp_id from the end of the import on."""
    value: str
    """The value of all its events."""
    experiment: Experiment
    writers: list[Writer] = field(default_factory=list)
    """By ordinal, from 1."""
    waiting: dict[int, list[Fields]] = field(default_factory=dict)
    """Events that are not in the log yet, by ordinal of their recorder."""
    seqs: dict[int, int] = field(default_factory=dict)
    """Number of events so far, by ordinal of their recorder."""

    def next_seq(self, ordinal: int) -> int:
        """Return the seq of the next event of a recorder."""
        seq = self.seqs[ordinal] = self.seqs.get(ordinal, 0) + 1
        return seq


class Import:
    """The experiments that one file becomes: a single one, or one for each value of a split."""

    def __init__(
        self,
        log: EventLog,
        exp_id: str,
        split: Split | None,
        recorders: Sequence[Mapping[str, Any]],
        progress: Callable[[int], None] | None,
        **described: Any,
    ) -> None:
        """`recorders` are the meta of recorders, by ordinal; `described` is for `lifecycle.create`."""
        self.parts: dict[str, Part] = {}
        """By value, in the order of the file."""
        self.left_out: Counter[str] = Counter()
        """Number of the events without a value, by what they are."""
        self._log = log
        self._exp_id = exp_id
        self._split = split
        self._recorders = recorders
        self._progress = progress
        self._described = described
        self._registered = self._added = self._held = 0

    async def part_of(self, entry: Fields) -> Part | None:
        """Return the part of an event, which is made if it is the first one there; None for an event without a value.

        Raises `InvalidEntry` for too many parts, and `ExperimentExists`.
        """
        if self._split is None:
            return self.parts[""]
        value = self._split.value(entry)
        if value is None:
            self.left_out[f"events without {self._split.by}: {kind_of(entry)}"] += 1
            return None
        return self.parts.get(value) or await self.begin(value)

    async def begin(self, value: str = "") -> Part:
        """Create the experiment of a value, with its recorders: their heartbeats show that this import is alive."""
        exp_id, described = self._exp_id, self._described
        if self._split is not None:
            exp_id += f"-{value}"
            if len(self.parts) >= MOST_EXPERIMENTS:
                raise InvalidEntry(f"more than {MOST_EXPERIMENTS:,} values of {self._split.by}. Split by another field")
            try:
                validation.checked_exp_id(exp_id)
            except StoreError:
                reason = "cannot be the end of an exp_id. Split by another field"
                raise InvalidEntry(f"its value {value!r:.60} of {self._split.by} {reason}") from None
            if described["name"]:
                described = {**described, "name": f"{described['name']} {value}"}
        await check_unused(self._log, exp_id)
        hidden = f"importing {exp_id} {uuid4().hex}"
        of = await lifecycle.create(self._log.database, hidden, **described, status="importing")
        assert of is not None
        part = self.parts[value] = Part(exp_id, value, of)
        await self._writer(part, max(1, len(self._recorders)))
        return part

    async def _writer(self, part: Part, ordinal: int) -> Writer:
        while len(part.writers) < ordinal:  # ordinals are assigned in order
            self._registered += 1
            if self._registered > MOST_RECORDERS:
                raise InvalidEntry(f"more than {MOST_RECORDERS:,} recorders in {len(self.parts):,} experiments")
            at = len(part.writers)
            facts = dict(self._recorders[at]) if at < len(self._recorders) else {}
            part.writers.append(await self._log.register(part.experiment, role="import", meta=facts))
        return part.writers[ordinal - 1]

    async def add(self, part: Part, ordinal: int, entry: Fields, size: int) -> None:
        """Add an event of `size` bytes to a recorder of a part. It is committed with later ones, at last by `flush`."""
        part.waiting.setdefault(ordinal, []).append(entry)
        self._added += 1
        self._held += size
        if self._added % BATCH_EVENTS == 0 or self._held >= BATCH_BYTES:
            await self.flush()
            if self._progress:
                self._progress(self._added)

    async def flush(self) -> None:
        """Commit the events that wait."""
        for part in self.parts.values():
            for ordinal in sorted(part.waiting):
                await self._log.append(await self._writer(part, ordinal), part.waiting[ordinal])
            part.waiting.clear()
        self._held = 0
        if self._split is not None:  # an append is the heartbeat of its own experiment only
            ids = [part.experiment.id for part in self.parts.values()]
            async with self._log.database.writing() as connection:
                mine = recorder.c.experiment_id.in_(ids)
                await connection.execute(update(recorder).where(mine).values(heartbeat_at=time.time_ns()))

    async def note(self, facts: Mapping[str, Any]) -> None:
        """Keep facts about the import in the meta of each experiment, in addition to those of an earlier import."""
        for part in self.parts.values():
            before = part.experiment.meta.get("imported")
            known = {**(before if isinstance(before, dict) else {}), **facts}
            if self._split is not None:
                known["split"] = {"by": self._split.by, "value": part.value, "left_out": dict(self.left_out)}
            await lifecycle.set_meta(self._log.database, part.experiment, "imported", known)

    async def imported(self, notes: Iterable[str] = ()) -> Imported:
        """Return the experiments, which are visible now, in the order of the file."""
        experiments = [await self._log.experiment(part.exp_id) for part in self.parts.values()]
        return Imported(tuple(experiments), (*notes, *left_out_notes(self.left_out)))


def left_out_notes(left_out: Mapping[str, int]) -> list[str]:
    """Return lines about what was not imported."""
    return [f"not imported: {what} ({count:,})" for what, count in left_out.items()]


async def check_unused(log: EventLog, exp_id: str) -> None:
    """Raise `StoreError` for an invalid exp_id, and `ExperimentExists` for one in use."""
    validation.checked_exp_id(exp_id)
    if await log.has_experiment(exp_id):
        raise ExperimentExists(exp_id, "Import under another --exp.")


@contextlib.asynccontextmanager
async def importing(
    log: EventLog,
    exp_id: str,
    *,
    name: str | None,
    tags: Iterable[str],
    meta: dict[str, Any],
    parent: Mapping[str, str] | None = None,
    split: Split | None = None,
    recorders: Sequence[Mapping[str, Any]] = (),
    progress: Callable[[int], None] | None = None,
) -> AsyncIterator[Import]:
    """Fill invisible experiments; publish them, closed, when the block ends, or discard all if the block raises."""
    validation.checked_exp_id(exp_id)
    await sweep_unfinished(log)
    described = {"name": name, "tags": tags, "meta": meta, "parent": parent}
    made = Import(log, exp_id, split, recorders, progress, **described)
    try:
        if split is None:
            await made.begin()
        yield made
        await publish_imports(log.database, {part.exp_id: part.experiment for part in made.parts.values()})
    except BaseException:
        for part in made.parts.values():
            await discard(log, part.experiment)
        raise


async def publish_imports(database: Database, experiments: Mapping[str, Experiment]) -> None:
    """End the recorders of finished imports and make each visible under its exp_id, all in one transaction.

    Raises `ExperimentExists`, and `StoreError` if another process removed an import meanwhile.
    """
    now = time.time_ns()
    async with database.writing(long=len(experiments) > 1) as connection:
        for exp_id, of in experiments.items():
            await lifecycle.lock(connection, of.id)
            taken = select(experiment.c.id).where(experiment.c.exp_id == exp_id)
            if (await connection.execute(taken)).first() is not None:
                raise ExperimentExists(exp_id, "Import under another --exp.")
            await connection.execute(
                update(recorder).where(recorder.c.experiment_id == of.id).values(ended_at=now, heartbeat_at=now)
            )
            await seal_ended(connection, recorder.c.experiment_id == of.id)
            published = await connection.execute(
                update(experiment)
                .where(experiment.c.id == of.id, experiment.c.status == "importing")
                .values(exp_id=exp_id, status="closed", closed_at=now)
            )
            if published.rowcount != 1:
                reason = "was removed as unfinished by another process; import it again"
                raise StoreError(f"the import of {exp_id!r} {reason}")
