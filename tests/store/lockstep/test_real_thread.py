"""Calls in a thread with a real event loop: results, errors, cancellation, and virtual time that stands still."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import aiosqlite
import pytest

from messager_store.errors import StoreError
from messager_store.lockstep.recorder_thread import RealThread
from messager_store.lockstep.virtual_time import VirtualLoop, run


def now() -> float:
    return asyncio.get_running_loop().time()


def test_calls_to_sqlite_succeed_while_short_timers_run_and_take_no_virtual_time(tmp_path: Path) -> None:
    """Without the thread, 20 of 20 such calls timed out."""

    async def insert(number: int) -> int:
        async with aiosqlite.connect(tmp_path / "plain.db") as database:
            await database.execute("create table if not exists numbers (number integer)")
            await database.execute("insert into numbers values (?)", (number,))
            await database.commit()
            async with database.execute("select count(*) from numbers") as found:
                row = await found.fetchone()
                assert row is not None
                return int(row[0])

    async def main() -> tuple[list[int], float]:
        async def ticker() -> None:
            while True:
                await asyncio.sleep(0.001)

        ticking = asyncio.create_task(ticker())
        async with RealThread() as thread:
            counts = []
            for number in range(20):
                async with asyncio.timeout(0.02):
                    counts.append(await thread.run(insert(number)))
        ticking.cancel()
        return counts, now()

    assert run(main()) == (list(range(1, 21)), 0.0)


def test_timers_in_the_thread_are_real_and_do_not_move_virtual_time() -> None:
    async def main() -> tuple[float, bool]:
        async def sleep() -> bool:
            begun = time.monotonic()
            await asyncio.sleep(0.05)
            return time.monotonic() - begun >= 0.05

        timer = asyncio.create_task(asyncio.sleep(0.001))
        async with RealThread() as thread:
            waited = await thread.run(sleep())
        assert not timer.done()
        timer.cancel()
        return now(), waited

    assert run(main()) == (0.0, True)


def test_calls_run_in_one_thread_at_the_same_time_and_in_the_order_of_their_start() -> None:
    async def main() -> list[object]:
        begun: list[int] = []
        threads: set[int] = set()

        async def call(number: int, meet: asyncio.Event) -> int:
            begun.append(number)
            threads.add(threading.get_ident())
            if len(begun) == 10:
                meet.set()
            await meet.wait()
            return number

        async with RealThread() as thread:
            meet = asyncio.Event()
            results = await asyncio.gather(*(thread.run(call(number, meet)) for number in range(10)))
        return [results, begun, len(threads), threading.get_ident() in threads]

    assert run(main()) == [list(range(10)), list(range(10)), 1, False]


def test_errors_come_back_as_they_are() -> None:
    async def main() -> list[object]:
        error = LookupError("lost")

        async def failing() -> None:
            await asyncio.sleep(0)
            raise error

        async def leaving() -> None:
            raise SystemExit(3)

        async with RealThread() as thread:
            with pytest.raises(LookupError) as caught:
                await thread.run(failing())
            with pytest.raises(SystemExit):
                await thread.run(leaving())
            return [caught.value is error, await thread.run(asyncio.sleep(0, "still there"))]

    assert run(main()) == [True, "still there"]


def test_cancellation_is_passed_on_and_its_clean_up_is_awaited() -> None:
    async def main() -> list[str]:
        steps: list[str] = []
        begun = asyncio.Event()
        loop = asyncio.get_running_loop()

        async def call() -> None:
            try:
                loop.call_soon_threadsafe(begun.set)
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0.01)
                steps.append("cleaned up")

        async with RealThread() as thread:
            task = asyncio.create_task(thread.run(call()))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            steps.append("cancelled")
            assert isinstance(loop, VirtualLoop)
            await asyncio.sleep(1)
            assert loop.pending == 0
        return steps

    assert run(main()) == ["cleaned up", "cancelled"]


def test_a_time_out_of_virtual_time_never_ends_a_call_in_the_thread() -> None:
    async def main() -> str:
        async with RealThread() as thread:
            async with asyncio.timeout(1e-6):
                return await thread.run(asyncio.sleep(0.02, "in time"))

    assert run(main()) == "in time"


def test_a_closed_thread_refuses_calls_and_cancels_those_that_are_left() -> None:
    async def main() -> list[str]:
        steps: list[str] = []
        loop = asyncio.get_running_loop()
        begun = asyncio.Event()

        async def call() -> None:
            try:
                loop.call_soon_threadsafe(begun.set)
                await asyncio.Event().wait()
            finally:
                steps.append("cancelled")

        thread = RealThread()
        task = asyncio.create_task(thread.run(call()))
        await begun.wait()
        thread.close()
        thread.close()
        for refused in (task, asyncio.create_task(thread.run(asyncio.sleep(0)))):
            with pytest.raises(StoreError, match="is closed"):
                await refused
        return steps

    assert run(main()) == ["cancelled"]
