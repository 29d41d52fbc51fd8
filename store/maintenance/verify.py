"""Every promise of the log, checked again from the rows."""

from __future__ import annotations

import json
import struct
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from shlex import quote
from typing import Any

from sqlalchemy import func, or_, select

from ..db.database import Database
from ..db.schema import (
    AGENT,
    CHANNEL,
    KINDS,
    SCHEMA_VERSION,
    SEQ_BITS,
    VISIBLE,
    batch,
    event,
    experiment,
    name,
    recorder,
    redaction,
    tag,
)
from ..errors import ExperimentNotFound
from ..experiments.registry import Experiment, RecorderRow, by_exp_id, every, recorders_of
from ..json_text import is_deep, is_no_text
from ..log import chain
from ..log.event import iso
from ..log.event_log import EventLog
from ..log.hashed_fields import CHANNEL_NAME, RECIPIENT_NAME, SENDER_NAME, events_page, facts, origin
from ..log.names import name_hash
from ..log.redaction_records import SealCheck
from ..privacy.meta_credentials import find_in_meta

PAGE = 2000
_SEQ_MASK = (1 << SEQ_BITS) - 1
SHOWN_PLACES = 5
"""Places of credentials in meta that a note names."""
MOST_PROBLEMS = 100
"""Problems named per experiment; the rest are counted."""

UNSCRUBBED = (
    "a redaction was cut off before the file was rewritten, which may still hold what was taken out: "
    "`messager redact --scrub`"
)

_WRONG_TYPE = (struct.error, TypeError, AttributeError, OverflowError)
"""What a value of a type or size that its column should not hold makes the check raise."""


@dataclass(slots=True)
class Verdict:
    """What the check of one experiment found."""

    exp_id: str
    head: str
    events: int = 0
    batches: int = 0
    recorders: int = 0
    problems: list[str] = field(default_factory=list)
    """What is wrong, and where. Empty where every promise holds."""
    more_problems: int = 0
    notes: list[str] = field(default_factory=list)
    """What is no fault of the log but worth knowing: recorders that run, gaps."""

    @property
    def ok(self) -> bool:
        """Whether every promise holds."""
        return not self.problems

    def wrong(self, problem: str) -> None:
        """One more problem."""
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(problem)
        else:
            self.more_problems += 1


Progress = Callable[[int, int], None]
"""Told, now and then, how many events of an experiment were checked, and how many it has."""


async def verify_all(log: EventLog, progress: Progress | None = None) -> AsyncIterator[Verdict]:
    """Check every experiment, and that nothing in the store belongs to none."""
    database = log.database
    for of in await every(database):
        yield await verify(log, of, progress=progress)
    stray = Verdict("(store)", "")
    async with database.reading() as connection:
        known = (*VISIBLE, "importing", "removing")
        for exp_id, status in await connection.execute(
            select(experiment.c.exp_id, experiment.c.status).where(experiment.c.status.not_in(known))
        ):
            stray.wrong(f"experiment {exp_id} has the status {status!r}, which there is not")
        for table, column, owner in (
            (recorder, recorder.c.experiment_id, experiment.c.id),
            (name, name.c.experiment_id, experiment.c.id),
            (tag, tag.c.experiment_id, experiment.c.id),
            (event, event.c.experiment_id, experiment.c.id),
            (batch, batch.c.recorder_id, recorder.c.id),
            (redaction, redaction.c.experiment_id, experiment.c.id),
        ):
            query = select(func.count()).select_from(table).where(column.not_in(select(owner)))
            rows = (await connection.execute(query)).scalar_one()
            if rows:
                stray.wrong(f"{rows} rows of table {table.name} belong to no {owner.table.name}")
        for status, what in (("importing", "import"), ("removing", "removal")):
            query = select(func.count()).select_from(experiment).where(experiment.c.status == status)
            if number := (await connection.execute(query)).scalar_one():
                count = f"{number} {what}{'' if number == 1 else 's'}"
                stray.notes.append(f"{count} did not finish (yet); `messager compact` clears away what was killed")
    if await database.rewrite_wanted():
        stray.notes.append(UNSCRUBBED)
    if stray.problems or stray.notes:
        yield stray


