"""Virtual time: an event loop whose time jumps to its next timer as soon as no task is ready.

A run of an hour takes as long as its work. The loop decides in one place, the selector, what happens when no task is
ready:

| waiting for                                         | the loop                                                  |
|-----------------------------------------------------|-----------------------------------------------------------|
| a thread call (`to_thread`, a `RealThread`, `hold`) | stands still at its present time until the call has ended |
| a timer                                             | jumps to it                                               |
| neither                                             | raises `Deadlock`, which names the tasks and their lines  |

Sockets, pipes and subprocesses are refused: nothing tells how much virtual time their answers take.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import math
import selectors
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial
from types import CoroutineType
from typing import Any, TypeVar, TypeVarTuple

from messager.clock import Clock

from ..errors import Deadlock, VirtualTimeRefused

NEVER_S = 1e10
"""Timers later than this virtual time (s, 317 years) are never called: they stand for "for ever"."""
GRACE_S = 1.0
"""Real seconds in which another thread may still wake a loop that waits for nothing it knows of."""
STALL_S = 10.0
"""Real seconds after which a loop that stands still says so in the log, and follows real time from then on: a task that
keeps it busy, or a thread, may wait for something that needs time."""
FOLLOW_S = 0.5
"""Real seconds between two steps of a loop that follows real time."""
_REFUSED = (
    *("sock_", "connect_", "subprocess_", "add_reader", "add_writer", "start_tls", "sendfile"),
    *("create_connection", "create_datagram", "create_server", "create_unix"),
)
"""Beginnings of the names of methods that raise `VirtualTimeRefused`."""
_CHECK_EVERY = 4096
_RESOLUTION = 1e-9

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

log = logging.getLogger("messager_store")


class _JumpingSelector(selectors.DefaultSelector):
    """Selector of a `VirtualLoop`. Its loop calls `select` before each round, with the seconds to the next timer."""

    def __init__(self, wait: Callable[[float | None, Callable[[float | None], Any]], Any]) -> None:
        super().__init__()
        self._wait = wait

    def select(self, timeout: float | None = None) -> Any:
        return self._wait(timeout, super().select)


class VirtualClock(Clock):
    """Clock of a `VirtualLoop`. Timestamps increase by at least 1 ns, so that a reception is later than its sending."""

    __slots__ = ("_last", "loop")

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__(wall=loop.wall_ns, monotonic=loop.time_ns)
        self.loop = loop
        self._last = 0

    def now(self) -> int:
        """Return the present time, ns UTC, and later than any before. Call it in the thread of the loop."""
        self._last = max(super().now(), self._last + 1)
        return self._last

    def latest(self) -> int:
        """Return the present time, ns UTC: not earlier than any that `now` returned."""
        return max(super().now(), self._last)


class VirtualLoop(asyncio.SelectorEventLoop):
    """Event loop in virtual time, which begins at 0.

    Thread calls work, and virtual time stands still while one is pending: those of `run_in_executor` and
    `asyncio.to_thread` are counted, others are declared with `hold`. Operations with sockets, pipes and subprocesses
    raise `VirtualTimeRefused`.
    """

    is_virtual = True
    """Says to code that does not know this class that no other time passes than that of its timers."""

    def __init__(self, start_ns: int | None = None) -> None:
        """`start_ns` is the UTC time at which virtual time begins, in ns; the present time by default."""
        self.start_ns = time.time_ns() if start_ns is None else start_ns
        """UTC at virtual time 0, ns."""
        self._now_ns = 0
        self._pending = 0
        self._executor: Executor | None = None
        self._rounds = 0
        self._moved_at = time.monotonic()  # real time of the last jump
        self._flowed_at = 0.0  # real time up to which virtual time has followed it
        self._reported = False
        super().__init__(_JumpingSelector(self._until_ready))
        self.clock = VirtualClock(self)
        """Clock for all Messagers of this loop."""

    def time(self) -> float:
        """Return the virtual time, in s since the start."""
        return self._now_ns / 1e9

    def time_ns(self) -> int:
        """Return the virtual time, in ns since the start."""
        return self._now_ns

    def wall_ns(self) -> int:
        """Return the virtual time as ns UTC."""
        return self.start_ns + self._now_ns

    @property
    def pending(self) -> int:
        """Number of pending thread calls. Virtual time stands still while it is not 0."""
        return self._pending

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Let virtual time stand still inside, for work of another thread that the loop does not know of.

        To be used in a task of this loop.
        """
        self._pending += 1
        try:
            yield
        finally:
            self._pending -= 1

    def hold_until(self, done: Future[Any]) -> None:
        """Let virtual time stand still until this future of another thread is done. Call it in the loop's thread.

        Callbacks that were added to the future before, such as those of `asyncio.wrap_future`, are called first.
        """
        self._pending += 1
        done.add_done_callback(lambda _: self._call_from_thread(self._release))

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        if when > NEVER_S:
            return asyncio.TimerHandle(when, callback, args, self, context)
        return super().call_at(when, callback, *args, context=context)

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        if self.is_closed():
            raise RuntimeError("Event loop is closed")
        if executor is None:
            if self._executor is None:
                self.set_default_executor(ThreadPoolExecutor(thread_name_prefix="virtual"))
            executor = self._executor
            assert executor is not None
        call = executor.submit(func, *args)
        answer = asyncio.wrap_future(call, loop=self)
        self.hold_until(call)
        return answer

    def set_default_executor(self, executor: Any) -> None:
        super().set_default_executor(executor)
        self._executor = executor

    async def shutdown_default_executor(self, *timeout: Any) -> None:
        with self.hold():  # its time-out of real seconds would pass at once
            await super().shutdown_default_executor(*timeout)

    def _release(self) -> None:
        self._pending -= 1

    def _call_from_thread(self, callback: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed before the thread call ended
            self.call_soon_threadsafe(callback)

    def _until_ready(self, timeout: float | None, select: Callable[[float | None], Any]) -> Any:
        """Return the events of the loop's own pipe, or move the time to the next timer, which is in `timeout` s."""
        if timeout is not None and timeout <= 0:
            self._rounds += 1
            if self._rounds % _CHECK_EVERY == 0 and self._stands(
                "tasks are always ready, and a poll with `asyncio.sleep(0)` lets no time pass: sleep longer"
            ):
                self._follow_real_time()
            return select(0)
        if self._pending:
            woken = select(FOLLOW_S if self._reported else STALL_S)
            if not woken and self._stands(f"{self._pending} calls in other threads have not ended"):
                self._follow_real_time()  # a thread may wait for a timer of this loop
            return woken
        if woken := select(0):  # another thread has called call_soon_threadsafe meanwhile
            return woken
        if timeout is None:
            if threading.active_count() > 1 and (woken := select(GRACE_S)):
                return woken
            raise Deadlock(_waiting_tasks(self))
        self._now_ns += max(1, round(timeout * 1e9))
        # Above 97 days, a ns is less than the distance of two floats, and no timer would ever be due.
        self._clock_resolution = max(_RESOLUTION, 2 * math.ulp(self.time()))
        self._moved_at, self._reported = time.monotonic(), False
        return []

    def _follow_real_time(self) -> None:
        """Move the time by the real time since it last moved."""
        now = time.monotonic()
        self._now_ns += int((now - max(self._flowed_at, self._moved_at)) * 1e9)
        self._flowed_at = now

    def _stands(self, reason: str) -> bool:
        """Return True if virtual time has not moved for `STALL_S` real seconds, and log it once."""
        stood = time.monotonic() - self._moved_at
        if stood >= STALL_S and not self._reported:
            self._reported = True
            log.warning("virtual time has stood still at %g s for %.0f s: %s", self.time(), stood, reason)
        return stood >= STALL_S


def _refusal(name: str) -> Callable[..., Any]:
    def refuse(self: VirtualLoop, *args: Any, **kwargs: Any) -> Any:
        raise VirtualTimeRefused(name)

    refuse.__name__ = refuse.__qualname__ = name
    return refuse


for _name in dir(asyncio.AbstractEventLoop):
    if _name.startswith(_REFUSED):
        setattr(VirtualLoop, _name, _refusal(_name))


def run(coro: Coroutine[Any, Any, T], *, start_ns: int | None = None) -> T:
    """Run a coroutine in virtual time, and return its result, as `asyncio.run` does.

    `start_ns` is the UTC time at which virtual time begins, in ns; the present time by default. At the end, tasks that
    are left are cancelled, and asynchronous generators and the executor are shut down. Raises `Deadlock` if every task
    waits for another, and `RuntimeError` in a thread in which an event loop runs.
    """
    if asyncio._get_running_loop() is not None:
        raise RuntimeError("virtual_time.run() cannot be called from a running event loop. Call it outside of one.")
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(start_ns)) as runner:
        return runner.run(coro)


