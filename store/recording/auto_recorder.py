"""Recording without a line of code: with `MESSAGER_STORE` set, every `Messager` of a process records itself.

`messager` finds `begin` as an entry point of the group `messager.hooks`, and knows nothing else of
it. Settings are in the environment: `MESSAGER_STORE`, `MESSAGER_DURABILITY` (buffered or strict) and
`MESSAGER_SPOOL`. Agents never see an error: what is wrong is told in a line on standard error, and
they go on.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar, cast

from messager.clock import Clock
from messager.hooks import LogHook, say
from messager.record import MessageRecord

from ..db.database import Database
from ..db.databases import in_memory
from ..errors import StoreError, StoreUnavailable
from ..log.event_log import EventLog
from ..log.writer import Writer
from .recorder import Durability, Recorder

START_SECONDS = 5.0
"""How long connecting a messager waits for the store; then it goes on, and what happens goes to the spool."""
EXIT_SECONDS = 10.0

T = TypeVar("T")

_live: set[AutoRecorder] = set()
_announced: set[str] = set()

log = logging.getLogger("messager_store")


class _Unheard(logging.Handler):
    """Says what a program without handlers of its own would get to read without our name before it."""

    def emit(self, record: logging.LogRecord) -> None:
        if not log.root.handlers and log.handlers == [self]:
            say(f"{record.getMessage()}: {record.exc_info[1]!r}" if record.exc_info else record.getMessage())


_unheard = _Unheard(logging.WARNING)


async def begin(exp_id: str, hooks: Sequence[LogHook]) -> AutoRecorder | None:
    """The hook that records a messager of `exp_id`; None where one of its hooks is a `Recorder` already.

    It records into the experiment of that exp_id. Where that is closed, into the first of `exp_id-2`,
    `exp_id-3` ... that is open or not there, so that all processes of a society meet in one. A store that
    cannot be reached is tried again, and events go to the spool meanwhile; an experiment that cannot be recorded
    is left alone.
    """
    if any(isinstance(hook, Recorder) for hook in hooks):
        return None
    if not isinstance(exp_id, str):
        say(f"{exp_id!r} is not recorded: an exp_id is a str, and this is of type {type(exp_id).__name__}")
        return None
    if not exp_id:
        say("a Messager that has no exp_id is not recorded: give it one with `exp_id=`, or over MQTT with MESSAGER_EXP")
        return None
    store = os.environ["MESSAGER_STORE"]
    if in_memory(store):
        say(
            f"{exp_id} is not recorded: MESSAGER_STORE names a store in memory, which is gone when the program ends: "
            "name a file, or postgresql://..."
        )
        return None
    durability = os.environ.get("MESSAGER_DURABILITY") or "buffered"
    try:
        events = EventLog(Database(store))
        recorder = Recorder(events, exp_id, durability=cast(Durability, durability), if_exists="next")
    except StoreError as error:
        say(f"{exp_id} is not recorded: {error}")
        return None
    log.addHandler(_unheard)
    made = AutoRecorder(recorder)
    await made.ready()
    return made


class AutoRecorder:
    """A recorder that starts, retries and ends by itself. A `LogHook`; belongs to the running event loop."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._taking: Recorder | None = recorder  # None once nothing more is to be recorded
        self._exp_id = recorder.exp_id
        self._pid = os.getpid()
        self._loop = asyncio.get_running_loop()
        self._tried = asyncio.Event()  # whether the store takes us in is known
        self._told = False  # that it is out of reach
        self._opened = False
        self._ending = asyncio.Event()
        self._broken_promise = False
        self._cut_off = False  # cancelled, and nobody asked for the end
        self._missed = 0  # what happened afterwards
        self._leaving: asyncio.Task[None] | None = None  # as the program has a recorder of its own now
        recorder.begin(self._join)
        self._task = self._loop.create_task(self._live_through())
        _live.add(self)

    async def ready(self) -> None:
        """Return once it records, or cannot, or its store is out of reach, or `START_SECONDS` have passed."""
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(START_SECONDS):
                    await self._tried.wait()
        except asyncio.CancelledError:
            self._ending.set()  # the messager will not know of us
            raise

    async def stop(self) -> None:
        """Return once everything is in the store, or in the spool. Never raises."""
        if asyncio.get_running_loop() is not self._loop:
            if self._loop.is_running():  # in another thread
                stopping = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self.stop(), self._loop))
                while not stopping.done() and self._loop.is_running():
                    await asyncio.wait([stopping], timeout=1)
            else:
                await asyncio.to_thread(self.save_at_exit)
            return
        if not self._task.done():
            self._ending.set()
            await asyncio.wait([self._task])
        missed, self._missed = self._missed, 0
        if missed:
            say(f"{missed} events of {self._recorder.exp_id} are lost: they happened after its tasks were cancelled")

    async def before_send(self, records: Sequence[MessageRecord]) -> None:
        """As `Recorder.before_send`; but a promise that cannot be kept is told of, and nothing is raised."""
        taking = self._taking
        if taking is None:
            return
        try:
            await taking.before_send(records)
        except Exception as error:
            if not self._broken_promise:
                self._broken_promise = True
                say(
                    f"{taking.durability} cannot be kept, and messages go out all the same: {str(error) or repr(error)}"
                )

    def after(self, record: MessageRecord) -> None:
        if self._taking is not None:
            self._taking.after(record)
        elif self._cut_off:
            self._missed += 1
            if self._missed == 1:
                say(f"{self._exp_id} is not recorded any more: the tasks of its event loop were cancelled")

    def connected(self, url: str, clock: Clock, clock_offset_ns: int | None) -> None:
        self._recorder.connected(url, clock, clock_offset_ns)

    def described(self, name: str | None, meta: Mapping[str, Any]) -> None:
        self._recorder.described(name, meta)

    def joined(self, hook: LogHook) -> bool:
        """Make way for a recorder of the program's own: nothing is to be recorded twice.

        What becomes of messages that we were asked about is still told to us, and not to that one, so we end
        once it was, however long that takes.
        """
        if not isinstance(hook, Recorder):
            return False
        if self._taking is not None and self._leaving is None:
            if self._loop.is_closed():
                self.save()
            else:
                self._leaving = self._loop.create_task(self._leave())
            say(f"{self._exp_id} is recorded by a Recorder of the program's own from now on, not by MESSAGER_STORE")
        return True

    async def _leave(self) -> None:
        await self._recorder.idle()
        self._ending.set()

    async def _live_through(self) -> None:
        try:
            await self._ending.wait()
        except asyncio.CancelledError:  # the event loop ends, and nobody called close(); or it does not end
            self._cut_off = not self._ending.is_set()
        await self._end()

    async def _join(self) -> Writer:
        """Open the store and take a place in an experiment; what keeps us from it is told."""
        recorder = self._recorder
        try:
            writer = await self._in_time(self._open())
        except StoreUnavailable as error:
            if not self._told and not self._ending.is_set():
                say(f"{error}; {self._exp_id} waits in {recorder.spool_path.parent}, and it is tried again")
            self._told = True
            await self._close_log()
            raise
        except Exception as error:
            say(f"{self._exp_id} is not recorded: {error}")
            self._taking = None
            self._ending.set()
            raise StoreError(f"{error}") from error
        finally:
            self._tried.set()
        of = f"{recorder.exp_id} into {recorder.log.location}"
        if of not in _announced or self._told:
            _announced.add(of)
            say(f"recording {of} (MESSAGER_STORE)")
        return writer

    async def _open(self) -> Writer:
        if not self._opened:
            await self._recorder.log.database.open()
            self._opened = True
        return await self._recorder.join()

    async def _in_time(self, work: Coroutine[Any, Any, T]) -> T:
        """Await it; once the end is asked for, for `START_SECONDS` more: a server may take us and never answer."""
        task, ending = self._loop.create_task(work), self._loop.create_task(self._ending.wait())
        try:
            await asyncio.wait([task, ending], return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait([task], timeout=START_SECONDS)
        finally:
            ending.cancel()
            if not task.done():
                task.cancel()
                await asyncio.wait([task], timeout=START_SECONDS)
        if task.cancelled() or not task.done():
            raise StoreUnavailable(self._recorder.log.location, "it does not answer")
        return task.result()

    async def _close_log(self) -> None:
        self._opened = False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START_SECONDS):
                await self._recorder.log.close()

    async def _end(self) -> None:
        recorder = self._recorder
        if self._leaving is not None:
            self._leaving.cancel()
        try:
            await recorder.stop()
        except Exception as error:
            say(f"{recorder.exp_id}: {error}")
        self._taking = None
        _live.discard(self)
        await self._close_log()
        self._tell_what_is_left()

    def save(self) -> None:
        """What `stop` does, where nothing can be awaited any more: what waits goes to the spool."""
        _live.discard(self)
        taking, self._taking = self._taking, None
        if taking is not None:
            try:
                taking.save()
            except StoreError as error:
                say(f"{taking.exp_id}: {error}")
            self._tell_what_is_left()

    def _tell_what_is_left(self) -> None:
        recorder = self._recorder
        if recorder.spooled:
            say(f"{recorder.spooled} events of {recorder.exp_id} wait in {recorder.spool_path}: run `messager drain`")
        if recorder.dropped and not isinstance(recorder.failure, StoreUnavailable):  # which tells of them
            say(f"{recorder.dropped} events of {recorder.exp_id} are lost: the log has their number at most")

    def save_at_exit(self) -> None:
        """`save` where it harms nobody: in the thread of an event loop that still runs, else here."""
        if self._pid != os.getpid():
            return  # a copy, in a process that was forked
        if not self._loop.is_running():
            self.save()
            return
        saved: Future[None] = Future()

        def save() -> None:
            self.save()
            saved.set_result(None)

        with contextlib.suppress(RuntimeError, TimeoutError):  # it ended just now; or it is stuck
            self._loop.call_soon_threadsafe(save)
            saved.result(EXIT_SECONDS)


@atexit.register
def _save_all() -> None:
    for recorder in list(_live):
        recorder.save_at_exit()
