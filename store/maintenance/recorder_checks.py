"""Checks of one recorder. Its chain is read once; then each check is a function that yields problems.

| checks            | of                                                                        |
|-------------------|---------------------------------------------------------------------------|
| `event_problems`  | each event: experiment, names, types                                      |
| `BATCH_CHECKS`    | each batch: number of events, hash of each event, digest, times, chain    |
| `RECORDER_CHECKS` | the recorder: last seq, head, counters, unclean end                       |
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from operator import index
from shlex import quote

from ..db.codes import KINDS, REDACTED, SEQ_BITS, SEQ_MASK
from ..experiments.records import Experiment, RecorderRow
from ..log import chain
from ..log.chain_counters import Counters
from ..log.chain_walk import (
    WRONG_TYPE,
    ChainEvent,
    Source,
    WalkedBatch,
    WalkedPage,
    experiment_of,
    flags_of,
    ts_of,
    walk,
)
from ..log.event import iso
from ..log.redaction_records import RecorderName, RedactionCheck
from .verdict import Verdict

TOLD_EVERY = 2000
"""Events between two calls of `progress`."""
_TYPE_PROBLEM = "holds a value of the wrong type"


@dataclass(slots=True)
class ReadRecorder:
    """A recorder and the state of reading its chain."""

    of: Experiment
    row: RecorderRow
    counted: Counters
    end: int = 1
    """Seq after the last batch so far."""


@dataclass(slots=True)
class ReadBatch:
    """A batch whose events were read. `recorder` is in the state before this batch."""

    recorder: ReadRecorder
    walked: WalkedBatch
    seqs: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)

    def add_page(self, page: WalkedPage) -> None:
        """Count the events of a page in which there is nothing to find."""
        self.seqs += page.seqs
        self.times += map(ts_of, page.rows)
        self.recorder.counted.add_page(page)


async def check_recorder(
    source: Source,
    of: Experiment,
    row: RecorderRow,
    redactions: RedactionCheck,
    verdict: Verdict,
    times: array[int],
    progress: Callable[[int], None],
) -> None:
    """Check one recorder and add the result to the verdict.

    `source` reads the store. The `times` of its events are added. `progress` is called with the
    number of events read. Raises one of `WRONG_TYPE` if the row of the recorder cannot be read.
    """
    if row.id >> 63 - SEQ_BITS:
        raise OverflowError("no event can have an id of this recorder")
    who = f"recorder {row.ordinal}"
    read = ReadRecorder(of, row, Counters.before(row.uuid))
    named = RecorderName(row.ordinal, row.uuid)
    redactions.link(named, 0, read.counted.head_hash)
    told = 0
    async for walked in walk(source, row.id, last=_last_seq(row)):
        if read.counted.events - told >= TOLD_EVERY:
            progress(told := read.counted.events)
        part = walked.row
        if part.first_seq != read.end:
            verdict.add([f"the batch after seq {read.end - 1} starts at {part.first_seq}"], who)
        place = f"{who}, batch at seq {part.first_seq}"
        batch = ReadBatch(read, walked)
        async for page in walked.pages():
            if _is_plain(batch, page, redactions):
                batch.add_page(page)
                continue
            for entry in page.entries():
                verdict.add(event_problems(batch, entry), place)
                redactions.add(named, row.role, entry.seq, entry.flags, entry.attributes, entry.payload)
        times.extend(batch.times)
        for check in BATCH_CHECKS:
            verdict.add(check(batch), place)
        verdict.batches += 1
        read.end, read.counted.head_hash = walked.end, part.chain_hash
        redactions.link(named, read.end - 1, part.chain_hash)
    for check_of_recorder in RECORDER_CHECKS:
        verdict.add(check_of_recorder(read), who)
    verdict.events += read.counted.events
    verdict.notes += [f"{who} {note}" for note in _notes(read)]


def _is_plain(batch: ReadBatch, page: WalkedPage, redactions: RedactionCheck) -> bool:
    """Return whether the checks of single events cannot find anything in a page."""
    rows = page.rows
    return (
        page.readable
        and {*map(experiment_of, rows)} == {batch.recorder.of.id}
        and not redactions.rows
        and not any(flags & REDACTED for flags in {*map(flags_of, rows)})
    )


def event_problems(batch: ReadBatch, entry: ChainEvent) -> Iterator[str]:
    """Check one event: it belongs to the experiment, its names exist, its values have the right types. Count it."""
    name = f"the event of seq {entry.seq}"
    if entry.experiment_id != batch.recorder.of.id:
        yield f"{name} is filed under another experiment"
    if entry.strange_names:
        yield f"{name} has names of another kind or experiment, or of none"
    batch.seqs.append(entry.seq)
    unreadable = entry.seq in batch.walked.unreadable
    try:
        batch.recorder.counted.add(entry.kind, entry.payload)
        batch.times.append(index(entry.ts))
    except WRONG_TYPE:
        unreadable = True
    if unreadable:
        yield f"{name} {_TYPE_PROBLEM}"


def check_number_of_events(batch: ReadBatch) -> Iterator[str]:
    """Check that no event of the batch is missing."""
    first, seqs = batch.walked.row.first_seq, batch.seqs
    missing = batch.walked.row.count - len(seqs)
    if missing:
        gap = next((at for at, seq in enumerate(seqs, first) if at != seq), first + len(seqs))
        yield f"{missing} event{'s are' if missing > 1 else ' is'} missing, the first is seq {gap}"


def check_event_hashes(batch: ReadBatch) -> Iterator[str]:
    """Check the hash of each event, which tells the event that was changed."""
    part = batch.walked.row
    checks = chain.unpack_checks(part.checks)
    if len(checks) != part.count or len(part.checks) != 4 * part.count:
        yield f"it has {len(part.checks)} bytes of checks for {part.count} events"
        return
    if len(batch.seqs) == part.count and batch.walked.digest.checks == [*checks]:
        return
    for seq, check in zip(batch.seqs, batch.walked.digest.checks, strict=True):
        if check != checks[seq - part.first_seq]:
            yield f"the event of seq {seq} was changed (or its check was)"


def check_digest(batch: ReadBatch) -> Iterator[str]:
    """Check the digest over all events of the batch."""
    part = batch.walked.row
    if batch.walked.digest.digest() != part.digest and len(batch.seqs) == part.count:
        yield "its events do not have the digest in its row"


def check_times(batch: ReadBatch) -> Iterator[str]:
    """Check the first and last time in the row of the batch."""
    part, times = batch.walked.row, batch.times
    if times and (min(times), max(times)) != (part.min_ts, part.max_ts):
        yield "its events' times are not the ones in its row"


def check_chain(batch: ReadBatch) -> Iterator[str]:
    """Check that the chain hash continues the previous one."""
    counted, part, times = batch.recorder.counted, batch.walked.row, batch.times
    link = counted.head_hash
    try:
        link = batch.walked.link(link)
        counted.end_batch(part.chain_hash, (min(times), max(times)) if times else None, part.unacknowledged)
    except WRONG_TYPE:
        yield f"its row {_TYPE_PROBLEM}"
    if link != part.chain_hash:
        yield "its chain hash does not continue the chain of the batch before it"


BATCH_CHECKS: tuple[Callable[[ReadBatch], Iterator[str]], ...] = (
    check_number_of_events,
    check_event_hashes,
    check_digest,
    check_times,
    check_chain,
)


def check_last_seq(read: ReadRecorder) -> Iterator[str]:
    """Check that the batches reach the last seq in the row of the recorder."""
    if read.end != read.row.last_seq + 1:
        yield f"its batches end at seq {read.end - 1}, its row says {read.row.last_seq}"


def check_head_hash(read: ReadRecorder) -> Iterator[str]:
    """Check that the head is the chain hash of the last batch."""
    if read.counted.head_hash != read.row.head_hash:
        yield "its head is not the hash of its last batch"


def check_counters(read: ReadRecorder) -> Iterator[str]:
    """Check the counters in the row of the recorder."""
    counted = read.counted
    kinds = {kind: counted.kinds[code] for code, kind in enumerate(KINDS, 1)}
    for key in ("kinds", "payload_bytes", "first_ts", "last_ts", "worst_unacknowledged"):
        recorded, value = getattr(read.row, key), kinds if key == "kinds" else getattr(counted, key)
        if recorded != value:
            yield f"its row says {key} {recorded}, its events say {value}"


def check_end(read: ReadRecorder) -> Iterator[str]:
    """Check that the recorder did not end uncleanly."""
    if read.row.state == "unclean":
        yield (
            f"ended uncleanly: its last heartbeat was at {iso(read.row.heartbeat_at)}; "
            f"`messager repair {quote(read.of.exp_id)}`"
        )


RECORDER_CHECKS: tuple[Callable[[ReadRecorder], Iterator[str]], ...] = (
    check_last_seq,
    check_head_hash,
    check_counters,
    check_end,
)


def _last_seq(row: RecorderRow) -> int:
    """Return the last seq to check: a live recorder may have appended more since its row was read."""
    return row.last_seq if row.state in ("alive", "incomplete") else SEQ_MASK


def _notes(read: ReadRecorder) -> Iterator[str]:
    if read.row.state == "repaired":
        yield "ended uncleanly and was repaired"
    elif read.row.state == "alive":
        yield "is recording"
    elif read.row.state == "incomplete":
        yield "is incomplete: gather its store again, or an intact copy if that is damaged"
    if gaps := read.row.kinds["gap"]:
        yield f"has {gaps} gap{'' if gaps == 1 else 's'} (`messager events {quote(read.of.exp_id)} --kind gap`)"
