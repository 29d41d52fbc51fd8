"""Recorder in a thread, for Messagers in virtual time.

A store needs sockets, threads and real time-outs, which a virtual loop does not have. The records of the Messagers are
handed over to the thread in order, and virtual time stands still until it has accepted them, so that the log has every
event before the low watermark. Committing them goes on in real time. `RealThread` runs anything else that needs sockets
or threads beside a virtual loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

from messager.clock import Clock
from messager.record import MessageRecord, mark_record

from ..errors import StoreError
from .virtual_time import VirtualLoop, virtual_clock

if TYPE_CHECKING:
    from ..recording.recorder import Recorder

T = TypeVar("T")


class RealThread:
    """A thread with an event loop of its own, such as for a store or a client of a server.

        async with RealThread() as thread:
            log = await thread.run(open_log())

    Objects that belong to an event loop are created and used by coroutines that `run` gets. The virtual time of a
    `VirtualLoop` stands still during such a call, and timers in the thread do not move it.
    """

    def __init__(self, name: str = "real time") -> None:
        """Start the thread. It ends with `close`, and with the process."""
        self._stopped: asyncio.Event
        self._lock = threading.Lock()
        self._ended = False  # the loop takes no more calls
        self._calls: dict[Future[Any], Coroutine[Any, Any, Any]] = {}
        begun: Future[asyncio.AbstractEventLoop] = Future()
        self._thread = threading.Thread(target=self._main, args=(begun,), name=name, daemon=True)
        self._thread.start()
        self.loop = begun.result()
        """Event loop of the thread."""

    async def run(self, coro: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the thread, with the context of the caller, and return its result or raise its error.

        If the caller is cancelled, the coroutine is, and the caller waits for its end. Raises `StoreError` if the
        thread is closed, or is closed meanwhile.
        """
        ended: Future[T] = Future()
        context = contextvars.copy_context()
        tasks: list[asyncio.Task[None]] = []

        def begin() -> None:
            task = self.loop.create_task(_put_outcome(coro, ended), context=context)
            task.add_done_callback(lambda task: _settle(coro, ended))
            tasks.append(task)

        def cancel() -> None:
            for task in tasks:
                task.cancel()

        outcome = asyncio.wrap_future(ended)
        here = asyncio.get_running_loop()
        if isinstance(here, VirtualLoop):
            here.hold_until(ended)
        self._call(begin, coro, ended)
        cancelled = False
        while not outcome.done():
            try:
                await asyncio.wait([outcome])
            except asyncio.CancelledError:
                cancelled = True
                self._call(cancel, coro, ended)
        if not isinstance(outcome.exception(), _Cancelled):
            if cancelled and outcome.exception() is None:
                raise asyncio.CancelledError  # the coroutine had ended before it could be cancelled
            return outcome.result()
        if cancelled:
            raise asyncio.CancelledError
        raise StoreError("the thread with the real event loop is closed. Close it after the last call.")

    def close(self) -> None:
        """Cancel the calls that are left, and wait until the thread has ended. May be called twice."""
        with self._lock:
            if not self._ended:
                self.loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join()

    async def __aenter__(self) -> RealThread:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.close()

    def _call(self, callback: Callable[[], None], coro: Coroutine[Any, Any, T], ended: Future[T]) -> None:
        """Call a function in the thread, if it has not ended."""
        with self._lock:
            if not self._ended:
                self._calls[ended] = coro
                ended.add_done_callback(lambda ended: self._calls.pop(ended, None))
                self.loop.call_soon_threadsafe(callback)
                return
        _settle(coro, ended)

    def _main(self, begun: Future[asyncio.AbstractEventLoop]) -> None:
        async def serve() -> None:
            self._stopped = asyncio.Event()
            begun.set_result(asyncio.get_running_loop())
            await self._stopped.wait()

        try:
            with asyncio.Runner() as runner:
                runner.run(serve())
                with self._lock:
                    self._ended = True
        finally:
            for ended, coro in list(self._calls.items()):  # they came while the loop ended
                _settle(coro, ended)


class _Cancelled(Exception):
    """Outcome of a coroutine that was cancelled."""


async def _put_outcome(coro: Coroutine[Any, Any, T], ended: Future[T]) -> None:
    try:
        result = await coro
    except asyncio.CancelledError:
        ended.set_exception(_Cancelled())
    except BaseException as error:  # it belongs to the caller, and would end the thread here
        ended.set_exception(error)
    else:
        ended.set_result(result)


def _settle(coro: Coroutine[Any, Any, T], ended: Future[T]) -> None:
    """Settle a call that was cancelled before its first step."""
    if not ended.done():
        coro.close()
        ended.set_exception(_Cancelled())


_FIELDS = [field.name for field in fields(MessageRecord) if field.name != "message"]

log = logging.getLogger("messager_store")


class _AcceptedClock(Clock):
    """Virtual time as far as the thread has accepted what happened: no record that it will get is older."""

    __slots__ = ("_loop", "accepted")

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__(wall=loop.wall_ns, monotonic=loop.time_ns)
        self.accepted = 0
        """Time at which the last accepted record was handed over, ns UTC."""
        self._loop = loop

    def now(self) -> int:
        # Virtual time stands still while a record waits, so that the record is not older than it.
        return max(self.accepted, self._loop.wall_ns())


