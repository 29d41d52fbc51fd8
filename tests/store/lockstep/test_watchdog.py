"""An event loop that is blocked is reported by another thread."""

from __future__ import annotations

import asyncio
import sys
import threading
from types import FrameType

import pytest

from messager_store.lockstep.watchdog import Watchdog


async def test_a_blocked_event_loop_is_reported_once_with_the_place() -> None:
    lines: list[str] = []
    told = threading.Event()

    def report(line: str) -> None:
        lines.append(line)
        told.set()

    def block_the_loop() -> None:
        assert told.wait(60)

    with Watchdog(0.05, report):
        await asyncio.sleep(0)
        block_the_loop()
    [line] = lines
    assert line.startswith("the event loop has been blocked for 0.05 s in wait (")
    assert "threading.py" in line and line.endswith("use await, or asyncio.to_thread")


async def test_a_loop_that_waits_for_events_is_not_blocked_however_late_it_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines: list[str] = []
    loop = asyncio.get_running_loop()
    wake, frames, decided, looks = loop.call_soon_threadsafe, sys._current_frames, asyncio.Event(), 0

    def look() -> dict[int, FrameType]:
        nonlocal looks
        looks += 1
        if looks == 2:  # after the first one it was not reported
            wake(decided.set)
        return frames()

    def report(line: str) -> None:
        lines.append(line)
        wake(decided.set)

    monkeypatch.setattr(loop, "call_soon_threadsafe", lambda *given: None)  # as on a machine that does not run the loop
    monkeypatch.setattr(sys, "_current_frames", look)
    with Watchdog(0.2, report):
        await decided.wait()
        assert lines == []


async def test_a_loop_that_answers_is_not_reported_and_the_thread_ends() -> None:
    lines: list[str] = []
    before = threading.active_count()
    with Watchdog(0.2, lines.append):
        for _ in range(20):
            await asyncio.sleep(0.01)
    assert lines == [] and threading.active_count() <= before
