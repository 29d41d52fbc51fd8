"""A live Messager that is closed and opened again goes on at its place in the schedule."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from messager import MemoryBroker, Messager, channels
from messager.errors import NotConnected
from messager_store.lockstep import virtual_time
from messager_store.lockstep.cut import closed_cut
from messager_store.lockstep.prefix import Prefix
from messager_store.lockstep.recording import Recording
from messager_store.lockstep.run import Lockstep
from messager_store.lockstep.to_the_end import ToTheEnd
from tests.messager.test_messager import fetched
from tests.store.lockstep.test_environment import answers, asks
from tests.support.scenes import MEMORY, Scene, played, questions

pytestmark = pytest.mark.sqlite

AGAIN = "a Messager of e2 plays agent 1 again, from message 2 of 2 on. What was published while it was closed is lost\n"


async def asks_in_two_sessions(messager: Messager) -> None:
    """Play agent 1 of `pair`, closed after the first answer."""
    await asks(messager, "q0")
    await messager.close()
    await messager.init()
    await asks(messager, "q1")


async def test_it_goes_on_in_a_replay_by_the_environment_and_says_so(
    recorded: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    await recorded(questions())
    broker = MemoryBroker()
    async with Messager(broker, "e2") as one, Messager(broker, "e2") as three:
        _, heard = await asyncio.gather(asks_in_two_sessions(one), answers(three, 2))
    assert heard == ["q0", "q1"]
    errors = capsys.readouterr().err
    assert AGAIN in errors and "stands for none" not in errors
    assert "agent 1: 2 messages expected, 1 matched, 0 different, 1 missing, 0 unexpected\n" in errors
    assert "agent 1: 2 messages expected, 2 matched, 0 different, 0 missing, 0 unexpected\n" in errors


async def test_it_goes_on_if_it_is_the_only_messager_of_its_process(
    recorded: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Scene()
    for content in "abc":
        made.say(1, "c", content)
    await recorded(made, report=str(tmp_path))
    messager = Messager(MemoryBroker(), "e2")
    for content in "abc":
        await messager.init()
        await messager.send_message("c", content, 1)
        await messager.close()
        lines = capsys.readouterr().err
    assert "agent 1: 3 messages expected, 3 matched, 0 different, 0 missing, 0 unexpected\n" in lines
    report = json.loads((tmp_path / "messager-of-1.json").read_text())
    assert (report["matched"], report["missing"], report["reopened"], report["divergences"]) == (3, 0, 2, [])


async def test_programs_of_other_processes_are_told_that_it_is_closed(recorded: Any) -> None:
    await recorded(questions())
    broker = MemoryBroker()
    announcements = broker.pubsub()
    await announcements.psubscribe("messager-replay:e2")
    async with Messager(broker, "e2") as one:
        await one.subscribe_and_start_listening(["exps:e2:agents:1:*"])
    told = []
    while (message := await announcements.get_message(timeout=0)) is not None:
        told.append(json.loads(message["data"].partition(b" ")[2])["content"])
    assert told[-1] == {"part": "messager-of-1", "patterns": []}


async def test_what_it_has_not_said_when_it_is_closed_is_missing_in_the_report(recorded: Any, tmp_path: Path) -> None:
    await recorded(questions(), report=str(tmp_path))
    async with Messager(MemoryBroker(), "e2") as one:
        await one.subscribe_and_start_listening(["exps:e2:agents:1:*"])
    report = json.loads((tmp_path / "messager-of-1.json").read_text())
    assert (report["expected"], report["missing"]) == (2, 2)
    assert [(said["kind"], said["expected"]) for said in report["divergences"]] == [
        ("missing", '"q0"'),
        ("missing", '"q1"'),
    ]


async def test_who_waits_for_one_that_stays_closed_gives_up_and_reports_it(
    recorded: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    await recorded(questions(), patience=0.1)
    broker = MemoryBroker()
    async with Messager(broker, "e2") as three:
        async with Messager(broker, "e2") as one:
            await asyncio.gather(asks(one, "q0"), answers(three, 1))
        assert await three.fetch_messages() == []
    assert "agent 3: 2 messages expected, 1 matched, 0 different, 1 missing, 0 unexpected, timed out" in (
        capsys.readouterr().err
    )


async def test_another_messager_does_not_take_its_part_and_is_told_why(
    recorded: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    await recorded(questions(), patience=0.1)
    broker = MemoryBroker()
    async with Messager(broker, "e2") as three:
        answering = asyncio.create_task(answers(three, 2))
        async with Messager(broker, "e2") as one:
            await asks(one, "q0")
        async with Messager(broker, "e2") as other:
            await asks(other, "q1")
        await answering
    errors = capsys.readouterr().err
    assert "agent 1: its Messager was closed before its last message, and goes on if the same" in errors


async def test_a_new_replay_names_the_schedules_that_were_not_played_to_their_end(
    recorded: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    await recorded(questions(), patience=0.1)
    for _ in range(2):
        async with Messager(MemoryBroker(), "e2") as one:
            await one.subscribe_and_start_listening(["exps:e2:agents:1:*"])
    errors = capsys.readouterr().err
    assert "a new replay of e1 begins. agent 1: its Messager was closed before its last message" in errors


class Sessions:
    """Agent 1 of `two_sessions`, closed for so many seconds after it has said x."""

    def __init__(self, closed: float = 0.0) -> None:
        self._closed = closed
        self.heard: list[Any] = []
        """Contents of what was fetched before each act."""

    async def __call__(self, messager: Messager) -> None:
        await self._says(messager, "x")
        await messager.close()
        await asyncio.sleep(self._closed)
        await messager.init()
        await self._says(messager, "y")

    async def _says(self, messager: Messager, content: str) -> None:
        await messager.subscribe_and_start_listening(["a"])
        self.heard.append([json.loads(message["data"]) for message in await messager.fetch_messages()])
        await messager.send_message("out", content, 1)


def two_sessions() -> Scene:
    """Agent 1 says x and y, and hears something before each."""
    made = Scene()
    made.subscribe(1, "a")
    for heard, said in (("1", "x"), ("2", "y")):
        made.say(2, "a", heard)
        made.fetch(1)
        made.say(1, "out", said)
    return made


def test_it_goes_on_in_a_replay_of_one_process_and_what_came_early_is_kept_for_its_place() -> None:
    scene = two_sessions()
    agent = Sessions()

    async def early(messager: Messager) -> None:
        for content in ("1", "2"):
            await messager.send_message("a", content, 2)

    result = played(scene, {1: agent, 2: early})
    assert agent.heard == [["1"], ["2"]]
    assert result.report.equal and result.report.pace == "lockstep"
    assert [part.reopened for part in result.report.parts] == [1, 0]


def test_messages_wait_until_it_is_subscribed_again() -> None:
    scene, agent = two_sessions(), Sessions(closed=5.0)
    assert played(scene, {1: agent}).report.equal
    assert agent.heard == [["1"], ["2"]]


def test_what_is_published_while_it_is_closed_is_lost_and_counted() -> None:
    async def run() -> None:
        broker = MemoryBroker()
        lockstep = Lockstep(two_sessions().recording(), MEMORY, channels.encode, ToTheEnd(), live=[1], patience=10.0)
        messager = Messager(broker, "e", clock=virtual_time.virtual_clock())
        report = lockstep.attach(messager).report
        for heard, said in ((["1"], "x"), ([], "y")):
            await messager.init()
            await messager.subscribe_and_start_listening(["a"])
            await broker.publish([(b"a", f'"{content}"'.encode()) for content in heard])
            assert [json.loads(message["data"]) for message in await messager.fetch_messages()] == heard
            await messager.send_message("out", said, 1)
            await messager.close()
            await broker.publish([(b"a", b'"2"')])
        assert (report.matched, report.lost, report.reopened, report.timed_out) == (2, 1, 1, True)

    virtual_time.run(run())


def test_one_that_stays_closed_is_given_up_once() -> None:
    both, scene = (1, 3), Scene()
    scene.subscribe(both, "a")
    for number in range(5):
        scene.say(2, "a", number)
        scene.fetch(both)
        for who in both:
            scene.say(both, "out", number, sender=who)

    async def ends_early(messager: Messager) -> None:
        await messager.close()
        await asyncio.Event().wait()

    result = played(scene, {both: ends_early}, patience=10.0)
    assert result.released == list(range(5)) and result.counts() == {"expected": 10, "missing": 10}
    assert result.seconds < 25.0  # once for its subscription, and once for its first message


def test_calls_that_wait_end_when_it_is_closed() -> None:
    scene = two_sessions()

    async def run() -> None:
        lockstep = Lockstep(scene.recording(), MEMORY, channels.encode, ToTheEnd(), live=[1], patience=1e6)
        async with Messager(MemoryBroker(), "e", clock=virtual_time.virtual_clock()) as messager:
            lockstep.attach(messager)
            await messager.subscribe_and_start_listening(["a"])
            fetching = asyncio.create_task(messager.fetch_messages())
            sending = asyncio.create_task(messager.send_message("out", "x", 1))
            for _ in range(10):
                await asyncio.sleep(0)
        assert await fetching == [] and await messager.fetch_messages() == []
        with pytest.raises(NotConnected):
            await sending
        assert asyncio.get_running_loop().time() < 1e6  # patience has not ended

    virtual_time.run(run())


def test_after_the_replay_has_ended_it_runs_freely() -> None:
    scene = two_sessions()

    async def run() -> None:
        lockstep = Lockstep(scene.recording(), MEMORY, channels.encode, ToTheEnd(), live=[1], patience=1e6)
        messager = Messager(MemoryBroker(), "e", clock=virtual_time.virtual_clock())
        lockstep.attach(messager)
        await messager.init()
        await messager.close()
        lockstep.finish()
        await messager.init()
        await messager.subscribe_and_start_listening(["a"])
        await messager.send_message("a", "z", 1)
        assert len(await fetched(messager, 1)) == 1
        await messager.close()

    virtual_time.run(run())


# In the prefix of a fork


def prefix_of(recording: Recording, end: int, **options: Any) -> Lockstep:
    """Return the lockstep of a fork at an event, whose live agent is 1."""
    cut = closed_cut(recording, recording.events[end].cursor).keys
    return Lockstep(recording, MEMORY, channels.encode, Prefix(cut), live=[1], **options)


def test_it_repeats_the_rest_of_the_prefix_of_a_fork() -> None:
    scene, agent = two_sessions(), Sessions()
    scene.say(2, "a", "behind the point")

    async def run() -> None:
        broker = MemoryBroker()
        lockstep = prefix_of(scene.recording(), -2)
        async with Messager(broker, "e", clock=virtual_time.virtual_clock()) as messager:
            lockstep.attach(messager)
            playing = asyncio.create_task(agent(messager))
            async for batch in lockstep.releases():
                await broker.publish([(channels.encode(event.channel or ""), event.payload) for event in batch])
            await playing
        assert lockstep.report.equal and lockstep.report.total("matched") == 2

    virtual_time.run(run())
    assert agent.heard == [["1"], ["2"]]


def test_what_waits_for_the_end_of_the_prefix_is_refused_when_it_is_closed_and_is_no_divergence() -> None:
    scene = two_sessions()

    async def run() -> None:
        lockstep = prefix_of(scene.recording(), -1, patience=1e6)
        async with Messager(MemoryBroker(), "e", clock=virtual_time.virtual_clock()) as messager:
            lockstep.attach(messager)
            await messager.subscribe_and_start_listening(["a"])
            await messager.broker.publish([(b"a", b'"1"')])
            await messager.fetch_messages()
            await messager.send_message("out", "x", 1)
            live = asyncio.create_task(messager.send_message("elsewhere", "z", 1))
            for _ in range(10):
                await asyncio.sleep(0)
        with pytest.raises(NotConnected):
            await live
        assert lockstep.report.divergences == []

    virtual_time.run(run())
