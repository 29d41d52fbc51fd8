"""Watchdog: a thread that reports an event loop in which nothing runs any more."""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections.abc import Callable
from types import FrameType

from messager.hooks import say

from . import virtual_time

_LOOPS = (asyncio.base_events.__name__, virtual_time.__name__)
"""Modules with event loops: each calls its selector."""


class Watchdog:
    """Calls `report` with a line once the event loop has not answered for `seconds` of real time. A context manager.

    A blocked loop cannot be ended from outside; the line says where it is blocked. A loop that waits for events is not
    blocked: the machine was too busy to run it.
    """

    def __init__(self, seconds: float, report: Callable[[str], None] = say) -> None:
        self._seconds = min(seconds, 1e9)  # a thread cannot wait for longer than 292 years
        self._report = report
        self._ended = threading.Event()
        self._answered = threading.Event()

    def __enter__(self) -> Watchdog:
        watched = asyncio.get_running_loop(), threading.get_ident()
        self._thread = threading.Thread(target=self._watch, args=watched, name="lockstep watchdog", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ended.set()
        self._answered.set()
        self._thread.join()  # it ends at once, and reports nothing behind the end

    def _watch(self, loop: asyncio.AbstractEventLoop, thread: int) -> None:
        while not self._ended.wait(self._seconds / 4):
            self._answered.clear()
            if self._ended.is_set():  # meanwhile: it is not set again
                return
            try:
                loop.call_soon_threadsafe(self._answered.set)
            except RuntimeError:  # the loop is closed
                return
            while not self._answered.wait(self._seconds):
                frame = sys._current_frames().get(thread)
                if frame is not None and _waits_for_events(frame):
                    continue
                where = "" if frame is None else " in " + _line(traceback.extract_stack(frame)[-1])
                self._report(
                    f"the event loop has been blocked for {self._seconds:g} s{where}: live agents must not block it; "
                    "use await, or asyncio.to_thread"
                )
                self._answered.wait()


def _waits_for_events(frame: FrameType) -> bool:
    """Return whether this is the call in which an event loop of asyncio waits for events."""
    caller = frame.f_back
    return frame.f_globals["__name__"] == "selectors" and caller is not None and caller.f_globals["__name__"] in _LOOPS


def _line(frame: traceback.FrameSummary) -> str:
    return f"{frame.name} ({frame.filename}, line {frame.lineno})"