class RecorderThread:
    """Log hook that passes everything to a recorder in a thread. An async context manager.

        async with RecorderThread.open("runs.db", "exp-2") as recorder:
            messager.add_log_hook(recorder)

    Make and use it in a `VirtualLoop`; the Messagers have the clock of that loop.
    """

    def __init__(self, recorder: Recorder, thread: RealThread) -> None:
        """`recorder` is not started, and its log was opened in the thread. Raises `TypeError` in another event loop."""
        self.recorder = recorder
        """The recorder. Its properties may be read here; its methods belong to the thread."""
        self._thread = thread
        self._clock = virtual_clock()
        self._loop = self._clock.loop
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        self._accepting = _AcceptedClock(self._loop)
        self._busy: Future[None] | None = None  # not None while something waits; used in the virtual loop only
        self._copies: dict[int, MessageRecord] = {}  # of the messages in flight, by the id of their records

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, store: str, exp_id: str, **options: Any) -> AsyncIterator[RecorderThread]:
        """Record into an experiment of a store, in a new thread. The options are those of `Recorder`.

        Raises the errors of opening a store and of starting a recorder.
        """
        from ..log.event_log import EventLog
        from ..recording.recorder import Recorder

        options.setdefault("clock", virtual_clock())

        async def opened() -> EventLog:
            return await EventLog.open(store)

        async with RealThread("recorder") as thread:
            log = await thread.run(opened())
            try:
                async with cls(Recorder(log, exp_id, **options), thread) as recorder:
                    yield recorder
            finally:
                await thread.run(log.close())

    async def start(self) -> None:
        """Start the recorder. Raises as `Recorder.start` does."""
        await self._thread.run(self.recorder.start())

    async def stop(self) -> None:
        """Commit the events, and end the recorder. Raises as `Recorder.stop` does."""
        await self._handed_over()
        await self._thread.run(self.recorder.stop())

    async def flush(self) -> None:
        """Return once all events are in the store. Raises as `Recorder.flush` does."""
        await self._handed_over()
        await self._thread.run(self.recorder.flush())

    async def __aenter__(self) -> RecorderThread:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    async def before_send(self, records: Sequence[MessageRecord]) -> None:
        """Return once these messages may be published, as `Recorder.before_send` does."""
        copies = [replace(record, message=None) for record in records]
        self._copies.update((id(record), copy) for record, copy in zip(records, copies, strict=True))
        await self._thread.run(self._ask(self._clock.latest(), copies))

    def after(self, record: MessageRecord) -> None:
        """Pass an event to the recorder. Never blocks and never raises."""
        # A copy, as the thread reads it later. The sent object may have changed by then; its payload has not.
        copy = self._copies.pop(id(record), None)
        if copy is None:
            copy = replace(record, message=None)
        else:
            for name in _FIELDS:
                setattr(copy, name, getattr(record, name))
        self._hand_over(lambda: self.recorder.after(copy))

    def call(self, function: Callable[[], None]) -> None:
        """Call a function in the thread, after everything that was passed to the recorder before. Does not wait."""
        self._hand_over(function)

    @property
    def records_into(self) -> tuple[str, str]:
        """Location of the store, and the exp_id."""
        return self.recorder.records_into

    def connected(self, url: str, clock: Clock, clock_offset_ns: int | None) -> None:
        """Pass the facts about the broker to the recorder."""
        self._hand_over(lambda: self.recorder.connected(url, self._accepting, clock_offset_ns))

    def described(self, name: str | None, meta: Mapping[str, Any]) -> None:
        """Pass a name and meta of the experiment to the recorder."""
        self._hand_over(lambda: self.recorder.described(name, meta))

    def mark(self, name: str, /, **fields: Any) -> None:
        """Log a mark. Raises `TypeError` for fields without a JSON form."""
        self.after(mark_record(self._clock.now(), name, fields))

    def _hand_over(self, call: Callable[[], None]) -> None:
        self._waiting.append((self._clock.latest(), call))
        if self._busy is None:
            self._busy = Future()
            self._loop.hold_until(self._busy)
            self._thread.loop.call_soon_threadsafe(self._accept)

    async def _handed_over(self) -> None:
        """Return once the thread has accepted everything."""
        while self._busy is not None:
            await asyncio.wait([asyncio.wrap_future(self._busy)])

    def _accepted(self) -> None:
        """Let virtual time go on, unless something was handed over meanwhile. Called in the virtual loop."""
        if self._waiting:
            self._thread.loop.call_soon_threadsafe(self._accept)
        elif self._busy is not None:
            busy, self._busy = self._busy, None
            busy.set_result(None)

    async def _ask(self, at: int, copies: list[MessageRecord]) -> None:
        """Call `before_send` of the recorder, after everything that was handed over before. Runs in the thread."""
        self._drain()
        self._accepting.accepted = max(self._accepting.accepted, at)
        await self.recorder.before_send(copies)

    def _accept(self) -> None:
        """Accept what waits. Called in the thread."""
        self._drain()
        with contextlib.suppress(RuntimeError):  # the virtual loop has been closed
            self._loop.call_soon_threadsafe(self._accepted)

    def _drain(self) -> None:
        while self._waiting:
            at, call = self._waiting.popleft()
            self._accepting.accepted = at
            try:
                call()
            except Exception:
                log.exception("the recorder of %s raised", self.recorder.exp_id)
