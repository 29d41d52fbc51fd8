"""Releases of a lockstep replay: the recorded messages, each after the live messages before it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING

from ..log.event import Event
from .cast import release_order
from .schedule import Act, ActState, Part, key
from .shared import Shared

if TYPE_CHECKING:
    pass

TOGETHER = 500
"""Maximum number of recorded messages that are released together."""


class Releases:
    """Yields recorded messages. It waits for live messages, as long as their senders are not silent."""

    def __init__(self, lockstep: Shared, finish: Callable[[], None]) -> None:
        """`finish` is called at the end."""
        self._lockstep = lockstep
        self._finish = finish
        self._run: list[tuple[Part, Act]] = []  # live messages that are waited for, in order
        self._run_at = 0  # those before are settled

    async def messages(self) -> AsyncGenerator[list[Event], None]:
        """Yield the recorded messages when they are to be published, and wait for the live ones between them.

        Raises `LiveAgentFailed`, and `LockstepStopped` if a wait was given up and `on_timeout` is "stop".
        """
        lockstep, presence = self._lockstep, self._lockstep.presence
        released = lockstep.released = set()
        lockstep.patience.start()
        await presence.started([part for part in lockstep.cast.parts if not part.exact and part.key in presence.local])
        expected = lockstep.cast.expected
        batch: list[Event] = []
        run: list[tuple[Part, Act]] = []
        try:
            for entry in release_order(lockstep.recording, lockstep.cast):
                place = key(entry)
                found = expected.get(place)
                if batch and (found is not None or len(batch) == TOGETHER or presence.lacks_recipient(place)):
                    yield batch
                    lockstep.progress()
                    batch = []
                    lockstep.check_failure()
                if found is not None:
                    if not found[1].settled:
                        run.append(found)
                    continue
                if run:
                    await self._until_done(run)
                    run = []
                    lockstep.check_failure()
                if (wait := presence.wait_for(place)) is not None:
                    await wait
                released.add(place)
                batch.append(entry)
            if batch:
                yield batch
            await self._until_done(run)
            lockstep.check_failure()
            await lockstep.policy.tail()
            lockstep.check_failure()
        finally:
            self._run = []
            self._finish()

    @property
    def awaited(self) -> tuple[Part, Act] | None:
        """The first live message that is waited for; None if there is none."""
        while self._run_at < len(self._run) and self._run[self._run_at][1].settled:
            self._run_at += 1
        return self._run[self._run_at] if self._run_at < len(self._run) else None

    def pass_over(self, part: Part, act: Act) -> None:
        """Give up a message that was awaited for too long: its sender is silent."""
        sender = part.key, repr(act.event.from_id)
        self._lockstep.silent[sender] = self._lockstep.silent.get(sender, (0, 0))[0] + 1, act.needs
        self._lockstep.observed(part).report.timed_out = True
        self._lockstep.miss(part, act)
        self._lockstep.wake()

    async def _until_done(self, run: list[tuple[Part, Act]]) -> None:
        """Wait until live messages are out, or given up."""
        self._run, self._run_at = run, 0
        lockstep = self._lockstep
        while not lockstep.failed and (awaited := self.awaited) is not None:
            part, act = awaited
            if (part.key in lockstep.ended or self._is_silent(part, act)) and act.state is ActState.PENDING:
                lockstep.miss(part, act)
                continue
            last = run[-1][1]
            if self._lockstep.silent or lockstep.ended or last.settled:
                last = act  # else the last one is enough: nobody is given up without a call of `wake`
            lockstep.waiting = last.waiting = asyncio.get_running_loop().create_future()
            await lockstep.waiting
            last.waiting = None
        self._run = []

    def _is_silent(self, part: Part, act: Act) -> bool:
        """Return whether the sender was waited for in vain, as often as it may, or has heard nothing since."""
        times, needs = self._lockstep.silent.get((part.key, repr(act.event.from_id)), (0, -1))
        if self._lockstep.is_suspended(part):
            return any(silent == part.key for silent, _ in self._lockstep.silent)
        return times >= self._lockstep.policy.chances or (times > 0 and act.needs <= needs)
