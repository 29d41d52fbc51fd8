"""A message that is given up while it is on its way counts once, in a program that follows the schedule on its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from messager import MemoryBroker, Messager, NotConnected, PublishError, channels
from messager.brokers import kind_of
from messager_store.lockstep.recording import Recording
from messager_store.lockstep.report import PartReport
from messager_store.lockstep.run import Lockstep
from messager_store.lockstep.to_the_end import ToTheEnd
from messager_store.log.event import Event
from tests.support import Listed, until

PATIENCE, FOR_EVER = 0.05, 60.0


class Slow(Listed):
    """Log hook that holds back each message until the gate has given it up, with `for_ever` until it is cancelled."""

    report: PartReport

    def __init__(self, for_ever: bool) -> None:
        super().__init__()
        self._for_ever = for_ever

    async def before_send(self, records: Any) -> None:
        given_up = self.report.missing + self.report.late
        await until(lambda: self.report.missing + self.report.late > given_up)
        if self._for_ever:
            await asyncio.Event().wait()


@asynccontextmanager
async def live(
    count: int, broker: MemoryBroker, patience: float = PATIENCE, *, for_ever: bool = False
) -> AsyncIterator[tuple[Messager, PartReport]]:
    """Context with a Messager that plays agent 3, which said some messages, and its report."""
    events = [
        Event(at, 1, at, "sent", "c", b'{"n": %d}' % at, 3, None, messager="m3", arrival=0)
        for at in range(1, count + 1)
    ]
    lockstep = Lockstep(
        Recording.of_events("e", events), kind_of(broker.url), channels.encode, ToTheEnd(), patience=patience
    )
    hook = Slow(for_ever)
    async with Messager(broker, "e") as messager:
        hook.report = lockstep.attach(messager).report
        messager.add_log_hook(hook)
        yield messager, hook.report
    lockstep.finish()


async def test_a_message_that_is_said_after_all_is_late_and_not_missing() -> None:
    async with live(2, MemoryBroker()) as (messager, report):
        for number in (1, 2):
            await messager.send_message("c", {"n": number}, 3)
    assert (report.expected, report.matched, report.missing, report.late) == (2, 2, 0, 2)


async def test_a_message_that_is_not_said_after_all_is_missing_once() -> None:
    broker = MemoryBroker()
    async with live(1, broker) as (messager, report):
        broker.interrupt()
        with pytest.raises(PublishError):
            await messager.send_message("c", {"n": 1}, 3)
    assert (report.matched, report.different, report.missing, report.late) == (0, 0, 1, 0)


async def test_a_message_that_is_cancelled_after_it_was_given_up_is_missing_once() -> None:
    async with live(1, MemoryBroker(), for_ever=True) as (messager, report):
        sending = asyncio.create_task(messager.send_message("c", {"n": 1}, 3))
        await until(lambda: report.missing == 1)
        sending.cancel()
        await asyncio.wait([sending])
    assert report.matched + report.different + report.missing == report.expected == 1


async def test_a_message_that_waits_for_its_turn_when_the_messager_is_closed_is_missing() -> None:
    async with live(2, MemoryBroker(), FOR_EVER) as (messager, report):
        second = asyncio.create_task(messager.send_message("c", {"n": 2}, 3))
        await asyncio.sleep(0)
    with pytest.raises(NotConnected):
        await second
    assert (report.expected, report.matched, report.missing) == (2, 0, 2)


async def test_a_message_does_not_wait_for_ever_for_an_earlier_one_that_is_not_said() -> None:
    async with live(2, MemoryBroker()) as (messager, report):
        async with asyncio.timeout(60):
            await messager.send_message("c", {"n": 2}, 3)
    assert (report.matched, report.missing) == (1, 1)
