"""With MESSAGER_STORE set, every Messager is recorded, and errors never reach the agents."""

from __future__ import annotations

import asyncio
import json
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from messager import MemoryBroker, Messager, MessageRecord, mqtt
from messager_store import EventLog, Recorder
from messager_store.db.databases import for_store
from messager_store.db.postgres import dialect
from messager_store.recording import auto_recorder, committer
from messager_store.recording import recorder as recorder_room
from messager_store.recording.closing import close
from messager_store.recording.recorder import Durability
from tests.messager.test_publisher import Held
from tests.support import nightly_after, self_recording, sql
from tests.support.outages import locked


@pytest.fixture(autouse=True)
def recording(monkeypatch: pytest.MonkeyPatch, store: str) -> None:
    monkeypatch.setenv("MESSAGER_STORE", store)
    monkeypatch.setattr(auto_recorder, "_announced", set())
    monkeypatch.setattr(dialect, "CONNECT_SECONDS", 60)
    monkeypatch.setattr(dialect.Postgres, "open_seconds", 60)


async def say(messager: Messager, number: int, first: int = 0) -> None:
    for at in range(first, first + number):
        await messager.send_message("c", {"n": at})


async def said(store: str, exp_id: str = "e1") -> list[int]:
    async with EventLog.open(store, create=False) as log:
        return [json.loads(event.payload)["n"] async for event in log.read(exp_id, kinds=["sent"])]


