"""Redaction: delete the content of events after recording, with all hashes of it, and record who did so and why.

One transaction blanks the events, recomputes digests, checks, counters and the chain from the first blanked event on,
and inserts a redaction record. A process killed before the commit leaves the log unchanged. Afterwards the store is
rewritten (`scrubbing`). The conditions under which a redaction is refused are in `refusal`.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import uuid4

from sqlalchemy import delete, except_, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from ..db import derived_files
from ..db.codes import AGENT, SEQ_BITS, SEQ_MASK
from ..db.schema import event, name, recorder, redaction
from ..experiments.lifecycle import lock
from ..experiments.records import Experiment, RecorderRow, recorder_of
from ..experiments.registry import recorders_of
from ..experiments.seal import seal_ended
from ..log import chain
from ..log.event_log import EventLog
from ..log.names import NameReader
from ..log.redaction_records import Ranges, RedactionRow, events_json, redactions_of, seals_of
from .blanking import Blanking
from .copies import Copies, copies_of
from .redaction_filter import Found, RedactionFilter, find
from .refusal import check_allowed, check_seals, written_meanwhile
from .scrubbing import finish_scrub, scrub

_GATHERED = "gathered-"
"""Prefix of the origin of redactions made in a store that an experiment was gathered into."""
TRIES = 3
"""Attempts, if recorders write between the search and the transaction."""


@dataclass(slots=True)
class Redaction:
    """Result of a redaction, or of its dry run."""

    exp_id: str
    events: int = 0
    """Events blanked."""
    done_before: int = 0
    """Other matching events, which were redacted before."""
    kinds: dict[str, int] = field(default_factory=dict)
    channels: dict[str, int] = field(default_factory=dict)
    """Events blanked by channel, most first."""
    head_before: str = ""
    head_after: str = ""
    dry_run: bool = False
    copies: list[Copies] = field(default_factory=list)
    """Forks, and the parent, that hold unredacted copies of the selected events, as far as they are in the store."""


async def redact(
    log: EventLog,
    exp: str | Experiment,
    chosen: RedactionFilter,
    *,
    who: str,
    why: str,
    ids: bool = False,
    dry_run: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Redaction:
    """Blank the content of the events that match `chosen`, permanently.

    Payload and msg_id are deleted; of the meta, only fields written by the log itself remain (the name of a mark, an
    outcome, the bounds of a gap). With `ids`, from_id and to_id are deleted too, and names of agents that no other
    event uses. Channel, kind, times, order and number of events remain. The head changes, and the
    projection of the experiment is deleted.
    With `dry_run`, nothing is changed, and `who` and `why` are not checked. `progress` is called with the number of
    searched events and the total.

    Raises the errors listed in `refusal.check_allowed`, and `ScrubUnfinished` if the redaction is committed but the
    file could not be rewritten yet.
    """
    database = log.database
    of = exp if isinstance(exp, Experiment) else await log.experiment(exp)
    for _ in range(TRIES):
        recorders = await recorders_of(database, of.id)
        if not dry_run:
            check_allowed(of, recorders, chosen, who=who, why=why)
        found = await find(log, of, chosen, recorders, ids=ids, progress=progress)
        result = await _described(log, of, found, recorders, dry_run)
        if dry_run:
            return result
        if not found.ids and not found.done:
            await finish_scrub(log)
            return result
        await asyncio.to_thread(derived_files.delete, database, of.id)
        if not found.ids or await _blank(log, of, chosen, found.ids, recorders, who, why, ids, result):
            await asyncio.to_thread(derived_files.delete, database, of.id)  # a reader may have made them meanwhile
            await scrub(log)
            return result
    raise written_meanwhile(of)


async def _described(
    log: EventLog, of: Experiment, found: Found, recorders: list[RecorderRow], dry_run: bool
) -> Redaction:
    names = NameReader(log.database)
    await names.load({number for number in found.channels if number is not None})
    most = sorted(found.channels.items(), key=lambda pair: -pair[1])
    head = chain.head_of(recorders)
    return Redaction(
        of.exp_id,
        len(found.ids),
        len(found.done),
        found.kinds,
        {names.values.get(number) or "(no channel)": count for number, count in most},
        head,
        head,
        dry_run,
        await copies_of(log.database, of, recorders, [*found.ids, *found.done]),
    )


def _ranges(ids: array[int], uuids: dict[int, str]) -> Ranges:
    """Return ascending event ids as ranges of seqs; `uuids` are those of the recorders by id."""
    found: Ranges = {}
    for number in ids:
        stretches = found.setdefault(uuids[number >> SEQ_BITS], [])
        seq = number & SEQ_MASK
        if stretches and stretches[-1][1] == seq - 1:
            stretches[-1] = (stretches[-1][0], seq)
        else:
            stretches.append((seq, seq))
    return found


def _origin(recorders: list[RecorderRow], before: list[RedactionRow]) -> str:
    """Return the origin of the next redaction record: other stores may redact the same recorders under theirs."""
    if not any(row.gathered for row in recorders):
        return recorders[0].uuid
    here = [row.origin for row in before if row.origin.startswith(_GATHERED)]
    return here[-1] if here else f"{_GATHERED}{uuid4().hex}"


async def _blank(
    log: EventLog,
    of: Experiment,
    chosen: RedactionFilter,
    numbers: array[int],
    recorders: list[RecorderRow],
    who: str,
    why: str,
    ids: bool,
    result: Redaction,
) -> bool:
    """Redact in one transaction. Return False, and change nothing, if the log changed since `recorders` were read."""
    database = log.database
    before = await redactions_of(database, of.id)
    origin = _origin(recorders, before)
    positions = {row.uuid: row.last_seq for row in recorders}
    events = events_json(_ranges(numbers, {row.id: row.uuid for row in recorders}), positions)
    at = time.time_ns()
    head_before = bytes.fromhex(result.head_before)
    row_now = RedactionRow(0, who, at, why, events, head_before, b"", origin)
    mark = seals_of([*before, row_now])[-1]
    blanking = Blanking(of, recorders, set(numbers), mark, ids, chosen.matcher(any_condition=True), database)
    async with database.writing(long=True) as connection:
        await lock(connection, of.id)
        await database.dialect.overwrite_deleted(connection)
        await database.dialect.want_rewrite(connection)
        if not await _unchanged(connection, of, recorders, len(before)):
            return False
        await check_seals(connection, database.location, of)
        # fence recorders that have not ended: they would continue a chain that no longer exists
        await connection.execute(
            update(recorder)
            .where(recorder.c.experiment_id == of.id, recorder.c.ended_at.is_(None))
            .values(epoch=recorder.c.epoch + 1)
        )
        links = {row.id: row.head_hash for row in recorders}
        touched = {number >> SEQ_BITS for number in numbers}
        for row in recorders:
            if row.id in touched:
                links[row.id] = await blanking.rewrite(connection, row)
        if ids:
            used = [select(column).where(event.c.experiment_id == of.id) for column in (event.c.from_id, event.c.to_id)]
            mine = select(name.c.id).where(name.c.experiment_id == of.id, name.c.what == AGENT)
            # PostgreSQL would scan all events for each name of a NOT IN if they do not fit in memory
            await connection.execute(delete(name).where(name.c.id.in_(except_(mine, *used))))
        await seal_ended(connection, recorder.c.id.in_(touched))
        await connection.execute(
            insert(redaction).values(
                experiment_id=of.id,
                who=who,
                at=at,
                why=why,
                events=events,
                head_before=head_before,
                head_after=bytes.fromhex(chain.head((row.uuid, links[row.id]) for row in recorders)),
                origin=origin,
            )
        )
        rows = await connection.execute(select(recorder).where(recorder.c.experiment_id == of.id))
        result.head_after = chain.head_of(map(recorder_of, rows))
    return True


async def _unchanged(
    connection: AsyncConnection, of: Experiment, recorders: list[RecorderRow], redactions: int
) -> bool:
    columns = (recorder.c.id, recorder.c.last_seq, recorder.c.head_hash, recorder.c.epoch, recorder.c.seal)
    query = select(*columns).where(recorder.c.experiment_id == of.id).order_by(recorder.c.ordinal).with_for_update()
    now = [tuple(row) for row in await connection.execute(query)]
    rows = select(redaction.c.id).where(redaction.c.experiment_id == of.id)
    return len((await connection.execute(rows)).all()) == redactions and now == [
        (row.id, row.last_seq, row.head_hash, row.epoch, row.seal) for row in recorders
    ]
