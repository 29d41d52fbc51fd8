"""Zero-code recording: with `MESSAGER_STORE` set, every `Messager` of a process records itself.

`messager` finds `begin` as an entry point of the group `messager.hooks` and does not import this package. The settings
are environment variables: `MESSAGER_STORE`, `MESSAGER_DURABILITY` (buffered or strict) and `MESSAGER_SPOOL`. Errors
are lines on standard error and are never raised, so that agents continue.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
from collections.abc import Collection, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar, cast

from messager.calls import starting
from messager.clock import Clock
from messager.hooks import LogHook, say
from messager.record import CLOSED, MessageRecord
from messager.time_limit import time_limit
from messager.variables import CALLS, INTO

from ..db.database import Database
from ..db.databases import in_memory
from ..errors import StoreError, StoreUnavailable
from ..experiments.records import Experiment
from ..log.event_log import EventLog
from ..log.lineage import PREFIX, REPEATING, parent_of
from ..log.writer import Writer
from .recorder import Durability, IfExists, Recorder

START_SECONDS = 5.0
"""Time that `Messager.init` waits for the store; after that, events go to the spool."""
EXIT_SECONDS = 10.0

T = TypeVar("T")

_live: set[AutoRecorder] = set()
_announced: set[str] = set()
_unrecorded: set[str] = set()  # exp_ids of Messagers in virtual time

log = logging.getLogger("messager_store")


class _ToStandardError(logging.Handler):
    """Log handler for programs without logging: writes records as lines on standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        if not log.root.handlers and log.handlers == [self]:
            say(f"{record.getMessage()}: {record.exc_info[1]!r}" if record.exc_info else record.getMessage())


_to_standard_error = _ToStandardError(logging.WARNING)


async def begin(exp_id: str, hooks: Sequence[LogHook]) -> AutoRecorder | None:
    """Return the hook that records a Messager of `exp_id`; None if one of its hooks is a `Recorder` already, and in
    virtual time.

    It records into the experiment of that exp_id (of `MESSAGER_INTO`, if that is set) or, if that is closed, into the
    first of `exp_id-2`, `exp_id-3` ... that is open or does not exist, so that all processes of a society use the same
    one. Registration is retried while the store is unreachable, and events go to the spool meanwhile.
    """
    if any(map(_records, hooks)):
        return None
    if not isinstance(exp_id, str):
        say(f"{exp_id!r} is not recorded: an exp_id is a str, and this is of type {type(exp_id).__name__}")
        return None
    if not (exp_id or os.environ.get(INTO)):
        say("a Messager that has no exp_id is not recorded: give it one with `exp_id=`, or over MQTT with MESSAGER_EXP")
        return None
    if_exists: IfExists = "append" if os.environ.get(INTO) else "next"  # a named one is not exchanged for another
    exp_id = os.environ.get(INTO) or exp_id
    store = os.environ["MESSAGER_STORE"]
    if in_memory(store):
        say(
            f"{exp_id} is not recorded: MESSAGER_STORE names a store in memory, which is gone when the program ends: "
            "name a file, or postgresql://..."
        )
        return None
    if getattr(asyncio.get_running_loop(), "is_virtual", False):
        if exp_id not in _unrecorded:
            _unrecorded.add(exp_id)
            say(
                f"{exp_id} is not recorded: MESSAGER_STORE does not record in virtual time. Add a RecorderThread (of "
                "messager_store.lockstep.recorder_thread) as a log hook"
            )
        return None
    durability = os.environ.get("MESSAGER_DURABILITY") or "buffered"
    try:
        events = EventLog(Database(store))
        recorder = Recorder(events, exp_id, durability=cast(Durability, durability), if_exists=if_exists)
    except StoreError as error:
        say(f"{exp_id} is not recorded: {error}")
        return None
    if os.environ.get(CALLS):
        starting.start()
        if "://" in store:
            starting.allow(store)
    log.addHandler(_to_standard_error)
    made = AutoRecorder(recorder)
    await made.ready()
    return made


def _records(hook: LogHook) -> bool:
    """Return True for a `Recorder`, also one in another thread."""
    return isinstance(getattr(hook, "recorder", hook), Recorder)


