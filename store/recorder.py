"""Recorder: a log hook that buffers, batches and survives a store that is slow to answer.

Sends never wait for the store. Events are committed every `FLUSH_SECONDS`, or sooner
when many wait. While the store does not answer, they stay in memory, up to a limit;
beyond it they are dropped and counted in a `gap`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Any, Literal

from messager.clock import Clock
from messager.record import MessageRecord, mark_record

from . import experiments
from .errors import (
    BadEvent,
    ExperimentBusy,
    ExperimentClosed,
    ExperimentExists,
    RecorderFenced,
    StoreError,
    StoreUnavailable,
)
from .event import NewEvent
from .experiments import Experiment
from .host import circumstances
from .identity import DEFAULT_SENDER, Identifier
from .log import EventLog, Writer
from .schema import FROM_DERIVED, TO_DERIVED

IfExists = Literal["append", "fail", "new"]

FLUSH_SECONDS = 0.02
BATCH_EVENTS = 5000
BATCH_BYTES = 8 * 1024 * 1024
HEARTBEAT_SECONDS = 5.0
STOP_SECONDS = 10.0
BUFFER_EVENTS = 200_000
BUFFER_BYTES = 256 * 1024 * 1024

log = logging.getLogger("messager_store")


class Recorder:
    """One writer of one experiment. An async context manager and a `LogHook`.

        async with EventLog.open("runs.db") as log, Recorder(log, exp_id) as recorder:
            messager.add_log_hook(recorder)

    `if_exists` says what to do about an exp_id that is there: "append" (the default while
    it is open), "fail" (the default when it is closed), or "new": a fresh experiment with
    a number behind its exp_id. `sender` are the rules for finding a sender that nobody
    named (see `messager_store.identity`). With `close_experiment`, the experiment is closed
    when the recorder ends.
    """

    def __init__(
        self,
        log: EventLog,
        exp_id: str,
        *,
        name: str | None = None,
        tags: Iterable[str] = (),
        meta: Mapping[str, Any] | None = None,
        if_exists: IfExists | None = None,
        role: str = "messager",
        patterns: Iterable[str] = (),
        sender: Sequence[str] = DEFAULT_SENDER,
        close_experiment: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self.log = log
        self.exp_id = experiments.checked_exp_id(exp_id)
        self.clock = clock or Clock()
        self.accepted = 0
        """How many events this recorder was handed and has kept."""
        self.dropped = 0
        """How many it had to drop because the store did not take them."""
        self._name, self._tags, self._meta = name, list(tags), dict(meta or {})
        self._if_exists = if_exists
        self._role, self._patterns = role, list(patterns)
        self._identifier = Identifier(sender)
        self._close_experiment = close_experiment
        self._writer: Writer | None = None
        self.failure: StoreError | None = None
        """Why this recorder records nothing more, if so."""
        self._buffer: list[tuple[NewEvent, int]] = []
        self._buffered_bytes = 0
        self._batch: list[NewEvent] = []
        self._drop_since: int | None = None
        self._drop_count = 0
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._flush_now = False
        self._flushes: list[tuple[int, asyncio.Future[None]]] = []
        self._ending = False
        self._give_up = 0.0
        self._uncertain = False  # whether the batch may have been committed without our knowing
        self._last_commit = 0.0
        self._facts: dict[str, Any] = {}
        self._oldest = 0  # when the oldest event of the batch was accepted, monotonic ns

    @property
    def experiment(self) -> Experiment:
        """What is being recorded into; known once the recorder has started."""
        return self._started().experiment

    @property
    def ordinal(self) -> int:
        """This recorder's number within the experiment."""
        return self._started().ordinal

    def __len__(self) -> int:
        """How many events wait for the store."""
        return len(self._buffer) + len(self._batch)

    def __bool__(self) -> bool:
        return True

    async def start(self) -> None:
        """Find or make the experiment and take a place in it. Once for each recorder.

        Raises `ExperimentClosed`, `ExperimentExists`, or what opening the store raises.
        """
        if self._writer is not None:
            raise StoreError("a recorder starts once; make another one to go on")
        facts = await asyncio.to_thread(circumstances)
        of = await self._experiment(facts)
        self.exp_id = of.exp_id
        self._writer = await self.log.register(
            of, role=self._role, patterns=self._patterns, meta=facts, clock=self.clock
        )
        self._last_commit = time.monotonic()
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Commit what waits and say that this recorder has ended. May be called twice.

        What it is handed afterwards is not recorded. Raises `RecorderFenced` where it was ended
        by somebody else, and `StoreUnavailable` where the store did not take the rest within
        `STOP_SECONDS`; the log then shows a recorder that ended uncleanly.
        """
        if self._writer is None or self._task is None:
            return
        if not self._ending:
            self._ending = True
            self._give_up = time.monotonic() + STOP_SECONDS
        self._wake.set()
        await asyncio.wait([self._task])
        if self.failure is not None:
            raise self.failure
        if self._close_experiment:
            with contextlib.suppress(ExperimentBusy):
                await experiments.close(self.log.database, self._writer.experiment)

    async def __aenter__(self) -> Recorder:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    async def before_send(self, records: Sequence[MessageRecord]) -> None:
        """Nothing: in this mode a send never waits for the store."""

    def after(self, record: MessageRecord) -> None:
        """Take one event. Never blocks and never raises; what does not fit is dropped and counted."""
        if self._ending:
            self.dropped += 1
            return
        size = len(record.payload)
        if len(self._buffer) >= BUFFER_EVENTS or self._buffered_bytes + size > BUFFER_BYTES:
            if not self._drop_count:
                log.error("the store %s does not take events: they are being dropped", self.log.where)
            self._lost(1)
            return
        try:
            entry = self._new_event(record)  # now, as the object that was sent may change afterwards
        except Exception:
            log.exception("a %s event cannot be read; it is not recorded", record.kind)
            self._lost(1)
            return
        self._buffer.append((entry, time.monotonic_ns()))
        self._buffered_bytes += size
        self.accepted += 1
        if len(self._buffer) == 1 or len(self._buffer) >= BATCH_EVENTS:
            self._wake.set()

    def connected(self, url: str, clock: Clock, clock_offset_ns: int | None) -> None:
        """Note where the broker is, the anchor of the clock that stamps, and how far the broker's is ahead."""
        self._facts = {
            "broker": url,
            "broker_offset": clock_offset_ns,
            "anchor_wall": clock.wall_ns,
            "anchor_monotonic": clock.monotonic_ns,
        }
        self._wake.set()

    def mark(self, name: str, /, **fields: Any) -> None:
        """Log a step, a tick or a note of this recorder's own. Raises `TypeError` for what JSON cannot hold."""
        self.after(mark_record(self.clock.now(), name, fields))

    async def flush(self) -> None:
        """Return once everything accepted so far is committed.

        Raises `StoreError` where a commit failed meanwhile; what waits is kept and tried again.
        """
        self._started()
        if self.failure is not None:
            raise self.failure
        if not self._waits():
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._flushes.append((self.accepted, done))
        self._flush_now = True
        self._wake.set()
        await done

    def _waits(self) -> bool:
        return bool(self._batch or self._buffer or self._drop_count)

    async def _experiment(self, facts: dict[str, Any]) -> Experiment:
        database = self.log.database
        wanted, numbers = self.exp_id, count(2)
        noted: dict[str, Any] = {key: value for key, value in facts.items() if key in ("git", "command", "host")}
        meta = {**noted, **self._meta}
        while True:
            there = await experiments.by_exp_id(database, wanted)
            if there is None:
                made = await experiments.create(database, wanted, name=self._name, tags=self._tags, meta=meta)
                if made is not None:
                    return made
                continue  # somebody else was faster
            if self._if_exists == "new":
                wanted = f"{self.exp_id}-{next(numbers)}"
                continue
            if there.status != "open":
                raise ExperimentClosed(wanted)
            if self._if_exists == "fail":
                raise ExperimentExists(wanted, "Choose another exp_id, or append to it with --if-exists append.")
            await experiments.describe(database, there, name=self._name, tags=self._tags, meta=self._meta)
            return there

    def _started(self) -> Writer:
        if self._writer is None:
            raise StoreError("the recorder has not been started: use `async with Recorder(...)`, or await start()")
        return self._writer

    async def _run(self) -> None:
        """Commit what waits, again and again; say that we are alive in between. Nobody else commits."""
        pause = FLUSH_SECONDS
        while True:
            if not self._ending:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(HEARTBEAT_SECONDS):
                        await self._wake.wait()
                self._wake.clear()
                if not self._ending and not self._flush_now and len(self._buffer) < BATCH_EVENTS:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(FLUSH_SECONDS):
                            await self._wake.wait()
            self._flush_now = False
            asked = [done for _, done in self._flushes]
            try:
                while self._waits():
                    await self._commit()
                    self._answer()
                await self._touch()
                self._answer()
                pause = FLUSH_SECONDS
                if self._ending:
                    return
            except RecorderFenced as error:
                waiting = len(self)
                log.error("%s; %d events are lost, and nothing more is recorded", error, waiting)
                self.failure, self._ending = error, True
                self.dropped += waiting
                self._batch, self._buffer, self._drop_count = [], [], 0
                _refuse((done for _, done in self._flushes), error)
                return
            except Exception as error:
                _refuse(asked, error)
                if self._ending and time.monotonic() > self._give_up:
                    self.failure = error if isinstance(error, StoreError) else StoreError(str(error))
                    return
                if isinstance(error, StoreError):
                    log.warning("%s; trying again", error)
                else:
                    log.exception("recorder %d cannot commit; trying again", self.ordinal)
                await asyncio.sleep(pause)
                pause = min(pause * 2, 1.0)
                self._wake.set()

    def _answer(self) -> None:
        """Tell those who wait for a flush that what they wait for is committed."""
        settled = self.accepted - len(self)
        for wanted, done in self._flushes:
            if wanted <= settled and not done.done():
                done.set_result(None)
        self._flushes = [(wanted, done) for wanted, done in self._flushes if not done.done()]

    async def _touch(self) -> None:
        """Say that we are alive, or that we end, with whatever else is new."""
        facts, self._facts = self._facts, {}
        if self._ending:
            facts["ended_at"] = time.time_ns()
        if facts or time.monotonic() - self._last_commit >= HEARTBEAT_SECONDS:
            try:
                await self.log.touch(self._started(), **facts)
            except BaseException:
                self._facts = {**facts, **self._facts}
                raise
            self._last_commit = time.monotonic()

    async def _commit(self) -> None:
        """Append the next batch. One whose fate is unknown is looked for before it is sent again."""
        writer = self._started()
        if self._uncertain:
            if await self.log.recover(writer):
                self._batch = []
            self._uncertain = False
        if not self._batch:
            self._take()
        if not self._batch:
            return
        self._uncertain = True
        try:
            await self.log.append(writer, self._batch, unacknowledged_ns=time.monotonic_ns() - self._oldest)
        except BadEvent as error:  # must not stop those behind it
            log.error("%s; it is not recorded", error)
            del self._batch[error.index]
            self._lost(1)
        except StoreUnavailable:
            if not await self.log.recover(writer):
                self._uncertain = False
                raise
            self._batch = []
        else:
            self._batch = []
        self._uncertain = False
        self._last_commit = time.monotonic()

    def _lost(self, number: int) -> None:
        """Count events that are not recorded; the next batch tells of them as a gap."""
        if self._drop_since is None:
            self._drop_since = self.clock.now()
        self._drop_count += number
        self.dropped += number

    def _take(self) -> None:
        """Make the oldest buffered events the next batch, with a gap for those that were dropped."""
        size = taken = 0
        for entry, _ in self._buffer[:BATCH_EVENTS]:
            if taken and size + len(entry.payload) > BATCH_BYTES:
                break
            size += len(entry.payload)
            taken += 1
        self._oldest = self._buffer[0][1] if self._buffer else time.monotonic_ns()
        self._batch = [entry for entry, _ in self._buffer[:taken]]
        del self._buffer[:taken]
        self._buffered_bytes -= size
        if self._drop_count:
            now = self.clock.now()
            meta = {
                "reason": "events could not be written to the store",
                "since": self._drop_since,
                "until": now,
                "count": self._drop_count,
            }
            self._batch.append(NewEvent("gap", now, None, b"", meta=meta))
            self._drop_since, self._drop_count = None, 0

    def _new_event(self, record: MessageRecord) -> NewEvent:
        """The record with the ids that nobody named worked out."""
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
        return NewEvent(
            record.kind,
            record.ts,
            record.channel,
            record.payload,
            from_id,
            to_id,
            flags,
            msg_id,
            record.duration_ns,
            record.receivers,
            None,
            record.meta,
        )


def _refuse(flushes: Iterable[asyncio.Future[None]], error: Exception) -> None:
    """Tell those who wait for a flush that it failed."""
    for done in flushes:
        if not done.done():
            done.set_exception(error)
