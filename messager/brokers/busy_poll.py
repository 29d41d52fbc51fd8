"""Busy poll: when a sender reads the answer of the broker at once, without the event loop."""

from __future__ import annotations

import asyncio

BUSY_POLL_NS = 100_000
"""Maximum time (ns) of one poll, during which no other task runs."""
MAX_FAILURES = 10
"""Consecutive failures after which only every 1024th message is polled for."""


class BusyPoll:
    """Decides whether to poll for an answer.

    It pays if one task sends one message after another and the broker is near. Tasks that send at the same time are
    faster with the event loop, which batches their messages. After a poll without an answer, as from a broker on
    another machine, polling pauses for a number of messages that doubles with each failure.
    """

    __slots__ = ("_sender", "failures", "skip")

    def __init__(self) -> None:
        self._sender = 0  # id of the task that published the last single message
        self.failures = 0
        """Consecutive polls without an answer."""
        self.skip = 0
        """Messages that will not be polled for."""

    def due(self, unanswered: int) -> bool:
        """Return True to poll now, after a single message was published and `unanswered` messages are on their way."""
        sender, self._sender = self._sender, id(asyncio.current_task())
        if sender != self._sender or unanswered != 1:
            return False
        if self.skip:
            self.skip -= 1
            return False
        return True

    def finished(self, found: bool) -> None:
        """Record the result of a poll."""
        self.failures = 0 if found else min(self.failures + 1, MAX_FAILURES)
        self.skip = 2**self.failures - 1
