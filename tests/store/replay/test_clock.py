"""The replay clock, without sleeping."""

from __future__ import annotations

import math

import pytest

from messager_store.errors import StoreError
from messager_store.replay import ReplayClock

SECOND = 1_000_000_000


class Time:
    """Monotonic clock that advances only by sleeping, and oversleeps by `late` seconds."""

    def __init__(self, late: float = 0.0) -> None:
        self.now_ns = 0
        self.late = late
        self.slept: list[float] = []

    def now(self) -> int:
        return self.now_ns

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_ns += int((seconds + self.late) * SECOND) + 1


def clock(speed: float = 1.0, late: float = 0.0) -> tuple[ReplayClock, Time]:
    time = Time(late)
    return ReplayClock(speed, now=time.now, sleep=time.sleep), time


async def test_oversleeping_does_not_add_up() -> None:
    replay, time = clock(late=0.004)
    replay.seek(0)
    for step in range(1, 1001):
        await replay.wait_until(step * SECOND // 100)
    assert time.now_ns / SECOND == pytest.approx(10.0, abs=0.006)


async def test_a_pause_stops_recorded_time_and_resume_goes_on_from_there() -> None:
    replay, time = clock()
    replay.seek(0)
    time.now_ns = 2 * SECOND
    replay.pause()
    time.now_ns = 9 * SECOND
    assert replay.position() == 2 * SECOND
    assert replay.overdue(SECOND) < 0  # nothing is due while it stands still
    replay.resume()
    assert replay.position() == 2 * SECOND
    await replay.wait_until(3 * SECOND)
    assert time.now_ns / SECOND == pytest.approx(10.0, abs=1e-6)


async def test_a_waiting_clock_notices_a_pause() -> None:
    replay, time = clock()
    replay.seek(0)
    real_sleep = time.sleep
    pauses = 0

    async def sleep(seconds: float) -> None:
        nonlocal pauses
        await real_sleep(seconds)
        if len(time.slept) == 3:
            replay.pause()
        elif len(time.slept) == 13:
            replay.resume()
            pauses += 1

    replay._sleep = sleep
    await replay.wait_until(SECOND)
    assert pauses == 1
    assert time.now_ns / SECOND == pytest.approx(2.0, abs=1e-3)  # ten sleeps of 0.1 s passed in the pause


@pytest.mark.parametrize("speed", [1e-9, 1e9])
async def test_the_slowest_and_the_fastest_clock_have_times(speed: float) -> None:
    replay, time = clock(speed)
    replay.seek(0)
    assert replay.overdue(2**63 - 1) < 0
    time.now_ns = 2**63 - 1
    assert replay.position() > 0


@pytest.mark.parametrize("speed", [0, -1, 5e-324, 1e308, math.nan])
def test_a_clock_refuses_a_speed_with_which_no_time_can_be_told(speed: float) -> None:
    with pytest.raises(StoreError, match="give a number"):
        ReplayClock(speed)
    replay, _ = clock()
    with pytest.raises(StoreError, match="give a number"):
        replay.set_speed(speed)
    assert replay.speed == 1.0
