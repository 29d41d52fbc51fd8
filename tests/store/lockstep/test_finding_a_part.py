"""With `MESSAGER_REPLAY`, a Messager that fits several parts of the recording is told what resolves it."""

from __future__ import annotations

from typing import Any

import pytest

from messager import MemoryBroker, Messager
from messager_store.errors import StoreError
from tests.messager.test_messager import fetched
from tests.support.scenes import Scene

pytestmark = pytest.mark.sqlite


def twins(*, first_heard: bool = True) -> Scene:
    """Agents 1 and 2 are subscribed to the same channel."""
    made = Scene()
    for who in (1, 2):
        made.subscribe(who, "c")
    if first_heard:
        made.say(9, "c", "go")
        made.fetch(1, 2)
    for who in (1, 2):
        made.say(who, "out", f"of {who}")
    return made


async def test_a_messager_that_subscribes_in_two_calls_does_not_take_the_part_of_another(
    recorded: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Scene()
    made.subscribe(2, "a")
    made.subscribe(1, "a")
    made.subscribe(1, "b")
    for who in (1, 2):
        made.say(who, "out", f"of {who}")
    await recorded(made)
    broker = MemoryBroker()
    async with Messager(broker, "e2") as one, Messager(broker, "e2") as two:
        for channel in "ab":
            await one.subscribe_and_start_listening([channel])
        await two.subscribe_and_start_listening(["a"])
        for messager, agent in ((one, 1), (two, 2)):
            await messager.send_message("out", f"of {agent}", agent)
    errors = capsys.readouterr().err
    assert "agent 1: 1 message expected, 1 matched" in errors and "agent 2: 1 message expected, 1 matched" in errors


async def test_an_ambiguous_messager_is_told_what_would_resolve_it(recorded: Any) -> None:
    await recorded(twins())
    async with Messager(MemoryBroker(), "e2") as messager:
        await messager.subscribe_and_start_listening(["c"])
        with pytest.raises(
            StoreError, match=r"^a live Messager may stand for agent 1; agent 2: .*MESSAGER_AGENTS=ID .*`agents`"
        ) as told:
            await messager.fetch_messages()
        assert "\n" not in str(told.value)
        with pytest.raises(StoreError, match=r"MESSAGER_AGENTS=ID"):
            await messager.send_message("out", "x")


async def test_the_agents_of_a_process_resolve_it(recorded: Any, capsys: pytest.CaptureFixture[str]) -> None:
    await recorded(twins(), agents=["2"])
    broker = MemoryBroker()
    async with Messager(broker, "e2") as messager:
        await messager.subscribe_and_start_listening(["c"])
        await broker.publish([(b"c", b'"go"')])
        await fetched(messager, 1)
        await messager.send_message("out", "of 2", 2)
    assert "agent 2: 1 message expected, 1 matched" in capsys.readouterr().err


async def test_the_sender_of_its_first_message_resolves_it(recorded: Any, capsys: pytest.CaptureFixture[str]) -> None:
    await recorded(twins(first_heard=False))
    broker = MemoryBroker()
    async with Messager(broker, "e2") as one, Messager(broker, "e2") as two:
        for messager, agent in ((two, 2), (one, 1)):
            await messager.subscribe_and_start_listening(["c"])
            assert await messager.fetch_messages() == []
            await messager.send_message("out", f"of {agent}", agent)
    errors = capsys.readouterr().err
    assert "agent 1: 1 message expected, 1 matched" in errors and "agent 2: 1 message expected, 1 matched" in errors


async def test_a_messager_hears_what_was_sent_before_it_had_its_part_also_if_that_differs(
    recorded: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Scene()
    for who in (1, 2):
        made.subscribe(who, "c")
    made.say(1, "c", {"id": 1})
    made.fetch(1, 2)
    made.say(2, "out", "x")
    await recorded(made, patience=1)
    broker = MemoryBroker()
    async with Messager(broker, "e2") as one, Messager(broker, "e2") as two:
        for messager in (one, two):
            await messager.subscribe_and_start_listening(["c"])
        await one.send_message("c", {"id": 9}, 1)
        assert [message["data"] for message in await two.fetch_messages()] == [b'{"id": 9}']
        await two.send_message("out", "x", 2)
    errors = capsys.readouterr().err
    assert "agent 2: 1 message expected, 1 matched" in errors
