"""A recorder in a thread has every event of a run in virtual time, in order and with virtual timestamps."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, cast

import pytest

from messager import Clock, MemoryBroker, Messager, MessageRecord
from messager.record import is_own
from messager_store import Event, EventLog, Recorder, verify
from messager_store.errors import ExperimentClosed
from messager_store.experiments.registry import find
from messager_store.lockstep.recorder_thread import RealThread, RecorderThread
from messager_store.lockstep.virtual_time import run, virtual_clock
from messager_store.recording.recorder import Durability
from tests.support import Stores

START = 1_700_000_000_000_000_000
SECOND = 1_000_000_000
HOUR = 3600


async def read(store: str, exp_id: str = "exp-1") -> list[Event]:
    async with EventLog.open(store) as log:
        return [event async for event in log.read(exp_id)]


def virtual_messager(broker: MemoryBroker) -> Messager:
    return Messager(broker, "exp-1", clock=virtual_clock())


@pytest.mark.parametrize("durability", ["buffered", "strict"])
def test_every_message_of_an_hour_is_recorded_at_its_virtual_time(stores: Stores, durability: Durability) -> None:
    store = stores.fresh()

    async def main() -> int:
        broker = MemoryBroker()
        async with (
            RecorderThread.open(store, "exp-1", durability=durability) as recorder,
            virtual_messager(broker) as asker,
            virtual_messager(broker) as answerer,
        ):
            await asker.subscribe_and_start_listening(["answers"])
            await answerer.subscribe_and_start_listening(["questions"])
            for messager in (asker, answerer):
                messager.add_log_hook(recorder)

            async def answer() -> None:
                while True:
                    for message in await answerer.fetch_messages():
                        await answerer.send_message("answers", {"n": message["data"].decode()}, "b", "a")
                    await asyncio.sleep(3)

            answering = asyncio.create_task(answer())
            recorder.mark("phase", number=1)
            for number in range(60):
                await asyncio.sleep(HOUR / 60)
                await asker.send_message("questions", {"n": number}, "a", "b")
            await asyncio.sleep(10)
            answering.cancel()
        return recorder.recorder.accepted

    assert run(main(), start_ns=START) == 245
    events = [event for event in asyncio.run(read(store)) if not is_own(event.mark or "")]
    assert [event.kind for event in events].count("sent") == 120
    assert [event.kind for event in events].count("received") == 120
    assert (events[0].kind, (events[0].ts - START) // 1000) == ("mark", 0)
    questions = [event for event in events if event.kind == "sent" and event.channel == "questions"]
    assert [(event.ts - START) // SECOND for event in questions] == [60 * (number + 1) for number in range(60)]
    assert [event.from_id for event in questions] == ["a"] * 60
    heard = [event.arrival for event in events if event.kind == "sent" and event.channel == "answers"]
    assert heard == list(range(1, 61))
    times = [event.ts for event in events]
    assert len(set(times)) == len(times), "every event of one clock has a time of its own"
    for event, following in zip(events[1::2], events[2::2], strict=True):
        assert (event.kind, following.kind) == ("sent", "received"), "a reception is later than its sending"
        assert event.payload == following.payload

    async def verified() -> bool:
        async with EventLog.open(store) as log:
            return not (await verify(log, await find(log.database, "exp-1"))).problems

    assert asyncio.run(verified())


def test_the_sent_object_may_change_after_the_call(stores: Stores) -> None:
    store = stores.fresh()

    async def main() -> None:
        async with (
            RecorderThread.open(store, "exp-1") as recorder,
            virtual_messager(MemoryBroker()) as messager,
        ):
            messager.add_log_hook(recorder)
            payload: dict[str, Any] = {}
            for number in range(200):
                payload["from"] = number
                await messager.send_message("a", payload)
                payload["from"] = -1

    run(main())
    assert [event.from_id for event in asyncio.run(read(store))] == list(range(200))


def test_the_messages_of_cancelled_senders_are_recorded_as_what_became_of_them(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stores.fresh()

    async def main() -> list[bytes]:
        async with (
            RecorderThread.open(store, "exp-1", durability="strict") as recorder,
            virtual_messager(MemoryBroker()) as messager,
        ):
            messager.add_log_hook(recorder)
            await messager.subscribe_and_start_listening(["a"])
            before_send, asked = recorder.recorder.before_send, 0

            async def in_the_thread(records: Sequence[MessageRecord]) -> None:
                nonlocal asked
                asked += 1
                await before_send(records)

            monkeypatch.setattr(recorder.recorder, "before_send", in_the_thread)
            for number in range(20):  # the first one before it has begun, the second one while it is committed
                sending = asyncio.create_task(messager.send_message("a", {"n": number}))
                while asked < number:
                    await asyncio.sleep(0)
                for _ in range((number - 1) * 20):
                    await asyncio.sleep(0)
                sending.cancel()
                await asyncio.wait([sending])
            await messager.send_message("a", {"n": "last"})
            await asyncio.sleep(1)
            await recorder.flush()
            return [message["data"] for message in await messager.fetch_messages()]

    delivered = run(main())
    events = asyncio.run(read(store))
    retracted = [event.cause for event in events if event.kind == "failed" and event.cause is not None]
    assert len(set(retracted)) == len(retracted) > 0
    said = [event.payload for event in events if event.kind == "sent" and (1, event.seq) not in retracted]
    assert said == delivered
    assert said[-1] == b'{"n": "last"}'


def test_the_errors_of_the_recorder_reach_the_run(stores: Stores) -> None:
    store = stores.fresh()

    async def main() -> None:
        async with RecorderThread.open(store, "exp-1", close_experiment=True):
            pass
        async with RecorderThread.open(store, "exp-1", if_exists="append"):
            pass

    with pytest.raises(ExperimentClosed):
        run(main())


block = time.sleep
"""Block the thread with its event loop."""


class Watching:
    """Recorder that reads its clock for the low watermark, again and again, while records arrive."""

    durability, exp_id = "buffered", "exp-1"

    def __init__(self) -> None:
        self.watermark = 0
        self.older: list[int] = []
        self.clock: Clock | None = None
        self.records = 0
        self.order: list[tuple[bytes, int]] = []
        """Each message that is to be sent, and the number of records before it."""

    async def start(self) -> None:
        self.watching = asyncio.create_task(self.watch())

    async def watch(self) -> None:
        while True:
            self.read()
            block(0.0005)  # records arrive while this thread is busy
            await asyncio.sleep(0)

    def read(self) -> None:
        if self.clock is not None:
            self.watermark = max(self.watermark, self.clock.now())

    def connected(self, url: str, clock: Clock, clock_offset_ns: int | None) -> None:
        self.clock = clock

    async def before_send(self, records: Sequence[MessageRecord]) -> None:
        self.read()
        assert records[0].channel is not None
        if records[0].channel == "order":
            self.order.append((records[0].payload, self.records))

    def after(self, record: MessageRecord) -> None:
        self.read()
        self.records += 1
        if record.kind != "sent" and record.ts < self.watermark:  # a recorder knows those that are in flight
            self.older.append(self.watermark - record.ts)

    async def stop(self) -> None:
        self.watching.cancel()


def test_the_recorders_clock_never_passes_a_record_that_is_still_to_come() -> None:
    """The low watermark is read from it, on the other thread."""
    watching = Watching()

    async def main() -> None:
        async with (
            RealThread() as thread,
            RecorderThread(cast(Recorder, watching), thread) as recorder,
            virtual_messager(MemoryBroker()) as messager,
        ):
            messager.add_log_hook(recorder)
            await messager.subscribe_and_start_listening(["*"])
            for number in range(300):
                for _ in range(number % 7):
                    messager.mark("tick")
                await asyncio.gather(*(messager.send_message("a", {"n": copy}) for copy in range(number % 3)))
                await asyncio.sleep(number % 2)

    run(main())
    assert watching.records > 1000
    assert watching.older == []


def test_a_sender_is_asked_for_after_everything_that_happened_before() -> None:
    watching = Watching()

    async def main() -> list[tuple[bytes, int]]:
        expected, records = [], 0
        async with (
            RealThread() as thread,
            RecorderThread(cast(Recorder, watching), thread) as recorder,
            virtual_messager(MemoryBroker()) as messager,
        ):
            messager.add_log_hook(recorder)
            for number in range(50):
                messager.mark("tick")
                block(0.002)  # the thread accepts the first mark, and this loop cannot be told
                messager.mark("tick")
                expected.append((b"%d" % number, records + 2))
                await messager.send_message("order", number)
                records += 3
        return expected

    assert run(main()) == watching.order


def test_another_event_loop_needs_no_thread() -> None:
    async def main() -> None:
        async with RecorderThread.open("none.db", "exp-1"):
            pass

    with pytest.raises(TypeError, match="no virtual time"):
        asyncio.run(main())
