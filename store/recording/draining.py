"""Draining: copy what recorders left in their spools into the store, in order and once.

A recorder drains its own spool while it lives. One that was killed leaves its spool behind; a drain takes
over its row in the log, with a higher epoch. The row's `last_seq` tells what was committed before, so an
interrupted drain continues where it stopped.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..db.databases import for_store
from ..db.schema import recorder
from ..errors import (
    BadEvent,
    DamagedStore,
    ExperimentClosed,
    RecorderFenced,
    SpoolDamaged,
    SpoolHeld,
    StoreError,
    StoreUnavailable,
)
from ..experiments.provenance import this_process
from ..experiments.records import RecorderRow
from ..experiments.registry import recorder_by_uuid
from ..log.event import NewEvent
from ..log.event_log import EventLog
from ..log.writer import Writer
from .buffer import BATCH_BYTES, BATCH_EVENTS, unfit
from .registration import Registration, register
from .spool import LOCKS, Spool
from .spools import left_in, spool_folder, spools

log = logging.getLogger("messager_store")


@dataclass(slots=True)
class Drained:
    """The outcome for one spool."""

    path: str
    exp_id: str
    recorder: str
    """The recorder's uuid."""
    events: int = 0
    """The number of events that this drain put into the store."""
    ended: bool = False
    """True if its recorder had ended cleanly; else `messager repair` says what may be missing."""
    left: int = 0
    """The number of events that could not be put into the store; the file stays."""
    reason: str | None = None
    """The reason why the file stays, if it does."""
    held: bool = False
    """True if it stays because its recorder lives, and drains it itself."""


async def folders_of(log_: EventLog) -> list[Path]:
    """Return the folders that may hold spools: beside the store, that of `MESSAGER_SPOOL`, and those that its
    recorders named, if they are seen from here."""
    named = {Path(row.spool).parent for row in await log_.recorders() if row.spool}
    beside = log_.database.dialect.spool_folder
    return sorted({Path(beside), *filter(Path.is_dir, {*named, spool_folder(beside)})})


def waited_for(store: str, folder: str | None = None, *, adopt: bool = False) -> bool:
    """Return True if unregistered recorders left spools for a store, in this folder or in the default ones.

    With `adopt`, for any store.
    """
    dialect = for_store(store)
    beside = dialect.spool_folder
    folders = {Path(folder)} if folder else {Path(beside), spool_folder(beside)}
    waiting = [info for each in folders for info in spools(each) if not info.registered]
    return any(adopt or info.store == dialect.location for info in waiting)


async def drain(
    log_: EventLog,
    folder: Path,
    *,
    exp_id: str | None = None,
    adopt: bool = False,
    but: Path | None = None,
    progress: Callable[[int], None] | None = None,
) -> AsyncIterator[Drained]:
    """Copy the spools of a folder, or of one experiment, all `but` one, into the store, and delete their files.

    Spools that a live recorder holds, that belong to another store, or whose experiment takes no more events stay
    as they are; `reason` says why. With `adopt`, recorders that were never registered in another store are
    registered in this one. Raises `StoreUnavailable`; calling it again continues.
    """
    for path in await asyncio.to_thread(left_in, folder):
        if path == but:  # the caller's own, which a lock does not tell on every file system
            continue
        try:
            spool = await asyncio.to_thread(Spool.open, path)
        except FileNotFoundError:
            continue
        except (SpoolHeld, SpoolDamaged) as error:
            if exp_id is None:
                yield Drained(str(path), "", path.stem, reason=str(error), held=isinstance(error, SpoolHeld))
            continue
        try:
            if exp_id in (None, spool.facts.get("exp_id")):
                yield await _drain_one(log_, spool, adopt, progress)
        finally:
            spool.close()


async def drain_left(log_: EventLog, own: Path, exp_id: str) -> None:
    """Drain what earlier recorders of an experiment left beside the spool `own`. What cannot be drained is logged,
    and stays."""
    try:
        async for done in drain(log_, own.parent, exp_id=exp_id, but=own):
            if done.reason is None:
                log.warning("%d events were drained from the spool %s", done.events, done.path)
            else:
                log.warning("the spool %s stays: %s", done.path, done.reason)
    except (StoreError, OSError) as error:
        log.warning("a spool of %s could not be drained: %s", exp_id, error)