async def verify(
    log: EventLog, of: Experiment, head: str | None = None, *, progress: Progress | None = None
) -> Verdict:
    """Check one experiment; with `head`, or the beginning of one, also that this is its head.

    What recorders that still run commit while it is checked is left out.
    """
    database = log.database
    of, recorders = await _as_of_now(database, of)
    seals = await SealCheck.load(database, of)
    verdict = Verdict(of.exp_id, "", recorders=len(recorders))
    try:
        verdict.head = chain.head_of(recorders)
    except _WRONG_TYPE:
        verdict.wrong("a recorder's uuid or head is a value of the wrong type, so there is no head")
    if head is not None and not (head and verdict.head.startswith(head)):
        former = seals.former(head) if head else None
        verdict.wrong(f"the head is {verdict.head}, not {head}" + (f": {former}" if former else ""))
    ordinals = [row.ordinal for row in recorders]
    if of.recorders != len(recorders):
        verdict.wrong(f"the experiment counts {of.recorders} recorders, there are {len(recorders)}")
    if ordinals != list(range(1, len(recorders) + 1)):
        verdict.wrong(f"the recorders are numbered {ordinals}, not 1 to {len(recorders)}")
    if of.schema_version not in range(1, SCHEMA_VERSION + 1):
        verdict.wrong(f"its schema version is {of.schema_version!r}, which there is not")
    if (of.status == "closed") != (of.closed_at is not None):
        verdict.wrong(f"the experiment is {of.status}, but its time of closing says otherwise")
    await _verify_names(database, of, verdict)
    ordinal_of = {row.id: row.ordinal for row in recorders}
    total = sum(row.last_seq for row in recorders if isinstance(row.last_seq, int))

    def tell(checked: int) -> None:
        if progress is not None:
            progress(verdict.events + checked, total)

    for row in recorders:
        try:
            await _verify_recorder(database, of, row, ordinal_of, seals, verdict, tell)
        except _WRONG_TYPE:
            verdict.wrong(f"recorder {row.ordinal}: its row, or a batch's, holds a value of the wrong type")
    for problem in seals.finish({row.ordinal: row.uuid for row in recorders}):
        verdict.wrong(problem)
    verdict.notes += seals.notes()
    if found := find_in_meta(of, recorders):
        more = f" and {len(found) - SHOWN_PLACES} more" if len(found) > SHOWN_PLACES else ""
        verdict.notes.append(
            f"its meta holds what looks like credentials ({'; '.join(found[:SHOWN_PLACES])}{more}): "
            f"`messager redact {quote(of.exp_id)} --meta` masks them"
        )
    if seals.rows and await database.rewrite_wanted():
        verdict.notes.append(UNSCRUBBED)
    return verdict


async def _as_of_now(database: Database, of: Experiment) -> tuple[Experiment, list[RecorderRow]]:
    """The experiment and its recorders; read again where a recorder joined in between."""
    for tries_left in range(4, -1, -1):
        recorders = await recorders_of(database, of.id)
        now = await by_exp_id(database, of.exp_id)
        if now is None:
            raise ExperimentNotFound(of.exp_id)
        if not isinstance(now.recorders, int) or now.recorders <= len(recorders) or not tries_left:
            return now, recorders
    raise AssertionError("unreachable")


async def _verify_names(database: Database, of: Experiment, verdict: Verdict) -> None:
    """Each name has the hash and the text of its value, and is a channel or an agent."""
    at = -1
    while True:
        query = select(name).where(name.c.experiment_id == of.id, name.c.id > at).order_by(name.c.id).limit(PAGE)
        async with database.reading() as connection:
            rows = (await connection.execute(query)).all()
        for row in rows:
            if not isinstance(row.value, bytes):
                verdict.wrong(f"name {row.id} ({row.value!r}) was changed")
                continue
            expected = None if is_no_text(row.value) else row.value.decode()
            if row.what == AGENT and not _is_id(row.value):
                verdict.wrong(f"name {row.id} ({row.value[:100]!r}) is no agent's id: nobody can read it")
            if row.hash != name_hash(row.value) or row.text != expected or row.what not in (CHANNEL, AGENT):
                verdict.wrong(f"name {row.id} ({expected!r}) was changed")
        if len(rows) < PAGE:
            return
        at = rows[-1].id


def _is_id(value: bytes) -> bool:
    """Whether readers can make an agent's id of it."""
    try:
        return not is_deep(json.loads(value.decode()))
    except (ValueError, RecursionError):
        return False


