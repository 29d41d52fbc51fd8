"""Recorder: a log hook that buffers, batches and survives a store that is away.

In the mode `buffered`, sends never wait for the store: events are committed every
`FLUSH_SECONDS`, or sooner when many wait. In `strict`, a sending is committed, or on disk
in the spool, before it is published. In both, what the store has not acknowledged after
`SPOOL_SECONDS` goes to the spool, and from there into the store when it is back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from messager.clock import Clock
from messager.record import MessageRecord, mark_record

from . import experiments
from .backlog import BATCH_EVENTS, Backlog, unfit
from .draining import drain_left
from .errors import (
    BadEvent,
    ExperimentBusy,
    RecorderFenced,
    SpoolDamaged,
    SpoolFull,
    StoreError,
    StoreUnavailable,
)
from .event import NewEvent
from .experiments import Experiment
from .host import circumstances
from .identity import DEFAULT_SENDER, Identifier
from .log import EventLog, Writer, new_uuid
from .repair import close
from .schema import FROM_DERIVED, TO_DERIVED
from .spool import ENDING, SPOOL_BYTES, Spool

IfExists = Literal["append", "fail", "new"]
Durability = Literal["buffered", "strict"]
Redact = Callable[[NewEvent], NewEvent | None]

FLUSH_SECONDS = 0.02
SPOOL_SECONDS = 1.0
"""After so long without an acknowledgement, events go to the spool ..."""
SPOOL_AGAIN_SECONDS = 0.1
"""... and after so long while the store is known to be away."""
HOLD_SECONDS = 5.0
"""How long, in one outage, senders are held back when neither store nor spool takes more."""
HEARTBEAT_SECONDS = 5.0
STOP_SECONDS = 10.0

log = logging.getLogger("messager_store")


class Recorder:
    """One writer of one experiment. An async context manager and a `LogHook`.

        async with EventLog.open("runs.db") as log, Recorder(log, exp_id) as recorder:
            messager.add_log_hook(recorder)

    `durability` is "buffered" or "strict" (see above). `if_exists` says what to do about an exp_id
    that is there: "append" (the default while it is open), "fail" (the default when it is closed), or
    "new": a fresh experiment with a number behind its exp_id. `sender` are the rules for finding a
    sender that nobody named (see `messager_store.identity`). `redact` is given every event before it
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
        self.exp_id = experiments.checked_exp_id(exp_id)
        self.clock = clock or Clock()
        self.accepted = 0
        """How many events this recorder was handed and has kept."""
        self.dropped = 0
        """How many it had to drop because neither the store nor the spool took them."""
        self.failure: StoreError | None = None
        """Why this recorder records nothing more, if so."""
        self.durability: Durability = durability
        self.uuid = new_uuid()
        """Its name, which its row and its spool bear."""
        self._name, self._tags, self._meta = name, list(tags), dict(meta or {})
        self._if_exists = if_exists
        self._role, self._patterns = role, list(patterns)
        self._identifier = Identifier(sender)
        self._redact = redact
        self._close_experiment = close_experiment
        self._writer: Writer | None = None
        folder = Path(spool or os.environ.get("MESSAGER_SPOOL") or log.database.dialect.spool_folder).absolute()
        facts = {"recorder": self.uuid, "exp_id": self.exp_id, "store": log.where}
        spool_file = Spool(folder / f"{self.uuid}{ENDING}", facts, spool_bytes)
        self._backlog = Backlog(spool_file, self.clock, self._horizon)
        self._under_way: dict[int, tuple[MessageRecord, int]] = {}  # the last of each wave, and when it began
        self._intents: dict[int, tuple[MessageRecord, int, int]] = {}  # sendings under way; seq and ts of their intents
        self._stamps = self.clock
        self._no_wave = asyncio.Event()
        self._facts: dict[str, Any] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._flush_now = False
        self._waiters: list[tuple[int, bool, asyncio.Future[None]]] = []  # seq, whether the store must have it
        self._moved = asyncio.Event()  # something left the memory
        self._alarm: asyncio.TimerHandle | None = None
        self._spooling: asyncio.Task[None] | None = None
        self._away = False  # the store did not take the last batch
        self._spool_error: SpoolFull | None = None
        self._held_out = False  # senders were held back in vain; not again before something is taken
        self._ending = self._ended = False
        self._give_up = 0.0
        self._uncertain = False  # whether the batch may have been committed without our knowing
        self._in_flight = 0  # how many events it has
        self._last_commit = 0.0

    @property
    def experiment(self) -> Experiment:
        """What is being recorded into; known once the recorder has started."""
        return self._started().experiment

    @property
    def ordinal(self) -> int:
        """This recorder's number within the experiment."""
        return self._started().ordinal

    @property
    def acknowledged(self) -> int:
        """The seq of this recorder's last event that the store has."""
        return self._backlog.acknowledged

    @property
    def spooled(self) -> int:
        """How many events are in the spool and not in the store."""
        return max(0, self._backlog.spool.last_seq - self._backlog.acknowledged)

    @property
    def spool_path(self) -> Path:
        """The file that it spools to; there only while something is in it."""
        return self._backlog.spool.path

    def __len__(self) -> int:
        """How many events wait for the store."""
        return self._backlog.waiting

    def __bool__(self) -> bool:
        return True

    async def start(self) -> None:
        """Find or make the experiment and take a place in it. Once for each recorder.

        What an earlier recorder of the experiment left in the spool is put into the store first.
        Raises `ExperimentClosed`, `ExperimentExists`, or what opening the store raises.
        """
        if self._writer is not None:
            raise StoreError("a recorder starts once; make another one to go on")
        facts = await asyncio.to_thread(circumstances)
        noted = {key: value for key, value in facts.items() if key in ("git", "command", "host")}
        of = await experiments.join(
            self.log.database,
            self.exp_id,
            self._if_exists,
            name=self._name,
            tags=self._tags,
            meta=self._meta,
            noted=noted,
        )
        self.exp_id = self._backlog.spool.facts["exp_id"] = of.exp_id
        await drain_left(self.log, self.spool_path.parent, of.exp_id)
        self._writer = await self.log.register(
            of,
            role=self._role,
            patterns=self._patterns,
            meta=facts,
            clock=self.clock,
            name=self.uuid,
            durability=self.durability,
            spool=str(self.spool_path),
        )
        self._last_commit = time.monotonic()
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._run())

    async def stop(self) -> None:
        """Commit what waits and say that this recorder has ended. May be called twice.

        Where the store does not take the rest within `STOP_SECONDS`, it stays in the spool for
        `messager drain`, and a warning says so. What is handed over afterwards is not recorded.
        Raises `RecorderFenced` where it was ended by somebody else, and `StoreUnavailable` where the
        spool does not take the rest either; the log then shows a recorder that ended uncleanly.
        """
        if self._writer is None or self._task is None:
            return
        if not self._ending and not self._task.done():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STOP_SECONDS):
                    while self._under_way:  # what became of these is to be recorded too
                        self._no_wave.clear()
                        await self._no_wave.wait()
            self._ending = True
            self._give_up = time.monotonic() + STOP_SECONDS
        self._wake.set()
        await self._finished(self._task)
        if self.failure is not None:
            raise self.failure
        if self._close_experiment and not self.spooled:
            with contextlib.suppress(ExperimentBusy):
                await close(self.log, self._writer.experiment)

    async def _finished(self, task: asyncio.Task[None]) -> None:
        """Return when the committer has ended; one that is stuck is ended, and what it had goes to the spool."""
        while not task.done():
            before = self._backlog.acknowledged
            await asyncio.wait([task], timeout=2 * STOP_SECONDS)
            if not task.done() and self._backlog.acknowledged == before:
                task.cancel()
                await asyncio.wait([task], timeout=STOP_SECONDS)
                break
        if not self._ended:
            reason = "its task was cancelled" if not task.done() or task.cancelled() else f"{task.exception()!r}"
            await self._end(StoreError(f"recorder {self.ordinal} of {self.exp_id} could not go on: {reason}"))

    async def __aenter__(self) -> Recorder:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    async def before_send(self, records: Sequence[MessageRecord]) -> None:
        """Return once these messages may be published.

        Buffered: at once, unless there is no room for them; then after `HOLD_SECONDS` at most.
        Strict: once each is in the log as an intent, committed or in the spool. Raises `StoreError`
        where that cannot be; they must not be published then.
        """
        if records:
            self._under_way[id(records[-1])] = (records[-1], self._stamps.now())
        if self.durability == "buffered":
            if self._backlog.full:
                await self._hold()
            return
        self._started()
        if self.failure is not None:
            raise self.failure
        if self._ending:
            raise StoreError(f"not sent: recorder {self.ordinal} of {self.exp_id} has ended, and it is strict")
        if self._backlog.full:
            await self._hold()
        last, now = 0, self._stamps.now()
        for record in records:
            try:
                entry = self._entry(record)
            except Exception as error:
                raise StoreError(f"not sent: `redact` raised {error!r}, and the recorder is strict") from error
            if entry is None:
                continue  # `redact` leaves it out
            seq = self._accept(entry._replace(ts=now))
            if seq is None:
                raise StoreUnavailable(self.log.where, "not sent: neither the store nor the spool takes more events")
            self._intents[id(record)] = (record, last := seq, now)
        await self._secured(last)

    def after(self, record: MessageRecord) -> None:
        """Take one event. Never blocks and never raises; what does not fit is dropped and counted."""
        intent = None
        if self._under_way:
            self._under_way.pop(id(record), None)
            self._no_wave.set()
        if self._intents:
            intent = self._intents.pop(id(record), None)
            if intent is not None and record.kind == "sent":
                return  # it is in the log already
        if self._ending:
            self.dropped += 1
            return
        try:
            entry = self._entry(record, intent)  # now, as the object that was sent may change afterwards
        except Exception:
            log.exception("a %s event cannot be read; it is not recorded", record.kind)
            self._backlog.drop(1)
            self.dropped += 1
            return
        if entry is not None:
            self._accept(entry)

    def connected(self, url: str, clock: Clock, clock_offset_ns: int | None) -> None:
        """Note where the broker is, the anchor of the clock that stamps, and how far the broker's is ahead."""
        self._facts = {
            "broker": url,
            "broker_offset": clock_offset_ns,
            "anchor_wall": clock.wall_ns,
            "anchor_monotonic": clock.monotonic_ns,
        }
        self._stamps = clock
        self._wake.set()

    def mark(self, name: str, /, **fields: Any) -> None:
        """Log a step, a tick or a note of this recorder's own. Raises `TypeError` for what JSON cannot hold."""
        self.after(mark_record(self.clock.now(), name, fields))

    async def flush(self) -> None:
        """Return once everything accepted so far is in the store.

        Raises `StoreError` where a commit failed meanwhile; what waits is kept and tried again.
        """
        self._started()
        if self.failure is not None:
            raise self.failure
        if self._ended and self._backlog.waiting:
            raise StoreError(f"the recorder has ended; {self.spooled} events wait in {self.spool_path}")
        if self._backlog.waiting:
            self._backlog.tell_drops()
            await self._wait_for(self._backlog.last, store=True)

    async def room(self, most: int) -> None:
        """Return once at most so many events wait in memory; in one outage after `HOLD_SECONDS` in all."""
        if len(self._backlog) > most or self._backlog.full:
            await self._hold(most)

    def _horizon(self) -> int:
        """A moment before which nothing has happened that we are still to be told of."""
        return min([self._stamps.now(), *(began for _, began in self._under_way.values())])

    def _accept(self, entry: NewEvent) -> int | None:
        """Put an event into the backlog; its seq, or None where there was no room."""
        seq = self._backlog.add(entry)
        if seq is None:
            if not self.dropped:
                log.error("neither the store %s nor the spool takes events: they are being dropped", self.log.where)
            self.dropped += 1
            return None
        self.accepted += 1
        waiting = len(self._backlog)
        if waiting == 1 or waiting >= BATCH_EVENTS:
            self._wake.set()
            if self._alarm is None:
                self._set_alarm()
        if self._backlog.crowded and self._spool_error is None:
            self._start_spooling()
        return seq

    async def _hold(self, most: int | None = None) -> None:
        """Hold a sender back until something has left the memory, but not for ever."""
        deadline = time.monotonic() + HOLD_SECONDS
        while self._backlog.full or (most is not None and len(self._backlog) > most):
            left = deadline - time.monotonic()
            if left <= 0:
                self._held_out = True
            if self._held_out or self.failure is not None:
                return
            if (self._away or self.spooled) and self._spool_error is None:
                self._start_spooling()
            self._moved.clear()
            self._flush_now = True
            self._wake.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._moved.wait()

    async def _secured(self, seq: int) -> None:
        """Return once everything up to `seq` is in the store or on disk. Raises where neither takes it."""
        while self._backlog.secured < seq:
            if (self._away or self.spooled) and self._spool_error is None:
                self._start_spooling()
            try:
                async with asyncio.timeout(HOLD_SECONDS):
                    await self._wait_for(seq, store=False)
            except TimeoutError:
                if self._spool_error is not None:
                    raise StoreUnavailable(self.log.where, f"not sent, and {self._spool_error}") from None

    async def _wait_for(self, seq: int, *, store: bool) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((seq, store, done))
        self._flush_now = True
        self._wake.set()
        await done

    def _answer(self) -> None:
        """Tell those who wait for something to be safe that it is, and senders that there is room."""
        acknowledged, secured = self._backlog.acknowledged, self._backlog.secured
        for seq, store, done in self._waiters:
            if seq <= (acknowledged if store else secured) and not done.done():
                done.set_result(None)
        self._waiters = [waiter for waiter in self._waiters if not waiter[2].done()]
        self._moved.set()

    def _refuse(self, error: Exception, *, everybody: bool) -> None:
        """Tell those who wait for the store that it did not take a batch; or that nothing more is recorded."""
        for _, store, done in self._waiters:
            if (store or everybody) and not done.done():
                done.set_exception(error)
        self._moved.set()

    async def _run(self) -> None:
        """Commit what waits, again and again; say that we are alive in between. Nobody else commits."""
        pause = FLUSH_SECONDS
        while True:
            if not self._ending:
                await self._something_to_do()
            self._flush_now = False
            ending = self._ending  # once this is set, nothing new comes
            try:
                while self._backlog.waiting:
                    await self._commit()
                    self._answer()
                await self._touch(ending=ending)
                pause = FLUSH_SECONDS
                if ending:
                    return await self._end()
            except SpoolDamaged as error:
                return await self._end(error)
            except RecorderFenced as error:
                if not await self._take_place_again():
                    return await self._end(error)
                self._wake.set()
            except Exception as error:
                self._refuse(error, everybody=False)
                if self._ending and time.monotonic() > self._give_up:
                    return await self._end(error)
                self._miss_store(error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, 1.0)
                self._wake.set()

    async def _something_to_do(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HEARTBEAT_SECONDS):
                await self._wake.wait()
        self._wake.clear()
        if not self._ending and not self._flush_now and len(self._backlog) < BATCH_EVENTS:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FLUSH_SECONDS):
                    await self._wake.wait()

    async def _commit(self) -> None:
        """Append the next batch. One whose fate is unknown is looked for before it is sent again."""
        writer = self._started()
        if self._uncertain:
            await self._recover(writer)
        batch = await self._backlog.next_batch()
        if batch is None:
            return
        events = batch.events
        self._uncertain, self._in_flight = True, len(events)
        while True:
            try:
                await self.log.append(
                    writer, events, unacknowledged_ns=batch.unacknowledged_ns, complete_until=batch.complete_until
                )
                break
            except BadEvent as error:  # must not stop those behind it
                log.error("%s; it is not recorded", error)
                events[error.index] = unfit(events[error.index], error)
                self.dropped += 1
            except StoreUnavailable:
                if not await self._recover(writer):
                    raise
                break
        self._uncertain = self._held_out = False
        self._backlog.acknowledge(writer.last_seq)
        self._last_commit = time.monotonic()
        if self._away:
            self._away = False
            log.warning("the store %s takes events again", self.log.where)

    async def _recover(self, writer: Writer) -> int:
        """See what the store has; how many events more than we knew of."""
        found = await self.log.recover(writer)
        self._uncertain = False
        self._backlog.acknowledge(writer.last_seq)
        return found

    async def _take_place_again(self) -> bool:
        """Go on after a repair took us for dead; False where the experiment takes no more events."""
        known = self._started()
        expected = {known.last_seq, known.last_seq + (self._in_flight if self._uncertain else 0)}
        try:
            writer = await self.log.take_over(self.uuid)
        except StoreUnavailable:
            return True  # tried again with the next batch
        except StoreError:
            return False
        if writer.last_seq not in expected and not await self._drained_by_others(known.last_seq, writer):
            return False  # somebody else wrote in our name
        self._writer, self._uncertain = writer, False
        self._backlog.acknowledge(writer.last_seq)
        log.warning("recorder %d of %s had been taken for dead; it goes on", self.ordinal, self.exp_id)
        return True

    async def _drained_by_others(self, known: int, writer: Writer) -> bool:
        """Whether what is there behind `known` is what our spool holds: somebody did not see that we hold it."""
        if not known < writer.last_seq <= self._backlog.spool.last_seq:
            return False
        ours = await self._backlog.spooled(known + 1, writer.last_seq - known)
        return [entry.ts for entry in ours] == await self.log.times(writer, known + 1)

    async def _touch(self, *, ending: bool) -> None:
        """Say that we are alive, or that we end, with whatever else is new."""
        facts, self._facts = self._facts, {}
        if ending:
            facts |= {"ended_at": time.time_ns(), "unclean": 0}
        if facts or time.monotonic() - self._last_commit >= HEARTBEAT_SECONDS:
            complete = {} if self._backlog.waiting else {"complete_until": self._horizon()}
            try:
                await self.log.touch(self._started(), **complete, **facts)
            except BaseException:
                self._facts = {**facts, **self._facts}
                raise
            self._last_commit = time.monotonic()

    def _miss_store(self, error: Exception) -> None:
        if not isinstance(error, StoreError):
            log.exception("recorder %d cannot commit; trying again", self.ordinal)
        elif not self._away:
            log.warning("%s; trying again, and keeping events in %s meanwhile", error, self.spool_path)
        self._away = True

    def _set_alarm(self) -> None:
        """See to it that what the store does not acknowledge in time goes to the spool."""
        if self._alarm is None and self._loop is not None and not self._ended:
            wait = max(0.0, self._patience() - self._backlog.oldest_age)
            self._alarm = self._loop.call_later(wait, self._overdue)

    def _patience(self) -> float:
        """How long (s) an event may wait in memory for the store."""
        return SPOOL_AGAIN_SECONDS if self._away or self._backlog.spool.first_seq else SPOOL_SECONDS

    def _overdue(self) -> None:
        self._alarm = None
        if self._ended or not len(self._backlog):
            return
        if self._backlog.oldest_age >= self._patience():
            self._start_spooling()
        else:
            self._set_alarm()

    def _start_spooling(self) -> None:
        if self._loop is not None and not self._ended and (self._spooling is None or self._spooling.done()):
            self._spooling = self._loop.create_task(self._spool())

    async def _spool(self) -> None:
        try:
            await self._backlog.to_disk()
            self._spool_error, self._held_out = None, False
        except SpoolFull as error:
            if self._spool_error is None:
                log.error("%s", error)
            self._spool_error = error
        self._answer()
        if len(self._backlog) and self._alarm is None and not self._ended:
            wait = SPOOL_SECONDS if self._spool_error else self._patience()
            self._alarm = asyncio.get_running_loop().call_later(wait, self._overdue)

    async def _end(self, error: Exception | None = None) -> None:
        """The last act: what the store has not got stays in the spool."""
        self._ending = self._ended = True
        if self._alarm is not None:
            self._alarm.cancel()
        if self._spooling is not None:
            await asyncio.wait([self._spooling])
        if error is not None:
            if isinstance(error, RecorderFenced):
                self.failure = error
            try:
                if self.failure is None:
                    await self._backlog.end(time.time_ns())
                else:
                    await self._backlog.to_disk()
            except Exception as full:
                lost = len(self._backlog)
                self.dropped += lost
                self.failure = StoreUnavailable(self.log.where, f"{lost} events are lost: {error}; and {full}")
            left = f"{self.spooled} events wait in {self.spool_path}: put them into the store with `messager drain`"
            log.error("%s; nothing more is recorded; %s", error, left if self.spooled else "nothing is left over")
        self._refuse(error or StoreError("the recorder has ended"), everybody=True)
        self._backlog.close()

    def _started(self) -> Writer:
        if self._writer is None:
            raise StoreError("the recorder has not been started: use `async with Recorder(...)`, or await start()")
        return self._writer

    def _entry(self, record: MessageRecord, intent: tuple[MessageRecord, int, int] | None = None) -> NewEvent | None:
        """The record as it may be kept, with the ids that nobody named worked out; `intent` is what it takes back."""
        cause, ts = None, record.ts
        if intent is not None:
            cause, ts = (self.ordinal, intent[1]), max(ts, intent[2])  # never before what it takes back
        from_id, to_id, flags = record.from_id, record.to_id, 0
        msg_id = None
        if record.channel is not None:
            if to_id is None:
                to_id = self._identifier.recipient(record.channel)
                flags |= TO_DERIVED if to_id is not None else 0
            if from_id is None:
                from_id = self._identifier.sender(record.payload, record.message)
                flags |= FROM_DERIVED if from_id is not None else 0
            msg_id = self._identifier.msg_id(record.payload, record.message)
        entry = NewEvent(
            record.kind,
            ts,
            record.channel,
            record.payload,
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
        kept = self._redact(entry)
        if kept is not None and not (isinstance(kept, NewEvent) and isinstance(kept.payload, bytes)):
            raise TypeError(f"`redact` gave {kept!r:.100}, not a NewEvent with bytes as its payload, nor None")
        return kept