async def _drain_one(log_: EventLog, spool: Spool, adopt: bool, progress: Callable[[int], None] | None) -> Drained:
    done = Drained(str(spool.path), str(spool.facts.get("exp_id", "")), spool.facts["recorder"])
    row = await recorder_by_uuid(log_.database, done.recorder)
    if row is None and spool.registration is not None and (adopt or spool.facts.get("store") == log_.location):
        try:
            done.exp_id = await _registered(log_, spool.registration)
        except (StoreUnavailable, DamagedStore):
            raise
        except Exception as error:  # another version may have said anything; it must not keep others out
            done.left, done.reason = len(spool), f"its experiment cannot be made: {error}"
            return done
        row = await recorder_by_uuid(log_.database, done.recorder)
    done.reason = _why_not(log_, spool, row, adopt)
    if done.reason is not None:
        done.left = len(spool)
        return done
    assert row is not None
    if row.ended_at is not None and row.last_seq >= spool.last_seq - spool.offset and spool.damaged_at is None:
        done.ended = not row.unclean  # an earlier drain came as far as that
        return await _removed(spool, done)
    last = spool.last_seq - spool.offset
    try:
        writer = await log_.take_over(done.recorder)
    except (RecorderFenced, ExperimentClosed) as error:
        done.left, done.reason = len(spool), f"{error} To give up what is in it, delete it"
        return done
    try:
        while writer.last_seq < last:
            before = writer.last_seq
            entries = await asyncio.to_thread(spool.read, before + 1 + spool.offset, BATCH_EVENTS, BATCH_BYTES)
            await _append(log_, writer, entries)
            done.events += writer.last_seq - before
            if progress:
                progress(done.events)
    except (RecorderFenced, SpoolDamaged) as error:
        done.left, done.reason = last - writer.last_seq, str(error)
        return done
    told: dict[str, int] = {"heartbeat_at": row.heartbeat_at}  # a drain is no sign of its life
    if spool.complete_until is not None:
        told["complete_until"] = spool.complete_until
    if row.unclean and row.ended_at is not None:
        told["ended_at"] = row.ended_at  # repaired already, and still so
    elif spool.ended_at is not None and spool.damaged_at is None:
        told["ended_at"] = spool.ended_at
        done.ended = True
    await log_.touch(writer, **told)
    if spool.damaged_at is not None:
        done.reason = (
            f"it is damaged from byte {spool.damaged_at:,} on; what stood before is in the store. "
            "To give up the rest, delete it"
        )
        return done
    return await _removed(spool, done)


async def _registered(log_: EventLog, said: dict[str, Any]) -> str:
    """Register a recorder whose store never came, as it would have registered itself; return the exp_id."""
    who = Registration(**said)
    if unknown := who.row.keys() - recorder.c.keys():
        raise StoreError(f"it says {', '.join(sorted(unknown))} of its recorder, which this version does not know")
    who.row["heartbeat_at"] = who.row["started_at"]  # a drain is no sign of its life
    return (await register(log_, who)).experiment.exp_id


def _why_not(log_: EventLog, spool: Spool, row: RecorderRow | None, adopt: bool) -> str | None:
    """Return the reason why a spool is not drained into this store, if there is one."""
    store = str(spool.facts.get("store", ""))
    if store != log_.location and os.path.exists(store) and not (adopt and spool.registration is not None):
        return f"it belongs to the store {store}: drain it into that one, with --store"
    if row is None and spool.registration is not None:
        return (
            f"it belongs to the store {store}, which never took its recorder in: drain it into that one, with --store, "
            "or into this one, with --adopt"
        )
    if row is None:
        return (
            f"{log_.location} knows no such recorder: it wrote into {store or 'another store'}, which was replaced, "
            "or its experiment was removed. Delete it only to give up what is in it"
        )
    first = spool.facts["first_seq"] - spool.offset
    if row.last_seq < first - 1:
        return f"it begins at seq {first}, the store ends at {row.last_seq}: events are gone between"
    locks = LOCKS and row.host == this_process().host
    if row.state == "alive" and spool.ended_at is None and not locks:
        return "its recorder was alive a moment ago, and whether it still is cannot be seen from here; try again later"
    return None


async def _removed(spool: Spool, done: Drained) -> Drained:
    try:
        await asyncio.to_thread(spool.remove)
    except OSError as error:
        done.reason = f"all of it is in the store, but it cannot be removed: {error.strerror}"
    return done


async def _append(log_: EventLog, writer: Writer, entries: list[NewEvent]) -> None:
    while True:
        try:
            await log_.append(writer, entries, complete_until=0)
            return
        except BadEvent as error:
            entries[error.index] = unfit(entries[error.index], error)
        except StoreUnavailable:
            if not await log_.recover(writer):
                raise
            return
