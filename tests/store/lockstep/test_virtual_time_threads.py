"""Virtual time stands still while a thread works."""

from __future__ import annotations

import asyncio
import logging
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from messager_store.lockstep import virtual_time
from messager_store.lockstep.virtual_time import VirtualLoop, run, run_in_thread

HOUR = 3600.0


def now() -> float:
    return asyncio.get_running_loop().time()


def test_a_thread_answers_before_any_later_timer() -> None:
    async def main() -> tuple[list[str], float]:
        order: list[str] = []
        begun = threading.Event()

        async def timer() -> None:
            await asyncio.sleep(0.001)
            order.append("timer")

        async def thread() -> None:
            def work() -> None:
                begun.wait(0.2)  # nobody sets it: the loop has time to jump, if it would

            await asyncio.to_thread(work)
            order.append("thread")
            assert now() == 0.0

        await asyncio.gather(timer(), thread())
        return order, now()

    assert run(main()) == (["thread", "timer"], 0.001)


def test_a_chain_of_many_thread_calls_takes_no_virtual_time() -> None:
    """Between the end of a call and its answer there is no moment in which the loop could jump."""

    async def main() -> float:
        timer = asyncio.create_task(asyncio.sleep(1e-6))
        for number in range(2000):
            assert await asyncio.to_thread(lambda number=number: number + 1) == number + 1
        assert not timer.done()
        timer.cancel()
        return now()

    assert run(main()) == 0.0


def test_executors_of_the_user_count_as_well() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        timer = asyncio.create_task(asyncio.sleep(1e-6))
        with ThreadPoolExecutor(1) as own:
            for _ in range(100):
                await loop.run_in_executor(own, int)
        loop.set_default_executor(ThreadPoolExecutor(1))
        await loop.run_in_executor(None, int)
        assert not timer.done()
        return now()

    assert run(main()) == 0.0


def test_a_cancelled_thread_call_holds_time_until_its_thread_ends() -> None:
    ended = threading.Event()

    async def main() -> list[object]:
        go, loop = threading.Event(), asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)

        def work() -> None:
            go.wait()
            ended.set()

        call = asyncio.create_task(asyncio.to_thread(work))
        await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait([call])
        pending = loop.pending
        go.set()
        await asyncio.sleep(1)
        return [pending, ended.is_set(), loop.pending]

    assert run(main()) == [1, True, 0]


def test_an_error_in_a_thread_is_raised_in_its_caller() -> None:
    async def main() -> None:
        await asyncio.to_thread(int, "none")

    with pytest.raises(ValueError, match="invalid literal"):
        run(main())


def test_a_thread_wakes_a_loop_that_waits_for_nothing_else() -> None:
    """A library with a thread of its own, such as aiosqlite, is not taken for a deadlock at once."""

    async def main() -> str:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[str] = loop.create_future()
        thread = threading.Timer(0.05, lambda: loop.call_soon_threadsafe(answer.set_result, "from outside"))
        thread.start()
        found = await answer
        thread.join()
        return found

    assert run(main()) == "from outside"


def test_a_held_loop_stands_still_although_a_timer_waits() -> None:
    async def main() -> list[object]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        timer = asyncio.create_task(asyncio.sleep(1))
        answer: asyncio.Future[float] = loop.create_future()
        with loop.hold():
            thread = threading.Timer(0.05, lambda: loop.call_soon_threadsafe(lambda: answer.set_result(loop.time())))
            thread.start()
            found = await answer
        thread.join()
        await timer
        return [found, now()]

    assert run(main()) == [0.0, 1.0]


def test_the_end_of_a_run_waits_for_an_executor_that_ends_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtual_time, "GRACE_S", 0.0)
    ended: list[bool] = []

    class Slow(ThreadPoolExecutor):
        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            threading.Event().wait(0.05)
            super().shutdown(wait, cancel_futures=cancel_futures)
            ended.append(True)

    async def main() -> None:
        asyncio.get_running_loop().set_default_executor(Slow(1))
        await asyncio.to_thread(int)

    run(main())
    assert ended


def test_ctrl_c_ends_a_loop_that_waits_for_a_thread() -> None:
    program = (
        "import asyncio, threading\n"
        "from messager_store.lockstep.virtual_time import run\n"
        "async def main():\n"
        "    with asyncio.get_running_loop().hold():\n"
        "        print('waiting', flush=True)\n"
        "        await asyncio.Event().wait()\n"
        "run(main())\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"waiting\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert b"KeyboardInterrupt" in errors
    assert process.returncode != 0


def test_standing_still_for_long_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(virtual_time, "STALL_S", 0.01)
    monkeypatch.setattr(virtual_time, "FOLLOW_S", 0.01)
    reported = threading.Event()
    monkeypatch.setattr(caplog.handler, "filters", [lambda record: reported.set() or True])

    def slow() -> None:
        assert reported.wait(60)
        threading.Event().wait(0.1)  # time in which it may be reported again

    with caplog.at_level(logging.WARNING, "messager_store"):
        run(asyncio.to_thread(slow))
        assert len(caplog.records) == 1
        assert "1 calls in other threads have not ended" in caplog.text


def test_a_thread_that_waits_for_a_timer_of_the_loop_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtual_time, "STALL_S", 0.01)
    monkeypatch.setattr(virtual_time, "FOLLOW_S", 0.01)

    async def main() -> float:
        loop = asyncio.get_running_loop()
        await asyncio.to_thread(lambda: asyncio.run_coroutine_threadsafe(asyncio.sleep(0.05), loop).result())
        return now()

    assert run(main()) >= 0.05


async def test_a_run_in_a_thread_that_is_cancelled_before_its_first_step_ends_at_once() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    running = asyncio.create_task(run_in_thread(main))
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_an_error_in_the_clean_up_of_a_cancelled_run_is_raised() -> None:
    here, begun = asyncio.get_running_loop(), asyncio.Event()

    async def main() -> None:
        here.call_soon_threadsafe(begun.set)
        try:
            while True:
                await asyncio.sleep(1)
        finally:
            raise ValueError("clean-up")

    running = asyncio.create_task(run_in_thread(main))
    await begun.wait()
    running.cancel()
    with pytest.raises(ValueError, match="clean-up"):
        await running


async def test_a_run_in_a_thread_returns_its_result_and_raises_its_error() -> None:
    async def divided(by: int) -> float:
        await asyncio.sleep(HOUR)
        return now() / by

    assert await run_in_thread(lambda: divided(2)) == HOUR / 2
    with pytest.raises(ZeroDivisionError):
        await run_in_thread(lambda: divided(0))
