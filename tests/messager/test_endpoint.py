"""Endpoint: numbers, log hooks and a gate for messages that no Messager carries."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import pytest

from messager import Endpoint, MemoryBroker, Messager, MessageRecord, PublishError
from messager.hooks import LogHook
from tests.support import Listed


class Holds:
    """Gate that keeps what arrives, and lets a message out once `go` is set."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.go = asyncio.Event()
        self.kept: list[dict[str, Any]] = []
        self.done: list[tuple[str, bool]] = []

    def check(self, hook: LogHook) -> None:
        if not isinstance(hook, Listed):
            raise ValueError("not this one")

    async def subscribed(self, patterns: Sequence[str]) -> None:
        """Do nothing."""

    def arrived(self, message: dict[str, Any]) -> None:
        self.kept.append(message)

    async def fetching(self) -> None:
        for message in self.kept:
            self.endpoint.deliver(message, ("recorder", 7))

    async def sending(self, record: MessageRecord) -> None:
        await self.go.wait()
        record.origin = ("recorder", 8)

    def passed(self, record: MessageRecord, done: bool) -> None:
        self.done.append((record.kind, done))

    def marked(self, record: MessageRecord) -> None:
        record.origin = ("recorder", 9)

    async def close(self) -> None:
        """Do nothing."""

    def connected(self) -> None:
        """Do nothing."""


def endpoint_with(*hooks: LogHook) -> Endpoint:
    made = Endpoint("e1")
    for hook in hooks:
        made.add_log_hook(hook)
    return made


async def nothing() -> None:
    """Publish."""


async def test_an_endpoint_numbers_what_arrives_and_notes_what_was_fetched_before_each_message() -> None:
    hook = Listed()
    alice = endpoint_with(hook)
    alice.sent("c", b"1", "alice", "bob", carrier="queue", attempt=2)
    alice.received("c", {"n": 2}, "bob", "alice")
    alice.received("c", "3", "bob", "alice", fetched=False)
    await alice.sending(nothing, "c", {"n": 4})
    alice.fetched = 2
    alice.mark("five", number=5)
    assert [(record.kind, record.arrival) for record in hook.records] == [
        ("sent", 0),
        ("received", 1),
        ("received", 2),
        ("sent", 1),
        ("mark", 2),
    ]
    assert {record.messager for record in hook.records} == {alice.id}
    assert [record.payload for record in hook.records] == [b"1", b'{"n": 2}', b"3", b'{"n": 4}', b""]
    assert (hook.records[0].meta, hook.records[0].carrier) == ({"attempt": 2}, "queue")
    assert hook.before == [1]


async def test_what_a_messager_is_told_through_its_endpoint_has_its_numbers() -> None:
    hook = Listed()
    async with Messager(MemoryBroker(), "e1") as messager:
        messager.add_log_hook(hook)
        messager.endpoint.received("c", {})
        await messager.send_message("c", {})
    assert [(record.messager, record.arrival) for record in hook.records] == [(messager.id, 1)] * 2


async def test_threads_that_report_receptions_get_each_number_once_and_in_order() -> None:
    class LetsOthersRun(Listed):
        def after(self, record: MessageRecord) -> None:
            time.sleep(0)
            super().after(record)

    alice = endpoint_with(hook := LetsOthersRun())

    def receive() -> None:
        for _ in range(200):
            alice.received("c", b"")
            alice.sent("c", b"")
            alice.mark("step")

    await asyncio.gather(*(asyncio.to_thread(receive) for _ in range(4)))
    heard = 0
    for record in hook.records:
        if record.kind == "received":
            assert record.arrival == heard + 1
            heard += 1
        else:
            assert record.arrival is not None and record.arrival <= heard
    assert heard == alice.fetched == 800


async def test_a_message_is_logged_with_the_outcome_of_its_publication() -> None:
    class Refuses(Listed):
        async def before_send(self, records: Sequence[MessageRecord]) -> None:
            raise ValueError("not this one")

    async def publish() -> str:
        assert hook.before and not hook.records
        return "id of the message"

    async def fail() -> None:
        raise KeyError("gone")

    async def not_sent() -> None:
        raise PublishError("no route", "not_sent")

    hook = Listed()
    alice = endpoint_with(hook)
    assert await alice.sending(publish, "c", {}) == "id of the message"
    with pytest.raises(KeyError, match="gone"):
        await alice.sending(fail, "c", {})
    with pytest.raises(PublishError, match="no route"):
        await alice.sending(not_sent, "c", {})
    alice.add_log_hook(Refuses())
    with pytest.raises(ValueError, match="not this one"):
        await alice.sending(publish, "c", {})
    assert hook.kinds() == ["sent", "failed", "failed", "failed"]
    assert [(record.meta or {}).get("outcome") for record in hook.records] == [None, "unknown", "not_sent", "not_sent"]


async def test_a_gate_holds_an_endpoint() -> None:
    hook, taken = Listed(), list[dict[str, Any]]()
    alice = Endpoint("e1", taken.append)
    alice.add_log_hook(hook)
    alice.set_gate(gate := Holds(alice))
    with pytest.raises(ValueError, match="not this one"):
        alice.add_log_hook(gate)  # type: ignore[arg-type]
    alice.arrive({"channel": b"c", "data": b"1"})
    sending = asyncio.create_task(alice.sending(nothing, "c", b"2"))
    await asyncio.sleep(0)
    assert (hook.records, taken) == ([], [])
    await gate.fetching()
    gate.go.set()
    await sending
    alice.mark("three")
    assert [message["data"] for message in taken] == [b"1"]
    assert [(record.kind, record.origin) for record in hook.records] == [
        ("received", ("recorder", 7)),
        ("sent", ("recorder", 8)),
        ("mark", ("recorder", 9)),
    ]
    assert gate.done == [("sent", True)]