async def _verify_recorder(
    database: Database,
    of: Experiment,
    row: RecorderRow,
    ordinal_of: dict[int, int],
    seals: SealCheck,
    verdict: Verdict,
    tell: Callable[[int], None],
) -> None:
    who = f"recorder {row.ordinal}"
    if row.id >> 63 - SEQ_BITS:
        raise OverflowError("no event has the id of such a recorder")
    link = chain.first_link(row.uuid)
    seals.link(row.ordinal, 0, link)
    counted = _Counters()
    expected, told = 1, 0
    async for part in _batches(database, row):
        verdict.batches += 1
        if counted.events - told >= PAGE:
            tell(told := counted.events)
        place = f"{who}, batch at seq {part.first_seq}"
        if part.first_seq != expected:
            verdict.wrong(f"{who}: the batch after seq {expected - 1} starts at {part.first_seq}")
        expected = part.first_seq + part.count
        await _verify_batch(database, of, row, part, counted, ordinal_of, place, seals, verdict)
        try:
            link = chain.next_link(of.schema_version, link, part.digest, *facts(part._mapping))
            counted.worst_unacknowledged = max(counted.worst_unacknowledged, part.unacknowledged)
        except _WRONG_TYPE:
            verdict.wrong(f"{place}: its row holds a value of the wrong type")
        if link != part.chain_hash:
            verdict.wrong(f"{place}: the chain does not go on from the batch before it")
            link = part.chain_hash
        seals.link(row.ordinal, expected - 1, link)
    if expected != row.last_seq + 1:
        verdict.wrong(f"{who}: its batches end at seq {expected - 1}, its row says {row.last_seq}")
    if link != row.head_hash:
        verdict.wrong(f"{who}: its head is not the hash of its last batch")
    await _stray_events(database, row, expected, who, verdict)
    if of.schema_version == 1:
        counted.worst_unacknowledged = row.worst_unacknowledged  # what it is the worst of was not kept
    counted.hold_against(row, who, verdict)
    verdict.events += counted.events
    if row.state == "unclean":
        verdict.wrong(
            f"{who} ended uncleanly: it was last alive at {iso(row.heartbeat_at)} and never said that it ended; "
            f"`messager repair {quote(of.exp_id)}`"
        )
    elif row.state == "repaired":
        verdict.notes.append(f"{who} had ended uncleanly, and was repaired")
    elif row.state == "alive":
        verdict.notes.append(f"{who} is recording")
    if row.kinds["gap"]:
        gaps = f"{row.kinds['gap']} gap{'' if row.kinds['gap'] == 1 else 's'}"
        verdict.notes.append(f"{who} knows of {gaps} (`messager events {quote(of.exp_id)} --kind gap`)")


class _Counters:
    """A recorder's counters, counted again."""

    def __init__(self) -> None:
        self.events = 0
        self.kinds = dict.fromkeys(KINDS, 0)
        self.payload_bytes = 0
        self.first_ts: int | None = None
        self.last_ts: int | None = None
        self.worst_unacknowledged = 0

    def add(self, kind: int, ts: int, size: int) -> None:
        self.events += 1
        if 1 <= kind <= len(KINDS):
            self.kinds[KINDS[kind - 1]] += 1
        self.payload_bytes += size
        self.first_ts = ts if self.first_ts is None else min(self.first_ts, ts)
        self.last_ts = ts if self.last_ts is None else max(self.last_ts, ts)

    def hold_against(self, row: RecorderRow, who: str, verdict: Verdict) -> None:
        for what in ("kinds", "payload_bytes", "first_ts", "last_ts", "worst_unacknowledged"):
            said, counted = getattr(row, what), getattr(self, what)
            if said != counted:
                verdict.wrong(f"{who}: its row says {what} {said}, its events say {counted}")


