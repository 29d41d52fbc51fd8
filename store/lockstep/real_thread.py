"""Thread with an event loop in real time, for what needs sockets or threads of its own beside a virtual loop."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from ..errors import StoreError
from .virtual_time import VirtualLoop

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