async def run_in_thread(main: Callable[[], Coroutine[Any, Any, T]], *, start_ns: int | None = None) -> T:
    """Run a coroutine in virtual time in a thread, beside the event loop that runs, and return its result.

    `main` makes the coroutine. If the caller is cancelled, the coroutine is, and the caller waits for its end. Raises
    as `run` does.
    """
    begun: Future[Callable[[], object]] = Future()
    context = contextvars.copy_context()

    async def cancellable() -> T:
        task = asyncio.current_task()
        assert task is not None
        begun.set_result(partial(asyncio.get_running_loop().call_soon_threadsafe, task.cancel))
        return await main()

    def cancel(begun: Future[Callable[[], object]]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            begun.result()()

    thread = asyncio.get_running_loop().run_in_executor(
        None, context.run, lambda: run(cancellable(), start_ns=start_ns)
    )
    cancelled = False
    while not thread.done():
        try:
            await asyncio.wait([thread])
        except asyncio.CancelledError:
            cancelled = True
            begun.add_done_callback(cancel)
    if cancelled and (thread.cancelled() or thread.exception() is None):
        raise asyncio.CancelledError
    return thread.result()


def virtual_clock(loop: VirtualLoop | None = None) -> VirtualClock:
    """Return the clock of a virtual loop, by default of the one that runs. Raises `TypeError` for another loop."""
    found = asyncio.get_running_loop() if loop is None else loop
    if not isinstance(found, VirtualLoop):
        raise TypeError("this event loop has no virtual time. Start it with `virtual_time.run(...)`.")
    return found.clock


def _waiting_tasks(loop: asyncio.AbstractEventLoop) -> list[str]:
    """Return a description of each task that is not done: its name, and the line at which it waits."""
    return sorted(f"{task.get_name()} ({_line(task)})" for task in asyncio.all_tasks(loop))


def _line(task: asyncio.Task[Any]) -> str:
    """Return the innermost line of a task outside of asyncio, as `function, file:line`."""
    awaited: Any = task.get_coro()
    found = "not started"
    while isinstance(awaited, CoroutineType):
        frame = awaited.cr_frame
        if frame is not None and not frame.f_globals.get("__name__", "").startswith("asyncio."):
            code = frame.f_code
            found = f"{code.co_name}, {code.co_filename.rsplit('/', 1)[-1]}:{frame.f_lineno}"
        awaited = awaited.cr_await
    return found
