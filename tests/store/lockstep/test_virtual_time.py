"""Virtual time jumps to the next timer, stands still for threads, refuses what it cannot time, and never hangs."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from messager import MemoryBroker, Messager
from messager_store.errors import Deadlock, VirtualTimeRefused
from messager_store.lockstep import virtual_time
from messager_store.lockstep.virtual_time import VirtualLoop, run, virtual_clock

HOUR = 3600.0


def now() -> float:
    return asyncio.get_running_loop().time()


def test_a_ticker_ticks_at_its_times_and_nowhere_between() -> None:
    async def ticker() -> list[float]:
        ticks = []
        for _ in range(1200):
            await asyncio.sleep(3)
            ticks.append(now())
        return ticks

    assert run(ticker()) == [3.0 * (number + 1) for number in range(1200)]


def test_years_pass_within_the_time_of_a_test() -> None:
    async def years() -> float:
        for _ in range(30):
            await asyncio.sleep(365 * 24 * HOUR)
        return now()

    assert run(years()) == 30 * 365 * 24 * HOUR


def test_times_are_whole_nanoseconds_without_the_drift_of_floats() -> None:
    async def tenths() -> list[float]:
        found = []
        for _ in range(10):
            await asyncio.sleep(0.1)
            found.append(now())
        return found

    assert run(tenths()) == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]


@pytest.mark.parametrize("begin", [0.0, 1e7, 1e9])
@pytest.mark.parametrize("pause", [1e-12, 1e-9, 1e-6, 0.1])
def test_short_sleeps_end_at_any_time(begin: float, pause: float) -> None:
    """From 97 days on, a nanosecond is less than the distance of two floats."""

    async def sleeper() -> float:
        await asyncio.sleep(begin)
        for _ in range(100):
            await asyncio.sleep(pause)
        return now()

    assert run(sleeper()) == pytest.approx(begin + 100 * pause, abs=1e-5)


def test_time_does_not_move_while_a_task_is_ready() -> None:
    async def busy() -> float:
        timer = asyncio.create_task(asyncio.sleep(0.000001))
        for _ in range(1000):
            await asyncio.sleep(0)
        assert not timer.done()
        return now()

    assert run(busy()) == 0.0


def test_time_outs_waits_and_queues_behave() -> None:
    async def main() -> list[object]:
        found: list[object] = []
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.Event().wait()
        found.append(now())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.sleep(HOUR), 10)
        found.append(now())
        found.append(await asyncio.wait_for(asyncio.sleep(1, "in time"), 1.5))
        queue: asyncio.Queue[float] = asyncio.Queue(maxsize=1)

        async def producer() -> None:
            for _ in range(3):
                await asyncio.sleep(2)
                await queue.put(now())

        task = asyncio.create_task(producer())
        found += [await queue.get() for _ in range(3)]
        done, waiting = await asyncio.wait({task, asyncio.create_task(asyncio.sleep(HOUR))}, timeout=30)
        found += [len(done), len(waiting), now()]
        return found

    assert run(main()) == [5.0, 15.0, "in time", 18.0, 20.0, 22.0, 1, 1, 52.0]


def test_a_sleep_without_end_sets_no_timer() -> None:
    async def main() -> float:
        for_ever = asyncio.create_task(asyncio.sleep(float("inf")))
        await asyncio.sleep(1)
        for_ever.cancel()
        with pytest.raises(asyncio.CancelledError):
            await for_ever
        return now()

    assert run(main()) == 1.0
    with pytest.raises(Deadlock):
        run(asyncio.sleep(float("inf")))


async def connect() -> None:
    await asyncio.open_connection("127.0.0.1", 6379)


async def serve() -> None:
    await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)


async def datagrams() -> None:
    await asyncio.get_running_loop().create_datagram_endpoint(asyncio.DatagramProtocol, ("127.0.0.1", 0))


async def unix() -> None:
    await asyncio.open_unix_connection("/tmp/none")


async def raw() -> None:
    with socket.socket() as plain:
        plain.setblocking(False)
        await asyncio.get_running_loop().sock_connect(plain, ("127.0.0.1", 6379))


async def reader() -> None:
    with socket.socket() as plain:
        asyncio.get_running_loop().add_reader(plain, print)


async def process() -> None:
    await asyncio.create_subprocess_exec(sys.executable, "-c", "")


@pytest.mark.parametrize("use", [connect, serve, datagrams, unix, raw, reader, process])
def test_sockets_and_processes_are_refused_with_what_to_do(use: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with pytest.raises(VirtualTimeRefused, match=r"does not work in virtual time.*Use the in-memory broker"):
        run(use())


def test_every_operation_with_files_of_the_event_loop_is_refused() -> None:
    mine = {name for name in dir(VirtualLoop) if not name.startswith("_")}
    prefixes = ("sock_", "create_", "connect_", "subprocess_", "add_", "start_tls", "sendfile")
    allowed = {"add_signal_handler", "create_future", "create_task"}
    refused = {name for name in mine if name.startswith(prefixes)} - allowed
    assert len(refused) > 20
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        for name in refused:
            with pytest.raises(VirtualTimeRefused, match=name):
                getattr(runner.get_loop(), name)()


def test_a_deadlock_names_the_tasks_and_their_lines() -> None:
    async def waits(lock: asyncio.Event) -> None:
        await asyncio.sleep(2)
        await lock.wait()

    async def main() -> None:
        tasks = [asyncio.create_task(waits(asyncio.Event()), name=name) for name in ("seller", "buyer")]
        await asyncio.gather(*tasks)

    with pytest.raises(Deadlock) as caught:
        run(main())
    assert "every task waits for another" in str(caught.value)
    assert [task.split(",")[0] for task in caught.value.tasks if "waits" in task] == ["buyer (waits", "seller (waits"]
    assert all("test_virtual_time.py:" in task for task in caught.value.tasks)


def test_tasks_clean_up_after_a_deadlock_and_may_take_virtual_time_for_it() -> None:
    steps: list[object] = []

    async def main() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(5)
            steps.append(now())

    with pytest.raises(Deadlock):
        run(main())
    assert steps == [5.0]


def test_a_messager_that_listens_keeps_no_time_going() -> None:
    """A listener polls brokers with sockets once a second; in virtual time that would never end."""

    async def main() -> None:
        async with Messager(MemoryBroker(), "exp-1") as messager:
            await messager.subscribe_and_start_listening(["a"])
            await asyncio.Event().wait()

    with pytest.raises(Deadlock):
        run(main())


def test_cancellation_and_errors_pass_as_in_real_time() -> None:
    async def main() -> list[object]:
        async def failing() -> None:
            await asyncio.sleep(1)
            raise LookupError("lost")

        found: list[object] = []
        try:
            async with asyncio.TaskGroup() as group:
                other = group.create_task(asyncio.sleep(HOUR))
                group.create_task(failing())
        except* LookupError as errors:
            found += [str(errors.exceptions[0]), other.cancelled(), now()]
        return found

    assert run(main()) == ["lost", True, 1.0]
    with pytest.raises(ZeroDivisionError):
        run(_divide())


async def _divide() -> float:
    await asyncio.sleep(1)
    return 1 / 0


def test_run_cancels_what_is_left_and_ends_generators_and_threads() -> None:
    ended: list[str] = []

    async def left() -> None:
        try:
            await asyncio.sleep(HOUR)
        finally:
            ended.append("task")

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            ended.append("generator")

    async def main() -> str:
        task = asyncio.create_task(left())
        generator = numbers()
        await anext(generator)
        main.kept = [task, generator]  # type: ignore[attr-defined]
        return await asyncio.to_thread(lambda: threading.current_thread().name)

    name = run(main())
    assert ended == ["task", "generator"]
    assert name not in {thread.name for thread in threading.enumerate()}


def test_ctrl_c_ends_a_run_and_its_tasks() -> None:
    ended: list[str] = []

    async def main() -> None:
        try:
            signal.raise_signal(signal.SIGINT)
            await asyncio.sleep(HOUR)
        finally:
            ended.append("cleaned up")

    with pytest.raises(KeyboardInterrupt):
        run(main())
    assert ended == ["cleaned up"]


def test_the_clock_shows_virtual_time_from_the_given_start() -> None:
    start = 1_700_000_000_000_000_000

    async def main() -> list[int]:
        clock = virtual_clock()
        before = clock.now()
        await asyncio.sleep(90.5)
        return [before, clock.now(), clock.wall_ns, clock.at(clock.monotonic_ns)]

    assert run(main(), start_ns=start) == [start, start + 90_500_000_000, start, start]


def test_the_clock_of_another_loop_is_no_virtual_one() -> None:
    async def main() -> None:
        virtual_clock()

    with pytest.raises(TypeError, match=r"Start it with `virtual_time\.run"):
        asyncio.run(main())


def test_a_task_that_polls_without_pause_stops_no_time_for_ever(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """After a while, virtual time follows real time."""
    monkeypatch.setattr(virtual_time, "STALL_S", 0.01)

    async def main() -> float:
        timer = asyncio.create_task(asyncio.sleep(0.02))
        while not timer.done():
            await asyncio.sleep(0)
        return now()

    with caplog.at_level(logging.WARNING, "messager_store"):
        assert run(main()) >= 0.02
    assert len(caplog.records) == 1
    assert "tasks are always ready" in caplog.text


def test_an_agent_that_fetches_without_pause_lets_time_pass() -> None:
    async def main() -> tuple[bytes, float]:
        async with Messager(MemoryBroker(), "exp-1") as messager:
            await messager.subscribe_and_start_listening(["a"])

            async def speak() -> None:
                await asyncio.sleep(1)
                await messager.send_message("a", {"n": 1})

            speaking = asyncio.create_task(speak())
            while not (messages := await messager.fetch_messages()):
                await asyncio.sleep(0)
            await speaking
            return messages[0]["data"], now()

    payload, ended = run(main())
    assert payload == b'{"n": 1}' and ended >= 1


def test_virtual_time_loads_neither_a_database_nor_a_broker() -> None:
    program = (
        "import sys, messager_store.lockstep.virtual_time\n"
        "print(sorted({'sqlalchemy', 'redis', 'alembic', 'rich', 'pydantic', 'aiosqlite'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
