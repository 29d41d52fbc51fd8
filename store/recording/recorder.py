"""Recorder: a log hook that turns what it is told into events, and hands them on to be committed.

In the mode `buffered`, sends never wait for the store. In `strict`, a sending is committed,
or on disk in the spool, before it is published. How events get into the store, and what becomes
of them while that is away, is the committer's.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from messager.clock import Clock
from messager.errors import MessagesRefused
from messager.record import MessageRecord, mark_record

from .. import json_text
from ..db.schema import FROM_DERIVED, TO_DERIVED
from ..errors import ExperimentBusy, StoreError, StoreUnavailable
from ..experiments import registry
from ..experiments.provenance import circumstances, this_process
from ..experiments.registry import Experiment
from ..log.event import Fields, NewEvent
from ..log.event_log import EventLog
from ..log.writer import Writer, new_uuid
from .buffer import Buffer
from .closing import close
from .committer import STOP_SECONDS, Committer
from .derived_ids import DEFAULT_SENDER, DerivedIds
from .draining import drain_left
from .registration import Registration, register
from .spool import ENDING, SPOOL_BYTES, Spool
from .spools import spool_folder

IfExists = Literal["append", "fail", "new", "next"]
Durability = Literal["buffered", "strict"]
Redact = Callable[[NewEvent], NewEvent | None]

log = logging.getLogger("messager_store")


class Recorder:
    """One writer of one experiment. An async context manager and a `LogHook`.

        async with EventLog.open("runs.db") as log, Recorder(log, exp_id) as recorder:
            messager.add_log_hook(recorder)

    `durability` is "buffered" or "strict" (see above). `if_exists` says what to do about an exp_id
    that is there: "append" (the default while it is open), "fail" (the default when it is closed), or
    "new": a fresh experiment with a number behind its exp_id; "next": the first of exp_id, exp_id-2,
    exp_id-3 ... that is open or not there. `sender` are the rules for finding a
    sender that nobody named (see `messager_store.recording.derived_ids`). `redact` is given every event before it
    is kept anywhere, and returns it as it may be kept, or None for not at all. `spool` is the folder
    for events that wait for the store (default: `MESSAGER_SPOOL`, else one beside the store), and
    `spool_bytes` how much this recorder may put there. With `close_experiment`, the experiment is
    closed when the recorder ends.
    """

    def __init__(
        self,
        log: EventLog,
        exp_id: str,
        *,
        durability: Durability = "buffered",
        name: str | None = None,
        tags: Iterable[str] = (),
        meta: Mapping[str, Any] | None = None,
        if_exists: IfExists | None = None,
        role: str = "messager",
        patterns: Iterable[str] = (),
        sender: Sequence[str] = DEFAULT_SENDER,
        redact: Redact | None = None,
        spool: str | os.PathLike[str] | None = None,
        spool_bytes: int = SPOOL_BYTES,
        close_experiment: bool = False,
        clock: Clock | None = None,
    ) -> None:
        if durability not in ("buffered", "strict"):
            raise StoreError(f"there is no durability {durability!r}: choose buffered or strict")
        self.log = log
        self.exp_id = registry.checked_exp_id(exp_id)
        self.clock = clock or Clock()
        self.accepted = 0
        """How many events this recorder was handed and has kept."""
        self.durability: Durability = durability
        self.uuid = new_uuid()
        """Its name, which its row and its spool bear."""
        self._derived_ids = DerivedIds(sender)
        self._redact = redact
        self._spool_bytes = spool_bytes
        self._close_experiment = close_experiment
        folder = spool_folder(log.database.dialect.spool_folder, spool)
        self._buffer = Buffer(self._spool_in(folder, spool_bytes), self.clock, self._horizon)
        self._registration = Registration(
            uuid=self.uuid,
            exp_id=self.exp_id,
            if_exists=if_exists,
            name=name,
            tags=list(tags),
            meta=dict(meta or {}),
            role=role,
            patterns=list(patterns),
            durability=durability,
            spool=str(self.spool_path),
            facts={},
            row={},
        )
        self._experiment: Experiment | None = None
        self._committer: Committer | None = None
        self._under_way: dict[int, tuple[MessageRecord, int]] = {}  # the last of each wave, and when it began
        self._intents: dict[int, tuple[MessageRecord, int, int]] = {}  # sendings under way; seq and ts of their intents
        self._no_wave = asyncio.Event()
        self._stamps = self.clock
        self._facts: dict[str, Any] = {}  # told before it has started
        self._describing: asyncio.Task[None] | None = None

    @property
    def experiment(self) -> Experiment:
        """What is being recorded into; known once the recorder has started."""
        if self._experiment is None:
            self._started()
            raise StoreUnavailable(self.log.location, f"a recorder of {self.exp_id} has no place in it yet")
        return self._experiment

    @property
    def ordinal(self) -> int:
        """This recorder's number within the experiment; known when `experiment` is."""
        return self._started().writer.ordinal

    @property
    def acknowledged(self) -> int:
        """The seq of this recorder's last event that the store has."""
        return self._buffer.acknowledged

    @property
    def spooled(self) -> int:
        """How many events are in the spool and not in the store."""
        return self._buffer.spool_only

    @property
    def dropped(self) -> int:
        """How many events are in the log only as the number of a gap, or not at all: nothing took them."""
        return self._buffer.lost

    @property
    def failure(self) -> StoreError | None:
        """Why this recorder records nothing more, if so."""
        return None if self._committer is None else self._committer.failure

    @property
    def spool_path(self) -> Path:
        """The file that it spools to; there only while something is in it."""
        return self._buffer.spool.path

    def __len__(self) -> int:
        """How many events wait for the store."""
        return self._buffer.waiting

    def __bool__(self) -> bool:
        return True

    async def start(self) -> None:
        """Find or make the experiment and take a place in it. Once for each recorder.

        What an earlier recorder of the experiment left in the spool is put into the store first.
        Raises `ExperimentClosed`, `ExperimentExists`, or what opening the store raises.
        """
        self._registration.check()
        self._prepare()
        await self._look_around()
        writer = await self.join()
        self._committer = Committer(self.log, writer, self._buffer, self._facts, self.join)

    def begin(self, join: Callable[[], Awaitable[Writer]]) -> None:
        """Take events at once, and a place in the experiment as soon as `join`, which awaits ours, gives one.

        Where it raises `StoreUnavailable` it is asked again, and events go to the spool meanwhile; any other
        `StoreError` ends the recorder. Where the experiment takes no more events, what it has not got goes on,
        as another recorder, into what `join` gives then. To be called in the event loop that it works in.
        """
        self._prepare()

        async def joined() -> Writer:
            await self._look_around()
            return await join()

        self._committer = Committer(self.log, None, self._buffer, self._facts, joined, self._anew)

    async def join(self) -> Writer:
        """Find or make the experiment, in an open store, and take a place in it. Raises as `start` does."""
        who = self._registration
        meta = who.meta
        writer = await register(self.log, who, lambda exp_id: drain_left(self.log, self.spool_path, exp_id))
        self._experiment = writer.experiment
        self.exp_id = self._buffer.spool.facts["exp_id"] = writer.experiment.exp_id
        self._buffer.spool.registration = None
        if who.meta is not meta:
            self._describe()
        return writer

    async def stop(self) -> None:
        """Commit what waits and say that this recorder has ended. May be called twice.

        Where the store does not take the rest within `STOP_SECONDS`, it stays in the spool for
        `messager drain`, and a warning says so. What is handed over afterwards is not recorded.
        Raises `RecorderFenced` where it was ended by somebody else, and `StoreUnavailable` where the
        spool does not take the rest either; the log then shows a recorder that ended uncleanly.
        """
        committer = self._committer
        if committer is None:
            return
        if not committer.ending:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STOP_SECONDS):
                    await self.idle()  # what became of these is to be recorded too
        await asyncio.sleep(0)  # what was said just now begins
        if self._describing is not None:
            await asyncio.wait([self._describing], timeout=STOP_SECONDS)
        await committer.stop()
        if committer.failure is not None:
            raise committer.failure
        if self._close_experiment and not self.spooled and self._experiment is not None:
            with contextlib.suppress(ExperimentBusy):
                await close(self.log, self._experiment)

    async def __aenter__(self) -> Recorder:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    async def idle(self) -> None:
        """Return once no message that it was asked about is on its way."""
        while self._under_way:
            self._no_wave.clear()
            await self._no_wave.wait()

    async def before_send(self, records: Sequence[MessageRecord]) -> None:
        """Return once these messages may be published.

        Buffered: at once, unless there is no room for them; then after `HOLD_SECONDS` at most.
        Strict: once each is in the log as an intent, committed or in the spool. Raises `StoreError`
        where that cannot be; they must not be published then. Raises `MessagesRefused` for those whose `redact`
        raised, once the others are in the log.
        """
        if records:
            self._under_way[id(records[-1])] = (records[-1], self._stamps.now())
        if self.durability == "buffered":
            if self._buffer.full and self._committer is not None:
                await self._committer.hold()
            return
        committer = self._started()
        if committer.failure is not None:
            raise committer.failure
        if committer.ending:
            raise StoreError(f"not sent: the recorder of {self.exp_id} has ended, and it is strict")
        if self._buffer.full:
            await committer.hold()
        last, now = 0, self._stamps.now()
        refused: dict[int, Exception] = {}
        for index, record in enumerate(records):
            try:
                entry = self._entry(record, now)
            except Exception as error:  # its text may hold what `redact` was to take out
                name = type(error).__name__
                refused[index] = StoreError(f"not sent: `redact` raised {name}, and the recorder is strict")
                refused[index].__cause__ = error
                continue
            if entry is None:
                continue  # `redact` leaves it out
            seq = self._accept(entry)
            if seq is None:
                raise StoreUnavailable(self.log.location, "not sent: neither the store nor the spool takes more events")
            self._intents[id(record)] = (record, last := seq, now)
        await committer.secured(last)
        if refused:
            raise MessagesRefused(refused)

    def after(self, record: MessageRecord) -> None:
        """Take one event. Never blocks and never raises; what does not fit is dropped and counted."""
        ts, cause = record.ts, None
        if self._under_way and self._under_way.pop(id(record), None) is not None:
            self._no_wave.set()
        if self._intents and (intent := self._intents.pop(id(record), None)) is not None:
            if record.kind == "sent":
                return  # it is in the log already
            seq = intent[1] - self._buffer.before  # what it takes back may be in another experiment
            cause, ts = (0, seq) if seq > 0 else None, max(ts, intent[2])  # never before that
        if self._committer is not None and self._committer.ending:
            self._buffer.lost += 1
            return
        try:
            entry = self._entry(record, ts, cause)  # now, as the object that was sent may change afterwards
        except Exception as error:
            if record.kind != "failed":
                log.exception("a %s event cannot be read; it is not recorded", record.kind)
                self._buffer.drop(1)
                return
            log.exception("a failed event cannot be read; only its outcome is recorded")
            entry = _bare(record, ts, cause, error)
        if entry is not None:
            self._accept(entry)

    def connected(self, url: str, clock: Clock, clock_offset_ns: int | None) -> None:
        """Note where the broker is, the anchor of the clock that stamps, and how far the broker's is ahead."""
        facts = {
            "broker": url,
            "broker_offset": clock_offset_ns,
            "anchor_wall": clock.wall_ns,
            "anchor_monotonic": clock.monotonic_ns,
        }
        self._stamps = clock
        self._registration.row = {**self._registration.row, **facts}
        self._keep_registration()
        if self._committer is None:
            self._facts = facts
        else:
            self._committer.note(facts)

    def described(self, name: str | None, meta: Mapping[str, Any]) -> None:
        """Keep a name and meta with the experiment, where it has no name, and no such key, yet."""
        who = self._registration
        who.name, who.meta = who.name or name, {**meta, **who.meta}
        self._keep_registration()
        if self._experiment is not None and self._committer is not None and not self._committer.ending:
            self._committer.loop.call_soon_threadsafe(self._describe)  # it may be said anywhere

    def note(self, **facts: Any) -> None:
        """Keep facts in this recorder's meta, beside the circumstances in which it started. For one that has started.

        Raises `TypeError` for what JSON cannot hold.
        """
        self._registration.facts = {**self._registration.facts, **facts}
        meta = json_text.dump(self._registration.facts)
        self._keep_registration()
        if self._committer is not None:
            self._committer.note({"meta": meta})

    def save(self) -> None:
        """Put what waits into the spool, and note there that this recorder has ended.

        For the end of a process whose event loop ended before `stop` was awaited: nothing can be awaited
        any more. Raises `SpoolFull`.
        """
        committer = self._committer
        if committer is not None and not committer.ending:
            committer.ending = True
            if committer.joined or self._buffer.waiting:
                try:
                    self._buffer.save(time.time_ns())
                finally:
                    self._buffer.lost += len(self._buffer)

    def mark(self, name: str, /, **fields: Any) -> None:
        """Log a step, a tick or a note of this recorder's own. Raises `TypeError` for what JSON cannot hold."""
        self.after(mark_record(self.clock.now(), name, fields))

    async def flush(self) -> None:
        """Return once everything accepted so far is in the store.

        Raises `StoreError` where a commit failed meanwhile; what waits is kept and tried again.
        """
        await self._started().flush()

    async def wait_for_capacity(self, most: int) -> None:
        """Return once at most so many events wait in memory; in one outage after `HOLD_SECONDS` in all."""
        if self._committer is not None and (len(self._buffer) > most or self._buffer.full):
            await self._committer.hold(most)

    def _spool_in(self, folder: Path, most: int, before: int = 0) -> Spool:
        facts = {"recorder": self.uuid, "exp_id": self.exp_id, "store": self.log.location}
        return Spool(folder / f"{self.uuid}{ENDING}", facts, most, before)

    def _anew(self) -> Spool:
        """Become another recorder; its spool."""
        self.uuid = new_uuid()
        spool = self._spool_in(self.spool_path.parent, self._spool_bytes, self._buffer.acknowledged)
        self._registration.uuid, self._registration.spool = self.uuid, str(spool.path)
        spool.registration = self._registration.said()
        self._experiment = None
        return spool

    def _prepare(self) -> None:
        if self._committer is not None:
            raise StoreError("a recorder starts once; make another one to go on")
        here = this_process()
        self._registration.row = {
            "host": here.host,
            "pid": here.pid,
            "boot_id": here.boot_id,
            "started_at": time.time_ns(),
            "anchor_wall": self.clock.wall_ns,
            "anchor_monotonic": self.clock.monotonic_ns,
            **self._facts,
        }
        self._keep_registration()

    async def _look_around(self) -> None:
        if not self._registration.facts:
            self._registration.facts = await asyncio.to_thread(circumstances)
            self._keep_registration()

    def _keep_registration(self) -> None:
        """Let the spool have what the store is to be told, for a drain to tell it."""
        if self._experiment is None:
            self._buffer.spool.registration = self._registration.said()

    def _describe(self) -> None:
        self._describing = asyncio.get_running_loop().create_task(self._put_description(self._describing))

    async def _put_description(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        who = self._registration
        try:
            await registry.describe(self.log.database, self.experiment, name=who.name, tags=who.tags, meta=who.meta)
        except StoreError as error:
            log.warning("what was said of %s is not kept: %s", self.exp_id, error)

    def _horizon(self) -> int:
        """A moment before which nothing has happened that we are still to be told of."""
        return min([self._stamps.now(), *(began for _, began in self._under_way.values())])

    def _accept(self, entry: Fields) -> int | None:
        """Put an event into the buffer; its seq, or None where there was no room."""
        seq = self._buffer.add(entry)
        if seq is None:
            if self._buffer.lost == 1:
                log.error("neither the store %s nor the spool takes events: they are being dropped", self.log.location)
            return None
        self.accepted += 1
        if self._buffer.notable and self._committer is not None:
            self._committer.look()
        return seq

    def _started(self) -> Committer:
        if self._committer is None:
            raise StoreError("the recorder has not been started: use `async with Recorder(...)`, or await start()")
        return self._committer

    def _entry(self, record: MessageRecord, ts: int, cause: tuple[int, int] | None = None) -> Fields | None:
        """The record as it may be kept, with the ids that nobody named worked out; None for not at all."""
        channel, payload, from_id, to_id = record.channel, record.payload, record.from_id, record.to_id
        flags, msg_id = 0, None
        if channel is not None:
            if to_id is None:
                to_id = self._derived_ids.recipient(channel)
                flags = TO_DERIVED if to_id is not None else 0
            sender, msg_id = self._derived_ids.said(payload, record.message, sender=from_id is None)
            if sender is not None:
                from_id = sender
                flags |= FROM_DERIVED
        entry = (
            record.kind,
            ts,
            channel,
            payload,
            from_id,
            to_id,
            flags,
            msg_id,
            record.duration_ns,
            record.receivers,
            cause,
            record.meta,
        )
        if self._redact is None:
            return entry
        kept = self._redact(NewEvent._make(entry))
        if kept is not None and not (isinstance(kept, NewEvent) and isinstance(kept.payload, bytes)):
            raise TypeError(f"`redact` gave {kept!r:.100}, not a NewEvent with bytes as its payload, nor None")
        return kept


def _bare(record: MessageRecord, ts: int, cause: tuple[int, int] | None, error: Exception) -> Fields:
    """A failed event with nothing of its message, because `redact` raised: it still retracts its intent."""
    outcome = (record.meta or {}).get("outcome", "not_sent")
    meta = {"outcome": outcome, "error": f"`redact` raised {type(error).__name__}, so only this is kept"}
    return NewEvent("failed", ts, None, b"", cause=cause, meta=meta)
