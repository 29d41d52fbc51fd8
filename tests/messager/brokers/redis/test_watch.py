"""What asks whether a connection still leads to the right server."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from redis.asyncio import ConnectionPool

from messager.brokers.redis.watch import Watcher
from tests.support import until

CONNECTION: Any = ConnectionPool().make_connection()  # type: ignore[no-untyped-call]


class LosesCancellation:
    """Answers, and loses a cancellation meanwhile, as `asyncio.wait_for` of Python 3.11 does now and then."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.closed = False

    async def confirm(self, connection: Any) -> None:
        self.asked.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    async def serves(self, connection: Any) -> bool:
        return False

    async def aclose(self) -> None:
        self.closed = True


async def test_a_watcher_stops_although_a_cancellation_was_lost() -> None:
    watch = LosesCancellation()
    watcher = Watcher(watch, CONNECTION, lambda reason, serving: None)
    await watch.asked.wait()
    async with asyncio.timeout(5):
        await watcher.stop()
        await watcher.stop()
    assert watch.closed


async def test_a_question_that_fails_in_an_unknown_way_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Fails(LosesCancellation):
        async def confirm(self, connection: Any) -> None:
            self.asked.set()
            raise ValueError("no answer that anybody knows")

    watch = Fails()
    watcher = Watcher(watch, CONNECTION, lambda reason, serving: None)
    await until(lambda: watch.closed)
    await watcher.stop()
    assert "cannot be confirmed" in caplog.text and "no answer that anybody knows" in caplog.text
