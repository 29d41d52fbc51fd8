"""Recorder: a log hook that records messages as events.

In the mode `buffered`, sends never wait for the store. In `strict`, a sent message is committed, or in the synced
spool, before it is published. The committer writes the events to the store, or to the spool if it is unreachable.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from messager.clock import Clock
from messager.errors import MessagesRefused
from messager.record import CLOSED, SUBSCRIBED, MessageRecord, mark_record
from messager.time_limit import time_limit

from ..errors import ExperimentBusy, StoreError, StoreUnavailable
from ..experiments import lifecycle, validation
from ..experiments.provenance import circumstances, this_process
from ..experiments.records import Experiment
from ..log.event import Fields, NewEvent
from ..log.event_log import EventLog
from ..log.writer import Writer, new_uuid
from .buffer import Buffer
from .closing import close
from .committer import STOP_SECONDS, Committer
from .derived_ids import DEFAULT_SENDER
from .draining import drain_left
from .event_builder import EventBuilder, Redact, outcome_only
from .registration import Registration, register
from .spool import ENDING, SPOOL_BYTES, Spool
from .spools import spool_folder

IfExists = Literal["append", "fail", "new", "next"]
Durability = Literal["buffered", "strict"]

log = logging.getLogger("messager_store")


class Recorder:
    """One writer of one experiment. An async context manager and a `LogHook`.

        async with EventLog.open("runs.db") as log, Recorder(log, exp_id) as recorder:
            messager.add_log_hook(recorder)

    `durability` is "buffered" or "strict" (see above). `if_exists` applies if the exp_id exists:
    "append" (the default while it is open), "fail" (the default if it is closed), "new": a new experiment with a
    number behind its exp_id; "next": the first of exp_id, exp_id-2, exp_id-3 ... that is open or does not exist.
    `sender` are the rules for deriving a sender that is missing on the wire (see
    `messager_store.recording.derived_ids`). `redact` is called with every event before it is stored, and returns the
    event to store, or None to drop it. `spool` is the folder for events that wait for the store (default:
    `MESSAGER_SPOOL`, else one beside the store), and `spool_bytes` the limit of the file of this recorder there. With
    `close_experiment`, the experiment is closed when the recorder ends.
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
            raise StoreError(f"unknown durability {durability!r}. Use buffered or strict.")
        self.log = log
        self.clock = clock or Clock()
        self._events = EventBuilder(sender, redact)
        self._circumstances_noted = False
        self._close_experiment = close_experiment
        uuid = new_uuid()
        path = spool_folder(log.database.dialect, spool) / f"{uuid}{ENDING}"
        self._registration = Registration(
            uuid=uuid,
            exp_id=validation.checked_exp_id(exp_id),
            if_exists=if_exists,
            name=name,
            tags=list(tags),
            meta=dict(meta or {}),
            role=role,
            patterns=list(patterns),
            durability=durability,
            spool=str(path),
            facts={} if tuple(sender) == DEFAULT_SENDER else {"sender": list(sender)},
            row={},
        )
        facts = {"recorder": uuid, "exp_id": exp_id, "store": log.location}
        self._buffer = Buffer(Spool(path, facts, spool_bytes), self.clock, self._watermark, self._inspect)
        self._experiment: Experiment | None = None
        self._committer: Committer | None = None
        self._in_flight: dict[int, tuple[MessageRecord, int]] = {}  # last record of each batch of sends, and its start
        self._landed: asyncio.Event | None = None  # set when the outcome of a batch is known, if `stop` waits for it
        self._intents: dict[int, tuple[MessageRecord, int, int]] = {}  # position and ts of the intents in flight
        self._stamps = self.clock
        self._subscriptions: dict[str | None, list[Fields]] = {}  # marks of each Messager, for a successor
        self._unrepeated: list[Fields] = []  # those that a successor has not logged yet
        self._limit: Callable[[], int] | None = None
        self._describing: asyncio.Task[None] | None = None

    @property
    def uuid(self) -> str:
        """UUID of this recorder in its row and its spool; a successor has another one."""
        return self._registration.uuid

    @property
    def exp_id(self) -> str:
        """Exp_id of the recorded experiment; the requested one before the registration."""
        return str(self._buffer.spool.facts["exp_id"])

    @property
    def records_into(self) -> tuple[str, str]:
        """Location of the store, and the exp_id."""
        return self.log.location, self.exp_id

    @property
    def durability(self) -> str:
        """`buffered` or `strict`."""
        return self._registration.durability

    @property
    def experiment(self) -> Experiment:
        """Recorded experiment; known once the recorder is registered."""
        if self._experiment is None:
            self._started()
            raise StoreUnavailable(self.log.location, f"a recorder of {self.exp_id} is not registered yet")
        return self._experiment

    @property
    def ordinal(self) -> int:
        """Number of this recorder within the experiment; known when `experiment` is."""
        return self._started().writer.ordinal

    @property
    def accepted(self) -> int:
        """Number of events that were accepted and not dropped."""
        return self._buffer.accepted

    @property
    def acknowledged(self) -> int:
        """Number of its events, from the first, that are in the store."""
        return self._buffer.acknowledged

    @property
    def spooled(self) -> int:
        """Number of events that are in the spool and not in the store."""
        return self._buffer.spool_only

    @property
    def dropped(self) -> int:
        """Number of events that are in the log only as the count of a gap, or not at all."""
        return self._buffer.lost

    @property
    def failure(self) -> StoreError | None:
        """Error that ended the recording, or None."""
        return None if self._committer is None else self._committer.failure

    @property
    def spool_path(self) -> Path:
        """Path of the spool, which exists only while it holds events."""
        return self._buffer.spool.path

    def __len__(self) -> int:
        """Number of events that wait for the store."""
        return self._buffer.waiting

    def __bool__(self) -> bool:
        return True

    async def start(self) -> None:
        """Find or create the experiment and register in it. May be called once.

        Spools of earlier recorders of the experiment are drained first. Raises `ExperimentClosed`,
        `ExperimentExists`, or the errors of opening the store.
        """
        self._registration.check()
        self._prepare()
        await self._note_circumstances()
        self._committer = Committer(self.log, self._buffer, await self.register(), self.register)
        self._inspect()

    def begin(self, register: Callable[[], Awaitable[Writer]]) -> None:
        """Accept events at once, and register as soon as `register`, which awaits `Recorder.register`, succeeds.

        After `StoreUnavailable` it is called again, and events go to the spool meanwhile; any other `StoreError` ends
        the recorder. If the experiment is closed, the recorder continues as a successor, which `register` registers.
        Call it in the event loop in which the recorder will run.
        """
        self._prepare()

        async def described() -> Writer:
            await self._note_circumstances()
            return await register()

        self._committer = Committer(self.log, self._buffer, None, described, self._succeed)
        self._inspect()

    async def register(self) -> Writer:
        """Find or create the experiment, in an open store, and register in it. Raises as `start` does."""
        given = self._registration
        meta = given.meta
        writer = await register(self.log, given, lambda exp_id: drain_left(self.log, self.spool_path, exp_id))
        self._experiment = writer.experiment
        self._buffer.spool.facts["exp_id"] = writer.experiment.exp_id
        self._buffer.spool.registration = None
        if given.meta is not meta:
            self._describe()
        return writer

    async def stop(self) -> None:
        """Commit the waiting events and end this recorder. May be called twice.

        Events that the store does not accept within `STOP_SECONDS` stay in the spool for `messager drain`, with a
        warning. Later events are not recorded. Raises `RecorderFenced` if another process ended the recorder, and
        `StoreUnavailable` if the spool does not accept the rest either; the recorder then counts as ended uncleanly.
        """
        committer = self._committer
        if committer is None:
            return
        if not committer.ending:
            with contextlib.suppress(TimeoutError):
                async with time_limit(STOP_SECONDS):
                    await self._until_none_in_flight()  # so that the outcomes are recorded too
        await asyncio.sleep(0)  # start a description that was set just now
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

    async def before_send(self, records: Sequence[MessageRecord]) -> None:
        """Return once these messages may be published.

        Buffered: at once, or after at most `HOLD_SECONDS` if the buffer is full. Strict: once each is committed or
        spooled as an intent. Raises `StoreError` if that fails; the messages must not be published then. Raises
        `MessagesRefused` for those on which `redact` raised, once the others are durable.
        """
        if records:
            self._in_flight[id(records[-1])] = (records[-1], self._stamps.now())
        if self.durability == "buffered":
            if self._buffer.full and self._committer is not None:
                await self._committer.wait_for_capacity()
            return
        committer = self._started()
        if committer.failure is not None:
            raise committer.failure
        if committer.ending:
            raise StoreError(f"not sent: the recorder of {self.exp_id} has ended, and it is strict")
        if self._buffer.full:
            await committer.wait_for_capacity()
        last, now = 0, self._stamps.now()
        refused: dict[int, Exception] = {}
        for index, record in enumerate(records):
            try:
                entry = self._events.build(record, now)
            except Exception as error:  # its text may contain data that `redact` removes
                name = type(error).__name__
                refused[index] = StoreError(f"not sent: `redact` raised {name}, and the recorder is strict")
                refused[index].__cause__ = error
                continue
            if entry is None:
                continue  # dropped by `redact`
            position = self._accept(entry)
            if position is None:
                raise StoreUnavailable(self.log.location, "not sent: store and spool accept no more events")
            self._intents[id(record)] = (record, last := position, now)
        await committer.wait_until_durable(last)
        if refused:
            raise MessagesRefused(refused)

    def after(self, record: MessageRecord) -> None:
        """Accept one event. Never blocks and never raises; events above the capacity are dropped and counted.

        May be called from any thread; a `redact` is then called in that thread.
        """
        ts, cause = record.ts, None
        landed = self._in_flight and self._in_flight.pop(id(record), None) is not None
        if landed and self._landed is not None and self._committer is not None:
            self._committer.in_loop(self._landed.set)
        if self._intents and (intent := self._intents.pop(id(record), None)) is not None:
            if record.kind == "sent":
                return  # logged before it was sent
            cause, ts = (0, intent[1]), max(ts, intent[2])  # not earlier than the event that it retracts
        places = record.places
        if places is not None and self in places:
            cause = (0, places[self])
        if not self._buffer.accepting:
            if record.mark != CLOSED:  # a Messager may be closed after its recorder
                self._buffer.drop(1)
            return
        try:
            entry = self._events.build(record, ts, cause)  # now, as the sent object may change later
        except Exception as error:
            if record.kind != "failed":
                log.exception("a %s event cannot be read; the event is not recorded", record.kind)
                self._buffer.drop(1)
                return
            log.exception("a failed event cannot be read; only its outcome is recorded")
            entry = outcome_only(record, ts, cause, error)
        if entry is not None:
            if record.mark == SUBSCRIBED and record.meta is not None:
                known = self._subscriptions.setdefault(record.messager, [])
                if not record.meta["fields"].get("added"):
                    known.clear()
                known.append(entry)
            elif record.mark == CLOSED:
                self._subscriptions.pop(record.messager, None)
                if self._unrepeated:
                    return  # a successor without events, which has no experiment
            position = self._accept(entry)
            if places is not None and position is not None:
                places.setdefault(self, position)

    def copy(self, entry: NewEvent) -> int | None:
        """Accept an event as it is, such as the copy of one of another experiment.

        Returns its position among the events of this recorder, from 1, or None if it was dropped, as `after` drops
        events. A cause is `(0, position)` of an earlier event of this recorder. May be called from any thread.
        """
        return self._accept(entry)

    def observing(self, kinds: Collection[str]) -> None:
        """Note in the row of this recorder which kinds of messages it is told of, if that is not all of them."""
        if not {"sent", "received"} <= set(kinds):
            self.note(observes=sorted(kinds))

    def connected(self, url: str | None, clock: Clock, clock_offset_ns: int | None) -> None:
        """Store the URL of the broker, the anchor of the clock of the records, and the offset of the broker's clock."""
        facts = {
            "broker": url,
            "broker_offset": clock_offset_ns,
            "anchor_wall": clock.wall_ns,
            "anchor_monotonic": clock.monotonic_ns,
        }
        self._stamps = clock
        self._registration.row = {**self._registration.row, **facts}
        self._keep_registration()
        if self._committer is not None:
            self._committer.note(facts)

    def described(self, name: str | None, meta: Mapping[str, Any]) -> None:
        """Add a name and meta to the experiment. An existing name and existing keys are kept."""
        given = self._registration
        given.name, given.meta = given.name or name, {**meta, **given.meta}
        self._keep_registration()
        if self._experiment is not None and self._committer is not None and not self._committer.ending:
            self._committer.in_loop(self._describe)  # the caller may be in another thread

    def limit_watermark(self, limit: Callable[[], int]) -> None:
        """Have this recorder be complete only until the time (ns UTC) that `limit` returns: events may come late.

        What is not complete when the recorder is killed lies in the gap of its repair.
        """
        self._limit = limit

    def note(self, **facts: Any) -> None:
        """Add facts to the meta of this recorder. Raises `StoreError` if they are too large."""
        known = {**self._registration.facts, **facts}
        meta = validation.meta_text(known)
        self._registration.facts = known
        self._keep_registration()
        if self._committer is not None:
            self._committer.note({"meta": meta})

    def save(self) -> None:
        """Write the waiting events to the spool, and note there that this recorder has ended.

        Synchronous form of `stop`, for a process whose event loop has ended. Raises `SpoolFull`.
        """
        committer = self._committer
        if committer is not None and not committer.ending:
            committer.abandon()
            if committer.registered or self._buffer.waiting:
                try:
                    self._buffer.save(time.time_ns())
                finally:
                    self._buffer.lose(len(self._buffer))

    def mark(self, name: str, /, **fields: Any) -> None:
        """Log a mark, such as a step, a tick or a note. Raises `TypeError` for fields without a JSON form."""
        self.after(mark_record(self.clock.now(), name, fields))

    async def flush(self) -> None:
        """Return once all accepted events are in the store.

        Raises `StoreError` if a commit fails meanwhile; the events are kept and committed later.
        """
        await self._started().flush()

    async def wait_for_capacity(self, most: int) -> None:
        """Return once at most `most` events wait in memory. Blocks for at most `HOLD_SECONDS` per outage."""
        if self._committer is not None and (len(self._buffer) > most or self._buffer.full):
            await self._committer.wait_for_capacity(most)

    async def _until_none_in_flight(self) -> None:
        """Return once no message of `before_send` is in flight."""
        self._landed = asyncio.Event()
        while self._in_flight:
            self._landed.clear()
            await self._landed.wait()

    async def _succeed(self) -> None:
        """Become a new recorder, which takes the unacknowledged events. Raises `SpoolFull`."""
        self._registration.uuid = new_uuid()
        self._experiment = None
        await self._buffer.succeed(self.uuid, self._registration.as_dict())
        self._keep_registration()
        self._unrepeated = [mark for marks in list(self._subscriptions.values()) for mark in marks]
        if self._buffer.waiting:
            self._repeat_subscriptions()

    def _repeat_subscriptions(self) -> None:
        """Log the subscriptions again, in the experiment of a successor. Its first event, if any, creates that."""
        with contextlib.suppress(IndexError):  # several threads may repeat them together
            while True:
                mark = NewEvent._make(self._unrepeated.pop(0))
                self._buffer.add(mark._replace(ts=self._stamps.now()))

    def _prepare(self) -> None:
        if self._committer is not None:
            raise StoreError("a recorder starts once. Create another one to continue.")
        here = this_process()
        self._registration.row = {
            "host": here.host,
            "pid": here.pid,
            "boot_id": here.boot_id,
            "started_at": time.time_ns(),
            "anchor_wall": self.clock.wall_ns,
            "anchor_monotonic": self.clock.monotonic_ns,
            **self._registration.row,
        }
        self._keep_registration()

    async def _note_circumstances(self) -> None:
        if not self._circumstances_noted:
            self._circumstances_noted = True
            self._registration.facts = await asyncio.to_thread(circumstances) | self._registration.facts
            self._keep_registration()

    def _keep_registration(self) -> None:
        """Keep the registration in the spool until the recorder is registered, for a drain."""
        if self._experiment is None:
            self._buffer.spool.registration = self._registration.as_dict()

    def _describe(self) -> None:
        self._describing = asyncio.get_running_loop().create_task(self._put_description(self._describing))

    async def _put_description(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        given = self._registration
        try:
            await lifecycle.describe(
                self.log.database, self.experiment, name=given.name, tags=given.tags, meta=given.meta
            )
        except StoreError as error:
            log.warning("the description of %s is not stored: %s", self.exp_id, error)

    def _watermark(self) -> int:
        """Low watermark (ns UTC): no event that is still to be reported is older."""
        limit = self._stamps.now() if self._limit is None else min(self._limit(), self._stamps.now())
        return min([limit, *(began for _, began in list(self._in_flight.values()))])

    def _accept(self, entry: Fields) -> int | None:
        """Put an event into the buffer; return its position, or None if it was dropped."""
        if self._unrepeated:
            self._repeat_subscriptions()
        position = self._buffer.add(entry)
        if position is None and self._buffer.lost == 1 and self._buffer.accepting:
            log.error("the store %s and the spool accept no events: they are being dropped", self.log.location)
        return position

    def _inspect(self) -> None:
        """Wake the committer, if there is one: once there is, for what came before."""
        if self._committer is not None:
            self._committer.inspect()

    def _started(self) -> Committer:
        if self._committer is None:
            raise StoreError("the recorder has not been started. Use `async with Recorder(...)`, or await start().")
        return self._committer
