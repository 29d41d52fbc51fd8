"""A time limit holds while its task is being cancelled, on every Python."""

from __future__ import annotations

import asyncio

import pytest

from messager.time_limit import time_limit


async def test_a_step_of_cleaning_up_that_takes_too_long_is_given_up_and_the_next_one_runs() -> None:
    steps = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            try:
                async with time_limit(0.01):
                    await asyncio.Event().wait()
            except TimeoutError:
                steps.append("given up")
            steps.append("the next one")

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert steps == ["given up", "the next one"]


async def test_a_cancellation_is_no_time_limit() -> None:
    async def work() -> None:
        async with time_limit(60):
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
