"""State of a replay."""

from __future__ import annotations

from enum import Enum


class ReplayState(Enum):
    """State of a replay.

        PLANNING ──> SUBSCRIBERS ──> PUBLISHING ──> FINISHED
                                       │   ^
                                       v   │
                             DUE, BACKPRESSURE, RATE

    An error or a cancellation in any state leads to STOPPED. While the clock is paused, the state is DUE.
    """

    PLANNING = "planning"
    SUBSCRIBERS = "waiting for subscribers"
    PUBLISHING = "publishing"
    DUE = "waiting for the next due time"
    BACKPRESSURE = "waiting for a slow subscriber"
    RATE = "waiting for the rate limit"
    FINISHED = "finished"
    STOPPED = "stopped"
