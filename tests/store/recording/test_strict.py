"""Strict: messages are in the log, or on disk, before they are published."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from messager import Endpoint, MemoryBroker, Messager, PublishError
from messager_store import EventLog, NewEvent, Recorder
from messager_store.errors import StoreError, StoreUnavailable
from messager_store.log.messages import message_pages
from messager_store.log.selection import Selection
from messager_store.log.span import Span
from messager_store.maintenance.verify import verify
from messager_store.recording import committer, recorder
from messager_store.recording.spools import spools
from tests.messager.test_messager import fetched
from tests.store.privacy.test_redaction import on_disk
from tests.support import until
from tests.support.outages import everything_drained, locked, payloads

pytestmark = pytest.mark.usefixtures("quick")


async def test_strict_has_every_sending_in_the_log_before_it_is_published(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committer, "SPOOL_SECONDS", 60)  # the store alone, however slow this machine is
    seen: list[int] = []

    class Looks(MemoryBroker):
        async def publish(self, messages):  # type: ignore[no-untyped-def]
            async with log.database.reading() as connection:
                rows = await connection.exec_driver_sql("SELECT count(*) FROM event WHERE kind = 1")
                seen.append(rows.scalar_one() - len(messages))
            return await super().publish(messages)

    async with Recorder(log, "e1", durability="strict") as taker, Messager(Looks(), "e1") as messager:
        messager.add_log_hook(taker)
        await messager.send_message("c", {"n": 0})
        await asyncio.gather(*(messager.send_message("c", {"n": at}) for at in range(1, 200)))
        commits = taker.acknowledged
    assert seen[0] == 0 and seen == sorted(seen) and len(seen) < 20 and commits >= 200
    found = [entry async for entry in log.read("e1")]
    assert [entry.kind for entry in found] == ["sent"] * 200
    assert {entry.receivers for entry in found} == {None}
    [row] = await log.recorders()
    assert row.durability == "strict"


async def test_strict_has_a_message_of_an_endpoint_in_the_log_before_it_is_published(log: EventLog) -> None:
    async def publish() -> int:
        return taker.acknowledged

    async def fail() -> None:
        raise OSError("no route")

    async with Recorder(log, "e1", durability="strict") as taker:
        alice = Endpoint("e1")
        alice.add_log_hook(taker)
        assert await alice.sending(publish, "c", {"n": 1}) == 1
        with pytest.raises(OSError, match="no route"):
            await alice.sending(fail, "c", {"n": 2})
    events = [entry async for entry in log.read("e1")]
    assert [(entry.kind, entry.cause and entry.cause[1]) for entry in events] == [
        ("sent", None),
        ("sent", None),
        ("failed", 2),
    ]


async def test_strict_uses_the_spool_where_the_store_is_away(log: EventLog, store: str) -> None:
    broker = MemoryBroker()
    async with Recorder(log, "e1", durability="strict") as taker, Messager(broker, "e1") as messager:
        messager.add_log_hook(taker)
        with locked(store):
            for at in range(5):
                await messager.send_message("c", {"n": at})
                [info] = spools(taker.spool_path.parent)
                assert info.events == at + 1
        await until(lambda: not len(taker))
    assert len(await payloads(log)) == 5


async def test_a_sender_that_was_held_back_until_the_recorder_had_ended_does_not_wait_for_it(log: EventLog) -> None:
    async with Recorder(log, "e1", durability="strict") as taker:
        held_back = taker._committer
    assert held_back is not None
    async with asyncio.timeout(60):
        with pytest.raises(StoreError, match="not sent: recorder 1 of e1 has ended"):
            await held_back.wait_until_durable(1)


async def test_strict_does_not_send_what_it_cannot_keep(
    log: EventLog, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = MemoryBroker()
    published: list[object] = []
    publish = broker.publish

    async def listed(messages):  # type: ignore[no-untyped-def]
        published.extend(messages)
        return await publish(messages)

    monkeypatch.setattr(broker, "publish", listed)
    async with Recorder(log, "e1", durability="strict", spool_bytes=1) as taker, Messager(broker, "e1") as messager:
        messager.add_log_hook(taker)
        with locked(store):
            with pytest.raises(StoreUnavailable, match="not sent"):
                await messager.send_message("c", {"n": 1})
        assert published == []
        await until(lambda: not len(taker))
        await messager.send_message("c", {"n": 2})
    of = await log.experiment("e1")
    found = [entry async for entry in log.read(of)]
    assert [entry.kind for entry in found] == ["sent", "failed", "sent"]  # the intent, taken back
    assert found[1].cause == (1, 1)
    told = [entry async for page in message_pages(log, of, Selection(), Span()) for entry in page]
    assert [entry.payload for entry in told] == [b'{"n": 2}']


async def test_strict_holds_senders_back_once_in_an_outage(
    log: EventLog, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    taker = Recorder(log, "e1", durability="strict", spool_bytes=1)
    async with taker, Messager(MemoryBroker(), "e1") as messager:
        messager.add_log_hook(taker)
        with locked(store):
            for seconds in (0.1, 600):
                monkeypatch.setattr(committer, "HOLD_SECONDS", seconds)
                async with asyncio.timeout(60):
                    with pytest.raises(StoreUnavailable, match="not sent"):
                        await messager.send_message("c", {"n": seconds})
        await until(lambda: not len(taker))
        await messager.send_message("c", {"n": 3})
    assert [entry.kind async for entry in log.read("e1")] == ["sent", "failed", "sent", "failed", "sent"]


async def test_strict_takes_a_failed_publish_back(log: EventLog) -> None:
    class Breaks(MemoryBroker):
        async def publish(self, messages):  # type: ignore[no-untyped-def]
            return [PublishError("the answer was lost", "unknown") for _ in messages]

    async with Recorder(log, "e1", durability="strict") as taker, Messager(Breaks(), "e1") as messager:
        messager.add_log_hook(taker)
        with pytest.raises(PublishError):
            await messager.send_message("c", {"n": 1})
        messager.mark("after")
    found = [entry async for entry in log.read("e1")]
    assert [(entry.kind, entry.cause) for entry in found] == [("sent", None), ("failed", (1, 1)), ("mark", None)]
    assert found[1].meta is not None and found[1].meta["outcome"] == "unknown"
    of = await log.experiment("e1")
    assert [page async for page in message_pages(log, of, Selection(), Span())] == []


async def test_strict_stops_only_the_message_whose_redact_raises(log: EventLog, store: str) -> None:
    def redact(entry: NewEvent) -> NewEvent:
        if b"hunter2" in entry.payload:
            raise ValueError(f"cannot redact {entry.payload!r}")
        return entry

    broker = MemoryBroker()
    async with Recorder(log, "e1", durability="strict", redact=redact) as taker, Messager(broker, "e1") as messager:
        messager.add_log_hook(taker)
        await messager.subscribe_and_start_listening(["c"])
        texts = ["hunter2" if number in (4, 9) else "plain" for number in range(10)]
        sends = [messager.send_message("c", {"n": number, "text": text}) for number, text in enumerate(texts)]
        results = await asyncio.gather(*sends, return_exceptions=True)
        assert len(await fetched(messager, 8)) == 8
    assert [type(result) for result in results] == [StoreError if text == "hunter2" else type(None) for text in texts]
    assert str(results[4]) == "not sent: `redact` raised ValueError, and the recorder is strict"
    of = await log.experiment("e1")
    entries = [entry async for entry in log.read(of)]
    kept = [json.loads(entry.payload)["n"] for entry in entries if entry.kind == "sent"]
    assert kept == [0, 1, 2, 3, 5, 6, 7, 8]
    bare = [
        (entry.channel, entry.payload, entry.from_id, entry.cause, entry.meta)
        for entry in entries
        if entry.kind == "failed"
    ]
    error = "`redact` raised ValueError, so only this is stored"
    assert bare == [(None, b"", None, None, {"outcome": "not_sent", "error": error})] * 2
    assert b"hunter2" not in on_disk(store)
    assert (await verify(log, of)).problems == []


async def test_strict_takes_an_intent_back_although_redact_raises_on_the_failure(log: EventLog) -> None:
    class Breaks(MemoryBroker):
        async def publish(self, messages):  # type: ignore[no-untyped-def]
            return [PublishError("the answer was lost", "unknown") for _ in messages]

    def redact(entry: NewEvent) -> NewEvent:
        if entry.kind == "failed":
            raise KeyError("content")
        return entry

    taker = Recorder(log, "e1", durability="strict", redact=redact)
    async with taker, Messager(Breaks(), "e1") as messager:
        messager.add_log_hook(taker)
        with pytest.raises(PublishError):
            await messager.send_message("c", {"n": 1})
    found = [entry async for entry in log.read("e1")]
    assert [(entry.kind, entry.cause) for entry in found] == [("sent", None), ("failed", (1, 1))]
    assert found[1].meta is not None and found[1].meta["outcome"] == "unknown"


@pytest.mark.parametrize("durability", ["buffered", "strict"])
async def test_a_reception_whose_redact_raises_is_a_gap_and_the_agent_has_it(log: EventLog, durability: Any) -> None:
    def redact(entry: NewEvent) -> NewEvent:
        if entry.kind == "received":
            raise KeyError("content")
        return entry

    taker = Recorder(log, "e1", durability=durability, redact=redact)
    async with taker, Messager(MemoryBroker(), "e1") as messager:
        messager.add_log_hook(taker)
        await messager.subscribe_and_start_listening(["c"])
        await messager.send_message("c", {"n": 1})
        assert len(await fetched(messager, 1)) == 1
    assert sorted([entry.kind async for entry in log.read("e1")]) == ["gap", "mark", "mark", "sent"]


@pytest.mark.parametrize("durability", ["buffered", "strict"])
async def test_what_is_under_way_when_a_recorder_stops_is_recorded_with_its_outcome(
    log: EventLog, durability: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "STOP_SECONDS", 30)
    monkeypatch.setattr(committer, "STOP_SECONDS", 30)
    answered = asyncio.Event()
    publishing = asyncio.Event()

    class Slow(MemoryBroker):
        async def publish(self, messages):  # type: ignore[no-untyped-def]
            publishing.set()
            await answered.wait()
            return [PublishError("the answer was lost", "unknown") for _ in messages]

    taker = Recorder(log, "e1", durability=durability)
    await taker.start()
    async with Messager(Slow(), "e1") as messager:
        messager.add_log_hook(taker)
        sending = asyncio.create_task(messager.send_message("c", {"n": 1}))
        await publishing.wait()
        stopping = asyncio.create_task(taker.stop())
        await asyncio.sleep(0)
        answered.set()
        with pytest.raises(PublishError):
            await sending
        await stopping
    kinds = [entry.kind async for entry in log.read("e1")]
    assert kinds == (["failed"] if durability == "buffered" else ["sent", "failed"])


async def test_a_strict_recorder_that_has_ended_lets_nothing_through(log: EventLog) -> None:
    taker = Recorder(log, "e1", durability="strict")
    async with Messager(MemoryBroker(), "e1") as messager:
        messager.add_log_hook(taker)
        with pytest.raises(StoreError, match="not been started"):
            await messager.send_message("c", {})
        await taker.start()
        await messager.send_message("c", {})
        await taker.stop()
        with pytest.raises(StoreError, match="has ended, and it is strict"):
            await messager.send_message("c", {})
    assert len(await payloads(log)) == 1


def test_a_durability_that_there_is_not_is_refused(store: str) -> None:
    async def make() -> None:
        async with EventLog.open(store) as log:
            Recorder(log, "e1", durability="eventual")  # type: ignore[arg-type]

    with pytest.raises(StoreError, match="buffered or strict"):
        asyncio.run(make())


async def test_a_commit_that_never_returns_holds_up_neither_strict_senders_nor_the_end(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Hangs(EventLog):
        async def append(self, *given: Any, **named: Any) -> None:
            await asyncio.Event().wait()

    taker = Recorder(Hangs(log.database), "e1", durability="strict")
    await taker.start()
    async with Messager(MemoryBroker(), "e1") as messager:
        messager.add_log_hook(taker)
        for number in range(5):
            await messager.send_message("c", {"n": number})
    await taker.stop()
    assert taker.spooled == 5
    assert [done.events for done in await everything_drained(log, taker.spool_path.parent)] == [5]
