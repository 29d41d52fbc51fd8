"""Ending: the wait after the last expected message, for what live agents say although it was not recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

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
