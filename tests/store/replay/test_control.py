"""Control of a running replay: pause, step, next, seek and speed, from the library."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from messager.brokers import Backlog
from messager_store import EventLog, NewEvent, Replay
from messager_store.errors import ReplayRefused, StoreError
from messager_store.replay import ReplayClock
from messager_store.replay.waiting import CAREFUL_RATE
from tests.store.replay.test_replay import SECOND, Heard, Secretive
from tests.support import until
from tests.support.logs import filled, sent

ANY_PACE = pytest.mark.parametrize("pace", [{"speed": 1.0}, {"speed": "max"}, {"speed": "max", "rate": 5000.0}])


def texts(broker: Heard) -> list[str]:
    return [payload.decode() for payload in broker.payloads()]


def numbers(first: int, last: int) -> list[str]:
    return [str(number) for number in range(first, last)]


def seconds_apart(messages: int) -> list[NewEvent]:
    return [sent(at * SECOND, b"%d" % at) for at in range(messages)]


@contextlib.asynccontextmanager
async def paused(log: EventLog, broker: Heard | None = None, **options: Any) -> AsyncIterator[tuple[Replay, Heard]]:
    """Start a replay that is paused before its first message; end it."""
    broker = broker or Heard()
    replay = Replay(log, "e1", broker, **options)
    replay.control.pause()
    async with running(replay):
        yield replay, broker


@contextlib.asynccontextmanager
async def running(replay: Replay) -> AsyncIterator[asyncio.Task[Any]]:
    task = asyncio.create_task(replay.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def fake(broker: Heard, speed: float = 1.0) -> ReplayClock:
    """Return a clock that takes no real time."""
    return ReplayClock(speed, now=broker.time.now, sleep=broker.time.sleep)


@ANY_PACE
async def test_a_step_publishes_exactly_so_many_messages_and_stays_paused(log: EventLog, pace: dict[str, Any]) -> None:
    await filled(log, seconds_apart(1200))
    async with paused(log, **pace) as (replay, broker):
        for n in (1, 3, 700):
            before = len(broker.published)
            assert await replay.control.step(n) == n
            assert len(broker.published) == before + n and replay.control.paused
        assert texts(broker) == numbers(0, 704)
        assert replay.control.position() == 703 * SECOND
        assert await replay.control.step(5000) == 496
        report = await asyncio.wait_for(ended(replay), 60)
    assert (report.published, report.repeated, report.passed_over) == (1200, 0, 0)


async def ended(replay: Replay) -> Any:
    await until(lambda: replay.report.state.value == "finished")
    return replay.report


async def test_a_step_takes_one_of_several_messages_that_are_due_together(log: EventLog) -> None:
    await filled(log, [sent(7, b"%d" % at) for at in range(4)])
    async with paused(log) as (replay, broker):
        assert await replay.control.step() == 1
        assert texts(broker) == ["0"]
        assert await replay.control.step(2) == 2
        assert texts(broker) == ["0", "1", "2"]


async def test_a_step_pauses_a_running_replay(log: EventLog) -> None:
    await filled(log, seconds_apart(3))
    broker = Heard()
    replay = Replay(log, "e1", broker)
    async with running(replay):
        await until(lambda: len(broker.published) == 1)
        assert await replay.control.step() == 1
        assert replay.control.paused and texts(broker) == ["0", "1"]


async def test_after_steps_the_replay_resumes_from_there_at_its_speed(log: EventLog) -> None:
    await filled(log, seconds_apart(6))
    broker = Heard()
    clock = fake(broker)
    async with paused(log, broker, clock=clock) as (replay, _):
        await replay.control.step(3)
        stepped = broker.time.now_ns
        replay.control.resume()
        await ended(replay)
    later = [at - stepped / SECOND for at, _, _ in broker.published[3:]]
    assert later == pytest.approx([1, 2, 3], abs=0.11) and texts(broker) == numbers(0, 6)
    assert replay.report.lag.count == 3, "a step is not late"


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ({"agent": 7}, [3, 4, 3]),
        ({"agent": "7"}, [8, 2]),
        ({"channel": "b*"}, [3, 3, 4]),
        ({"agent": 7, "channel": "a"}, [7, 3]),
    ],
)
async def test_next_publishes_up_to_and_including_the_message_it_names(
    log: EventLog, chosen: dict[str, Any], expected: list[int]
) -> None:
    senders = [1, 1, 7, 1, 1, None, 7, "7", 1, 7]
    channels = ["a", "a", "b1", "a", "a", "b2", "a", "a", "a", "a"]
    said = zip(senders, channels, strict=True)
    await filled(log, [sent(at * SECOND, b"x", channel, from_id=sender) for at, (sender, channel) in enumerate(said)])
    async with paused(log) as (replay, broker):
        for count in expected:
            assert await replay.control.next(**chosen) == count
        assert len(broker.published) == 10


async def test_next_without_an_agent_or_a_channel_of_the_experiment_is_refused(log: EventLog) -> None:
    await filled(log, [sent(1, from_id=3), sent(2, from_id=4)])
    async with paused(log) as (replay, broker):
        with pytest.raises(StoreError, match="no agent '3' is in e1"):
            await replay.control.next(agent="3")
        with pytest.raises(StoreError, match="no channel of e1 fits 'b"):
            await replay.control.next(channel="b*", agent=3)
        with pytest.raises(StoreError, match="an agent or a channel"):
            await replay.control.next()
        assert broker.published == []


async def test_a_value_that_a_verb_does_not_take_is_refused_in_one_line_and_the_replay_goes_on(log: EventLog) -> None:
    await filled(log, [sent(1, from_id=3), sent(2, from_id=4)])
    async with paused(log) as (replay, broker):
        control = replay.control

        async def set_speed(speed: Any) -> None:
            control.set_speed(speed)

        cases: list[tuple[Callable[[Any], Awaitable[Any]], list[Any], str]] = [
            (control.step, [0, 1.5, "1", None], "is not a number of messages"),
            (set_speed, [5e-324, 1e308, 10**400, True], "is not a speed"),
            (lambda value: control.next(channel=value), ["", "[", "\ud800", "\ud800/+"], "no channel of e1 fits"),
            (lambda value: control.next(channel=value), [5, b"c", object()], "is not a channel"),
            (lambda value: control.next(agent=value), ["\ud800", 10**40, 3.0, True, [3], object()], "no agent"),
            (control.seek, [1.5, math.nan, [], b"0", "\ud800", "1e300"], "is not a point"),
        ]
        for verb, values, error in cases:
            for value in values:
                with pytest.raises(StoreError, match=error) as refused:
                    await verb(value)
                assert "\n" not in str(refused.value) and broker.published == []
        control.resume()
        assert (await ended(replay)).published == 2


@ANY_PACE
async def test_a_pause_takes_effect_before_the_next_batch(log: EventLog, pace: dict[str, Any]) -> None:
    await filled(log, [sent(at, b"%d" % at) for at in range(1200)])

    class Pausing(Heard):
        async def publish(self, messages: Any) -> Any:
            if not self.published:
                replay.control.pause()
            return await super().publish(messages)

    broker = Pausing()
    replay = Replay(log, "e1", broker, **pace)
    async with running(replay):
        await until(
            lambda: replay.report.published > 0 and replay.report.state.value.startswith("waiting for the next")
        )
        [first] = broker.batches
        assert first <= 500 and replay.control.paused
        assert await replay.control.step() == 1
        assert broker.batches == [first, 1]
        replay.control.resume()
        await ended(replay)
    assert texts(broker) == numbers(0, 1200)


async def test_a_pause_or_a_resume_ends_a_step_where_it_is(log: EventLog) -> None:
    """A subscriber that does not read holds the step back."""
    await filled(log, [sent(at, b"x" * 100_000) for at in range(100)])
    broker = Unread()
    async with paused(log, broker, speed="max") as (replay, _):
        step = asyncio.create_task(replay.control.step(90))
        await until(lambda: replay.report.held_back_s > 0)
        replay.control.pause()
        published = await step
        assert 0 < published < 90 and published == len(broker.published)
        broker.waiting = 0
        assert await replay.control.step() == 1
        assert len(broker.published) == published + 1
        broker.waiting = 0
        replay.control.resume()
        step = asyncio.create_task(replay.control.step(5))
        await step
        assert replay.control.paused


class Unread(Heard):
    """Broker whose subscriber reads nothing until `waiting` is set to 0."""

    waiting = 0

    async def publish(self, messages: Any) -> Any:
        self.waiting += sum(len(payload) for _, payload in messages)
        return await super().publish(messages)

    async def backlog(self) -> Backlog:
        return Backlog(self.waiting, "it", 1)


async def test_a_step_that_is_no_longer_awaited_publishes_nothing_more(log: EventLog) -> None:
    await filled(log, [sent(at, b"x" * 100_000) for at in range(100)])
    broker = Unread()
    async with paused(log, broker, speed="max") as (replay, _):
        step = asyncio.create_task(replay.control.step(90))
        await until(lambda: replay.report.held_back_s > 0)
        step.cancel()
        await asyncio.gather(step, return_exceptions=True)
        before, broker.waiting = len(broker.published), 0
        assert await replay.control.step() == 1
        assert len(broker.published) == before + 1


async def test_speed_can_be_changed_also_from_and_to_full_speed(log: EventLog) -> None:
    await filled(log, seconds_apart(1002))
    broker = Heard()

    class Changing:
        def __init__(self) -> None:
            self.at = {1: 10.0, 11: "max", 500: 2.0}

        def __call__(self, report: Any) -> None:
            if (speed := self.at.pop(report.published, None)) is not None:
                replay.control.set_speed(speed)  # type: ignore[arg-type]
                speeds.append((report.published, broker.time.now_ns / SECOND))

    speeds: list[tuple[int, float]] = []
    replay = Replay(log, "e1", broker, clock=fake(broker), progress=Changing())
    report = await asyncio.wait_for(replay.run(), 60)
    times = [at for at, _, _ in broker.published]
    assert texts(broker) == numbers(0, 1002)
    assert times[10] == pytest.approx(1, abs=0.01) and times[499] == times[11] == pytest.approx(times[10], abs=0.2)
    assert times[-1] - times[499] == pytest.approx((1002 - 500) / 2, abs=0.2)
    assert [at for at, _ in speeds] == [1, 11, 500] and report.requested_speed == 2.0


async def test_full_speed_is_refused_where_nothing_would_limit_it(log: EventLog) -> None:
    await filled(log, seconds_apart(3))
    async with paused(log, Secretive()) as (replay, broker):
        await replay.control.step()
        with pytest.raises(ReplayRefused, match="full speed could disconnect them"):
            replay.control.set_speed("max")
        for speed in (0, -1, "fast", None):
            with pytest.raises(StoreError, match="is not a speed"):
                replay.control.set_speed(speed)  # type: ignore[arg-type]
        await replay.control.step(2)
        assert len(broker.published) == 3


@pytest.mark.parametrize("verb", ["step", "next", "seek"])
async def test_without_flow_control_what_does_not_wait_for_due_times_is_limited_in_rate(
    log: EventLog, verb: str
) -> None:
    count = 300
    await filled(log, [sent(at * SECOND, b"x", f"c{at}") for at in range(count + 1)])
    broker = Secretive()
    async with paused(log, broker, clock=fake(broker)) as (replay, _):
        if verb == "step":
            await replay.control.step(count)
        elif verb == "next":
            await replay.control.next(channel=f"c{count - 1}")
        else:
            await replay.control.seek(count * SECOND, state=True)
        times = [at for at, _, _ in broker.published]
    assert len(times) == count and times[-1] - times[0] >= (count - 20) / CAREFUL_RATE


async def test_passes_are_controlled_one_like_the_other(log: EventLog) -> None:
    await filled(log, seconds_apart(3))
    async with paused(log, loops=0) as (replay, broker):
        await replay.control.step(4)
        await replay.control.seek("2s")
        await replay.control.step(2)
        assert texts(broker) == ["0", "1", "2", "0", "2", "0"]
        assert (replay.report.loops, replay.report.passed_over, replay.report.repeated) == (2, 1, 0)
        assert replay.control.status() | {"position": None} == {
            "exp_id": "e1",
            "state": "paused",
            "paused": True,
            "position": None,
            "offset_s": 0.0,
            "cursor": "0:1:1",
            "speed": 1.0,
            "planned": 3,
            "at_least": False,
            "published": 6,
            "failed": 0,
            "loops": 2,
            "seeks": 1,
            "repeated": 0,
            "state_messages": 0,
            "held_by": None,
            "live": None,
        }


async def test_after_the_end_every_verb_is_refused_and_who_waits_is_told(log: EventLog) -> None:
    await filled(log, seconds_apart(3))
    async with paused(log) as (replay, _):
        step = asyncio.create_task(replay.control.step(10))
        await asyncio.wait_for(step, 60)
    assert step.result() == 3
    control = replay.control
    for verb in (control.pause, control.resume, lambda: control.set_speed(2)):
        with pytest.raises(StoreError, match="has ended"):
            verb()
    for waiting in (control.step(), control.next(agent=1), control.seek(0)):
        with pytest.raises(StoreError, match="has ended"):
            await waiting


async def test_a_replay_of_fixed_order_refuses_seek_and_speed_with_the_reason_and_is_stepped(log: EventLog) -> None:
    await filled(log, seconds_apart(3))
    async with paused(log) as (replay, broker):
        replay.control.fixed_order = "its live agents follow the recorded order"
        with pytest.raises(StoreError, match="cannot seek: its live agents follow"):
            await replay.control.seek(0)
        with pytest.raises(StoreError, match="cannot change the speed: its live agents follow"):
            replay.control.set_speed(2)
        assert await replay.control.step(2) == 2 and len(broker.published) == 2
