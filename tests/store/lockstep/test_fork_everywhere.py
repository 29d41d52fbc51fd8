"""A faithful society can be forked at each of its events, also between messages that were sent at once."""

from __future__ import annotations

import asyncio

from messager import MemoryBroker, Messager
from messager_store import EventLog, Fork, Recorder
from tests.support.forking import check_fork
from tests.support.logs import listed

ROUNDS = 3


async def asks(messager: Messager) -> None:
    await messager.subscribe_and_start_listening(["answers"])
    for number in range(ROUNDS):
        await asyncio.gather(*(messager.send_message(to, {"round": number}, 1) for to in ("questions", "news")))
        while not await messager.fetch_messages():
            await asyncio.sleep(0.001)


async def answers(messager: Messager) -> None:
    await messager.subscribe_and_start_listening(["questions"])
    count = 0
    while count < ROUNDS:
        for _ in await messager.fetch_messages():
            count += 1
            await messager.send_message("answers", {"count": count}, 2)
        await asyncio.sleep(0.001)


async def test_it_can_be_forked_at_each_event(log: EventLog) -> None:
    broker = MemoryBroker()
    async with Recorder(log, "e1") as recorder:
        async with Messager(broker, "e1") as one, Messager(broker, "e1") as two:
            one.add_log_hook(recorder)
            two.add_log_hook(recorder)
            await asyncio.gather(answers(two), asks(one))
    for number, event in enumerate(await listed(log.read("e1"))):
        at = str(event.cursor)
        if number:
            async with Fork(log, "e1", f"fork-{number}", MemoryBroker(), at=at, patience=20) as fork:
                report = await fork.play({1: asks, 2: answers})
            assert report.complete, at
            await check_fork(log, "e1", f"fork-{number}", at)
