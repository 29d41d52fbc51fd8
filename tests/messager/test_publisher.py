"""Batches of concurrent sends, single sends, and sends whose caller is cancelled."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from messager import MemoryBroker, Messager, MessagesRefused, RedisConfig
from messager.brokers import Broker
from messager.testing import RedisServer
from tests.messager.test_messager import fetched
from tests.support import Listed


async def test_concurrent_sends_keep_their_order_and_share_waves(broker: Broker) -> None:
    hook = Listed()
    async with Messager(broker, "e1") as messager:
        messager.add_log_hook(hook)
        await messager.subscribe_and_start_listening(["c"])
        await asyncio.gather(*(messager.send_message("c", {"n": number}) for number in range(500)))
        messages = await fetched(messager, 500)
    assert [json.loads(message["data"])["n"] for message in messages] == list(range(500))
    assert len(hook.before) < 50 and sum(hook.before) == 500


async def test_a_caller_that_is_cancelled_while_waiting_does_not_disturb_the_others() -> None:
    broker = MemoryBroker()
    async with Messager(broker, "e1") as messager:
        await messager.subscribe_and_start_listening(["c"])
        tasks = [asyncio.create_task(messager.send_message("c", {"n": number})) for number in range(10)]
        await asyncio.sleep(0)
        tasks[4].cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [isinstance(result, asyncio.CancelledError) for result in results].count(True) == 1
        assert len(await fetched(messager, 9)) == 9


async def test_messages_that_were_on_their_way_when_everything_was_cancelled_are_logged_as_unknown() -> None:
    writing = asyncio.Event()

    class Slow(MemoryBroker):
        async def publish(self, messages: Any) -> Any:
            if messages[0][0] == b"slow":
                writing.set()
                await asyncio.Event().wait()
            return await super().publish(messages)

    listed = Listed()
    async with Messager(Slow(), "e1") as messager:
        messager.add_log_hook(listed)
        first = asyncio.create_task(messager.send_message("c", {}))
        gathered = [asyncio.create_task(messager.send_message("slow", {})) for _ in range(2)]
        await first
        await writing.wait()
        task = messager._publisher._task
        assert task is not None
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gathered[0]
    assert [(record.kind, (record.meta or {}).get("outcome")) for record in listed.records] == [
        ("sent", None),
        ("failed", "unknown"),
        ("failed", "unknown"),
    ]


async def test_a_caller_that_is_cancelled_while_its_message_is_written_has_sent_it_all_the_same() -> None:
    answering = asyncio.Event()
    written = asyncio.Event()

    class Slow(MemoryBroker):
        async def publish(self, messages: Any) -> Any:
            written.set()
            await answering.wait()
            return await super().publish(messages)

    listed = Listed()
    async with Messager(Slow(), "e1") as messager:
        messager.add_log_hook(listed)
        sending = asyncio.create_task(messager.send_message("c", {}))
        await written.wait()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        assert not listed.records
        answering.set()
        await messager.send_message("c", {})
    assert listed.kinds() == ["sent", "sent"]


async def test_a_caller_that_is_cancelled_while_a_hook_is_asked_has_not_sent_it() -> None:
    asked = asyncio.Event()

    class Asking(Listed):
        async def before_send(self, records: Any) -> None:
            if records[0].channel == "asked":
                asked.set()
                await asyncio.Event().wait()

    listed, behind = Asking(), Listed()
    broker = MemoryBroker()
    async with Messager(broker, "e1") as messager:
        messager.add_log_hook(listed)
        messager.add_log_hook(behind)
        await messager.subscribe_and_start_listening(["*"])
        sending = asyncio.create_task(messager.send_message("asked", {}))
        await asked.wait()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        await messager.send_message("c", {})
        assert [message["channel"] for message in await fetched(messager, 1)] == [b"c"]
    assert [kind for kind in listed.kinds() if kind != "received"] == ["failed", "sent"]
    assert [kind for kind in behind.kinds() if kind != "received"] == ["sent"]
    assert listed.records[0].meta is not None and listed.records[0].meta["outcome"] == "not_sent"


class Refuses(Listed):
    """A log hook that refuses the messages whose `n` is among some numbers."""

    def __init__(self, *numbers: int) -> None:
        super().__init__()
        self._numbers = numbers

    async def before_send(self, records: Any) -> None:
        await super().before_send(records)
        errors = {
            index: ValueError(f"{record.message['n']} must not go out")
            for index, record in enumerate(records)
            if record.message["n"] in self._numbers
        }
        if errors:
            raise MessagesRefused(errors)


def sendings(hook: Listed) -> list[tuple[str, int]]:
    """Return the kind and the number of each sent message that a hook received."""
    return [(record.kind, record.message["n"]) for record in hook.records if record.message is not None]


async def test_a_hook_that_refuses_one_message_of_a_batch_stops_that_one_alone(broker: Broker) -> None:
    first, refuses, behind = Listed(), Refuses(3, 9), Listed()
    async with Messager(broker, "e1") as messager:
        for hook in (first, refuses, behind):
            messager.add_log_hook(hook)
        await messager.subscribe_and_start_listening(["c"])
        sends = [messager.send_message("c", {"n": number}) for number in range(10)]
        results = await asyncio.gather(*sends, return_exceptions=True)
        arrived = [json.loads(message["data"])["n"] for message in await fetched(messager, 8)]
    assert [str(result or "sent") for result in results] == [
        f"{number} must not go out" if number in (3, 9) else "sent" for number in range(10)
    ]
    assert arrived == [0, 1, 2, 4, 5, 6, 7, 8]
    told = [("failed" if number in (3, 9) else "sent", number) for number in range(10)]
    assert sendings(first) == sendings(refuses) == told
    assert sendings(behind) == [entry for entry in told if entry[0] == "sent"] and sum(behind.before) == 8
    failed = [record.meta for record in first.records if record.kind == "failed"]
    assert failed == [{"outcome": "not_sent", "error": f"{number} must not go out"} for number in (3, 9)]


async def test_what_several_hooks_refuse_is_told_to_those_that_were_asked_about_it() -> None:
    hooks = [Refuses(1), Refuses(2), Refuses(1, 3)]
    async with Messager(MemoryBroker(), "e1") as messager:
        for hook in hooks:
            messager.add_log_hook(hook)
        sends = [messager.send_message("c", {"n": number}) for number in range(5)]
        results = await asyncio.gather(*sends, return_exceptions=True)
    assert [isinstance(result, ValueError) for result in results] == [False, True, True, True, False]
    assert sendings(hooks[0]) == [("sent", 0), ("failed", 1), ("failed", 2), ("failed", 3), ("sent", 4)]
    assert sendings(hooks[1]) == [("sent", 0), ("failed", 2), ("failed", 3), ("sent", 4)]
    assert sendings(hooks[2]) == [("sent", 0), ("failed", 3), ("sent", 4)]


async def test_where_every_message_is_refused_nothing_is_published_and_the_next_one_goes() -> None:
    published: list[int] = []

    class Counts(MemoryBroker):
        async def publish(self, messages: Any) -> Any:
            published.append(len(messages))
            return await super().publish(messages)

    behind = Listed()
    async with Messager(Counts(), "e1") as messager:
        messager.add_log_hook(Refuses(0, 1, 2, 3))
        messager.add_log_hook(behind)
        with pytest.raises(ValueError, match="0 must not go out"):  # alone
            await messager.send_message("c", {"n": 0})
        await asyncio.gather(
            *(messager.send_message("c", {"n": number}) for number in range(4)), return_exceptions=True
        )
        assert (published, behind.before) == ([], [])
        await messager.send_message("c", {"n": 4})
    assert (published, behind.before) == ([1], [1])


async def test_a_refused_message_keeps_its_reason_where_the_others_fail_for_another() -> None:
    class Breaks(Listed):
        async def before_send(self, records: Any) -> None:
            await asyncio.sleep(0)  # meanwhile the others gather
            raise RuntimeError("broken")

    refuses = Refuses(1)
    async with Messager(MemoryBroker(), "e1") as messager:
        messager.add_log_hook(refuses)
        messager.add_log_hook(Breaks())
        sends = [messager.send_message("c", {"n": number}) for number in range(3)]
        results = await asyncio.gather(*sends, return_exceptions=True)
    assert [str(result) for result in results] == ["broken", "1 must not go out", "broken"]
    assert sendings(refuses) == [("failed", 0), ("failed", 1), ("failed", 2)]


async def test_a_sender_that_never_pauses_lets_others_run(redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """If answers arrive at once, a sender yields to the event loop only from time to time."""
    monkeypatch.setattr("messager.brokers.redis.broker.BUSY_POLL_NS", 10**10)  # each answer is waited for on the spot
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with Messager(RedisConfig(server="127.0.0.1", port=redis.port), "e1") as messager:
        running = asyncio.create_task(other())
        for number in range(2000):
            await messager.send_message("c", {"n": number})
        running.cancel()
    assert turns > 10


async def test_a_wave_that_was_cancelled_before_it_began_leaves_nobody_waiting() -> None:
    class Cancelling(Listed):
        def after(self, record: Any) -> None:
            if record.channel == "first":
                asyncio.get_running_loop().call_soon(lambda: tasks.append(messager._publisher._task))
                asyncio.get_running_loop().call_soon(lambda: tasks[0] and tasks[0].cancel())
            super().after(record)

    tasks: list[asyncio.Task[None] | None] = []
    listed = Cancelling()
    async with Messager(MemoryBroker(), "e1") as messager:
        messager.add_log_hook(listed)
        first = asyncio.create_task(messager.send_message("first", {}))
        gathered = asyncio.create_task(messager.send_message("c", {}))
        await first
        with pytest.raises(asyncio.CancelledError):
            await gathered
        await messager.send_message("d", {})
    assert [record.channel for record in listed.records] == ["first", "d"]


async def test_a_hook_that_goes_while_it_is_asked_takes_no_other_hooks_turn() -> None:
    class Leaving(Listed):
        async def before_send(self, records: Any) -> None:
            await asyncio.sleep(0)
            messager.remove_log_hook(self)

    class Asked(Listed):
        async def before_send(self, records: Any) -> None:
            asked.extend(record.channel for record in records)

    class GoneAfter(Listed):
        def after(self, record: Any) -> None:
            messager.remove_log_hook(self)

    asked: list[Any] = []
    last = Asked()
    async with Messager(MemoryBroker(), "e1") as messager:
        for hook in (Leaving(), GoneAfter(), last):
            messager.add_log_hook(hook)
        await messager.send_message("c", {})
    assert asked == ["c"] and last.kinds() == ["sent"]


class Held(MemoryBroker):
    """Broker that publishes only when released."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.let = asyncio.Event(), asyncio.Event()

    async def publish(self, messages: Any) -> Any:
        self.asked.set()
        await self.let.wait()
        return await super().publish(messages)


