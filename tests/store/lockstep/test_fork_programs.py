"""Live programs take part in a fork by `MESSAGER_REPLAY`. Here they are in the process of the test."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from messager import MemoryBroker, Messager
from messager_store import EventLog, Fork, NewEvent
from messager_store.errors import StoreError
from messager_store.lockstep.policy import LockstepStopped
from messager_store.lockstep.prefix import PrefixDiverged, ProgramsMissing
from tests.messager.test_messager import fetched
from tests.support.logs import filled
from tests.support.scenes import Scene, questions

pytestmark = pytest.mark.sqlite


@pytest.fixture
async def parent(log: EventLog, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EventLog:
    """Recording in which agent 1 asks, and agent 3 answers twice. Programs of its forks find it."""
    fields = NewEvent._fields
    await filled(log, [NewEvent(**{name: getattr(entry, name) for name in fields}) for entry in questions().events])
    file = tmp_path / "replay.json"
    file.write_text(json.dumps({"experiment": "e1", "store": store}))
    monkeypatch.setenv("MESSAGER_REPLAY", str(file))
    return log


async def asks(broker: MemoryBroker, *questions: str) -> None:
    async with Messager(broker, "e2") as messager:
        await messager.subscribe_and_start_listening(["exps:e2:agents:1:*"])
        for question in questions:
            await messager.send_message("exps:e2:agents:3:q", question, 1)
            await fetched(messager, 1)


async def answers(broker: MemoryBroker, count: int = 2) -> None:
    async with Messager(broker, "e2") as messager:
        await messager.subscribe_and_start_listening(["exps:e2:agents:3:*"])
        for number in range(count):
            await fetched(messager, 1)
            await messager.send_message("exps:e2:agents:1:a", f"a{number}", 3)


def forked(log: EventLog, broker: MemoryBroker, patience: float = 30) -> Fork:
    return Fork(log, "e1", "e2", broker, patience=patience)


async def run(fork: Fork, *programs: Any) -> list[Any]:
    """Run the fork and programs until all have ended; return their errors, the fork's first."""
    async with fork:
        found: list[Any] = await asyncio.gather(fork.run(), *programs, return_exceptions=True)
    return found


async def state(log: EventLog) -> str:
    return str((await log.experiment("e2")).meta["prefix"])


async def test_programs_that_repeat_their_parts_complete_the_fork(parent: EventLog) -> None:
    broker = MemoryBroker()
    fork = forked(parent, broker)
    _, *errors = await run(fork, asks(broker, "q0", "q1"), answers(broker))
    assert errors == [None, None] and fork.report.complete and await state(parent) == "complete"


async def test_a_program_that_differs_stops_the_fork_and_the_other_programs_at_once_with_its_divergence(
    parent: EventLog,
) -> None:
    broker = MemoryBroker()
    fork = forked(parent, broker)
    error, *others = await run(fork, asks(broker, "q0", "other"), answers(broker))
    assert isinstance(error, PrefixDiverged), error
    assert str(error).startswith(
        "the fork stopped: message 2 of 2 of agent 1 on exps:e2:agents:3:q differs (at $). Make"
    )
    found = fork.report.first
    assert found is not None and found.expected is not None
    assert (found.kind, found.expected.payload, found.said) == ("different", b'"q1"', b'"other"')
    assert found.heard == [("exps:e2:agents:1:a", b'"a0"')]
    assert fork.report.total("different") == 1 and not fork.report.equal
    assert fork.report.pace == "lockstep"
    assert [str(other) for other in others] == [str(error), str(error)]
    assert await state(parent) == "stopped: " + str(error).removeprefix("the fork stopped: ")


async def test_a_program_that_ends_too_early_stops_the_fork_at_once(parent: EventLog) -> None:
    broker = MemoryBroker()
    error, *_ = await run(forked(parent, broker, patience=1000), asks(broker, "q0"), answers(broker, 1))
    assert isinstance(error, PrefixDiverged) and "message 2 of 2 of agent 1 on" in str(error), error
    assert "was not said" in str(error) and "was not said" in await state(parent)


