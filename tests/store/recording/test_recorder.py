"""The recorder: all events are in the log when it ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from messager import MemoryBroker, Messager, MessageRecord, Msg
from messager.brokers import Broker
from messager_store import EventLog, Recorder
from messager_store.errors import (
    ExperimentBusy,
    ExperimentClosed,
    ExperimentExists,
    RecorderFenced,
    StoreError,
    StoreUnavailable,
)
from messager_store.maintenance.verify import verify
from messager_store.queries.overview import overview
from messager_store.recording import buffer, committer
from messager_store.recording.closing import close
from messager_store.recording.tap import Tap
from tests.support import HOSTILE_CHANNELS, HOSTILE_PAYLOADS, carried, until


async def kinds(log: EventLog, exp_id: str = "e1") -> list[str]:
    return [entry.kind async for entry in log.read(exp_id)]


async def test_a_message_goes_from_send_message_to_its_row(broker: Broker, log: EventLog) -> None:
    async with Recorder(log, "e1", name="first run", tags=["a", "b"], meta={"seed": 7}) as recorder:
        async with Messager(broker, "e1") as messager:
            messager.add_log_hook(recorder)
            await messager.subscribe_and_start_listening(["exps:e1:agents:4:*"])
            channel = messager.get_agent_chat_channel(4)
            await messager.send_message(channel, {"from": 3, "content": "h\u00e9"}, 3, 4)
            await messager.send_message(channel, Msg("alice", "hi", "user"))
            messager.mark("tick", number=1)
            await until(lambda: recorder.accepted == 6)  # with the subscription
    events = [entry async for entry in log.read("e1", kinds=["sent", "received"])]
    by_payload: dict[bytes, list[Any]] = {}
    for entry in events:
        by_payload.setdefault(entry.payload, []).append(entry)
    assert len(by_payload) == 2
    for pair in by_payload.values():
        assert [entry.kind for entry in pair] == ["sent", "received"]  # no reception before its sending
        assert pair[1].to_id == 4 and "to_id" in pair[1].derived_ids
    named, unnamed = by_payload.values()
    assert (named[0].from_id, named[0].to_id, named[0].derived_ids) == (3, 4, [])
    assert (named[1].from_id, named[1].derived_ids) == (3, ["from_id", "to_id"])
    assert (unnamed[0].from_id, unnamed[0].derived_ids) == ("alice", ["from_id", "to_id"])
    assert unnamed[1].msg == unnamed[0].msg and unnamed[0].msg_id == unnamed[0].msg.id
    of = await log.experiment("first run")
    assert (of.exp_id, of.tags, of.meta["seed"], of.status) == ("e1", ["a", "b"], 7, "open")
    data = await overview(log, of)
    assert data["recorders"][0]["meta"]["versions"]["python"]
    assert data["recorders"][0]["state"] == "ended"
    assert data["recorders"][0]["broker"] == broker.url
    assert (await verify(log, of)).problems == []


async def test_counters_agree_with_what_was_recorded(log: EventLog) -> None:
    async with Recorder(log, "e1") as recorder:
        for number in range(7):
            recorder.after(MessageRecord("sent", 100 - number, "c", b"12345", from_id=number))
        recorder.mark("end")
    data = await overview(log, await log.experiment("e1"))
    assert (data["events"], data["payload_bytes"], data["channels"], data["agents"]) == (8, 35, 1, 7)
    assert data["kinds"]["sent"] == 7 and data["kinds"]["mark"] == 1
    assert data["first_ts"] == 94


async def test_what_is_accepted_while_a_commit_ends_is_recorded_although_the_recorder_stops(log: EventLog) -> None:
    class Stops(EventLog):
        async def touch(self, writer: Any, **values: Any) -> None:
            await super().touch(writer, **values)
            if "broker" in values:
                recorder.mark("late")
                stopping.append(asyncio.create_task(recorder.stop()))
                await asyncio.sleep(0)

    stopping: list[asyncio.Task[None]] = []
    recorder = Recorder(Stops(log.database), "e1")
    await recorder.start()
    recorder.connected("redis://x", recorder.clock, None)
    await until(lambda: bool(stopping))
    await stopping[0]
    assert await kinds(log) == ["mark"]
    [row] = await log.recorders()
    assert row.state == "ended"


async def test_what_to_do_where_the_exp_id_is_taken(log: EventLog) -> None:
    async with Recorder(log, "e1", tags=["one"], meta={"a": 1}):
        pass
    async with Recorder(log, "e1", name="named later", tags=["two"], meta={"a": 2, "b": 3}) as again:
        assert again.ordinal == 2
    of = await log.experiment("e1")
    assert (of.name, of.tags, of.meta["a"], of.meta["b"]) == ("named later", ["one", "two"], 1, 3)
    with pytest.raises(ExperimentExists, match="append"):
        await Recorder(log, "e1", if_exists="fail").start()
    async with Recorder(log, "e1", if_exists="new") as fresh:
        assert fresh.exp_id == "e1-2"
    async with Recorder(log, "e1", if_exists="next") as meets:
        assert meets.exp_id == "e1"
    await close(log, of)
    for choice in (None, "append", "fail"):
        with pytest.raises(ExperimentClosed, match=r'if_exists="new" \(--if-exists new\)'):
            await Recorder(log, "e1", if_exists=choice).start()  # type: ignore[arg-type]
    async with Recorder(log, "e1", if_exists="new") as fresh:
        assert fresh.exp_id == "e1-3"
    for _ in range(2):
        async with Recorder(log, "e1", if_exists="next") as meets:
            assert meets.exp_id == "e1-2"  # which is open


async def test_a_recorder_that_ends_closes_the_experiment_only_when_told_to(log: EventLog) -> None:
    async with Recorder(log, "e1"):
        pass
    assert (await log.experiment("e1")).status == "open"
    async with Recorder(log, "e1", close_experiment=True):
        pass
    assert (await log.experiment("e1")).status == "closed"


async def test_closing_under_a_live_recorder_asks_for_force_and_then_refuses_its_events(
    log: EventLog, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder(log, "e1")
    await recorder.start()
    recorder.mark("before")
    await recorder.flush()
    of = await log.experiment("e1")
    with pytest.raises(ExperimentBusy, match="recorder 1"):
        await close(log, of)
    await close(log, of, force=True)
    recorder.mark("after")
    await until(lambda: "the recording has ended" in caplog.text)
    with pytest.raises(StoreError):
        await recorder.flush()
    assert len(await kinds(log)) == 1
    assert (await verify(log, await log.experiment("e1"))).problems == []


async def test_an_answer_that_is_lost_after_the_commit_doubles_nothing(
    log: EventLog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    append, lost = log.append, 0

    async def append_and_lose(writer: Any, events: Any, **more: Any) -> None:
        nonlocal lost
        before = (writer.last_seq, writer.head_hash)
        await append(writer, events, **more)
        if lost < 3:
            lost += 1
            writer.last_seq, writer.head_hash = before
            raise StoreUnavailable(log.location, "the answer was lost")

    monkeypatch.setattr(log, "append", append_and_lose)
    async with Recorder(log, "e1") as recorder:
        for number in range(10):
            recorder.after(MessageRecord("sent", number, "c", b"x"))
            await recorder.flush()
    assert lost == 3
    assert [entry.ts async for entry in log.read("e1")] == list(range(10))
    assert (await verify(log, await log.experiment("e1"))).problems == []


async def test_an_event_that_cannot_be_written_does_not_stop_those_behind_it(
    log: EventLog, caplog: pytest.LogCaptureFixture
) -> None:
    async with Recorder(log, "e1") as recorder:
        recorder.after(MessageRecord("sent", 2**63, "c", b"out of range"))
        await until(lambda: recorder.dropped == 1)
        recorder.after(MessageRecord("sent", 5, "c", b"fine"))
        await recorder.flush()
    found = [entry async for entry in log.read("e1")]
    assert [entry.payload for entry in found if entry.kind == "sent"] == [b"fine"]
    assert [entry.meta["count"] for entry in found if entry.meta] == [1]


async def test_a_recorder_must_be_started(log: EventLog) -> None:
    with pytest.raises(StoreError, match="async with Recorder"):
        _ = Recorder(log, "e1").experiment
    recorder = Recorder(log, "e1")
    await recorder.stop()


async def test_a_tap_records_a_system_that_knows_nothing_of_it(broker: Broker, log: EventLog) -> None:
    active = asyncio.Event()
    sent = carried(broker, [(channel, payload) for channel in HOSTILE_CHANNELS for payload in HOSTILE_PAYLOADS])
    async with Recorder(log, "e1", role="tap") as recorder:
        # overlapping patterns deliver twice; the tap keeps one
        tap = Tap(broker, recorder, ["*", "exps:*", "plain"], active=active.set)
        task = asyncio.create_task(tap.run(max_events=len(sent)))
        await active.wait()
        await broker.publish(sent)
        await asyncio.wait_for(task, 60)
    from messager import channels

    found = [(channels.encode(entry.channel or ""), entry.payload) async for entry in log.read("e1")]
    assert found == sent
    assert tap.messages == len(sent)


async def test_a_tap_ends_after_its_time_and_tells_a_gap_it_ended_in(log: EventLog) -> None:
    broker = MemoryBroker()
    async with Recorder(log, "e1", role="tap") as recorder:
        tap = Tap(broker, recorder)
        await tap.run(duration=0.05)
        task = asyncio.create_task(tap.run())
        await until(lambda: bool(broker._subscribers))
        broker.interrupt()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert await kinds(log) == ["gap"]


async def test_answering_on_the_channel_as_it_was_fetched_works(broker: Broker, log: EventLog) -> None:
    """`fetch_messages` returns channels as bytes; a reply on one once ended the recording."""
    async with Recorder(log, "e1") as recorder, Messager(broker, "e1") as messager:
        messager.add_log_hook(recorder)
        await messager.send_message(b"exps:e1:agents:4:chat", {"n": 1})  # type: ignore[arg-type]
    [entry] = [entry async for entry in log.read("e1")]
    assert (entry.channel, entry.to_id) == ("exps:e1:agents:4:chat", 4)


@pytest.mark.parametrize("agent", [10**5000, {(1,): 1}], ids=["too long", "no JSON"])
async def test_an_id_that_cannot_be_kept_costs_its_own_event_only(
    log: EventLog, caplog: pytest.LogCaptureFixture, agent: Any
) -> None:
    async with Recorder(log, "e1") as recorder:
        for number in range(3):
            recorder.after(MessageRecord("sent", number, "c", b"x", from_id=agent if number == 1 else number))
        await recorder.flush()
        recorder.after(MessageRecord("sent", 9, "c", b"later"))
    found = [entry async for entry in log.read("e1")]
    assert [entry.ts for entry in found if entry.kind == "sent"] == [0, 2, 9]
    assert [entry.meta["count"] for entry in found if entry.meta] == [1]
    assert "not recorded" in caplog.text


async def test_marks_are_kept_as_they_were_and_refused_where_json_cannot_hold_them(log: EventLog) -> None:
    async with Recorder(log, "e1") as recorder, Messager(MemoryBroker(), "e1") as messager:
        messager.add_log_hook(recorder)
        inside = [1]
        messager.mark("tick", inside=inside)
        inside.append(2)
        with pytest.raises(TypeError):
            messager.mark("tick", config={("a", 1): 2})
    [entry] = [entry async for entry in log.read("e1")]
    assert entry.meta == {"name": "tick", "fields": {"inside": [1]}}


async def test_the_sender_is_who_it_was_when_the_message_was_sent(log: EventLog) -> None:
    async with Recorder(log, "e1") as recorder, Messager(MemoryBroker(), "e1") as messager:
        messager.add_log_hook(recorder)
        payload = {"from": 1}
        await messager.send_message("c", payload)
        payload["from"] = 2
        await messager.send_message("c", payload)
        payload["from"] = 3
    assert [entry.from_id async for entry in log.read("e1")] == [1, 2]


async def test_a_flush_that_is_cancelled_at_any_moment_costs_nothing(log: EventLog) -> None:
    async with Recorder(log, "e1") as recorder:
        for number in range(60):
            recorder.after(MessageRecord("sent", number, "c", b"x"))
            flush = asyncio.create_task(recorder.flush())
            for _ in range(number):
                await asyncio.sleep(0)
            flush.cancel()
            await asyncio.gather(flush, return_exceptions=True)
        assert recorder.failure is None
    assert len(await kinds(log)) == 60
    assert (await verify(log, await log.experiment("e1"))).problems == []


async def test_what_comes_after_the_end_is_not_recorded_and_does_not_hold_it_up(log: EventLog) -> None:
    recorder = Recorder(log, "e1")
    await recorder.start()
    going = True

    async def send() -> None:
        while going:
            recorder.after(MessageRecord("sent", 1, "c", b"x"))
            await asyncio.sleep(0)

    sending = asyncio.create_task(send())
    await until(lambda: recorder.accepted > 50)
    await asyncio.wait_for(recorder.stop(), 60)
    going = False
    await sending
    await recorder.stop()
    found = await kinds(log)
    assert found == ["sent"] * recorder.accepted
    with pytest.raises(StoreError, match="starts once"):
        await recorder.start()


async def test_a_messager_that_is_closed_after_its_recorder_has_ended_loses_nothing(log: EventLog) -> None:
    async with Messager(MemoryBroker(), "e1") as messager, Recorder(log, "e1") as recorder:
        messager.add_log_hook(recorder)
        await messager.subscribe_and_start_listening(["c"])
    assert await kinds(log) == ["mark"] and recorder.dropped == 0


async def test_closing_fences_also_those_that_only_seem_dead(log: EventLog) -> None:
    recorder = Recorder(log, "e1")
    await recorder.start()
    recorder.mark("before")
    await recorder.flush()
    async with log.database.writing() as connection:  # silent for long: a laptop that slept
        await connection.exec_driver_sql("UPDATE recorder SET heartbeat_at = 0")
    of = await log.experiment("e1")
    await close(log, of)
    head = (await overview(log, of))["head"]
    recorder.mark("after")
    with pytest.raises(RecorderFenced):
        await recorder.stop()
    assert (await overview(log, of))["head"] == head
    with pytest.raises(ExperimentClosed):
        await log.register(of, role="tap")


async def test_a_tap_reads_no_faster_than_the_store_takes(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffer, "MEMORY_EVENTS", 1500)
    monkeypatch.setattr("messager_store.recording.tap.BUFFERED", 500)
    broker = MemoryBroker()
    active = asyncio.Event()
    async with Recorder(log, "e1", role="tap") as recorder:
        tap = Tap(broker, recorder, active=active.set)
        task = asyncio.create_task(tap.run(max_events=20_000))
        await active.wait()
        for part in range(20):
            await broker.publish([(b"c", b"%d" % number) for number in range(part * 1000, part * 1000 + 1000)])
        await task
    assert recorder.dropped == 0
    assert [entry.payload async for entry in log.read("e1")] == [b"%d" % number for number in range(20_000)]


def test_a_mark_may_be_made_between_two_runs_of_the_event_loop(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committer, "SPOOL_SECONDS", 0.0)  # nothing waits for a place in the spool any more then
    loop = asyncio.new_event_loop()

    async def begin() -> Recorder:
        taker = Recorder(await EventLog.open(store), "e1")
        taker.mark("before it started")
        await taker.start()
        await taker.flush()
        return taker

    async def end(taker: Recorder) -> list[str]:
        await taker.stop()
        found = [entry.text for entry in [entry async for entry in taker.log.read("e1")]]
        await taker.log.close()
        return found

    try:
        taker = loop.run_until_complete(begin())
        taker.mark("in between")
        assert loop.run_until_complete(end(taker)) == ["before it started", "in between"]
    finally:
        loop.close()


async def test_what_comes_while_a_batch_is_committed_gathers_before_the_next(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events were once committed at once, a few at a time, with a sync for each batch."""
    monkeypatch.setattr(committer, "FLUSH_SECONDS", 3600)
    batches: list[int] = []
    committing, go_on = asyncio.Event(), asyncio.Event()
    append = EventLog.append

    async def slow(self: EventLog, writer: Any, events: Any, **more: Any) -> None:
        committing.set()
        await go_on.wait()
        batches.append(len(events))
        await append(self, writer, events, **more)

    monkeypatch.setattr(EventLog, "append", slow)
    async with Recorder(log, "e1") as recorder:
        recorder.after(MessageRecord("sent", 1, "c", b"1"))
        flushing = asyncio.create_task(recorder.flush())
        await committing.wait()
        for at in range(2, 12):
            recorder.after(MessageRecord("sent", at, "c", b"%d" % at))
        go_on.set()
        await flushing
        for _ in range(10):
            await asyncio.sleep(0)
        assert batches == [1]
        await recorder.flush()
        assert batches == [1, 10]


async def test_an_id_that_nobody_can_read_stops_no_other_event(log: EventLog) -> None:
    class Nameless:
        def __str__(self) -> str:
            raise KeyError("no name")

    async with Recorder(
        log, "e1", redact=lambda entry: entry._replace(msg_id="\ud800" if entry.ts == 3 else None)
    ) as taker:
        taker.after(MessageRecord("sent", 1, "c", b"1", from_id=Nameless()))
        taker.after(MessageRecord("sent", 2, "c", b"2"))
        taker.after(MessageRecord("sent", 3, "c", b"3"))
        taker.after(MessageRecord("sent", 4, "c", b"4"))
        await taker.flush()
    found = [(entry.kind, entry.payload) async for entry in log.read("e1")]
    assert sorted(found) == [("gap", b""), ("gap", b""), ("sent", b"2"), ("sent", b"4")]
    assert taker.dropped == 2
