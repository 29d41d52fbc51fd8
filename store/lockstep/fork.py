"""Fork: repeat an experiment up to a point, and continue differently.

    parent ──> closed cut ──> recorded messages ──> broker ──> live agents ──> gates
                   │                                               │
                   └─> copies, with their origin ──> fork <── what live agents repeat, with its origin

The live agents repeat the part before the point in lockstep, which rebuilds their memory. Each event of that part is
recorded into the fork once, with its origin: by the Messagers of live agents, or as a copy. Then the gates open, and
what follows is recorded as in any other experiment. The fork is complete by itself.

A fork that was stopped, or killed, keeps what was recorded, which is a closed part of the parent again. Its meta says
`prefix: complete` only if it is, and `info` shows that.
"""

from __future__ import annotations

import asyncio
import fnmatch
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from messager import channels
from messager.brokers import Broker, kind_of
from messager.clock import Clock
from messager.errors import MessagerError
from messager.record import MessageRecord

from ..errors import ReplayFailed, StoreError
from ..experiments import lifecycle
from ..experiments.records import Experiment
from ..log.channel_map import ChannelMap
from ..log.cursor import Point
from ..log.event import Cursor, Event
from ..log.event_log import EventLog
from ..log.lineage import COMPLETE, PREFIX, REPEATING, STOPPED, create_fork
from ..matching.match import Match
from ..replay.clock import ReplayClock
from ..replay.pipeline import Pipeline
from ..replay.report import ReplayReport
from ..replay.settings import ReplaySettings
from .cast import Live
from .copier import Copier
from .cut import PrefixSource, load_prefix
from .live_replay import joined
from .play import Agents, LiveAgents
from .policy import LockstepStopped
from .prefix import Prefix, ProgramsMissing
from .recorder_thread import RealThread, RecorderThread
from .report import ForkReport
from .run import Lockstep
from .schedule import Key, key
from .shared import PATIENCE_S
from .virtual_time import VirtualLoop

if TYPE_CHECKING:
    from messager import Messager

    from ..recording.recorder import Recorder
    from ..replay.flow_control import Message
    from ..replay.pipeline import Due

PRESETS: dict[str, tuple[str, ...]] = {"agentsociety": ("exps:*:user-payback", "exps/*/user-payback")}
"""Channels whose recorded messages are not published, by name. AgentSociety's driver counts paybacks: repeated ones
would end surveys that are live."""

REMEDY = "Leave its channel out with --exclude, so that it is copied and not published"

logger = logging.getLogger("messager_store")