async def test_every_messager_of_a_process_records_itself_into_the_experiment_of_its_exp_id(
    store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = MemoryBroker()
    async with Messager(broker, "e1") as driver, Messager(broker, "e1") as group, Messager(broker, "e2") as other:
        await group.subscribe_and_start_listening(["c"])
        driver.mark("step", number=1)
        await say(driver, 3)
        await say(other, 1)
        while len(await group.fetch_messages()) == 0:
            await asyncio.sleep(0)
    assert await said(store) == [0, 1, 2] and await said(store, "e2") == [0]
    async with EventLog.open(store) as log:
        rows = await log.recorders(await log.experiment("e1"))
        kinds = [event.kind async for event in log.read("e1")]
    assert [(row.role, row.state, row.broker) for row in rows] == [("messager", "ended", broker.url)] * 2
    assert sorted(set(kinds)) == ["mark", "received", "sent"]
    assert capsys.readouterr().err.splitlines() == [
        f"messager: recording e1 into {for_store(store).location} (MESSAGER_STORE)",
        f"messager: recording e2 into {for_store(store).location} (MESSAGER_STORE)",
    ]


def test_what_is_said_of_an_experiment_outside_of_its_event_loop_is_kept_with_it(store: str) -> None:
    async def recorded() -> Messager:
        messager = Messager(MemoryBroker(), "e1")
        await messager.init()
        return messager

    async def described() -> Any:
        await asyncio.to_thread(messager.describe, model="m")
        await messager.close()
        async with EventLog.open(store) as log:
            return await log.experiment("first run")

    with asyncio.Runner() as runner:
        messager = runner.run(recorded())
        messager.describe("first run", seed=7)
        of = runner.run(described())
    assert (of.exp_id, of.meta["seed"], of.meta["model"]) == ("e1", 7, "m")


async def test_a_closed_experiment_stays_as_it_is_and_all_meet_in_a_new_one(store: str) -> None:
    broker = MemoryBroker()
    async with Messager(broker, "e1") as messager:
        await say(messager, 1)
    async with EventLog.open(store) as log:
        await close(log, await log.experiment("e1"))
    async with Messager(broker, "e1") as one, Messager(broker, "e1") as two:
        await say(one, 1, 10)
        await say(two, 1, 20)
    assert await said(store) == [0]
    assert sorted(await said(store, "e1-2")) == [10, 20]


async def test_a_messager_that_is_connected_again_is_recorded_again(store: str) -> None:
    messager = Messager(MemoryBroker(), "e1")
    for turn in range(2):
        await asyncio.gather(messager.init(), messager.init())  # both at once: one recorder all the same
        await say(messager, 2, 10 * turn)
        await messager.close()
    assert await said(store) == [0, 1, 10, 11]
    async with EventLog.open(store) as log:
        assert len(await log.recorders()) == 2


@pytest.mark.parametrize(
    ("settings", "exp_id", "line"),
    nightly_after(
        4,
        [
            ({"MESSAGER_DURABILITY": "strick"}, "e1", "unknown durability 'strick'. Use buffered or strict."),
            ({"MESSAGER_STORE": "mongodb://u:hush@h/x"}, "e1", "no store of scheme 'mongodb' is known"),
            ({"MESSAGER_STORE": "text"}, "e1", "is not a messager store"),
            ({"MESSAGER_STORE": ":memory:"}, "e1", "gone when the program ends: name a file, or postgresql://..."),
            ({"MESSAGER_STORE": "sqlite://"}, "e1", "gone when the program ends"),
            ({"MESSAGER_STORE": "sqlite+aiosqlite:///:memory:?hush=1"}, "e1", "gone when the program ends"),
            ({"MESSAGER_STORE": "sqlite:///"}, "e1", "gone when the program ends"),
            ({}, " ", "cannot be an exp_id"),
        ],
    ),
)
async def test_what_cannot_be_recorded_is_told_in_one_line_and_agents_go_on(
    settings: dict[str, str],
    exp_id: str,
    line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text").write_text("no database, but a text that is long enough to be looked at")
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    async with Messager(MemoryBroker(), exp_id) as messager:
        await say(messager, 3)
        assert len(messager.get_log_list()) == 3
    [told] = capsys.readouterr().err.splitlines()
    assert told.startswith(f"messager: {exp_id} is not recorded: ") and line in told and "hush" not in told


async def test_an_exp_id_that_is_no_text_is_told_in_plain_words(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    for exp_id in [5, b"e1", None]:
        async with Messager(MemoryBroker(), exp_id) as messager:
            await say(messager, 1)
        [told] = capsys.readouterr().err.splitlines()
        assert told.startswith(f"messager: {exp_id!r} is not recorded: an exp_id is a str")


async def test_a_messager_that_has_no_exp_id_is_told_how_to_give_it_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("MESSAGER_EXP", raising=False)
    async with mqtt.Messager(MemoryBroker()) as messager:
        await messager.send_message("c", {"n": 0})
    [told] = capsys.readouterr().err.splitlines()
    assert told.startswith("messager: a Messager that has no exp_id is not recorded: ")
    assert "`exp_id=`" in told and "MESSAGER_EXP" in told


@pytest.mark.parametrize("first", [True, False])
async def test_a_messager_with_a_recorder_of_its_own_is_not_recorded_twice(
    first: bool, tmp_path: Path, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with EventLog.open(str(tmp_path / "own.db")) as own, Recorder(own, "e1") as recorder:
        messager = Messager(MemoryBroker(), "e1")
        if first:
            messager.add_log_hook(recorder)
        async with messager:
            if not first:
                await say(messager, 1)
                messager.add_log_hook(recorder)
            await say(messager, 2, 1)
    assert await said(str(tmp_path / "own.db")) == [1, 2]
    told = capsys.readouterr().err
    if first:
        assert sql(store, "SELECT count(*) FROM experiment") == [(0,)] and not told
    else:
        assert await said(store) == [0] and "Recorder that the program added" in told


async def test_a_recorder_that_is_added_while_the_messager_connects_records_alone(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ready(self: auto_recorder.AutoRecorder) -> None:
        await starts(self)
        messager.add_log_hook(recorder)

    starts = auto_recorder.AutoRecorder.ready
    monkeypatch.setattr(auto_recorder.AutoRecorder, "ready", ready)
    messager = Messager(MemoryBroker(), "e1")
    async with EventLog.open(str(tmp_path / "own.db")) as own, Recorder(own, "e1") as recorder, messager:
        await say(messager, 2)
    assert await said(str(tmp_path / "own.db")) == [0, 1] and await said(store) == []


@pytest.mark.parametrize("durability", ["buffered", "strict"])
async def test_a_message_on_its_way_when_the_program_adds_its_recorder_is_recorded_once(
    durability: str, store: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MESSAGER_DURABILITY", durability)
    broker = Held()
    messager = Messager(broker, "e1")
    async with EventLog.open(store) as log, Recorder(log, "e1") as recorder:
        await messager.init()
        hook = self_recording(messager)
        sending = asyncio.create_task(say(messager, 1))
        await broker.asked.wait()
        messager.add_log_hook(recorder)
        broker.let.set()
        await sending
        await say(messager, 2, 1)
        await messager.close()
        await recorder.stop()
        events = [(event.recorder, json.loads(event.payload)["n"]) async for event in log.read("e1")]
        of_recorder = {row.uuid: row.ordinal for row in await log.recorders()}
    assert sorted(events) == sorted(
        [(of_recorder[hook._recorder.uuid], 0), (of_recorder[recorder.uuid], 1), (of_recorder[recorder.uuid], 2)]
    )
    assert not hook._recorder._in_flight and not recorder._in_flight  # nobody waits for what never comes
    assert "dropped" not in capsys.readouterr().err


async def test_a_recorder_of_the_programs_own_can_close_the_experiment_while_the_messager_is_connected(
    store: str,
) -> None:
    async with EventLog.open(store) as log, Messager(MemoryBroker(), "e1") as messager:
        await say(messager, 1)
        hook = self_recording(messager)
        async with Recorder(log, "e1", close_experiment=True) as recorder:
            messager.add_log_hook(recorder)
            await say(messager, 1, 1)
            await asyncio.wait([hook._task], timeout=60)
            messager.remove_log_hook(recorder)
        assert (await log.experiment("e1")).status == "closed"


class Slow:
    """Slow hook."""

    def __init__(self) -> None:
        self.asked, self.let = asyncio.Event(), asyncio.Event()

    async def before_send(self, records: Any) -> None:
        self.asked.set()
        await self.let.wait()

    def after(self, record: MessageRecord) -> None:
        pass


@pytest.mark.parametrize("durability", nightly_after(1, ["buffered", "strict"]))
@pytest.mark.parametrize("before", [True, False])
async def test_a_message_that_another_hook_is_asked_about_when_the_program_adds_its_recorder_is_recorded_once(
    before: bool, durability: Durability, store: str
) -> None:
    messager, slow = Messager(MemoryBroker(), "e1"), Slow()
    if before:  # of the recorder that came with MESSAGER_STORE
        messager.add_log_hook(slow)
    async with EventLog.open(store) as log, Recorder(log, "e1", durability=durability) as recorder:
        await messager.init()
        hook = self_recording(messager)
        if not before:
            messager.add_log_hook(slow)
        sending = asyncio.create_task(say(messager, 1))
        await slow.asked.wait()
        messager.add_log_hook(recorder)
        slow.let.set()
        await sending
        await say(messager, 2, 1)
        await messager.close()
        await recorder.flush()
        assert not recorder._in_flight and not recorder._intents and not hook._recorder._in_flight
        events = [(event.recorder, json.loads(event.payload)["n"]) async for event in log.read("e1")]
        of_recorder = {row.uuid: row.ordinal for row in await log.recorders()}
    assert sorted(events) == sorted(
        [(of_recorder[hook._recorder.uuid], 0), (recorder.ordinal, 1), (recorder.ordinal, 2)]
    )


async def test_a_message_that_takes_longer_than_a_recorder_waits_at_its_end_is_recorded_all_the_same(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_room, "STOP_SECONDS", 0.001)
    messager, slow = Messager(MemoryBroker(), "e1"), Slow()
    async with EventLog.open(store) as log, Recorder(log, "e1") as recorder:
        await messager.init()
        messager.add_log_hook(slow)  # behind ours, which was asked
        hook = self_recording(messager)
        sending = asyncio.create_task(say(messager, 1))
        await slow.asked.wait()
        messager.add_log_hook(recorder)
        closing = asyncio.create_task(messager.close())
        ended, _ = await asyncio.wait([hook._task], timeout=0.1)
        assert not ended
        slow.let.set()
        await asyncio.gather(sending, closing)
        assert [event.recorder async for event in log.read("e1")] == [hook._recorder.ordinal]


async def test_a_recorder_that_has_ended_keeps_nobody_from_sending(store: str) -> None:
    messager, slow = Messager(MemoryBroker(), "e1"), Slow()
    messager.add_log_hook(slow)
    async with EventLog.open(store) as log:
        await messager.init()
        sending = asyncio.create_task(say(messager, 1))
        await slow.asked.wait()
        async with Recorder(log, "e1", durability="strict") as recorder:
            messager.add_log_hook(recorder)
            messager.remove_log_hook(recorder)
        slow.let.set()
        await sending
        await messager.close()


async def test_strict_is_kept_where_it_is_asked_for(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MESSAGER_DURABILITY", "strict")
    committed: list[list[int]] = []

    class Looks(MemoryBroker):
        def publish(self, messages: Any) -> Any:
            committed.append([count for (count,) in sql(store, "SELECT count(*) FROM event")])
            return super().publish(messages)

    async with Messager(Looks(), "e1") as messager:
        await say(messager, 2)
    assert committed == [[1], [2]]


async def test_a_strict_promise_that_cannot_be_kept_is_told_and_the_message_goes_out(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MESSAGER_DURABILITY", "strict")
    (tmp_path / "file").touch()
    monkeypatch.setenv("MESSAGER_SPOOL", str(tmp_path / "file" / "spool"))
    monkeypatch.setattr(committer, "HOLD_SECONDS", 0.1)
    async with Messager(MemoryBroker(), "e1") as messager:
        with locked(store):
            await say(messager, 2)
        assert len(messager.get_log_list()) == 2
    told = capsys.readouterr().err
    assert told.count("strict cannot be kept") == 1
    assert await said(store) == [0, 1]  # in memory until the store was free again


async def test_whatever_a_recorder_raises_before_a_message_is_sent_the_message_goes_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def breaks(*given: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(Recorder, "before_send", breaks)
    async with Messager(MemoryBroker(), "e1") as messager:
        await say(messager, 2)
        assert len(messager.get_log_list()) == 2
    assert capsys.readouterr().err.count("messages are sent nevertheless: broken") == 1


async def test_a_hook_of_an_entry_point_that_cannot_be_stopped_harms_nobody(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def stop(self: auto_recorder.AutoRecorder) -> None:
        await stopped(self)
        raise RuntimeError("not today")

    stopped = auto_recorder.AutoRecorder.stop
    monkeypatch.setattr(auto_recorder.AutoRecorder, "stop", stop)
    async with Messager(MemoryBroker(), "e1") as messager:
        await say(messager, 1)
    assert "not today" in caplog.text and messager._offered == []


async def test_an_entry_point_that_raises_harms_nobody(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def begin(exp_id: str, hooks: Any) -> None:
        raise RuntimeError("not today")

    monkeypatch.setattr(auto_recorder, "begin", begin)
    async with Messager(MemoryBroker(), "e1") as messager:
        await say(messager, 1)
    assert "e1 is not recorded" in capsys.readouterr().err


async def test_where_nothing_that_is_installed_records_a_line_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], store: str
) -> None:
    monkeypatch.setattr(metadata, "entry_points", lambda **given: metadata.EntryPoints())
    async with Messager(MemoryBroker(), "e1") as messager:
        await say(messager, 1)
    assert capsys.readouterr().err == "messager: MESSAGER_STORE is set, but no installed package records\n"
    assert sql(store, "SELECT count(*) FROM experiment") == [(0,)]


async def test_what_is_installed_may_be_out_of_order(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def entry_points(**given: Any) -> metadata.EntryPoints:
        raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "not today")

    monkeypatch.setattr(metadata, "entry_points", entry_points)
    async with Messager(MemoryBroker(), "e1") as messager:
        await say(messager, 1)
    [told] = capsys.readouterr().err.splitlines()
    assert told.startswith("messager: e1 is not recorded: ") and "not today" in told


@pytest.mark.parametrize("there", [True, False])
async def test_without_standard_error_nothing_is_told_and_nobody_harmed(
    there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(metadata, "entry_points", lambda **given: metadata.EntryPoints())
    with (tmp_path / "stderr").open("w") as closed:
        pass
    monkeypatch.setattr(sys, "stderr", closed if there else None)
    async with Messager(MemoryBroker(), "e1") as messager:
        await say(messager, 1)
        assert len(messager.get_log_list()) == 1
    assert capsys.readouterr().out == ""


async def test_a_recorder_of_the_programs_own_is_told_what_the_experiment_is_and_keeps_what_it_knew(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MESSAGER_STORE")
    async with Recorder(log, "e1", meta={"seed": 1}) as recorder, Messager(MemoryBroker(), "e1") as messager:
        messager.describe("a name", seed=2, model="m")
        messager.add_log_hook(recorder)
        messager.describe("another name", late=True)
    of = await log.experiment("e1")
    assert (of.name, of.meta["seed"], of.meta["model"], of.meta["late"]) == ("a name", 1, "m", True)


async def test_a_description_that_json_cannot_hold_is_refused() -> None:
    with pytest.raises(TypeError):
        Messager(MemoryBroker(), "e1").describe(config=object())


async def test_what_happens_after_the_end_is_not_recorded_and_waits_nowhere(store: str) -> None:
    async with Messager(MemoryBroker(), "e1") as messager:
        await say(messager, 1)
        hook = self_recording(messager)
    assert messager._offered == []
    hook.after(MessageRecord("sent", 1, "c", b'{"n": 9}'))
    await hook.stop()
    assert await said(store) == [0] and len(hook._recorder) == 0
