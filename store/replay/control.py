"""Control of a running replay: pause, resume, step, next, seek and speed.

The replay asks the control at its waits (see `waiting`):

- `check` raises `Sought` if a seek is pending: this part of the pass ends, and the next one begins at the target.
- `permit` waits while the replay is paused, and returns the number of messages that may be published: all, or those of
  the pending step.
- `published` counts them for that step.
- `admit` holds back the messages of live agents of this process in the same way.

The clock alone knows whether the replay is paused. All methods belong to the event loop of the replay.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..errors import StoreError
from ..log.cursor import Point
from ..log.event import Cursor, Event
from ..log.selection import Selection
from .clock import LONGEST_SLEEP, ReplayClock, Timeline, checked_speed
from .guard import Guard
from .plan import Plan
from .report import ReplayReport
from .state import ReplayState

ENDED = "the replay has ended"


class Sought(Exception):
    """A seek ends the current part of a pass."""


@dataclass(slots=True, eq=False)
class Target:
    """The point that a seek leads to."""

    cursor: Cursor | None
    """None for the beginning of the plan."""
    state: bool
    """Publish the last message of every channel before the point first."""
    reached: asyncio.Future[None]


@dataclass(slots=True, eq=False)
class _Step:
    """Messages that are published while the replay is paused: up to and including the `left`-th of a selection."""

    selection: Selection | None
    left: int
    messages: asyncio.Future[int]
    published: int = 0
    """Messages that are out; those that were permitted and are on their way are not."""
    permitted: int = 0

    def reach(self, batch: Sequence[Event]) -> int:
        """Return the number of messages of a batch, at least one, that belong to the step."""
        if self.selection is None:
            return min(self.left, len(batch))
        left = self.left
        for number, message in enumerate(batch, 1):
            left -= self.selection.takes(message)
            if not left:
                return number
        return len(batch)

    def permit(self, batch: Sequence[Event]) -> int:
        """Take messages of a batch into the step; return their number."""
        number = self.reach(batch)
        taken = batch[:number]
        self.permitted += number
        self.left -= number if self.selection is None else sum(map(self.selection.takes, taken))
        return number

    def count(self, number: int) -> None:
        """Count permitted messages that are out."""
        self.published += number
        if self.left <= 0 and self.published >= self.permitted:
            self.end()

    def end(self) -> None:
        if not self.messages.done():
            self.messages.set_result(self.published)


class Control:
    """Controls one replay while it runs.

    Pause and speed take effect before the next messages are published; up to 500 may be on their way already. Steps,
    `next` and the state of a seek do not wait for due times, but for slow subscribers and the rate limit as all
    messages do. Without either, they publish at most `waiting.CAREFUL_RATE` messages a second.

    Every method raises `StoreError` after the end of the replay, and outside of its thread.
    """

    def __init__(
        self,
        clock: ReplayClock,
        report: ReplayReport,
        guard: Guard,
        fixed_order: str | None = None,
        live: Callable[[], dict[str, Any] | None] = lambda: None,
    ) -> None:
        """`fixed_order` is the reason for which seek and speed are refused, or None. `live` returns the status of the
        live agents (see `lockstep.live_replay`), None without."""
        self._clock = clock
        self._report = report
        self._guard = guard
        self._plan: Plan | None = None
        self._planned = asyncio.Event()
        self._thread: int | None = None
        """Thread of the replay; None before it has begun."""
        self._ended = False
        self._steps: deque[_Step] = deque()
        self._under_way: list[_Step] = []
        """Steps whose messages are permitted and not out yet."""
        self._target: Target | None = None
        self._taken: Target | None = None
        """The seek that the replay is carrying out."""
        self._timeline = Timeline()
        self._at: int | None = None
        self._begin: int | None = None
        self._due: int | None = None
        """Due times at the beginning of this part of the pass, and of the last published message."""
        self.cursor: Cursor | None = None
        """Position of the last message that was published."""
        self.fixed_order = fixed_order
        self._live = live

    # Verbs

    @property
    def paused(self) -> bool:
        """Return whether the replay is paused."""
        return self._clock.paused

    def pause(self) -> None:
        """Pause before the next messages are published. A step ends where it is."""
        self._check_alive()
        self._end_steps()
        self._clock.pause()

    def resume(self) -> None:
        """Continue from here at the requested speed. A step ends where it is."""
        self._check_alive()
        self._end_steps()
        self._clock.resume()

    async def step(self, n: int = 1) -> int:
        """Publish exactly `n` messages at once, and stay paused; a running replay is paused first.

        Return the number of published messages when that is done: fewer than `n` if the replay ended, or a pause,
        resume or seek ended the step. Several steps follow each other.
        """
        if not isinstance(n, int) or n < 1:
            raise StoreError(f"{n!r:.50} is not a number of messages: give one or more")
        return await self._do(None, n)

    async def next(self, *, agent: Any = None, channel: str | None = None) -> int:
        """Publish everything up to and including the next message that an agent sent, or on a channel; stay paused.

        `agent` is an id with its JSON type, `channel` a glob pattern on the recorded channels, or with MQTT a topic
        filter. With both, both must hold. Return the number of published messages, as `step` does. If there is no such
        message any more, the pass is published to its end. Raises `StoreError` if the experiment has no such agent or
        channel.
        """
        if agent is None and channel is None:
            raise StoreError("next needs an agent or a channel")
        plan = await self._made_plan()
        if agent is not None and not any(
            type(one) is type(agent) and one == agent for one in await plan.log.agents(plan.of)
        ):
            raise StoreError(f"no agent {agent!r} is in {plan.of.exp_id}: give its id, with its type (5 is not '5')")
        if not isinstance(channel, str | None):
            raise StoreError(f"{channel!r:.100} is not a channel: give a recorded channel, or a pattern, as text")
        chosen = Selection(channels=channel, from_ids=None if agent is None else [agent])
        if channel is not None:
            chosen = await self._as_recorded(plan, chosen, channel)
        return await self._do(chosen, 1)

    async def seek(self, point: Point, *, state: bool = False) -> None:
        """Continue at a point of the plan, as `messager_store.log.cursor` resolves it; None is the beginning.

        A paused replay stays paused. A point after the end ends the pass. With `state`, the last message of every
        channel between the start of the plan and the point is published first, also if the replay is paused. Return
        when the replay is there. Raises `BadCursor`, and `StoreError` if the replay has a fixed order.
        """
        plan = await self._made_plan()
        self._check_order("seek")
        cursor = (await plan.log.span(plan.of, point)).start
        self._check_alive()
        self._end_steps()
        _reach(self._target)  # it is superseded
        self._target = target = Target(cursor, state, asyncio.get_running_loop().create_future())
        self._clock.wake()
        await target.reached

    def set_speed(self, speed: float | Literal["max"]) -> None:
        """Change the speed: recorded seconds per second, or "max".

        Raises `StoreError` for any other value or a fixed order, and `ReplayRefused` for "max" without flow control
        and without a rate.
        """
        self._check_alive()
        self._check_order("change the speed")
        wanted = checked_speed(speed)
        if wanted is None:
            self._guard.refuse_unlimited()
        elif self._report.requested_speed is None and self._due is not None:
            self._clock.seek(self._due)  # at full speed the clock does not follow the messages
        self._report.requested_speed = wanted
        self._clock.set_speed(speed)

    def position(self) -> int | None:
        """Return the recorded time that the replay has reached, ns UTC; None before the first pass."""
        waiting = self._report.state is ReplayState.DUE and self._report.requested_speed is not None
        if waiting and self._at is not None:
            return max(self._at, self._clock.position() + self._timeline.removed)
        return self._at

    def status(self) -> dict[str, Any]:
        """Return position, state and counts as JSON data. Times are in ns UTC, offsets in seconds."""
        report, at = self._report, self.position()
        first = None if self._plan is None else self._plan.first_ts
        return {
            "exp_id": report.exp_id,
            "state": "paused" if self.paused and report.state is ReplayState.DUE else report.state.value,
            "paused": self.paused,
            "position": at,
            "offset_s": None if at is None or first is None else round((at - first) / 1e9, 9),
            "cursor": None if self.cursor is None else str(self.cursor),
            "speed": "max" if report.requested_speed is None else report.requested_speed,
            "planned": report.planned,
            "at_least": report.at_least,
            "published": report.published,
            "failed": report.failed,
            "loops": report.loops,
            "seeks": report.seeks,
            "repeated": report.repeated,
            "state_messages": report.state_messages,
            "held_by": report.held_by,
            "live": self._live(),
        }

    # Called by the replay

    def begin(self, plan: Plan) -> None:
        """Begin, with the plan."""
        self._plan, self._thread = plan, threading.get_ident()
        self._planned.set()

    def end(self) -> None:
        """End all steps and seeks, and refuse further ones."""
        self._ended = True
        self._planned.set()
        self._end_steps()
        for step in self._under_way:
            step.end()
        self._clock.wake()
        for target in (self._target, self._taken):
            if target is not None and not target.reached.done():
                target.reached.set_exception(StoreError(ENDED))
        self._target = self._taken = None

    @property
    def stepping(self) -> bool:
        """Return whether messages are published without waiting for their due times."""
        return bool(self._steps)

    @property
    def waiting(self) -> bool:
        """Return whether the replay is paused and no step is to be made."""
        return self.paused and not self._steps

    def interrupts(self) -> bool:
        """Return whether a wait for a due time is to end."""
        return self._target is not None or self.stepping or self._report.requested_speed is None

    def check(self) -> None:
        """Raise `Sought` if a seek is pending."""
        if self._target is not None:
            raise Sought

    def take(self) -> Target | None:
        """Return the pending seek, to be carried out now; None without one."""
        _reach(self._taken)
        self._taken, self._target = self._target, None
        self._begin = self._due = None
        return self._taken

    @property
    def part_ns(self) -> int:
        """Return the recorded time that this part of the pass has published, in ns, shortened by `max_gap`."""
        return 0 if self._begin is None or self._due is None else self._due - self._begin

    def grant(self, messages: int) -> None:
        """Permit this number of messages also while the replay is paused."""
        if self.paused and messages:
            self._steps.append(_Step(None, messages, asyncio.get_running_loop().create_future()))

    async def permit(self, batch: Sequence[Event]) -> int:
        """Wait while the replay is paused; return how many of these messages may be published. Raises `Sought`."""
        while True:
            self.check()
            if self._steps:
                return self._permit(batch)
            if not self.paused:
                return len(batch)
            await self._clock.sleep(LONGEST_SLEEP)

    async def admit(self, message: Event | None) -> None:
        """Wait while the replay is paused, before a message of a live agent goes out.

        `message` is the recorded one in whose place it is said, and counts for steps; None if there is none.
        """
        while self.paused and not self._ended:
            if self._steps:
                if message is not None:
                    self._permit([message])
                    self._count(1)
                return
            await self._clock.sleep(LONGEST_SLEEP)

    def published(self, batch: Sequence[Event], due: int | None) -> None:
        """Count published messages; `due` is the due time of the last, None for messages of a seek's state."""
        if due is not None:
            self.cursor, self._at, self._due = batch[-1].cursor, batch[-1].ts, due
            if self.paused:
                self._clock.seek(max(due, self._clock.position()))
        self._count(len(batch))

    def moved(self, ts: int, timeline: Timeline) -> None:
        """Set the position to a recorded time, where `timeline` begins. A seek is there."""
        self._timeline, self._at, self._begin, self._due = timeline, ts, ts, ts
        self._clock.seek(ts)
        _reach(self._taken)

    # Implementation

    def _check_alive(self) -> None:
        if self._ended:
            raise StoreError(ENDED)
        if self._thread not in (None, threading.get_ident()):
            raise StoreError("the replay runs in a thread of its own, in virtual time: let a live agent control it")

    def _check_order(self, intent: str) -> None:
        if self.fixed_order is not None:
            raise StoreError(f"this replay cannot {intent}: {self.fixed_order}")

    async def _made_plan(self) -> Plan:
        self._check_alive()
        await self._planned.wait()
        if self._plan is None:
            raise StoreError(ENDED)
        return self._plan

    async def _as_recorded(self, plan: Plan, chosen: Selection, channel: str) -> Selection:
        """Return a selection as the experiment was recorded. Raises `StoreError` if no channel fits it."""
        try:
            found = await plan.log.as_recorded(plan.of, chosen)
            if any(map(found.takes_channel, await plan.log.channels(plan.of))):
                return found
        except UnicodeEncodeError:  # text that no bytes stand for
            pass
        raise StoreError(f"no channel of {plan.of.exp_id} fits {channel!r:.100}: give a recorded channel, or a pattern")

    async def _do(self, selection: Selection | None, n: int) -> int:
        self._check_alive()
        step = _Step(selection, n, asyncio.get_running_loop().create_future())
        self._clock.pause()
        self._steps.append(step)
        self._clock.wake()
        try:
            return await step.messages
        finally:
            if step in self._steps:  # cancelled
                self._steps.remove(step)

    def _permit(self, batch: Sequence[Event]) -> int:
        step = self._steps[0]
        number = step.permit(batch)
        if step.left <= 0:
            self._steps.popleft()
        self._under_way.append(step)
        return number

    def _count(self, number: int) -> None:
        """Count messages of the step that was asked last."""
        if self._under_way:
            self._under_way.pop().count(number)

    def _end_steps(self) -> None:
        for step in self._steps:
            step.end()
        self._steps.clear()


def _reach(target: Target | None) -> None:
    if target is not None and not target.reached.done():
        target.reached.set_result(None)
