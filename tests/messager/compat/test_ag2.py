"""The network of AG2 is recorded: who sent what to whom, who received it, what the hub refused."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from messager import MessagerError, Transport
from messager.compat import ag2
from messager_store import EventLog, Recorder
from messager_store.log.event import Event
from messager_store.queries.problems import problems
from tests.support import ag2_1_2
from tests.support.ag2_1_2 import TEXT, AgentClient, Envelope, Hub, HumanClient, NetworkError
from tests.support.frameworks import run_example


@pytest.fixture(autouse=True)
def network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ag2.network", ag2_1_2.module())


async def society() -> Hub:
    """Three participants: one answers, one is told something in private, and one is refused."""
    hub = Hub()
    alice, bob, carol = AgentClient(hub, "alice"), AgentClient(hub, "bob"), HumanClient(hub, "carol")
    channel = await hub.open("discussion", alice, bob, carol)

    async def answer(envelope: Envelope) -> None:
        if envelope.sender_id == alice.agent_id:
            await bob.say(channel, "hello")

    bob.handle = answer
    await alice.say(channel, "hello")
    await alice.say(channel, "hello", bob)
    await alice.say(channel, "hello", carol)
    carol._disconnected = True
    await bob.say(channel, "she has left", carol)
    await hub.close(channel)
    with pytest.raises(NetworkError, match="closed"):
        await alice.say(channel, "too late")
    return hub


@asynccontextmanager
async def recording(log: EventLog, exp_id: str = "e1") -> AsyncIterator[Transport]:
    async with Recorder(log, exp_id) as recorder, Transport(exp_id, recorder) as transport:
        with ag2.install(transport):
            yield transport


async def recorded(log: EventLog, exp_id: str) -> tuple[Hub, list[Event]]:
    async with recording(log, exp_id):
        hub = await society()
    return hub, [event async for event in log.read(exp_id)]


async def test_a_society_is_recorded_whole_and_audited_without_false_reports(log: EventLog) -> None:
    hub, found = await recorded(log, "e1")
    sent = [one for one in found if one.kind == "sent"]
    assert [(one.meta or {})["envelope_id"] for one in sent] == [one.envelope_id for one in hub.wal]
    where = "ag2:discussion:alice,bob,carol:"
    said = [one for one in found if str(one.channel) == where + TEXT]
    assert [(one.kind, one.from_id, one.to_id, one.text) for one in said] == [
        ("sent", "alice", None, "hello"),
        ("received", "alice", "bob", "hello"),
        ("sent", "bob", None, "hello"),
        ("received", "bob", "alice", "hello"),
        ("received", "bob", "carol", "hello"),
        ("received", "alice", "carol", "hello"),
        ("sent", "alice", "bob", "hello"),
        ("received", "alice", "bob", "hello"),
        ("sent", "bob", None, "hello"),
        ("received", "bob", "alice", "hello"),
        ("received", "bob", "carol", "hello"),
        ("sent", "alice", "carol", "hello"),
        ("received", "alice", "carol", "hello"),
        ("sent", "bob", "carol", "she has left"),
        ("blocked", "alice", None, "too late"),
    ]
    answers = [(one.kind, one.from_id, one.to_id) for one in found if str(one.channel) == where + ag2_1_2.ACK]
    assert answers == [(kind, name, ag2.HUB) for name in ("bob", "carol") for kind in ("sent", "received")]
    assert [one.arrival for one in said if one.kind == "received" and one.to_id == "bob"] == [3, 4]
    assert [one.arrival for one in said if one.kind == "sent" and one.from_id == "bob"] == [3, 4, 4]
    assert {one.carrier for one in found if one.mark is None} == {"stream"}
    report = await problems(log, await log.experiment("e1"))
    reported = [(one.kind, one.text) for one in report.details if one.event is not None and one.event.channel]
    assert [text for kind, text in reported if kind == "blocked"] == [
        "Hub refused it: NetworkError: the channel is closed"
    ]
    others = [one.event for one in report.details if one.kind != "blocked"]
    assert [(one.from_id, one.text) for one in others if one is not None] == [("bob", "she has left")]


async def test_channels_and_payloads_of_a_repeated_run_are_the_same(log: EventLog) -> None:
    runs = [(await recorded(log, exp_id))[1] for exp_id in ("e1", "e2")]
    first, second = ([(one.kind, one.channel, one.payload) for one in run if TEXT in str(one.channel)] for run in runs)
    assert first == second
    assert json.loads(first[0][2]) == {"from": "alice", "to": None, "text": "hello"}


async def test_what_a_client_in_another_process_had_received_is_not_known(log: EventLog) -> None:
    async with recording(log):
        hub = Hub()
        alice, bob = AgentClient(hub, "alice"), AgentClient(hub, "bob")
        hub.remote.add(alice.agent_id)
        await bob.say(await hub.open("conversation", alice, bob), "hello")
    found = [one async for one in log.read("e1") if one.kind == "sent"]
    assert [one.arrival for one in found if one.from_id == "alice"] == [None, None]
    assert [one.arrival for one in found if one.from_id == "bob"] == [1, 2]


async def test_errors_of_ag2_pass_through_and_errors_of_the_log_do_not(
    log: EventLog, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with recording(log) as transport:
        hub = Hub()
        alice, bob = AgentClient(hub, "alice"), AgentClient(hub, "bob")
        channel = await hub.open("conversation", alice, bob)
        hub.full = True
        with pytest.raises(OSError, match="full"):
            await alice.say(channel, "lost")
        hub.full = False
        with pytest.raises(NetworkError, match="not found"):
            await hub.post_envelope(Envelope("nowhere", "nobody", None, TEXT, {}))
        monkeypatch.setattr(transport, "endpoint", lambda agent: 1 / 0)
        with caplog.at_level(logging.ERROR):
            for number in range(3):
                assert await alice.say(channel, f"{number}") == hub.wal[-1].envelope_id
    assert [record.getMessage() for record in caplog.records] == [
        "a message of AG2 was not recorded; later errors like this are not logged"
    ]
    found = [one async for one in log.read("e1") if one.kind in ("failed", "blocked")]
    assert [(one.kind, one.from_id, one.channel) for one in found] == [
        ("failed", "alice", f"ag2:conversation:alice,bob:{TEXT}"),
        ("blocked", "nobody", f"ag2:nowhere:{TEXT}"),
    ]


def test_it_is_installed_once_and_restores_ag2(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Hub.post_envelope, Hub._wal_append, AgentClient.receive, HumanClient.receive
    first = ag2.install()
    assert ag2.install() is first and Hub.post_envelope is not before[0]
    first.uninstall()
    assert (Hub.post_envelope, Hub._wal_append, AgentClient.receive, HumanClient.receive) == before
    monkeypatch.delattr(Hub, "_wal_append")
    with pytest.raises(MessagerError, match="its Hub has no _wal_append"):
        ag2.install()
    assert (Hub.post_envelope, AgentClient.receive, HumanClient.receive) == (before[0], *before[2:])


@pytest.mark.nightly
async def test_a_panel_of_the_real_ag2_is_recorded(tmp_path: Path) -> None:
    assert run_example("ag2_panel", tmp_path / "s.db", "ag2==1.2.1") == [
        "alice -> bob: What should the town do?",
        "alice -> carol: What should the town do?",
        "bob -> alice: The bridge needs repair.",
        "bob -> carol: The bridge needs repair.",
        "carol -> alice: We have no money.",
        "carol -> bob: We have no money.",
        "alice -> bob: I agree.",
        "alice -> carol: I agree.",
    ]
    async with EventLog.open(str(tmp_path / "s.db"), create=False) as log:
        kinds = [str(one.channel).rpartition(":")[2] async for one in log.read("e1") if one.kind == "sent"]
        assert sorted(set(kinds)) == [f"ag2.channel.{one}" for one in ("closed", "invite", "invite.ack", "opened")] + [
            TEXT
        ]
        report = await problems(log, await log.experiment("e1"))
    assert not report.counts and not report.notes