async def test_programs_that_do_not_come_are_named_with_the_way_to_start_them_and_the_others_stop(
    parent: EventLog, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MESSAGER_STORE", store)  # those that take part are recorded as well
    broker = MemoryBroker()
    fork = forked(parent, broker, patience=3)  # the program that comes has set up a recorder by then
    error, other = await run(fork, answers(broker))
    assert isinstance(error, ProgramsMissing), error
    assert fork.report.pace == "lockstep"
    assert {part.label: part.played for part in fork.report.parts} == {"agent 1": False, "agent 3": True}
    assert str(error) == (
        "the fork stopped: no live program plays agent 1, and none came within 3 s. Start each with "
        "MESSAGER_REPLAY=e1 in its environment and the exp_id of the fork, or raise the patience."
    )
    assert isinstance(other, LockstepStopped) and str(other) == str(error)


async def test_without_programs_all_parts_are_named(parent: EventLog) -> None:
    [error] = await run(forked(parent, MemoryBroker(), patience=0.1))
    assert "no live program plays agent 1, agent 3, and none" in str(error)


async def test_an_interrupted_fork_ends_its_programs(parent: EventLog) -> None:
    broker = MemoryBroker()
    async with forked(parent, broker) as fork:
        running = asyncio.create_task(fork.run())
        program = asyncio.create_task(answers(broker))
        while not fork.lockstep.presence.remote:
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(LockstepStopped, match="the fork was cancelled"):
            await program
    assert await state(parent) == "stopped: interrupted"


async def test_a_program_that_comes_after_the_end_is_refused(parent: EventLog) -> None:
    await run(forked(parent, MemoryBroker(), patience=0.1))
    with pytest.raises(StoreError, match=r"the fork e2 is not continued \(stopped: .*: fork e1 again, with a new"):
        await answers(MemoryBroker())


async def test_programs_without_the_variable_are_told_and_named_although_they_say_the_same(
    parent: EventLog, store: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their messages have no origin, so they are not the prefix."""
    monkeypatch.delenv("MESSAGER_REPLAY")
    broker = MemoryBroker()
    async with forked(parent, broker, patience=0.5) as fork:
        monkeypatch.setenv("MESSAGER_STORE", store)
        async with Messager(broker, "e2") as one, Messager(broker, "e2") as three:
            await one.subscribe_and_start_listening(["exps:e2:agents:1:*"])
            await three.subscribe_and_start_listening(["exps:e2:agents:3:*"])
            for number in range(2):
                await one.send_message("exps:e2:agents:3:q", f"q{number}", 1)
                await fetched(three, 1)
                await three.send_message("exps:e2:agents:1:a", f"a{number}", 3)
                await fetched(one, 1)
        with pytest.raises(ProgramsMissing, match=r"Without MESSAGER_REPLAY, pid \d+ on .* recorded into the fork\."):
            await fork.run()
    assert not fork.report.complete
    assert "e2 is a fork that still repeats e1, and this program takes no part in it. Start it with MESSAGER" in (
        capsys.readouterr().err
    )


async def test_a_program_that_only_sends_must_take_part_as_well(
    parent: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its Messager cannot announce itself before its first message, so it is not waited for at the beginning."""
    made = Scene()
    made.say(1, "c", "a")
    await filled(parent, [NewEvent(**{name: getattr(made.events[0], name) for name in NewEvent._fields})], "e3")
    monkeypatch.delenv("MESSAGER_REPLAY")
    broker = MemoryBroker()
    async with Fork(parent, "e3", "e4", broker, patience=0.5) as fork:
        running = asyncio.create_task(fork.run())
        async with Messager(broker, "e4") as messager:
            while not running.done():
                if await broker.subscriber_count([b"c"]):
                    await messager.send_message("c", "a", 1)
                    break
                await asyncio.sleep(0)
        with pytest.raises(ProgramsMissing, match="no live program plays agent 1, and none came"):
            await running


async def test_a_program_of_the_fork_is_no_stranger(
    parent: EventLog, store: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = MemoryBroker()
    monkeypatch.setenv("MESSAGER_STORE", store)
    fork = forked(parent, broker)
    await run(fork, asks(broker, "q0", "q1"), answers(broker))
    assert fork.report.complete and "takes no part" not in capsys.readouterr().err