class Fork:
    """A fork of an experiment in this process. An async context manager.

        async with Fork(log, "exp-1", "exp-2", broker, at="mark:phase#2") as fork:
            await fork.play({3: seller, 7: buyer})

    `log` is an open log, or a store, which is opened; in virtual time it must be a store. `at` is the point of the
    parent before which everything is repeated (None: its end). `live` are the agents that are live ("all": everybody);
    those of other processes follow the prefix with MESSAGER_REPLAY. The messages of the others are published up to the
    point. `match` decides whether a live agent repeats a message, and `patience` is the time (s) without progress after
    which the fork stops.

    `start` is for agents with checkpoints: they are given in the state before that point, with everything received
    before it, and only what follows is repeated. `on_cursor` is called with the cursor in the parent up to which the
    prefix is done. Recorded messages on the channels `exclude` (glob patterns), and of a `preset`, are not published.
    The channels of the fork are those of the parent with its own exp_id, and as `mapping` says (see `ChannelMap`).
    `recorder` are arguments of the `Recorder` of the fork. `clock` gives the times of the copies.

    Raises `ExperimentNotFound`, `ExperimentExists`, `BadCursor`, `CastError`, and `StoreError` for a prefix that cannot
    be repeated, before anything is created.
    """

    def __init__(
        self,
        log: EventLog | str,
        parent: str,
        into: str,
        broker: Broker,
        *,
        at: Point = None,
        live: Live = "all",
        start: Point = None,
        on_cursor: Callable[[Cursor], None] | None = None,
        preset: str | None = None,
        exclude: Iterable[str] | str = (),
        mapping: Mapping[str, str] | None = None,
        match: Match | None = None,
        patience: float = PATIENCE_S,
        name: str | None = None,
        tags: Iterable[str] = (),
        meta: Mapping[str, Any] | None = None,
        recorder: Mapping[str, Any] | None = None,
        clock: Clock | None = None,
    ) -> None:
        if preset is not None and preset not in PRESETS:
            raise StoreError(f"unknown preset {preset!r}. The presets are {', '.join(PRESETS)}.")
        if PREFIX in (meta or {}):
            raise StoreError(f"the meta {PREFIX!r} of a fork tells whether its prefix is complete: use another name")
        self._unpublished = [*([exclude] if isinstance(exclude, str) else exclude), *PRESETS.get(preset or "", ())]
        self._store = log
        self._parent, self._into = parent, into
        self._at, self._start = at, start
        self._broker = broker
        self._live, self._match, self._patience = live, match, patience
        self._on_cursor = on_cursor or (lambda cursor: None)
        self._map = ChannelMap(mapping, into)
        self._described = {"name": name, "tags": list(tags), "meta": {**(meta or {}), PREFIX: REPEATING}}
        self._recorder_options = dict(recorder or {})
        self._given_clock = clock
        self._told: Cursor | None = None
        self._repeats = False  # True while the prefix is repeated
        self._stack = AsyncExitStack()
        self._thread: RealThread | None = None
        self._log: EventLog
        self._origins = _Origins()
        self._messagers: list[Messager] = []
        self._recorder: Recorder
        self.clock: Clock
        """Clock of the copies. Give it to the Messagers that `attach` gets, so that all times are of one clock."""
        self.report = ForkReport(exp_id=into, parent=parent, cursor="")
        self.lockstep: Lockstep
        self.experiment: Experiment
        """The fork."""

    async def __aenter__(self) -> Fork:
        loop = asyncio.get_running_loop()
        if isinstance(loop, VirtualLoop):
            self._thread = await self._stack.enter_async_context(RealThread("fork"))
        try:
            await self._prepare()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *exc: Any) -> None:
        self._detach()
        await self._stack.aclose()

    async def attach(self, messager: Messager, agents: Iterable[Any] | int | str | None = None) -> None:
        """Let a Messager of this process play these agents, and record it into the fork. Call it before its first
        message.

        Without `agents`, there must be only one part that no Messager plays. Raises `StoreError`.
        """
        self.lockstep.attach(messager, agents)
        self._record(messager)

    async def run(self) -> ForkReport:
        """Repeat the prefix. When this returns, it is complete, and all gates of this process are open: what live
        agents do is recorded as their own.

        Raises `LockstepStopped` (`PrefixDiverged`) if a live agent does not repeat the prefix, `LiveAgentFailed`, and
        `ReplayFailed` if the broker is unreachable. The fork then keeps the part that was repeated.
        """
        try:
            await self._broker.connect()
            await self._repeat()
        except BaseException as error:
            self._end(error)
            if isinstance(error, ProgramsMissing):
                strangers = await self._in_store(self._strangers())
                error = ProgramsMissing(error.parts, error.patience, error.parent, strangers)
            await self._stopped(
                "interrupted" if isinstance(error, asyncio.CancelledError) else str(error) or repr(error)
            )
            if isinstance(error, MessagerError):
                raise ReplayFailed(f"{error}; {self.report.published} messages were published") from error
            raise error
        return self.report

    async def play(
        self,
        agents: Agents,
        *,
        seconds: float | None = None,
        connected: Callable[[Messager], None] = lambda messager: None,
    ) -> ForkReport:
        """Repeat the prefix with live agents in this process, and let them go on until all of them have returned.

        `agents` are async functions of a Messager, by the id of their agent, or by a tuple of ids. `connected` is
        called with each Messager before its function. After `seconds` behind the prefix, the functions are cancelled.
        Raises as `run` does, and the first error of a function.
        """

        def prepare(messager: Messager) -> None:
            self._record(messager)
            connected(messager)

        await self._broker.connect()
        live = LiveAgents(self.lockstep, self._broker, self._into, agents, clock=self.clock, connected=prepare)
        async with live:
            await self.run()
            await live.returned(seconds)
        return self.report

    @property
    def done(self) -> int:
        """Number of events of the prefix up to which everything is done."""
        return self._copier.done

    def _record(self, messager: Messager) -> None:
        messager.add_log_hook(self._hook)
        messager.add_log_hook(self._origins)
        self._messagers.append(messager)

    async def _prepare(self) -> None:
        """Load the prefix, create the fork, and start its recorder."""
        log = self._log = await self._opened()
        source: PrefixSource = await self._in_store(
            load_prefix(log, self._parent, self._at, self._start, self._map, self._broker)
        )
        self._prefix = Prefix(
            source.cut.keys, begun=source.begun, released_on=self._is_published, progress=self.progress
        )
        self.lockstep = Lockstep(
            source.recording,
            kind_of(self._broker.url),
            self._map,
            self._prefix,
            live=self._live,
            match=self._match,
            patience=self._patience,
            report=self.report,
        )
        self._plan = source.plan
        self._pipeline = Pipeline(
            *(self._broker, ReplayReport(self._into, None), ReplaySettings(), ReplayClock()),
            unlimited=True,
            remedy=REMEDY,
        )
        report = self.report
        report.parent, report.cursor = source.parent.exp_id, str(source.cut.cursor)
        report.events, report.excluded = len(source.cut.keys), source.cut.excluded
        self.experiment = await self._in_store(
            create_fork(log.database, source.parent, self._into, source.cut.cursor, **self._described)  # type: ignore[arg-type]
        )
        await self._begin_recording(log)

    async def _opened(self) -> EventLog:
        if isinstance(self._store, EventLog):
            if self._thread is not None:
                raise StoreError("an open log cannot be used in virtual time: give the store, by file name or URL")
            return self._store
        store = self._store

        async def opened() -> EventLog:
            return await EventLog.open(store, create=False)

        log: EventLog = await self._in_store(opened())
        self._stack.push_async_callback(lambda: self._in_store(log.close()))
        return log

    async def _in_store(self, work: Any) -> Any:
        """Await work with the store, in virtual time in the thread with a real event loop."""
        return await (work if self._thread is None else self._thread.run(work))

    async def _begin_recording(self, log: EventLog) -> None:
        from ..recording.recorder import Recorder

        if self._thread is None:
            self.clock = self._given_clock or Clock()
            recorder = Recorder(log, self._into, clock=self.clock, **self._recorder_options)
            await self._stack.enter_async_context(recorder)
            self._hook: Recorder | RecorderThread = recorder
            self._call: Callable[[Callable[[], None]], None] = lambda function: function()
        else:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, VirtualLoop)
            self.clock = loop.clock
            recorder = Recorder(log, self._into, clock=self.clock, **self._recorder_options)
            threaded = await self._stack.enter_async_context(RecorderThread(recorder, self._thread))
            self._hook = threaded
            self._call = threaded.call
        self._recorder = recorder
        self._copier = Copier(
            self.lockstep.recording,
            self._prefix.repeats,
            frozenset(part.key for part in self.lockstep.cast.parts),
            self._prefix.is_settled,
            lambda channel: channels.decode(self._map(channel)),
            recorder,
            self.clock,
            self._call,
        )

    def _is_published(self, channel: str) -> bool:
        return not any(fnmatch.fnmatchcase(channel, pattern) for pattern in self._unpublished)

    async def _repeat(self) -> None:
        """Publish the recorded messages between those of live agents, and copy what nobody repeats."""
        lockstep, copier, pipeline = self.lockstep, self._copier, self._pipeline
        self._repeats = True
        self.progress()
        await pipeline.flow.begin()
        pipeline.guard.refuse_large(
            one for one in lockstep.recording.messages if key(one) not in lockstep.cast.expected
        )
        async with joined(lockstep, self._broker, self._into, failed=self._end):
            await pipeline.run(self, self._plan)
        self._repeats = False
        uuids = {uuid: ordinal for ordinal, uuid in lockstep.recording.uuids.items()}
        repeated = [(uuids[uuid], seq) for uuid, seq in self._origins.found if uuid in uuids]
        self.report.left_out = copier.finish([*repeated, *self._of_others()])
        self._count()
        await self._hook.flush()
        if copier.dropped:
            raise StoreError(
                f"{copier.dropped} events of the prefix could not be recorded: the store and spool are full"
            )
        await self._note_prefix(COMPLETE)
        self.report.complete = True

    def _end(self, error: BaseException) -> None:
        """Stop the gates of this process, and tell the programs of others, if they can still be told."""
        if isinstance(error, StoreError | MessagerError):
            self.lockstep.stop(error)
        else:
            self.lockstep.stop(LockstepStopped("the fork was cancelled"))

    async def _strangers(self) -> list[str]:
        """Return the processes that recorded messages into the fork and have repeated nothing of its prefix."""
        free, repeating = set(), {self._recorder.ordinal}
        async for entry in self._log.read(self.experiment):
            if entry.origin is not None:
                repeating.add(entry.recorder)
            elif entry.kind == "sent":
                free.add(entry.recorder)
        rows = [row for row in await self._log.recorders(self.experiment) if row.ordinal in free - repeating]
        return list(dict.fromkeys(f"pid {row.pid} on {row.host}" for row in rows))

    def progress(self) -> None:
        """Copy what can be copied now, and tell how far the prefix is done."""
        if not self._repeats:
            return
        self._copier.advance()
        cursor = self._copier.cursor
        if cursor is not None and cursor != self._told:
            self._told = cursor
            self._on_cursor(cursor)

    def _of_others(self) -> set[Key]:
        """Return what live agents of other processes repeat, and record themselves."""
        found: set[Key] = set()
        for part in self.lockstep.cast.parts:
            if part.key not in self.lockstep.gates:
                found.update(key(one.event) for one in part.acts)
                found.update(one.origin for one in part.receptions)
                found.update(map(key, part.marks))
        return found

    # Source of the pipeline

    def batches(self) -> AsyncGenerator[Due, None]:
        """Yield the recorded messages of the prefix when they are to be published."""
        return self.lockstep.batches()

    def publishing(self, batch: list[Event], wire: list[Message]) -> None:
        """Copy recorded messages that are about to be published."""
        self._copier.release(batch)
        self.lockstep.publishing(batch, wire)

    def published(self, batch: list[Event], dues: list[int] | None) -> None:
        """Count recorded messages that were published. Raises `ReplayFailed` if the broker refused one."""
        done = self._pipeline.report
        self.report.published = done.published
        if done.failures:
            raise ReplayFailed(f"a recorded message could not be published: {done.failures[0].reason}")
        self.progress()

    def _count(self) -> None:
        self.report.copied, self.report.repeated = self._copier.copied, len(self._origins.found)

    async def _stopped(self, reason: str) -> None:
        """Note in the fork that its prefix is not complete. What was recorded stays."""
        self.report.stopped = reason
        self._count()
        self._detach()
        await self._note_prefix(STOPPED + reason.removeprefix("the fork stopped: "))

    async def _note_prefix(self, state: str) -> None:
        """Store the state of the prefix in the meta of the fork."""
        try:
            await self._in_store(lifecycle.set_meta(self._log.database, self.experiment, PREFIX, state))
        except StoreError as error:
            logger.warning("the prefix of %s is %s, which could not be stored: %s", self._into, state, error)

    def _detach(self) -> None:
        for messager in self._messagers:
            messager.remove_log_hook(self._hook)
            messager.remove_log_hook(self._origins)


class _Origins:
    """Log hook that collects the origins of what live agents repeat."""

    def __init__(self) -> None:
        self.found: set[tuple[str, int]] = set()

    async def before_send(self, records: Sequence[MessageRecord]) -> None:
        """Do nothing."""

    def after(self, record: MessageRecord) -> None:
        if record.origin is not None:
            self.found.add(record.origin)
