"""Monitor of a connection, which checks that it still leads to the right server."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from redis.asyncio import ConnectionPool

from messager.brokers.redis.monitor import ServerMonitor
from tests.support import until

CONNECTION: Any = ConnectionPool().make_connection()  # type: ignore[no-untyped-call]


class LosesCancellation:
    """Server check that loses a cancellation, as `asyncio.wait_for` of Python 3.11 sometimes does."""

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
    check = LosesCancellation()
    monitor = ServerMonitor(check, CONNECTION, lambda reason, serving: None)
    await check.asked.wait()
    async with asyncio.timeout(60):
        await monitor.stop()
        await monitor.stop()
    assert check.closed


async def test_a_question_that_fails_in_an_unknown_way_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Fails(LosesCancellation):
        async def confirm(self, connection: Any) -> None:
            self.asked.set()
            raise ValueError("no answer that anybody knows")

    check = Fails()
    monitor = ServerMonitor(check, CONNECTION, lambda reason, serving: None)
    await until(lambda: check.closed)
    await monitor.stop()
    assert "cannot be confirmed" in caplog.text and "no answer that anybody knows" in caplog.text
