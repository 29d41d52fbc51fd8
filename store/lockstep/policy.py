"""Policy: what live agents may do beside what was recorded, and what happens when one is waited for in vain.

`to_the_end.ToTheEnd` is the policy of a replay, `prefix.Prefix` that of a fork. A `Lockstep` and its gates ask it.
"""

from __future__ import annotations

from typing import Any

from ..errors import StoreError
from .announcing import Announcing
from .report import Divergence
from .schedule import Part


class LockstepStopped(StoreError):
    """A wait was given up, and the replay was to stop then."""


class Policy:
    """Policy of one `Lockstep`."""

    holds = False
    """True if nothing that differs is sent, and what was not recorded waits until the gate is open."""
    by_order = True
    """False if only what matches is paired with what was received."""
    continues = False
    """True if live agents may say more after their last recorded message."""
    origins = False
    """True if the records of live Messagers name the recorded events that they repeat."""
    chances = 3
    """Number of times in a row that a silent sender is waited for when it has heard something new."""

    def begin(self, lockstep: Any) -> None:
        """Begin with a `Lockstep`, before any agent is attached."""
        raise NotImplementedError

    async def until_there(self, parts: list[Part]) -> None:
        """Wait until the Messagers of these parts, in other processes, have announced themselves."""
        raise NotImplementedError

    async def tail(self) -> None:
        """Wait after the last recorded message."""
        raise NotImplementedError

    def expire(self) -> None:
        """Give up a wait: nothing has made progress for too long."""
        raise NotImplementedError

    def needs(self, part: Part) -> bool:
        """Return whether a part must be played by a live program."""
        return True

    def diverged(self, divergence: Divergence) -> None:
        """Note a divergence, which the report has."""

    def stopped(self, error: Exception) -> None:
        """Note that the replay stops, once."""

    def stop_together(self, announcing: Announcing) -> None:
        """Tell the live programs of other processes if this one stops."""

    def stopped_elsewhere(self, notice: dict[str, Any]) -> None:
        """Stop, because a live program of another process does."""

    def progress(self) -> None:
        """Note that something has happened that others may wait for."""
