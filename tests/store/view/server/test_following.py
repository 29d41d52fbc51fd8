"""A page that follows a recording: everything is told once, also after a lost connection."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterable
from typing import Any

import pytest

from messager import Messager, RedisBroker
from messager.record import SUBSCRIBED
from messager.testing import RedisServer
from messager_store import EventLog, Experiment, NewEvent, Recorder
from messager_store.log.writer import Writer
from messager_store.recording.closing import close
from messager_store.view.server import following
from tests.store.view.server.client import Events, decoded, viewing
from tests.support.logs import filled, sent


class Told:
    """What a page was told."""

    def __init__(self) -> None:
        self.cursors: list[tuple[int, int, int]] = []
        self.texts: list[str] = []
        self.received: list[Any] = []
        self.marks: list[str] = []
        self.gaps: list[str] = []
        self.states: list[list[str]] = []
        self.ended = False

    async def add(self, stream: Events) -> None:
        """Add one event; it is a batch, states, or the end."""
        found = await asyncio.wait_for(stream.next(), 60)
        if found == ("closed", {}):
            self.ended = True
            return
        if found is not None and found[0] == "recorders":
            self.states.append([one["state"] for one in found[1]])
            return
        assert found is not None and found[0] == "more", found
        batch = found[1]
        chunks = [decoded(base64.b64decode(chunk)) for chunk in batch["chunks"]]
        assert batch["messages"] == sum(len(chunk.texts) for chunk in chunks)
        for chunk in chunks:
            assert chunk.cursors == sorted(chunk.cursors)
            self.cursors += chunk.cursors
            self.texts += chunk.texts
        self.received += batch["received"]
        self.marks += [mark["label"] for mark in batch["marks"]]
        self.gaps += [gap["cursor"] for gap in batch["gaps"]]

    async def until(self, stream: Events, messages: int) -> None:
        """Add events until this number of messages was told."""
        while len(self.cursors) < messages:
            await self.add(stream)
            assert not self.ended

    async def to_end(self, stream: Events) -> None:
        """Add events until the experiment is closed."""
        while not self.ended:
            await self.add(stream)
        assert await stream.next() is None


async def _writer(log: EventLog, of: Experiment, events: Iterable[NewEvent]) -> Writer:
    writer = await log.register(of, role="messager")
    await log.append(writer, list(events))
    return writer


def _from(first: int, last: int, step: int = 1) -> list[NewEvent]:
    return [sent(number, b"%d" % number) for number in range(first, last, step)]


async def test_a_recording_over_redis_is_told_once_with_its_receptions(
    log: EventLog, store: str, redis: RedisServer
) -> None:
    async with viewing(store) as client:
        told = Told()
        async with Recorder(log, "e1", close_experiment=True) as recorder:
            broker = RedisBroker.from_url(redis.url)
            async with Messager(broker, "e1") as ann, Messager(broker, "e1") as ben:
                for messager in (ann, ben):
                    messager.add_log_hook(recorder)
                channel = ben.get_agent_chat_channel(2)
                await ben.subscribe_and_start_listening([channel])
                async with client.events("/api/run/e1/follow") as stream:
                    for number in range(1, 51):
                        await ann.send_message(channel, {"content": f"hello {number}"}, 1, 2)
                    await told.until(stream, 20)
                    position = stream.id
                recorder.mark("dawn")
                for number in range(51, 101):
                    await ann.send_message(channel, {"content": f"hello {number}"}, 1, 2)
                async with client.events("/api/run/e1/follow", ("Last-Event-ID", str(position))) as stream:
                    await told.until(stream, 100)
            await broker.close()
        async with client.events("/api/run/e1/follow?position=", ("Last-Event-ID", str(stream.id))) as stream:
            await told.to_end(stream)

    of = await log.experiment("e1")
    messages = [entry async for entry in log.read(of, kinds="sent")]
    assert told.cursors == [tuple(entry.cursor) for entry in messages]
    assert told.texts == [f"hello {number}" for number in range(1, 101)]
    assert told.marks == ["dawn"] and not told.gaps
    assert {cursor for cursor, *_ in told.received} == {str(entry.cursor) for entry in messages}
    assert len(told.received) == 100
    assert all(delay > 0 and arrival > 0 and messager > 0 for _, _, messager, delay, arrival in told.received)


async def test_a_page_continues_at_the_position_of_its_head(log: EventLog, store: str) -> None:
    of = await filled(log, _from(1, 11))
    async with viewing(store) as client:
        head = (await client.get("/api/run/e1/head")).json
        await _writer(log, of, _from(11, 21))
        chunk = await client.get(f"/api/run/e1/messages?position={head['position']}")
        told = Told()
        told.cursors += decoded(chunk.body).cursors
        await close(log, of, force=True)
        async with client.events(f"/api/run/e1/follow?position={head['position']}") as stream:
            await told.to_end(stream)
        assert [ts for ts, _, _ in told.cursors] == list(range(1, 21))


async def test_what_several_recorders_committed_comes_in_replay_order_in_chunks(
    log: EventLog, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "ROWS", 64)
    monkeypatch.setattr(following, "MOST", 100)
    of = await filled(log, _from(1, 1000, 2))
    await _writer(log, of, _from(2, 1001, 2))
    async with viewing(store) as client, client.events("/api/run/e1/follow") as stream:
        told = Told()
        await told.until(stream, 1)
        assert [ts for ts, _, _ in told.cursors] == list(range(1, 1001))
        assert stream.id == "1:500,2:500@1000:2:500"


async def test_a_page_that_is_far_behind_begins_again(
    log: EventLog, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "CAUGHT_UP", 10)
    await filled(log, _from(1, 13))
    async with viewing(store) as client:
        async with client.events("/api/run/e1/follow?position=1:1") as stream:
            assert await stream.next() == ("behind", {"events": 11})
            assert await stream.next() is None
        async with client.events("/api/run/e1/follow?position=1:2") as stream:
            told = Told()
            await told.until(stream, 10)


async def test_a_recorder_with_a_clock_in_the_future_is_told_too(
    log: EventLog, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "HELD_S", 0.1)
    of = await filled(log, [])
    async with viewing(store) as client, client.events("/api/run/e1/follow") as stream:
        told = Told()
        await _writer(log, of, [sent(2**62, b"ahead")])
        await told.until(stream, 1)
        assert told.texts == ["ahead"]


async def test_only_the_receptions_that_are_messages_are_told_as_messages(log: EventLog, store: str) -> None:
    of = await filled(log, [NewEvent("received", 1, "tapped", b"1")])
    async with viewing(store) as client, client.events("/api/run/e1/follow") as stream:
        told = Told()
        await told.until(stream, 1)
        numbered = NewEvent("received", 5, "d", b"5", arrival=1)
        await _writer(log, of, [sent(2, b"2", "c"), NewEvent("received", 3, "c", b"2"), sent(4, b"4", "c"), numbered])
        await told.until(stream, 4)
        assert told.texts == ["1", "2", "4", "5"]
        received = [(message, recorder, delay, arrival) for message, recorder, _, delay, arrival in told.received]
        assert received == [("2:2:1", 2, 1, 0), ("5:2:4", 2, 0, 1)]


async def test_a_reception_finds_a_sending_that_was_told_before(log: EventLog, store: str) -> None:
    of = await filled(log, [sent(1, b"1"), sent(2, b"1"), NewEvent("received", 3, "c", b"1")])
    writer = await _writer(log, of, [NewEvent("received", 4, "c", b"1")])
    async with viewing(store) as client:
        async with client.events("/api/run/e1/follow?position=1:3,2:1") as stream:
            await log.append(writer, [NewEvent("received", 5, "c", b"1"), sent(6)])
            told = Told()
            await told.until(stream, 1)
            assert [sending for sending, *_ in told.received] == ["2:1:2"]


async def test_a_reception_that_is_committed_before_its_sending_finds_it(log: EventLog, store: str) -> None:
    of = await filled(log, [])
    async with viewing(store) as client, client.events("/api/run/e1/follow") as stream:
        writer = await _writer(log, of, [sent(1), NewEvent("received", 3, "c", b"late")])
        told = Told()
        await told.until(stream, 1)
        await log.append(writer, [sent(2, b"late")])
        await told.until(stream, 2)
        assert [sending for sending, *_ in told.received] == ["2:2:3"]


async def test_a_failure_that_names_a_reception_as_its_cause_is_told_with_it(log: EventLog, store: str) -> None:
    heard = NewEvent("received", 1, "c", b"heard")
    failed = NewEvent("failed", 2, "c", b"failed", cause=(1, 1), meta={"outcome": "unknown"})
    of = await filled(log, [])
    async with viewing(store) as client, client.events("/api/run/e1/follow") as stream:
        await _writer(log, of, [heard, failed._replace(cause=(2, 1))])
        await close(log, of, force=True)
        told = Told()
        await told.to_end(stream)
        assert sorted(told.texts) == ["failed", "heard"]


async def test_marks_have_the_labels_of_the_head(log: EventLog, store: str) -> None:
    def tick(ts: int, name: str = "tick") -> NewEvent:
        return NewEvent("mark", ts, None, b"", meta={"name": name})

    gap = NewEvent("gap", 5, None, b"", meta={"reason": "away"})
    of = await filled(log, [tick(1), tick(2)])
    own = tick(2, SUBSCRIBED)
    writer = await _writer(log, of, [tick(3), gap, own, tick(4)])
    await close(log, of, force=True)
    assert writer.last_seq == 4
    async with viewing(store) as client:
        labels = [mark["label"] for mark in (await client.get("/api/run/e1/head")).json["marks"]]
        async with client.events("/api/run/e1/follow?position=1:2,2:1") as stream:
            told = Told()
            await told.to_end(stream)
        assert labels == ["tick", "tick#2", "tick#3", "tick#4"], "none of the Messager's own"
        assert told.marks == ["tick#4"]
        assert told.gaps == ["5:2:2"]


async def test_the_states_of_recorders_are_told_when_they_change(
    log: EventLog, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "STATES_S", 0.05)
    told = Told()

    async def states(stream: Events, *expected: list[str]) -> None:
        while told.states != list(expected):
            await told.add(stream)
            assert told.states == list(expected)[: len(told.states)]

    await filled(log, [sent(1)])
    async with viewing(store) as client, client.events("/api/run/e1/follow") as stream:
        first, begun = ["alive"], ["alive", "alive"]
        await states(stream, first)
        async with Recorder(log, "e1"):
            await states(stream, first, begun)
        await states(stream, first, begun, ["alive", "ended"])


async def test_a_store_that_does_not_answer_is_told_and_followed_again(
    log: EventLog, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "AWAY_S", 0.01)
    of = await filled(log, [sent(1)])
    failures = [following.StoreUnavailable("here", "gone")] * 2

    async def failing(*arguments: Any) -> int:
        if failures:
            raise failures.pop()
        return await new(*arguments)

    new = following._new
    monkeypatch.setattr(following, "_new", failing)
    await close(log, of, force=True)
    async with viewing(store) as client, client.events("/api/run/e1/follow") as stream:
        for _ in range(2):
            found = await stream.next()
            assert found is not None and found[0] == "unavailable" and "gone" in found[1]["error"]
        told = Told()
        await told.to_end(stream)
        assert told.cursors == [(1, 1, 1)]


async def test_a_wrong_position_is_refused(log: EventLog, store: str) -> None:
    await filled(log, [sent(1)])
    async with viewing(store) as client:
        for position in ("1", "1:2:3", "a:b", "0:1", "1:-1", "1:2,", ","):
            answer = await client.get(f"/api/run/e1/follow?position={position}")
            assert answer.status == 400 and "tail position" in answer.json["error"]