@pytest.mark.parametrize("number", [1, 3])
async def test_what_becomes_of_a_message_is_told_to_the_hooks_that_were_asked_about_it_and_to_no_others(
    number: int,
) -> None:
    broker, gone, stays, late = Held(), Listed(), Listed(), Listed()
    async with Messager(broker, "e1") as messager:
        messager.add_log_hook(gone)
        messager.add_log_hook(stays)
        if number > 1:  # the first goes alone
            broker.let.set()
            first = asyncio.create_task(messager.send_message("c", {}))
            broker.asked.clear()
        sending = [asyncio.create_task(messager.send_message("c", {})) for _ in range(number)]
        if number > 1:
            await first
            broker.let.clear()
        await broker.asked.wait()
        messager.remove_log_hook(gone)
        messager.add_log_hook(late)
        messager.mark("now")
        broker.let.set()
        await asyncio.gather(*sending)
        await messager.send_message("c", {})
    before = ["sent"] if number > 1 else []
    assert gone.kinds() == [*before, *["sent"] * number]
    assert stays.kinds() == [*before, "mark", *["sent"] * number, "sent"]
    assert late.kinds() == ["mark", "sent"] and sum(late.before) == 1


async def test_a_batch_asks_the_hooks_that_were_there_when_it_began_and_no_others() -> None:
    class Slow(Listed):
        async def before_send(self, records: Any) -> None:
            asking.set()
            await let.wait()

    asking, let = asyncio.Event(), asyncio.Event()
    removed, added = Listed(), Listed()
    async with Messager(MemoryBroker(), "e1") as messager:
        for hook in (Slow(), removed):
            messager.add_log_hook(hook)
        sending = asyncio.create_task(messager.send_message("c", {}))
        await asking.wait()
        messager.remove_log_hook(removed)
        messager.add_log_hook(added)
        let.set()
        await sending
        await messager.send_message("c", {})
    assert (removed.before, removed.kinds()) == ([1], ["sent"])
    assert (added.before, added.kinds()) == ([1], ["sent"])
