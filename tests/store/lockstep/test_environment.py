"""With `MESSAGER_REPLAY` in the environment, each Messager finds its part of the recording."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from messager import MemoryBroker, Messager, RedisConfig
from messager.testing import RedisServer
from messager_store import EventLog, LiveReplay
from messager_store.errors import ExperimentNotFound, StoreError, StoreUnavailable
from tests.messager.test_messager import fetched
from tests.support import until
from tests.support.logs import listed
from tests.support.redis_topologies import ask
from tests.support.scenes import Scene, questions

pytestmark = pytest.mark.sqlite


async def asks(messager: Messager, *questions: str) -> None:
    await messager.subscribe_and_start_listening(["exps:e2:agents:1:*"])
    for question in questions:
        await messager.send_message("exps:e2:agents:3:q", question, 1)
        await fetched(messager, 1)


async def answers(messager: Messager, count: int) -> list[Any]:
    await messager.subscribe_and_start_listening(["exps:e2:agents:3:*"])
    heard = []
    for number in range(count):
        heard += [json.loads(message["data"]) for message in await fetched(messager, 1)]
        await messager.send_message("exps:e2:agents:1:a", f"a{number}", 3)
    return heard


async def test_each_messager_finds_its_part_by_its_subscriptions_and_says_which(
    recorded: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    await recorded(questions())
    broker = MemoryBroker()
    async with Messager(broker, "e2") as one, Messager(broker, "e2") as three:
        _, heard = await asyncio.gather(asks(one, "q0", "q1"), answers(three, 2))
    assert heard == ["q0", "q1"]
    errors = capsys.readouterr().err
    assert "a Messager of e2 plays agent 1 of e1\n" in errors and "a Messager of e2 plays agent 3 of e1\n" in errors
    for agent in (1, 3):
        assert f"agent {agent}: 2 messages expected, 2 matched, 0 different, 0 missing, 0 unexpected\n" in errors


async def test_the_exp_id_alone_is_enough(recorded: Any, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    await recorded(questions())
    monkeypatch.setenv("MESSAGER_REPLAY", "e1")
    monkeypatch.setenv("MESSAGER_STORE", store)
    broker = MemoryBroker()
    async with Messager(broker, "e2") as one, Messager(broker, "e2") as three:
        await asyncio.gather(asks(one, "q0", "q1"), answers(three, 2))
    async with EventLog.open(store) as log:
        assert len(await listed(log.read("e2"))) > 8


async def test_messages_for_a_messager_that_starts_late_are_kept(recorded: Any) -> None:
    await recorded(questions())
    broker = MemoryBroker()
    async with Messager(broker, "e2") as one:
        asking = asyncio.create_task(asks(one, "q0", "q1"))
        for _ in range(100):
            await asyncio.sleep(0)
        async with Messager(broker, "e2") as three:
            assert await answers(three, 2) == ["q0", "q1"]
        await asking


async def test_a_messager_that_never_starts_is_waited_for_once_and_that_is_reported(
    recorded: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    await recorded(questions(), patience=0.1)
    async with Messager(MemoryBroker(), "e2") as one:
        await one.subscribe_and_start_listening(["exps:e2:agents:1:*"])
        await one.send_message("exps:e2:agents:3:q", "q0", 1)
    assert "agent 1: 2 messages expected, 1 matched, 0 different, 1 missing, 0 unexpected, timed out" in (
        capsys.readouterr().err
    )


async def test_reports_are_written_as_json_and_the_first_divergence_is_told(
    recorded: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await recorded(questions(), report=str(tmp_path / "reports" / "now"))
    broker = MemoryBroker()
    async with Messager(broker, "e2") as one, Messager(broker, "e2") as three:
        await asyncio.gather(asks(one, "q0", "other"), answers(three, 2))
    reports = {file.stem: json.loads(file.read_text()) for file in (tmp_path / "reports" / "now").iterdir()}
    assert sorted(reports) == ["messager-of-1", "messager-of-3"]
    first = reports["messager-of-1"]
    assert (first["expected"], first["matched"], first["different"], first["exact"]) == (2, 1, 1, True)
    assert [(one["expected"], one["said"], one["path"]) for one in first["divergences"]] == [('"q1"', '"other"', "$")]
    told = capsys.readouterr().err
    assert (
        "different: agent 1, message 2 of 2" in told and 'live      "other"' in told and "MESSAGER_REPLAY" not in told
    )


async def test_the_first_divergence_of_each_messager_is_shown_with_the_way_to_see_the_others(
    recorded: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    await recorded(questions())
    broker = MemoryBroker()
    async with Messager(broker, "e2") as one, Messager(broker, "e2") as three:
        await asyncio.gather(asks(one, "q0", "other"), answers(three, 2))
    shown = capsys.readouterr().err.splitlines()
    at = shown.index("messager: agent 1: 2 messages expected, 1 matched, 1 different, 0 missing, 0 unexpected")
    assert shown[at + 1 : at + 4] == [
        "messager: different: agent 1, message 2 of 2, on exps:e2:agents:3:q",
        'messager:   recorded  "q1"',
        'messager:   live      "other"',
    ]
    assert '"report"' in shown[at + 4] and "MESSAGER_REPLAY" in shown[at + 4]
    assert not any("different: agent 3" in line for line in shown)


async def test_rules_of_the_file_decide_what_matches(recorded: Any, capsys: pytest.CaptureFixture[str]) -> None:
    made = Scene()
    made.say(1, "c", {"id": 1, "text": "a"})
    await recorded(made, match={"ignore": ["id"]})
    async with Messager(MemoryBroker(), "e2") as one:
        await one.send_message("c", {"id": 2, "text": "a"}, 1)
    assert "agent 1: 1 message expected, 1 matched" in capsys.readouterr().err


async def test_renamed_channels_are_those_of_the_file(recorded: Any, capsys: pytest.CaptureFixture[str]) -> None:
    made = Scene()
    made.say(1, "old", "a")
    await recorded(made, map={"old": "new"})
    async with Messager(MemoryBroker(), "e2") as one:
        await one.send_message("new", "a", 1)
    assert "agent 1: 1 message expected, 1 matched" in capsys.readouterr().err


# What cannot be replayed


async def test_a_recording_that_does_not_exist_is_refused_at_init(
    recorded: Any, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await recorded(questions(), experiment="e9")
    messager = Messager(MemoryBroker(), "e2")
    with pytest.raises(ExperimentNotFound, match="e9"):
        await messager.init()
    assert not messager.connected
    monkeypatch.setenv("MESSAGER_REPLAY", "e1")
    monkeypatch.setenv("MESSAGER_STORE", str(Path(store).with_name("nowhere.db")))
    with pytest.raises(StoreUnavailable):
        await messager.init()
    monkeypatch.setenv("MESSAGER_STORE", store)
    await messager.init()
    await messager.close()


async def test_after_a_refusal_no_connection_is_left(recorded: Any, redis: RedisServer) -> None:
    await recorded(questions(), experiment="e9")

    async def clients() -> int:
        return str(await ask(redis.port, "CLIENT", "LIST")).count("name=")

    async def as_before() -> bool:
        return await clients() == before

    before = await clients()
    with pytest.raises(ExperimentNotFound):
        await Messager(RedisConfig(server="127.0.0.1", port=redis.port), "e2").init()
    await until(as_before)


async def test_a_recording_is_not_replayed_into_itself(
    recorded: Any, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await recorded(questions())
    monkeypatch.setenv("MESSAGER_STORE", store)
    with pytest.raises(
        StoreError, match=r"^the recording e1 cannot be replayed into itself: give .* another exp_id"
    ) as no:
        await Messager(MemoryBroker(), "e1").init()
    assert "\n" not in str(no.value)
    monkeypatch.delenv("MESSAGER_STORE")
    async with Messager(MemoryBroker(), "e1"):
        pass


# Which part a Messager plays


async def test_a_surplus_messager_runs_without_a_gate_and_is_reported(
    recorded: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    await recorded(questions())
    broker = MemoryBroker()
    async with Messager(broker, "e2") as one, Messager(broker, "e2") as three, Messager(broker, "e2") as viewer:
        await viewer.subscribe_and_start_listening(["*"])
        await asyncio.gather(asks(one, "q0", "q1"), answers(three, 2))
        assert len(await fetched(viewer, 4)) == 4
    errors = capsys.readouterr().err
    assert "a Messager of e2 stands for none of e1: it runs without a gate. MESSAGER_AGENTS=ID names" in errors
    assert "other Messagers of this process play agent 1, agent 3." in errors


async def test_agents_that_the_recording_does_not_have_are_named_with_those_that_it_has(
    recorded: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    await recorded(questions())
    monkeypatch.setenv("MESSAGER_AGENTS", "12")
    async with Messager(MemoryBroker(), "e2") as one:
        await one.send_message("c", "x", 12)
    assert "MESSAGER_AGENTS is 12; the recording has agent 1, agent 3." in capsys.readouterr().err


async def test_recorded_messages_that_nobody_publishes_are_reported_with_the_command_that_does(
    recorded: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    await recorded(questions(), live=[3], patience=0.1)
    async with Messager(MemoryBroker(), "e2") as three:
        await three.subscribe_and_start_listening(["exps:e2:agents:3:*"])
        await three.fetch_messages()
    assert "2 messages of e1 have no live sender: `messager replay e1 --live ...`" in capsys.readouterr().err


async def test_beside_a_replay_that_publishes_them_nothing_is_said_of_recorded_messages(
    recorded: Any, log: EventLog, capsys: pytest.CaptureFixture[str]
) -> None:
    await recorded(questions(), live=[3])
    broker = MemoryBroker()
    replay = LiveReplay(log, "e1", broker, live=[3], to_exp="e2", patience=5)

    async def three() -> None:
        async with Messager(broker, "e2") as messager:
            await answers(messager, 2)

    await asyncio.gather(replay.run(), three())
    assert replay.report.equal
    assert "no live sender" not in capsys.readouterr().err


async def test_a_divergence_of_a_program_is_shown_with_what_it_had_heard(recorded: Any, log: EventLog) -> None:
    await recorded(questions(), live=[3])
    broker = MemoryBroker()
    replay = LiveReplay(log, "e1", broker, live=[3], to_exp="e2", patience=5)

    async def three() -> None:
        async with Messager(broker, "e2") as messager:
            await messager.subscribe_and_start_listening(["exps:e2:agents:3:*"])
            for content in ("a0", "other"):
                await fetched(messager, 1)
                await messager.send_message("exps:e2:agents:1:a", content, 3)

    await asyncio.gather(replay.run(), three())
    assert replay.report.first is not None
    first = replay.report.first
    assert first.said == b'"other"'
    assert first.heard == [("exps:e2:agents:3:q", b'"q0"'), ("exps:e2:agents:3:q", b'"q1"')]


async def test_a_program_with_other_subscriptions_than_recorded_is_told_on_both_sides(
    recorded: Any, log: EventLog, capsys: pytest.CaptureFixture[str]
) -> None:
    await recorded(questions(), live=[3], agents=[3], patience=0.1)
    broker = MemoryBroker()
    replay = LiveReplay(log, "e1", broker, live=[3], to_exp="e2", patience=0.5)

    async def three() -> None:
        async with Messager(broker, "e2") as messager:
            await messager.subscribe_and_start_listening(["elsewhere"])
            await messager.fetch_messages()
            await messager.fetch_messages()

    await asyncio.gather(replay.run(), three())
    assert replay.report.first is not None and replay.report.first.heard == []
    assert replay.report.notes == ["agent 3 has not subscribed to exps:e2:agents:3:q, where the recorded one received"]
    assert (
        "2 messages of the recording could not reach it: it was subscribed to elsewhere, and the recorded one to "
        "exps:e2:agents:3:*" in capsys.readouterr().err
    )


async def test_messagers_that_are_left_are_announced_after_the_first_one_is_closed(
    recorded: Any, redis: RedisServer
) -> None:
    """The announcements go over a broker of one of the Messagers, which the first one closes."""
    await recorded(questions())

    async def clients() -> int:
        return str(await ask(redis.port, "CLIENT", "LIST")).count("name=")

    async def as_before() -> bool:
        return await clients() == before

    before = await clients()
    config = RedisConfig(server="127.0.0.1", port=redis.port)
    first = Messager(config, "e2")
    await first.init()
    async with Messager(config, "e2") as one, Messager(config, "e2") as three:
        await first.close()
        await asyncio.gather(asks(one, "q0", "q1"), answers(three, 2))
    await until(as_before)


async def test_a_recording_without_a_schedule_is_replayed_in_its_order_and_that_is_said(
    recorded: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Scene(schedule=False)
    for number in range(2):
        made.say(1, "exps:e1:agents:3:q", f"q{number}")
        made.say(3, "exps:e1:agents:1:a", f"a{number}")
    await recorded(made)
    broker = MemoryBroker()
    async with Messager(broker, "e2") as one, Messager(broker, "e2") as three:
        _, heard = await asyncio.gather(asks(one, "q0", "q1"), answers(three, 2))
    assert heard == ["q0", "q1"]
    errors = capsys.readouterr().err
    assert "plays agent 3 of e1 (what was heard is not recorded, so the order of the replay is used)" in errors
    assert "agent 3: 2 messages expected, 2 matched" in errors


async def test_a_messager_that_connects_after_all_others_have_ended_begins_a_new_replay(
    recorded: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Scene()
    made.say(1, "c", "a")
    await recorded(made)
    for _ in range(2):
        async with Messager(MemoryBroker(), "e2") as one:
            await one.send_message("c", "a", 1)
    assert capsys.readouterr().err.count("agent 1: 1 message expected, 1 matched") == 2


async def test_messages_that_arrive_while_a_messager_takes_its_part_keep_their_order(
    recorded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its announcement is held up meanwhile."""
    made = Scene()
    made.subscribe(3, "exps:e1:all:*", "exps:e1:agents:3:*")
    made.say(1, "exps:e1:all:x", "A")
    await recorded(made)
    broker, announced = MemoryBroker(), asyncio.Event()
    publish = broker.publish

    async def held_up(messages: Any) -> Any:
        if messages[0][0].startswith(b"messager-replay"):
            await announced.wait()
        return await publish(messages)

    monkeypatch.setattr(broker, "publish", held_up)
    async with Messager(broker, "e2") as messager:
        await messager.subscribe_and_start_listening(["exps:e2:all:*"])  # more may come: the part is not known yet
        await publish([(b"exps:e2:all:x", payload) for payload in (b'"A"', b'"B"')])
        await turns()
        taking = asyncio.create_task(messager.subscribe_and_start_listening(["exps:e2:agents:3:*"]))
        await turns()
        await publish([(b"exps:e2:all:x", b'"C"')])
        await turns()
        announced.set()
        await taking
        assert [json.loads(message["data"]) for message in await fetched(messager, 3)] == ["A", "B", "C"]


async def turns() -> None:
    """Let the other tasks run until each of them waits."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_message_waits_no_longer_for_its_recipient_when_its_messager_is_closed(
    recorded: Any,
) -> None:
    await recorded(questions(), patience=1000)
    messager = Messager(MemoryBroker(), "e2")
    await messager.init()
    await messager.subscribe_and_start_listening(["exps:e2:agents:1:*"])
    sending = asyncio.create_task(messager.send_message("exps:e2:agents:3:q", "q0", 1))
    await turns()
    assert not sending.done()
    await messager.close()
    async with asyncio.timeout(60):
        await asyncio.wait([sending])


async def test_a_report_that_cannot_be_written_is_told_and_nothing_else_is_lost(
    recorded: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    await recorded(questions(), report=str(tmp_path / "file" / "reports"))
    broker = MemoryBroker()
    async with Messager(broker, "e2") as one, Messager(broker, "e2") as other:
        await asyncio.gather(asks(one, "q0", "q1"), answers(other, 2))
    assert f"cannot write the report {tmp_path}/file/reports/" in capsys.readouterr().err