async def _verify_batch(
    database: Database,
    of: Experiment,
    row: RecorderRow,
    part: Any,
    counted: _Counters,
    ordinal_of: dict[int, int],
    place: str,
    seals: SealCheck,
    verdict: Verdict,
) -> None:
    """Encode the batch's events again and hold them against digest, checks and times."""
    digest = chain.BatchDigest()
    seqs: list[int] = []
    times: list[int] = []
    async for entry in _events(database, row.id, part.first_seq, part.first_seq + part.count):
        seq = entry.id & _SEQ_MASK
        if entry.experiment_id != of.id:
            verdict.wrong(f"{place}: the event of seq {seq} is filed under another experiment")
        if entry.strangers:
            verdict.wrong(f"{place}: the event of seq {seq} has names of another kind or experiment, or of none")
        seqs.append(seq)
        seals.see(row.ordinal, row.role, seq, entry.flags, entry.meta, entry.payload)
        try:
            counted.add(entry.kind, entry.ts, len(entry.payload))
            times.append(entry.ts)
            digest.add(
                seq,
                entry.ts,
                entry.kind,
                entry.flags,
                entry.channel,
                entry.sender,
                entry.recipient,
                entry.msg_id,
                entry.duration_ns,
                entry.receivers,
                origin(entry.cause, ordinal_of),
                entry.meta,
                entry.payload,
            )
        except _WRONG_TYPE:
            verdict.wrong(f"{place}: the event of seq {seq} holds a value of the wrong type")
            digest.checks.append(-1)
    missing = part.count - len(seqs)
    if missing:
        first = next((at for at, seq in enumerate(seqs, part.first_seq) if at != seq), part.first_seq + len(seqs))
        verdict.wrong(f"{place}: {missing} event{'s are' if missing > 1 else ' is'} missing, the first is seq {first}")
    checks = chain.unpack_checks(part.checks)
    if len(checks) != part.count or len(part.checks) != 4 * part.count:
        verdict.wrong(f"{place}: it has {len(part.checks)} bytes of checks for {part.count} events")
    else:
        for seq, check in zip(seqs, digest.checks, strict=True):
            if check != checks[seq - part.first_seq]:
                verdict.wrong(f"{place}: the event of seq {seq} was changed (or its check was)")
    if digest.digest() != part.digest and not missing:
        verdict.wrong(f"{place}: its events do not have the digest it says")
    if times and (min(times), max(times)) != (part.min_ts, part.max_ts):
        verdict.wrong(f"{place}: its events' times are not the ones it says")


def _end(row: RecorderRow) -> int:
    """The last seq to look at: a recorder that still runs goes on behind it."""
    return row.last_seq if row.state == "alive" else _SEQ_MASK


async def _batches(database: Database, row: RecorderRow) -> AsyncIterator[Any]:
    at = -1
    while True:
        query = (
            select(batch)
            .where(batch.c.recorder_id == row.id, batch.c.first_seq > at, batch.c.first_seq <= _end(row))
            .order_by(batch.c.first_seq)
            .limit(PAGE)
        )
        async with database.reading() as connection:
            parts = (await connection.execute(query)).all()
        for part in parts:
            yield part
        if len(parts) < PAGE:
            return
        at = parts[-1].first_seq


_STRANGERS = or_(
    *(
        func.coalesce(alias.c.what != what, number.is_not(None))
        | func.coalesce(alias.c.experiment_id != event.c.experiment_id, False)
        for alias, what, number in (
            (CHANNEL_NAME, CHANNEL, event.c.channel_id),
            (SENDER_NAME, AGENT, event.c.from_id),
            (RECIPIENT_NAME, AGENT, event.c.to_id),
        )
    )
).label("strangers")
"""Whether an event names a channel as an agent or the other way round, or a name of another experiment, or of none."""


async def _events(database: Database, recorder_id: int, first: int, end: int) -> AsyncIterator[Any]:
    """The events of a stretch of seqs with their names' bytes, one page in memory at a time."""
    at = first
    while at < end:
        async with database.reading() as connection:
            rows = (await connection.execute(events_page(recorder_id, at, end, PAGE).add_columns(_STRANGERS))).all()
        for row in rows:
            yield row
        if len(rows) < PAGE:
            return
        at = (rows[-1].id & _SEQ_MASK) + 1


async def _stray_events(database: Database, row: RecorderRow, expected: int, who: str, verdict: Verdict) -> None:
    """Events of this recorder that no batch covers."""
    base = row.id << SEQ_BITS
    query = select(func.count(), func.min(event.c.id)).where(
        event.c.id >= base, event.c.id <= base | _end(row), (event.c.id >= base | expected) | (event.c.id == base)
    )
    async with database.reading() as connection:
        stray, lowest = (await connection.execute(query)).one()
    if stray:
        belong = "event belongs" if stray == 1 else "events belong"
        verdict.wrong(f"{who}: {stray} {belong} to no batch, the first is seq {lowest & _SEQ_MASK}")
