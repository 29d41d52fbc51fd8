"""Draining: copy the events in spools into the store, in order and once.

A running recorder drains its own spool. A killed recorder leaves its spool behind; a drain takes over its row in the
log, with a higher epoch. The `last_seq` of the row is the last committed event, so an interrupted drain continues
behind it.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
from ..experiments.registry import recorder_by_uuid, spool_files
from ..log.event import NewEvent
from ..log.event_log import EventLog
from ..log.writer import Writer
from .buffer import BATCH_BYTES, BATCH_EVENTS, replacement_gap
from .registration import Registration, register
from .spool import Spool
from .spools import default_folders, left_in

log = logging.getLogger("messager_store")


@dataclass(slots=True)
class DrainResult:
    """Result of draining one spool."""

    path: str
    exp_id: str
    recorder: str
    """UUID of the recorder."""
    events: int = 0
    """Number of events that this drain committed."""
    ended: bool = False
    """True if the recorder ended cleanly; otherwise `messager repair` reports what may be missing."""
    left: int = 0
    """Number of events that could not be committed; the file is kept."""
    reason: str | None = None
    """Reason why the file is kept; None if it was removed."""
    held: bool = False
    """True if the file is kept because its recorder is running and drains it itself."""


async def folders_of(log_: EventLog) -> list[Path]:
    """Return the folders that may hold spools: the first default one, and others that exist, of the store, of
    `MESSAGER_SPOOL`, and of the rows of its recorders."""
    dialect = log_.database.dialect
    named = {Path(spool).parent for spool in await spool_files(log_.database)}
    return sorted({Path(dialect.spool_folders[0]), *filter(os.path.isdir, named | default_folders(dialect))})


async def drain(
    log_: EventLog,
    folder: Path,
    *,
    exp_id: str | None = None,
    adopt: bool = False,
    but: Path | None = None,
    progress: Callable[[int], None] | None = None,
) -> AsyncIterator[DrainResult]:
    """Copy the spools of a folder, or of one experiment, into the store, and delete their files. `but` is skipped.

    A spool is kept if its recorder is running, if it belongs to another store, or if its experiment is closed;
    `reason` describes why. With `adopt`, recorders that were never registered in another store are registered in
    this one. Raises `StoreUnavailable`; calling it again continues.
    """
    for path in await asyncio.to_thread(left_in, folder):
        if path == but:  # the spool of the caller: some file systems have no locks to reveal it
            continue
        try:
            spool = await asyncio.to_thread(Spool.open, path)
        except FileNotFoundError:
            continue
        except (StoreError, OSError) as error:
            if exp_id is None:
                yield DrainResult(str(path), "", path.stem, reason=str(error), held=isinstance(error, SpoolHeld))
            continue
        if exp_id in (None, spool.facts.get("exp_id")):
            done = DrainResult(str(path), str(spool.facts.get("exp_id", "")), spool.facts["recorder"])
            try:
                await _drain_one(log_, spool, done, adopt, progress)
            except (StoreUnavailable, DamagedStore):
                raise
            except Exception as error:  # of any kind: one bad file must not stop the others
                done.left, done.reason = len(spool) - done.events, f"it cannot be drained: {error or repr(error)}"
            finally:
                spool.close()
            yield done
        else:
            spool.close()


async def drain_left(log_: EventLog, own: Path, exp_id: str) -> None:
    """Drain the spools of earlier recorders of an experiment in the folder of the spool `own`.

    Errors are logged, and the spools concerned are kept.
    """
    try:
        async for done in drain(log_, own.parent, exp_id=exp_id, but=own):
            if done.reason is None:
                log.warning("%d events were drained from the spool %s", done.events, done.path)
            else:
                log.warning("the spool %s is kept: %s", done.path, done.reason)
    except (StoreError, OSError) as error:
        log.warning("a spool of %s could not be drained: %s", exp_id, error)


async def _drain_one(
    log_: EventLog, spool: Spool, done: DrainResult, adopt: bool, progress: Callable[[int], None] | None
) -> None:
    """Drain one spool; `done` becomes the result. Nothing is written before the spool is accepted."""
    row = await recorder_by_uuid(log_.database, done.recorder)
    done.reason = _why_not(log_, spool, row, adopt)
    if done.reason is not None:
        done.left = len(spool)
        return
    if row is None and spool.registration is not None:
        try:
            done.exp_id = await _registered(log_, spool.registration, done.recorder)
        except (StoreUnavailable, DamagedStore):
            raise
        except Exception as error:  # another version may have written anything
            done.left, done.reason = len(spool), f"its experiment cannot be created: {error}"
            return
        row = await recorder_by_uuid(log_.database, done.recorder)
    assert row is not None
    if row.ended_at is not None and row.last_seq >= spool.last_seq - spool.offset and spool.damaged_at is None:
        done.ended = not row.unclean  # an earlier drain was interrupted before it removed the file
        await _remove(spool, done)
        return
    last = spool.last_seq - spool.offset
    try:
        writer = await log_.take_over(done.recorder)
    except (RecorderFenced, ExperimentClosed) as error:
        done.left, done.reason = len(spool), f"{error} Delete the file to discard its events."
        return
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
        return
    columns: dict[str, int] = {"heartbeat_at": row.heartbeat_at}  # a drain does not show that the recorder is alive
    if spool.complete_until is not None:
        columns["complete_until"] = spool.complete_until
    if row.unclean and row.ended_at is not None:
        columns["ended_at"] = row.ended_at  # repaired before
    elif spool.ended_at is not None and spool.damaged_at is None:
        columns["ended_at"] = spool.ended_at
        done.ended = True
    await log_.touch(writer, **columns)
    if spool.damaged_at is not None:
        done.reason = (
            f"it is damaged from byte {spool.damaged_at:,} on; the events before it are in the store. "
            "Delete the file to discard the rest."
        )
        return
    await _remove(spool, done)


async def _registered(log_: EventLog, fields: dict[str, Any], uuid: str) -> str:
    """Register a recorder that could not register itself; return the exp_id."""
    registration = Registration.parsed(fields)
    if registration.uuid != uuid:
        raise StoreError("its registration is that of another recorder")
    registration.row["heartbeat_at"] = registration.row["started_at"]  # a drain does not show that it is alive
    return (await register(log_, registration)).experiment.exp_id


def _why_not(log_: EventLog, spool: Spool, row: RecorderRow | None, adopt: bool) -> str | None:
    """Return the reason why a spool cannot be drained into this store, or None."""
    store = str(spool.facts.get("store", ""))
    if store != log_.location and os.path.exists(store) and not (adopt and spool.registration is not None):
        return f"it belongs to the store {store}. Drain it into that one with --store."
    if row is None and spool.registration is not None and not (adopt or store == log_.location):
        return (
            f"it belongs to the store {store}, where its recorder was never registered. Drain it into that one with "
            "--store, or into this one with --adopt."
        )
    if row is None and spool.registration is None:
        return (
            f"{log_.location} has no such recorder: {store or 'another store'} was replaced, or the experiment was "
            "removed. Delete the file to discard its events."
        )
    if row is not None and row.gathered:
        return (
            f"its recorder was gathered into {log_.location} from {store or 'another store'}. Drain it into that one "
            "with --store, and gather that again."
        )
    first = spool.facts["first_seq"] - spool.offset
    last = 0 if row is None else row.last_seq
    if last < first - 1:
        return f"it begins at seq {first}, the store ends at {last}: the events between them are lost"
    if row is not None and row.state == "alive" and spool.ended_at is None and row.host != this_process().host:
        return "its recorder may still be running, which cannot be checked from here. Try again later."
    return None


async def _remove(spool: Spool, done: DrainResult) -> None:
    try:
        await asyncio.to_thread(spool.remove)
    except OSError as error:
        done.reason = f"all its events are in the store, but the file cannot be removed: {error.strerror}"


async def _append(log_: EventLog, writer: Writer, entries: list[NewEvent]) -> None:
    while True:
        try:
            await log_.append(writer, entries, complete_until=0)
            return
        except BadEvent as error:
            entries[error.index] = replacement_gap(entries[error.index], error)
        except StoreUnavailable:
            if not await log_.recover(writer):
                raise
            return
