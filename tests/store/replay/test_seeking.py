"""Seeks of a running replay: where it continues, what the report counts, and the state that is published first."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from messager_store import EventLog, NewEvent, Replay
from messager_store.errors import BadCursor, StoreError
from tests.store.replay.test_control import (
    ANY_PACE,
    Unread,
    ended,
    fake,
    numbers,
    paused,
    running,
    seconds_apart,
    texts,
)
from tests.store.replay.test_replay import SECOND, Heard
from tests.support import sql, until
from tests.support.logs import filled, sent


@ANY_PACE
async def test_seek_continues_at_a_point_and_the_report_counts_what_it_left_out(
    log: EventLog, pace: dict[str, Any]
) -> None:
    await filled(log, seconds_apart(3000))
    async with paused(log, **pace) as (replay, broker):
        await replay.control.step(2)
        await replay.control.seek(2990 * SECOND)
        assert replay.control.paused and texts(broker) == ["0", "1"]
        assert replay.control.position() == 2990 * SECOND
        await replay.control.step(10)
        report = await ended(replay)
    assert texts(broker) == ["0", "1", *numbers(2990, 3000)]
    assert (report.published, report.seeks, report.passed_over, report.repeated) == (12, 1, 2988, 0)
    assert report.recorded_s == pytest.approx(1 + 9)


@ANY_PACE
async def test_seek_back_repeats_messages_and_the_report_counts_them(log: EventLog, pace: dict[str, Any]) -> None:
    await filled(log, seconds_apart(20))
    async with paused(log, **pace) as (replay, broker):
        await replay.control.step(10)
        await replay.control.seek("5s")
        await replay.control.step(2)
        await replay.control.seek("3s")
        await replay.control.step(1)
        await replay.control.seek("8s")
        await replay.control.step(12)
        report = await ended(replay)
    assert texts(broker) == [*numbers(0, 10), "5", "6", "3", *numbers(8, 20)]
    assert (report.published, report.seeks, report.repeated, report.passed_over) == (25, 3, 5, 0)


async def test_seek_takes_every_kind_of_point_and_reports_a_wrong_one_without_moving(log: EventLog) -> None:
    mark = NewEvent("mark", 3 * SECOND + 1, None, b"", meta={"name": "go", "fields": {}})
    await filled(log, [*seconds_apart(4), mark, *(sent(at * SECOND, b"%d" % at) for at in range(4, 9))])
    async with paused(log) as (replay, broker):
        for point, text in [
            ("mark:go", "4"),
            (f"{2 * SECOND}:1:3", "2"),
            ("1970-01-01T00:00:07Z", "7"),
            ("-3s", "5"),
            (6 * SECOND, "6"),
            (None, "0"),
        ]:
            await replay.control.seek(point)
            await replay.control.step()
            assert texts(broker)[-1] == text, point
        with pytest.raises(BadCursor, match="nowhere"):
            await replay.control.seek("nowhere")
        await replay.control.step()
        assert texts(broker)[-1] == "1"


@pytest.mark.parametrize(
    ("point", "max_gap", "distances"),
    [
        ("15s", None, [5, 65, 66]),
        ("15s", 4, [4, 8, 9]),
        ("-3s", None, [2, 3]),
        ("1970-01-01", None, [0, 10, 20, 80, 81]),
    ],
)
async def test_after_a_seek_messages_come_at_their_distance_from_the_point(
    log: EventLog, point: str, max_gap: float | None, distances: list[float]
) -> None:
    await filled(log, [sent(at * SECOND, b"%d" % at) for at in (10, 20, 30, 90, 91)])
    broker = Heard()
    async with paused(log, broker, clock=fake(broker), max_gap=max_gap) as (replay, _):
        await replay.control.seek(point)
        began = broker.time.now_ns
        replay.control.resume()
        report = await ended(replay)
    assert [at - began / SECOND for at, _, _ in broker.published] == pytest.approx(distances, abs=0.2)
    assert report.recorded_s == pytest.approx(distances[-1])


async def test_a_seek_interrupts_the_wait_for_a_message_that_is_far_away(log: EventLog) -> None:
    await filled(log, [sent(0, b"0"), sent(10_000 * SECOND, b"1")])
    broker = Heard()
    replay = Replay(log, "e1", broker)
    async with running(replay):
        await until(lambda: texts(broker) == ["0"])
        await replay.control.seek(10_000 * SECOND)
        await ended(replay)
    assert texts(broker) == ["0", "1"]
    assert replay.report.recorded_s == 0, "the silence was not replayed"


async def test_a_seek_interrupts_the_wait_for_a_slow_subscriber(log: EventLog) -> None:
    await filled(log, [sent(at * SECOND, b"x" * 100_000) for at in range(99)] + [sent(99 * SECOND, b"end")])
    broker = Unread()
    replay = Replay(log, "e1", broker, speed="max")
    async with running(replay):
        await until(lambda: replay.report.held_by == "it")
        replay.control.pause()
        await replay.control.seek(99 * SECOND)
        assert replay.report.seeks == 1
        before, broker.waiting = len(broker.published), 0
        assert await replay.control.step() == 1
        assert texts(broker)[before:] == ["end"]


async def test_a_seek_reads_nothing_that_is_before_its_point(log: EventLog) -> None:
    """Events whose channel is missing cannot be read."""
    await filled(log, seconds_apart(5000))
    sql(log.location, f"UPDATE event SET channel_id = 999999 WHERE ts BETWEEN {2500 * SECOND} AND {3500 * SECOND}")
    async with paused(log) as (replay, broker):
        await replay.control.step(2)
        await replay.control.seek(4998 * SECOND)
        await replay.control.step(2)
        await ended(replay)
    assert texts(broker) == ["0", "1", "4998", "4999"]


@pytest.mark.parametrize("point", ["1d", 2**63 - 1])
async def test_a_seek_past_the_end_ends_the_pass_also_while_paused(log: EventLog, point: Any) -> None:
    await filled(log, seconds_apart(3))
    async with paused(log, loops=2) as (replay, broker):
        await replay.control.step()
        await replay.control.seek(point)
        assert await replay.control.step(2) == 2 and replay.control.paused
        assert texts(broker) == ["0", "0", "1"] and replay.report.loops == 1
        await replay.control.seek(point)
        report = await ended(replay)
    assert (report.loops, report.passed_over) == (2, 2 + 1)


async def test_seeks_stay_within_the_part_that_was_selected(log: EventLog) -> None:
    await filled(log, seconds_apart(10))
    async with paused(log, since="3s", until="7s") as (replay, broker):
        for point, text in [(0, "3"), ("5s", "5"), (None, "3")]:
            await replay.control.seek(point, state=True)
            await replay.control.step()
            assert texts(broker)[-1] == text
        broker.published.clear()
        await replay.control.seek("8s", state=True)
        await ended(replay)
    assert texts(broker) == ["6"]


@pytest.mark.parametrize("start_paused", [True, False])
async def test_a_seek_can_publish_the_last_message_of_every_channel_before_its_point_first(
    log: EventLog, start_paused: bool
) -> None:
    channels = ["early", "a", "b", "left out", "a", "b", "late", "a"]
    await filled(log, [sent(at * SECOND, b"%d" % at, channel) for at, channel in enumerate(channels)])
    broker = Heard()
    options: dict[str, Any] = {"mapping": {"b": "elsewhere"}, "exclude": ["left *"], "clock": fake(broker)}
    replay = Replay(log, "e1", broker, **options)
    replay.control.pause()
    async with running(replay):
        if not start_paused:
            replay.clock.resume()
        await replay.control.seek("5s", state=True)
        if start_paused:
            assert replay.control.position() == 5 * SECOND and replay.control.paused
            replay.control.resume()
        report = await ended(replay)
    said = [(channel.decode(), payload.decode()) for _, channel, payload in broker.published]
    assert said[-6:] == [("early", "0"), ("elsewhere", "2"), ("a", "4"), ("elsewhere", "5"), ("late", "6"), ("a", "7")]
    assert report.state_messages == 3 and report.published == len(said)


async def test_state_is_read_page_by_page_and_follows_the_rule_of_what_is_a_message(log: EventLog) -> None:
    """Redacted, retracted and received events are not messages; rare channels are far back in the log."""
    of = await filled(log, [sent(1, b"rare", "rare"), sent(2, b"kept", "kept"), sent(3, b"retracted", "kept")])
    writer = await log.register(of, role="messager")
    await log.append(writer, [NewEvent("received", 4, "kept", b"kept"), NewEvent("blocked", 5, "blocked", b"no")])
    await log.append(writer, [sent(10 + at, b"%d" % at, f"c{at % 7}") for at in range(3000)])
    await log.append(
        writer, [sent(5000, b"taken back", "rare"), NewEvent("failed", 5001, "rare", b"", cause=(2, 3003))]
    )
    await log.append(writer, [NewEvent("failed", 5002, "kept", b"", cause=(1, 3)), sent(6000, b"after", "c0")])
    async with paused(log, speed="max") as (replay, broker):
        await replay.control.seek(6000, state=True)
        assert texts(broker) == ["rare", "kept", *numbers(2993, 3000)]


async def test_a_seek_of_a_replay_that_never_begins_is_refused(log: EventLog) -> None:
    await filled(log, seconds_apart(3))
    replay = Replay(log, "e1", Heard(), since="whenever")
    seek = asyncio.create_task(replay.control.seek(0))
    with pytest.raises(BadCursor):
        await replay.run()
    with pytest.raises(StoreError, match="has ended"):
        await seek
