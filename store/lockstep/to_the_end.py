"""Policy of a replay with live agents to the end of its recording, and the wait for what they say behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal

from ..errors import StoreError
from .policy import LockstepStopped, Policy
from .run import Lockstep
from .schedule import Part
from .virtual_time import VirtualLoop

SHORTEST_S, LONGEST_S = 0.01, 1.0
"""Minimum of the wait, and maximum in real time."""
QUIET_S = 1.0
"""Virtual time without a message, after which agents that only fetch in vain are taken to say nothing more."""


async def until_quiet(
    recorded_s: float, patience_s: float, *, others: bool, idle: Callable[[], bool], returned: Callable[[], bool]
) -> None:
    """Wait until live agents say nothing more.

    At least as long as the recording lasts, `recorded_s`. Then until the agents of this process have `returned`, or are
    `idle`, which means that they have fetched in vain, and say nothing for `QUIET_S`; at most for `patience_s`. In real
    time, where waiting costs something, not longer than `LONGEST_S`; programs of `others` get that time.
    """
    loop = asyncio.get_running_loop()
    virtual = isinstance(loop, VirtualLoop)
    least = max(recorded_s + SHORTEST_S, LONGEST_S if others else 0.0)
    end = loop.time() + (least + patience_s if virtual else LONGEST_S)
    await asyncio.sleep(least if virtual else min(least, LONGEST_S))
    pause = SHORTEST_S
    while loop.time() < end and not idle():
        await asyncio.sleep(min(pause, end - loop.time()))
        pause *= 2
    if virtual and not returned():
        await asyncio.sleep(max(min(QUIET_S, end - loop.time()), 0.0))


OnTimeout = Literal["continue", "stop"]


class ToTheEnd(Policy):
    """What differs is reported, and waits are given up in the order of `expire`.

    `on_timeout` says whether the replay continues then. A sender that was waited for in vain is silent: what follows is
    missing at once until it speaks again, or, up to `chances` times in a row, until it hears something new. With
    `continues`, live agents may say more after their last recorded message. With `origins`, the records of live
    Messagers name the recorded events that they repeat.
    """

    lockstep: Lockstep

    def __init__(
        self,
        *,
        on_timeout: OnTimeout = "continue",
        continues: bool = False,
        origins: bool = False,
        chances: int = 3,
    ) -> None:
        if on_timeout not in ("continue", "stop"):
            raise StoreError(f"unknown on_timeout {on_timeout!r}: give continue or stop")
        self.continues = continues
        self.origins = origins
        self.chances = chances
        self._on_timeout = on_timeout

    def begin(self, lockstep: Lockstep) -> None:
        """Begin, before any agent is attached."""
        self.lockstep = lockstep

    async def until_there(self, parts: list[Part]) -> None:
        """Wait until the Messagers of these parts, in other processes, have announced themselves."""
        self.lockstep.patience.start()
        await self.lockstep.presence.started(parts)

    async def tail(self) -> None:
        """Wait after the last recorded message, for blocked and unexpected ones."""
        lockstep = self.lockstep
        if self.continues or not lockstep.recording.events:
            return
        parts, timed_out = lockstep.cast.parts, lockstep.report.timed_out
        acts = [act for part in parts for act in part.sends if act.awaited]
        last = max((act.event.ts for act in acts), default=lockstep.recording.events[0].ts)
        await until_quiet(
            max(lockstep.recording.events[-1].ts - last, 0) / 1e9,
            min(QUIET_S, lockstep.patience.seconds) if timed_out else lockstep.patience.seconds,
            others=any(part.key not in lockstep.gates and lockstep.observed(part).report.matched for part in parts),
            idle=lambda: lockstep.failed or all(gate.idle for gate in lockstep.running),
            returned=lambda: not lockstep.running,
        )

    def expire(self) -> None:
        """Give up one wait, in the order of the table in `run`."""
        lockstep, gates = self.lockstep, self.lockstep.gates.values()
        if sum(gate.lost(lockstep.arrives) for gate in gates):
            return self._given_up("a message did not arrive")
        if sum(gate.release() for gate in gates):
            return self._given_up("an agent speaks before it has fetched what it had heard in the recording")
        if (absent := lockstep.presence.give_up()) is not None:
            if not lockstep.releasing:  # each gate is on its own, and one of them has waited
                for gate in gates:
                    gate.report.timed_out = True
            return self._given_up(f"{absent} did not subscribe")
        if (awaited := lockstep.release.awaited) is not None:
            lockstep.release.pass_over(*awaited)
            return self._given_up(f"{awaited[0].label} did not say message {awaited[1].index + 1}")
        if not lockstep.releasing:  # no recorded messages in this process: each gate is on its own
            for gate in [gate for gate in gates if not gate.waits]:
                if (unsaid := gate.place.awaited) is not None:
                    gate.report.timed_out = True
                    for hearer in gates:
                        hearer.hearing.silence(gate.part.key)
                    lockstep.miss(gate.part, unsaid)
        return None

    def _given_up(self, what: str) -> None:
        if self._on_timeout == "stop":
            seconds = self.lockstep.patience.seconds
            self.lockstep.stop(LockstepStopped(f"{what} within {seconds:g} s. Raise the patience, or continue."))
