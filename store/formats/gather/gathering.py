"""Gathering: merge the parts of an experiment that several stores hold into one store, each batch once.

    A.db: recorders a1, a2 --.
    B.db: recorder  b1 ------+--> ALL: recorders a1, a2, b1; their heads stay, their ordinals are those of ALL
    C.db: recorders a1, c1 --'         (a1 is there already)

Every commit appends whole batches to the chain of one recorder, and only if its row is as it was when the batches were
read. An interrupted gather therefore leaves prefixes of chains, and the next one continues behind them. A batch is
copied if its hashes confirm it; what follows a damaged one is not. A gathered recorder has an epoch below zero, which
no writer has: only `gather` appends to it, and it is incomplete until its end is gathered.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from sqlalchemy import select

from ... import limits
from ...db.schema import experiment, recorder
from ...errors import StoreError, StoreNotFound
from ...experiments import validation
from ...experiments.records import RecorderRow
from ...log import chain
from ...log.event_log import EventLog
from .chain_copy import ChainCopy, Moved, chain_hash_at
from .part_rows import close_complete, ending, is_newer, missing_records, records_of, write_records, write_rows
from .parts import Part, Whole, belonging, read_parts

TRIES = 5
"""Attempts to copy a part, if other processes change the experiment in the target meanwhile."""

Progress = Callable[[int, int], None]
"""Called with the number of copied events of an experiment, and their total."""


@dataclass(slots=True)
class GatheredRecorder:
    """Result for one recorder of a part."""

    recorder: str
    """UUID."""
    ordinal: int
    """Its ordinal in the part."""
    ordinal_here: int | None
    """Its ordinal in the target; None if it is not there."""
    host: str | None
    clock_offset_ns: int | None
    """How far the broker's clock was ahead of its own; reported, never applied."""
    events: int = 0
    """Number of events that were copied."""
    before: int = 0
    """Number of its events that the target held before."""
    ended: bool = True
    """False if it has not ended in the part: gather again later."""
    unclean: bool = False
    """True if it ended uncleanly in the part: gather again once `messager repair` has marked it as ended there."""
    damage: str | None = None
    """What is damaged in the part; nothing behind it was copied."""


@dataclass(slots=True)
class GatheredPart:
    """Result for one store and one experiment."""

    store: str
    exp_id: str | None
    """None if the store could not be read, or was not to be."""
    recorders: list[GatheredRecorder] = field(default_factory=list)
    reason: str | None = None
    """Reason why nothing of it was copied."""
    skipped: bool = False
    """True if there was nothing to copy from it: it was given twice, or is the target."""

    @property
    def failed(self) -> bool:
        """True if something of it is missing in the target."""
        return (self.reason is not None and not self.skipped) or any(each.damage for each in self.recorders)


@dataclass(slots=True)
class GatheredExperiment:
    """Result for one experiment."""

    exp_id: str
    parts: list[GatheredPart] = field(default_factory=list)
    status: str | None = None
    """open or closed; None if nothing of it is in the target."""
    head: str | None = None
    head_before: str | None = None
    """Its head before, if it was in the target."""
    closed_before: bool = False
    """True if it was closed in the target before."""


