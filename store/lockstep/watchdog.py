"""Watchdog: a thread that reports an event loop in which nothing runs any more."""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections.abc import Callable

from messager.hooks import say


class Watchdog:
    """Calls `report` with a line once the event loop has not answered for `seconds` of real time. A context manager.

    A blocked loop cannot be ended from outside; the line says where it is blocked.
    """

    def __init__(self, seconds: float, report: Callable[[str], None] = say) -> None:
        self._seconds = min(seconds, 1e9)  # a thread cannot wait for longer than 292 years
        self._report = report
        self._ended = threading.Event()
        self._answered = threading.Event()

    def __enter__(self) -> Watchdog:
        loop, thread = asyncio.get_running_loop(), threading.get_ident()
        threading.Thread(target=self._watch, args=(loop, thread), name="lockstep watchdog", daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ended.set()
        self._answered.set()

    def _watch(self, loop: asyncio.AbstractEventLoop, thread: int) -> None:
        while not self._ended.wait(self._seconds / 4):
            self._answered.clear()
            try:
                loop.call_soon_threadsafe(self._answered.set)
            except RuntimeError:  # the loop is closed
                return
            if self._answered.wait(self._seconds):
                continue
            frame = sys._current_frames().get(thread)
            where = "" if frame is None else " in " + _line(traceback.extract_stack(frame)[-1])
            self._report(
                f"the event loop has been blocked for {self._seconds:g} s{where}: live agents must not block it; "
                "use await, or asyncio.to_thread"
            )
            self._answered.wait()


def _line(frame: traceback.FrameSummary) -> str:
    return f"{frame.name} ({frame.filename}, line {frame.lineno})"