class AutoRecorder:
    """Recorder that starts, retries and ends without its caller. A `LogHook`; belongs to the running event loop."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._pid = os.getpid()
        self._loop = asyncio.get_running_loop()
        self._tried = asyncio.Event()  # the first registration succeeded or failed
        self._ending = asyncio.Event()  # set when the recording is to end
        self._recording = True  # False once it was refused or has ended
        self._opened = False
        self._said: set[str] = set()  # keys of the lines that are written once
        self._missed = 0  # events after the tasks of the event loop were cancelled
        recorder.begin(self._register)
        self._task = self._loop.create_task(self._run())
        _live.add(self)

    async def ready(self) -> None:
        """Return after the first registration succeeded or failed, or after `START_SECONDS`."""
        try:
            with contextlib.suppress(TimeoutError):
                async with time_limit(START_SECONDS):
                    await self._tried.wait()
        except asyncio.CancelledError:
            self._ending.set()  # the Messager will not get this hook
            raise

    async def stop(self) -> None:
        """Return once all events are in the store or in the spool. Never raises."""
        if asyncio.get_running_loop() is not self._loop:
            if self._loop.is_running():  # called from another thread
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
            say(f"{missed} events of {self._recorder.exp_id} are lost: they came after its tasks were cancelled")

    async def before_send(self, records: Sequence[MessageRecord]) -> None:
        """Await `Recorder.before_send`. Errors are lines on standard error and are not raised."""
        recorder = self._recorder
        if not self._recording:
            return
        try:
            await recorder.before_send(records)
        except Exception as error:
            text = str(error) or repr(error)
            self._say_once("broken", f"{recorder.durability} cannot be kept; messages are sent nevertheless: {text}")

    def after(self, record: MessageRecord) -> None:
        if self._recording:
            self._recorder.after(record)
        elif not self._ending.is_set() and record.mark != CLOSED:  # the Messager is closed after the cancellation
            self._missed += 1
            exp_id = self._recorder.exp_id
            self._say_once("cut off", f"{exp_id} is not recorded any more: the tasks of its event loop were cancelled")

    def observing(self, kinds: Collection[str]) -> None:
        self._recorder.observing(kinds)

    def connected(self, url: str | None, clock: Clock, clock_offset_ns: int | None) -> None:
        self._recorder.connected(url, clock, clock_offset_ns)
        if url is not None:
            starting.allow(url)

    def described(self, name: str | None, meta: Mapping[str, Any]) -> None:
        self._recorder.described(name, meta)

    @property
    def records_into(self) -> tuple[str, str]:
        """Location of the store, and the exp_id."""
        return self._recorder.records_into

    def yields_to(self, hook: LogHook) -> bool:
        """Return True for a `Recorder` added by the program, so that nothing is recorded twice."""
        if not _records(hook):
            return False
        exp_id = self._recorder.exp_id
        text = f"{exp_id} is now recorded by the Recorder that the program added, not by MESSAGER_STORE"
        self._say_once("yields", text)
        return True

    def _say_once(self, key: str, text: str) -> None:
        if key not in self._said:
            self._said.add(key)
            say(text)

    async def _run(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):  # the event loop ends, and close() was not called
            await self._ending.wait()
        await self._end()

    async def _register(self) -> Writer:
        """Open the store and register. Errors are also written to standard error."""
        recorder = self._recorder
        try:
            writer = await self._in_time(self._open())
        except StoreUnavailable as error:
            if not self._ending.is_set():
                folder = recorder.spool_path.parent
                self._say_once(
                    "away",
                    f"{error}; events of {recorder.exp_id} are kept in {folder}; registration is retried",
                )
            self._said.add("away")
            await self._close_log()
            raise
        except Exception as error:
            say(f"{recorder.exp_id} is not recorded: {error}")
            self._recording = False
            self._ending.set()
            raise StoreError(f"{error}") from error
        finally:
            self._tried.set()
        of = f"{recorder.exp_id} into {recorder.log.location}"
        if of not in _announced or "away" in self._said:
            _announced.add(of)
            say(f"recording {of} (MESSAGER_STORE)")
            self._say_stranger(writer.experiment)
        return writer

    def _say_stranger(self, of: Experiment) -> None:
        """Say that a program takes no part in the fork into which it is recorded."""
        parent = parent_of(of)
        if parent is not None and of.meta.get(PREFIX) == REPEATING and not os.environ.get("MESSAGER_REPLAY"):
            say(
                f"{of.exp_id} is a fork that still repeats {parent.exp_id}, and this program takes no part in it. "
                f"Start it with MESSAGER_REPLAY={parent.exp_id}"
            )

    async def _open(self) -> Writer:
        if not self._opened:
            await self._recorder.log.database.open()
            self._opened = True
        return await self._recorder.register()

    async def _in_time(self, work: Coroutine[Any, Any, T]) -> T:
        """Await `work`, but only `START_SECONDS` after the end was requested, as a server may never answer."""
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
            async with time_limit(START_SECONDS):
                await self._recorder.log.close()

    async def _end(self) -> None:
        recorder = self._recorder
        try:
            await recorder.stop()
        except Exception as error:
            say(f"{recorder.exp_id}: {error}")
        self._recording = False
        _live.discard(self)
        await self._close_log()
        self._say_what_is_left()

    def save(self) -> None:
        """Synchronous form of `stop`, for the end of a process: write the waiting events to the spool."""
        _live.discard(self)
        if self._recording:
            self._recording = False
            try:
                self._recorder.save()
            except StoreError as error:
                say(f"{self._recorder.exp_id}: {error}")
            self._say_what_is_left()

    def _say_what_is_left(self) -> None:
        recorder = self._recorder
        if recorder.spooled:
            say(f"{recorder.spooled} events of {recorder.exp_id} wait in {recorder.spool_path}: run `messager drain`")
        if recorder.dropped and not isinstance(recorder.failure, StoreUnavailable):  # whose text has the number
            say(f"{recorder.dropped} events of {recorder.exp_id} are lost: the log has at most their number")

    def save_at_exit(self) -> None:
        """Call `save`, in the thread of the event loop if that is still running."""
        if self._pid != os.getpid():
            return  # a copy in a forked process
        if not self._loop.is_running():
            self.save()
            return
        saved: Future[None] = Future()

        def save() -> None:
            self.save()
            saved.set_result(None)

        with contextlib.suppress(RuntimeError, TimeoutError):  # the loop has just ended, or is blocked
            self._loop.call_soon_threadsafe(save)
            saved.result(EXIT_SECONDS)


@atexit.register
def _save_all() -> None:
    for recorder in list(_live):
        recorder.save_at_exit()