async def gather(
    log: EventLog,
    stores: Sequence[str],
    *,
    exp_ids: Collection[str] = (),
    force: bool = False,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> AsyncIterator[GatheredPart | GatheredExperiment]:
    """Copy the experiments of other stores, or those of `exp_ids`, into this one.

    Yields a `GatheredPart` for each store that is not read, and then a `GatheredExperiment` for each experiment. The
    stores are not changed. May be interrupted, and repeated: every batch is copied once. A part is not copied if

    - its experiment is probably another one with the same exp_id (never with `force`),
    - a recorder of it differs from the same recorder in this store, because one of them was redacted or changed.

    Of a damaged recorder, the batches before the damage are copied. With `dry_run`, nothing is written, and damage is
    not looked for. Raises `StoreError` for errors of the target, and if no store has an experiment of `exp_ids`.
    """
    async with AsyncExitStack() as stack:
        found: dict[str, list[Part]] = {}
        places = {log.location: "it is the store to gather into"}
        for store in stores:
            try:
                source = await stack.enter_async_context(EventLog.open(store, create=False))
                reason = places.get(source.location)
                if reason is None:
                    places[source.location] = "it was given twice"
                    for part in await read_parts(source.database, exp_ids):
                        found.setdefault(part.exp_id, []).append(part)
                    continue
                yield GatheredPart(source.location, None, reason=reason, skipped=True)
            except StoreNotFound:
                yield GatheredPart(store, None, reason="there is no store. Give the file or the URL of a store")
            except StoreError as error:
                yield GatheredPart(store, None, reason=str(error))
        for exp_id in exp_ids:
            if exp_id not in found:
                raise StoreError(
                    f"no part has an experiment {exp_id!r}. `messager ls --store PART` lists those of one."
                )
        for exp_id, parts in found.items():
            yield await _Gathering(log, exp_id, progress).run(parts, force=force, dry_run=dry_run)


class _Gathering:
    """Gathering of one experiment."""

    def __init__(self, log: EventLog, exp_id: str, progress: Progress | None) -> None:
        self._log, self._database = log, log.database
        self._progress = progress
        self._done = self._total = 0
        self._closed_at: list[int] = []
        self._created = self._had_recorders = False
        self._result = GatheredExperiment(exp_id)

    async def run(self, parts: list[Part], *, force: bool, dry_run: bool) -> GatheredExperiment:
        """Copy the parts that belong to the experiment."""
        result = self._result
        here, whole = await self._here(), Whole()
        self._created, self._had_recorders = here is None, here is not None and bool(here.recorders)
        if here is not None:
            whole.add(here)
            result.head_before, result.closed_before = _head(here), here.columns["status"] == "closed"
            self._closed_at += [here.columns["closed_at"]] if result.closed_before else []
        accepted, foreign = belonging(whole, parts, force=force)
        known = {row.uuid: row.last_seq for row in here.recorders} if here else {}
        self._total = sum(max(row.last_seq - known.get(row.uuid, 0), 0) for part in accepted for row in part.recorders)
        for part in parts:
            reason = foreign.get(part)
            result.parts.append(GatheredPart(part.store, part.exp_id, reason=reason))
            if reason is None:
                await self._copy(part, result.parts[-1], dry_run)
        if not dry_run:
            await self._finish(accepted)
        if (now := await self._here()) is not None:
            result.status, result.head = now.columns["status"], _head(now)
        return result

    async def _here(self) -> Part | None:
        """Return the experiment in the target."""
        return next(iter(await read_parts(self._database, [self._result.exp_id])), None)

    async def _copy(self, part: Part, result: GatheredPart, dry_run: bool) -> None:
        """Copy one part, again if the experiment was changed meanwhile."""
        before: dict[str, int] | None = None
        try:
            for _ in range(TRIES):
                here = await self._here()
                known = {row.uuid: row for row in here.recorders} if here else {}
                if before is None:
                    before = {uuid: row.last_seq for uuid, row in known.items()}
                result.reason = await self._refusal(part, here, known)
                if result.reason is not None:
                    return
                if dry_run:
                    result.recorders = [_planned(row, known.get(row.uuid)) for row in part.recorders]
                    return
                try:
                    await self._copy_once(part, here, result, before)
                    return
                except Moved:
                    continue
            result.reason = f"{part.exp_id} in {self._log.location} is being changed meanwhile: gather it again"
        except StoreError as error:
            if getattr(error, "location", None) != part.store:
                raise
            result.reason = str(error)

    async def _copy_once(self, part: Part, here: Part | None, result: GatheredPart, before: dict[str, int]) -> None:
        """Copy what the target lacks of a part. Raises `Moved`."""
        records = await records_of(part.database, part.id)
        number = await write_rows(self._database, part, None if here is None else here.id)
        here = await self._here()
        if here is None or here.id != number:
            raise Moved
        rows = {row.uuid: row for row in here.recorders}
        copy = ChainCopy(part, self._database, number, self._tell)
        result.recorders = []
        for row in part.recorders:
            mine = rows.get(row.uuid)
            if mine is None:
                raise Moved
            done = _planned(row, mine)
            done.before, done.events = min(before.get(row.uuid, 0), row.last_seq), 0
            result.recorders.append(done)
            if is_newer(row, mine):
                mine_columns = here.recorder_columns[row.uuid]
                last = ending(part.recorder_columns[row.uuid], mine_columns)
                reached, done.damage = await copy.copy(row, mine_columns, last)
                done.events = max(reached - done.before, 0)
        await write_records(self._database, number, records)

    async def _refusal(self, part: Part, here: Part | None, known: dict[str, RecorderRow]) -> str | None:
        """Return the reason why a part cannot be merged into what is in the target."""
        if any(len(str(row["meta"])) > limits.MOST_META for row in (part.columns, *part.recorder_columns.values())):
            return f"its {part.exp_id} or a recorder of it has a meta of more than {limits.MOST_META:,} characters"
        try:
            validation.meta_text({**part.meta, **(here.meta if here else {})})
        except StoreError as error:
            return f"its {part.exp_id} cannot be merged into that in {self._log.location}: {error}"
        uuids = [row.uuid for row in part.recorders if row.uuid not in known]
        elsewhere = select(recorder.c.uuid, experiment.c.exp_id).join(experiment).where(recorder.c.uuid.in_(uuids))
        elsewhere = elsewhere.where(experiment.c.exp_id != part.exp_id)
        async with self._database.reading() as connection:
            found = (await connection.execute(elsewhere.limit(1))).one_or_none()
        if found is not None:
            return (
                f"its recorder {found.uuid[:8]} is in {self._log.location} already, in the experiment "
                f"{found.exp_id!r}: a store holds a recording once. Gather it into another --store."
            )
        if here is None:
            return await self._hidden(part)
        for row in part.recorders:
            mine = known.get(row.uuid)
            if mine is None:
                continue
            seq = min(row.last_seq, mine.last_seq)
            there = row.head_hash if row.last_seq == seq else await chain_hash_at(part.database, row.id, seq)
            ours = mine.head_hash if mine.last_seq == seq else await chain_hash_at(self._database, mine.id, seq)
            if seq and there != ours:
                return self._differs(
                    part, f"its recorder {row.ordinal} ({row.uuid[:8]}) differs at seq {seq} from that"
                )
        if missing_records(await records_of(part.database, part.id), await records_of(self._database, here.id)) is None:
            return self._differs(part, "its redaction records differ from those")
        return None

    async def _hidden(self, part: Part) -> str | None:
        """Return the reason why an experiment that is not visible cannot be created; None if there is none."""
        async with self._database.reading() as connection:
            query = select(experiment.c.id).where(experiment.c.exp_id == part.exp_id)
            if (await connection.execute(query)).first() is None:
                return None
        return (
            f"{part.exp_id} is being imported into {self._log.location}, or removed from it. Gather it after that, or "
            "after `messager compact` if that was interrupted."
        )

    def _differs(self, part: Part, what: str) -> str:
        return (
            f"{what} in {self._log.location}: one of the two was redacted or changed since. If it was "
            f"{self._log.location}, leave this part out; if it was the part, remove {part.exp_id} from "
            f"{self._log.location} with `messager rm`, and gather all its parts again."
        )

    async def _finish(self, accepted: list[Part]) -> None:
        """Close the experiment if all its parts are closed and complete.

        One that was open in the target before is closed only if the parts hold all its recorders: of the others,
        nobody said that they are all.
        """
        here = await self._here()
        if here is None:
            return
        open_ones = [part for part in accepted if part.columns["status"] != "closed"]
        if accepted and not open_ones and not any(part.failed for part in self._result.parts):
            times = [*self._closed_at, *(part.columns["closed_at"] for part in accepted)]
            anything = self._created or self._result.closed_before
            known = None if anything else {row.uuid for part in accepted for row in part.recorders}
            if anything or self._had_recorders:
                await close_complete(self._database, here.id, max(times), known)

    def _tell(self, events: int) -> None:
        self._done += events
        if self._progress is not None:
            self._progress(self._done, max(self._total, self._done))


def _head(part: Part) -> str:
    return chain.head_of(part.recorders)


def _planned(row: RecorderRow, here: RecorderRow | None) -> GatheredRecorder:
    """Return what gathering a recorder would do; `here` is its row in the target."""
    before = 0 if here is None else here.last_seq
    return GatheredRecorder(
        row.uuid,
        row.ordinal,
        None if here is None else here.ordinal,
        row.host,
        row.broker_offset,
        events=max(row.last_seq - before, 0),
        before=min(before, row.last_seq),
        ended=row.ended_at is not None,
        unclean=row.state == "unclean",
    )
