"""The schedule in the log: events have their Messager and its number wherever they are copied, and verify covers it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from messager import MemoryBroker, Messager, PublishError
from messager.record import CLOSED, SUBSCRIBED
from messager_store import EventLog, NewEvent, Recorder
from messager_store.errors import BadCursor
from messager_store.formats.jsonl import export_jsonl, import_jsonl
from messager_store.formats.pack import pack, unpack
from messager_store.formats.sharing import Sharing
from messager_store.log.cursor import resolve
from messager_store.maintenance.verify import verify
from messager_store.recording.closing import close
from messager_store.recording.repair import repair
from messager_store.recording.tap import Tap
from tests.messager.test_messager import fetched
from tests.support import Listed, Stores, messager, nightly_after, self_recording, sql, until
from tests.support.outages import everything_drained, locked
from tests.support.parts import content, gathered

Numbered = list[tuple[str, Any, Any]]


async def numbered(log: EventLog, exp_id: str = "e1", *kinds: str) -> Numbered:
    """Return the kind, the Messager and the number of each event, in replay order."""
    return [(event.kind, event.messager, event.arrival) async for event in log.read(exp_id, kinds=kinds or None)]


async def subscriptions(log: EventLog, exp_id: str = "e1") -> list[tuple[Any, Any]]:
    """Return the Messager and the patterns of each mark of subscriptions."""
    marks = [event async for event in log.read(exp_id, kinds=["mark"])]
    found = [(mark.messager, mark.meta or {}) for mark in marks]
    return [(messager, meta["fields"]["patterns"]) for messager, meta in found if meta["name"] == SUBSCRIBED]


async def converse(*hooks: Any, exp_id: str = "e1") -> tuple[str, str]:
    """Let two Messagers with the same hooks talk: every kind of event has a number. Return their ids."""

    class Refuses:
        async def forward(self, from_id: Any, to_id: Any, message: str) -> bool:
            return False

    broker = MemoryBroker()
    async with Messager(broker, exp_id) as one, Messager(broker, exp_id, Refuses()) as two:
        for hook in hooks:
            one.add_log_hook(hook)
            two.add_log_hook(hook)
        await one.subscribe_and_start_listening([f"exps:{exp_id}:agents:1:*"])
        await two.subscribe_and_start_listening([f"exps:{exp_id}:agents:2:*", f"exps:{exp_id}:agents:*:all"])
        for number in range(3):
            await one.send_message(two.get_agent_chat_channel(2), {"n": number})
            await fetched(two, 1)
            await two.send_message(one.get_agent_chat_channel(1), {"answer": number})
            await two.send_message("c", {"n": number}, 2, 1)
        await fetched(one, 3)
        one.mark("tick")
        broker.interrupt()
        with pytest.raises(PublishError):
            await one.send_message("c", {})
        broker.resume()
        return one.id, two.id


@pytest.mark.parametrize("durability", ["buffered", "strict"])
async def test_events_of_several_messagers_with_one_recorder_have_their_messager_and_its_numbers(
    log: EventLog, durability: Any
) -> None:
    hook = Listed()
    async with Recorder(log, "e1", durability=durability) as recorder:
        one, two = await converse(hook, recorder)
    every = *hook.subscriptions, *hook.records, *hook.closings
    told = [(r.kind, r.messager, r.arrival) for r in every if r.kind != "gap"]
    stored = await numbered(log)
    if durability == "strict":  # an intent is logged before its outcome, which retracts it
        told.append(("sent", one, 3))
    assert sorted(told) == sorted(each for each in stored if each[0] != "gap")
    for who, kind, numbers in (
        (one, "received", [1, 2, 3]),
        (two, "received", [1, 2, 3]),
        (two, "sent", [1, 2, 3]),
        (two, "blocked", [1, 2, 3]),
        (one, "failed", [3]),
    ):
        assert [number for each, by, number in stored if (each, by) == (kind, who)] == numbers, kind
    first, second = (["exps:e1:agents:1:*"], ["exps:e1:agents:2:*", "exps:e1:agents:*:all"])
    assert await subscriptions(log) == [(one, first), (two, second)]
    assert (await verify(log, await log.experiment("e1"))).problems == []


async def test_a_recorder_that_is_added_late_has_the_numbers_and_the_subscriptions(log: EventLog) -> None:
    async with Recorder(log, "e1") as recorder, Messager(MemoryBroker(), "e1") as one:
        await one.subscribe_and_start_listening(["c"])
        for _ in range(2):
            await one.send_message("c", {})
        await fetched(one, 2)
        one.add_log_hook(recorder)
        await one.send_message("c", {})
        await fetched(one, 1)
    found = [("mark", one.id, 2), ("sent", one.id, 2), ("received", one.id, 3), ("mark", one.id, 3)]
    assert await numbered(log) == found
    assert await subscriptions(log) == [(one.id, ["c"])]


async def test_numbers_are_right_where_redact_drops_events(log: EventLog) -> None:
    seen: list[str] = []

    def redact(entry: NewEvent) -> NewEvent | None:
        seen.append(entry.kind)
        return None if b"secret" in entry.payload else entry

    async with Recorder(log, "e1", redact=redact) as recorder, Messager(MemoryBroker(), "e1") as one:
        one.add_log_hook(recorder)
        await one.subscribe_and_start_listening(["c"])
        for word in ("secret", "open", "secret", "open"):
            await one.send_message("c", {"content": word})
            await fetched(one, 1)
    assert seen[0] == "mark" and await subscriptions(log) == [(one.id, ["c"])]
    assert await numbered(log, "e1", "sent") == [("sent", one.id, 1), ("sent", one.id, 3)]
    assert await numbered(log, "e1", "received") == [("received", one.id, 2), ("received", one.id, 4)]


async def test_numbers_are_right_in_an_export_with_filters_that_is_imported_again(
    log: EventLog, tmp_path: Path
) -> None:
    async with Recorder(log, "e1") as recorder:
        _, two = await converse(recorder)
    await export_jsonl(log, "e1", tmp_path / "all.jsonl")
    await import_jsonl(log, tmp_path / "all.jsonl", "all")
    assert await numbered(log, "all") == await numbered(log) and await subscriptions(log, "all")
    await export_jsonl(log, "e1", tmp_path / "some.jsonl", kinds=["received"], after=await _second(log, two))
    await import_jsonl(log, tmp_path / "some.jsonl", "some")
    assert [number for _, by, number in await numbered(log, "some") if by == two] == [3]


async def _second(log: EventLog, messager: str) -> str:
    """Return the cursor of the second reception of a Messager."""
    [cursor] = [
        str(e.cursor) async for e in log.read("e1", kinds=["received"]) if (e.messager, e.arrival) == (messager, 2)
    ]
    return cursor


async def test_packs_and_gathered_parts_have_the_same_schedule(
    log: EventLog, store: str, stores: Stores, tmp_path: Path
) -> None:
    async with Recorder(log, "e1") as recorder:
        await converse(recorder)
    await close(log, await log.experiment("e1"))
    await pack(log, "e1", tmp_path / "e1.pack")
    async with EventLog.open(stores.fresh()) as other, EventLog.open(stores.fresh()) as third:
        of = await unpack(other, tmp_path / "e1.pack")
        await gathered(third, store)
        assert await content(other) == await content(third) == await content(log)
        for copied in (other, third):
            assert (await verify(copied, await copied.experiment(of.exp_id))).problems == []
            assert await numbered(copied) == await numbered(log)


async def test_pseudonymised_exports_name_no_agent_in_subscriptions(log: EventLog, tmp_path: Path) -> None:
    async with Recorder(log, "e1") as recorder:
        one, two = await converse(recorder)
    await export_jsonl(log, "e1", tmp_path / "shared.jsonl", shared=Sharing(pseudonymise=True))
    await import_jsonl(log, tmp_path / "shared.jsonl", "shared")
    channels = {e.channel async for e in log.read("shared", kinds=["received"])}
    (first, [(agent_one,)]), (second, [(agent_two, to_all)]) = (
        (messager, [patterns]) for messager, patterns in await subscriptions(log, "shared")
    )
    assert {agent_one.replace("*", "agent-chat"), agent_two.replace("*", "agent-chat")} == channels
    shared = agent_one.split(":")[1]
    assert "agents:1:" not in agent_one + agent_two and to_all == f"exps:{shared}:agents:*:all" and shared != "e1"
    assert len({one, two, first, second}) == 4
    events = await numbered(log, "shared")
    assert [number for kind, by, number in events if (kind, by) == ("received", second)] == [1, 2, 3]


@pytest.mark.parametrize(
    ("change", "where"),
    nightly_after(
        2,
        [
            (
                """UPDATE event SET attributes = replace(attributes, '"a":', '"a":1')
                WHERE id = (SELECT max(id) FROM event WHERE kind = 2)""",
                "was changed",
            ),
            ("UPDATE event SET attributes = NULL WHERE kind = 2", "was changed"),
            (
                "UPDATE event SET messager_id = NULL WHERE id = (SELECT max(id) FROM event WHERE kind = 2)",
                "was changed",
            ),
            (
                "UPDATE event SET messager_id = (SELECT max(messager_id) + min(messager_id) - event.messager_id "
                "FROM event AS e)",  # each of the other one
                "was changed",
            ),
            ("UPDATE event SET attributes = replace(attributes, 'agents:1', 'agents:3') WHERE kind = 6", "was changed"),
        ],
    ),
)
async def test_a_changed_schedule_is_found(log: EventLog, store: str, change: str, where: str) -> None:
    async with Recorder(log, "e1") as recorder:
        await converse(recorder)
    of = await log.experiment("e1")
    assert (await verify(log, of)).problems == []
    sql(store, change)
    problems = (await verify(log, of)).problems
    assert any(where in problem for problem in problems), problems


@pytest.mark.usefixtures("quick")
async def test_numbers_wait_in_the_spool_and_are_drained(log: EventLog, store: str) -> None:
    taker = Recorder(log, "e1")
    await taker.start()
    with locked(store):
        one, two = await converse(taker)
        await taker.stop()
    assert taker.spooled
    await everything_drained(log, taker.spool_path.parent)
    stored = await numbered(log)
    assert [number for kind, by, number in stored if (kind, by) == ("received", two)] == [1, 2, 3]
    assert {by for _, by, _ in stored if by is not None} == {one, two} and len(await subscriptions(log)) == 2
    assert (await verify(log, await log.experiment("e1"))).problems == []


async def test_numbers_go_on_when_a_recorder_was_ended_by_another_process_and_continues(log: EventLog) -> None:
    async with Recorder(log, "e1") as recorder, Messager(MemoryBroker(), "e1") as one:
        one.add_log_hook(recorder)
        await one.subscribe_and_start_listening(["c"])
        for number in range(2):
            await one.send_message("c", {})
            await fetched(one, 1)
            await recorder.flush()
            if number == 0:
                async with log.database.writing() as connection:
                    await connection.exec_driver_sql("UPDATE recorder SET heartbeat_at = 0")
                assert len(await repair(log, await log.experiment("e1"))) == 1
    assert await numbered(log, "e1", "received") == [("received", one.id, 1), ("received", one.id, 2)]
    assert await numbered(log, "e1", "sent") == [("sent", one.id, 0), ("sent", one.id, 1)]
    assert await subscriptions(log) == [(one.id, ["c"])]


async def test_a_successor_in_the_next_experiment_has_the_subscriptions_and_the_numbers_go_on(
    log: EventLog, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MESSAGER_STORE", store)
    broker = MemoryBroker()
    async with Messager(broker, "e1") as one, Messager(broker, "e1") as idle:
        for each in (one, idle):
            await each.subscribe_and_start_listening(["c"])
        await one.send_message("c", {})
        await fetched(one, 1)
        await fetched(idle, 1)
        for each in (one, idle):
            await self_recording(each)._recorder.flush()
        await close(log, await log.experiment("e1"), force=True)
        await one.send_message("other", {})
        await self_recording(one)._recorder.flush()
        assert await subscriptions(log, "e1-2") == [(one.id, ["c"])]
        await one.send_message("c", {})
        await fetched(one, 1)
        await one.subscribe_and_start_listening(["d"])
    assert await numbered(log, "e1", "received") == [("received", one.id, 1), ("received", idle.id, 1)]
    events = await numbered(log, "e1-2")
    assert sorted(each for each in events if each[1] == one.id) == [
        ("mark", one.id, 0),
        ("mark", one.id, 2),
        ("mark", one.id, 2),
        ("received", one.id, 2),
        ("sent", one.id, 1),
        ("sent", one.id, 1),
    ]
    repeated = await subscriptions(log, "e1-2")
    assert (one.id, ["c"]) in repeated and (one.id, ["d"]) in repeated


@pytest.mark.parametrize("says", [True, False])
async def test_a_successor_logs_subscriptions_only_with_its_first_event_and_closing_is_none(
    says: bool, log: EventLog, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MESSAGER_STORE", store)
    async with Messager(MemoryBroker(), "e1") as one:
        await one.subscribe_and_start_listening(["c"])
        recorder = self_recording(one)._recorder
        await recorder.flush()
        first = recorder.uuid
        await close(log, await log.experiment("e1"), force=True)
        recorder.connected(one.broker.url, one.clock, None)  # it finds out as soon as it writes to its row
        await until(lambda: recorder.uuid != first)
        await asyncio.sleep(0)
        assert [of.exp_id for of in await log.experiments()] == ["e1"]
        if says:
            await one.send_message("other", {})
    if says:
        assert await numbered(log, "e1-2") == [("sent", one.id, 0), ("mark", one.id, 0), ("mark", one.id, 0)]
        assert await subscriptions(log, "e1-2") == [(one.id, ["c"])]
    assert [of.exp_id for of in await log.experiments()] == (["e1", "e1-2"] if says else ["e1"])


async def test_events_of_taps_have_no_schedule(log: EventLog) -> None:
    broker, active = MemoryBroker(), asyncio.Event()
    async with Recorder(log, "tapped", role="tap") as recorder:
        tap = asyncio.create_task(Tap(broker, recorder, ["c"], active=active.set).run(max_events=1))
        await active.wait()
        async with Messager(broker, "tapped") as one:
            await one.send_message("c", {})
        await tap
    assert await numbered(log, "tapped") == [("received", None, None)]


async def test_the_schedule_is_shown_by_the_command_line_and_in_sql(log: EventLog, store: str, tmp_path: Path) -> None:
    async with Recorder(log, "e1") as recorder:
        one, two = await converse(recorder)
    done = messager("events", "e1", "--store", store, "--json", cwd=tmp_path)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    events = [event async for event in log.read("e1")]
    assert [(line.get("messager"), line.get("arrival")) for line in lines] == [
        (event.messager, event.arrival) for event in events
    ]
    rows = sql(store, "SELECT messager, arrival FROM event_view WHERE exp_id = 'e1' AND kind = 'sent' ORDER BY ts")
    sendings = [event for event in events if event.kind == "sent"]
    assert rows == [(event.messager, event.arrival) for event in sendings] and {by for by, _ in rows} == {one, two}
    done = messager("events", "e1", "--store", store, "--kind", "mark", cwd=tmp_path)
    assert "messager.subscribed patterns=['exps:e1:agents:1:*']" in done.stdout


async def test_the_marks_of_messagers_are_points_but_are_not_suggested(log: EventLog) -> None:
    async with Recorder(log, "e1") as recorder:
        await converse(recorder)
    of = await log.experiment("e1")
    first, second, *closed = [e async for e in log.read("e1", kinds=["mark"]) if e.text.startswith("messager.")]
    assert [event.mark for event in closed] == [CLOSED, CLOSED]
    assert await resolve(log.database, of, f"mark:{SUBSCRIBED}#2") == second.cursor and first.ts <= second.ts
    with pytest.raises(BadCursor, match=r"its marks are: tick[.]"):
        await resolve(log.database, of, "mark:tock")
