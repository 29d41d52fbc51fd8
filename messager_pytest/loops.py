"""Event loops of plain tests: in virtual time, or in real time for a real broker.

The current event loop of the thread is left alone, as other plugins own it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

from messager.clock import Clock
from messager_store.lockstep.virtual_time import VirtualLoop

from .agent_state import AgentState, Unawaited, state_of_agent

T = TypeVar("T")
_Coro = Coroutine[Any, Any, Any] | Generator[Any, None, Any]

START_NS = 1_735_689_600_000_000_000
"""UTC at which a first recording begins in virtual time, ns: 2025-01-01. Fixed, so that the same agents make the same
recording."""
END_S = 1.0
"""Seconds of the loop in which cancelled tasks may end."""


def virtual(start_ns: int | None) -> asyncio.AbstractEventLoop:
    """Return an event loop in virtual time that begins at this UTC time, ns; None: at the present time."""
    return VirtualLoop(start_ns)


def clock() -> Clock | None:
    """Return the clock of the running event loop if its time is virtual, else None."""
    loop = asyncio.get_running_loop()
    return loop.clock if isinstance(loop, VirtualLoop) else None


def in_event_loop() -> bool:
    """Return whether an event loop of asyncio runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def run(loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, T]) -> tuple[T, list[Unawaited]]:
    """Run a coroutine in a new event loop and close the loop.

    Return the result, and the exceptions of tasks and callbacks that nothing has awaited, also of tasks that are kept.
    """
    errors: list[Unawaited] = []
    raised: list[tuple[asyncio.Future[Any], AgentState | None]] = []

    def ended(future: asyncio.Future[Any]) -> None:
        # In the context of the task. To ask for the exception here would count as awaiting it.
        if not future.cancelled() and future._log_traceback:
            raised.append((future, _state()))

    def started(loop: asyncio.AbstractEventLoop, coro: _Coro, **options: Any) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=loop, **options)
        task.add_done_callback(ended)
        return task

    def unawaited(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if isinstance(error := context.get("exception"), Exception):
            errors.append(Unawaited(error, "callback" if "handle" in context else "task", _state()))

    loop.set_task_factory(started)
    loop.set_exception_handler(unawaited)
    try:
        result = loop.run_until_complete(coro)
    finally:
        try:
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            if left:
                loop.run_until_complete(asyncio.wait(left, timeout=END_S))
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            loop.close()
    for future, state in raised:
        if future._log_traceback and isinstance(error := future.exception(), Exception):
            errors.append(Unawaited(error, "task", state))
    return result, errors


def _state() -> AgentState | None:
    """Return the state of the agent in whose context this is called."""
    state = state_of_agent.get()
    return None if state is None else state()
