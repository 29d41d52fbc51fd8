"""Requests that were sent on a connection to Redis and wait for their replies."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from redis.exceptions import ResponseError

from ...errors import BrokerUnavailable, PublishError
from .error_text import acl_remedy, error_text


class PublishRequest:
    """Messages on their way, with one reply for each."""

    def __init__(self, count: int, counts: bool) -> None:
        """`counts` is False if the server does not count all subscribers; then results have no numbers."""
        self.future: asyncio.Future[list[int | PublishError | None]] = asyncio.get_running_loop().create_future()
        self.since = time.monotonic()
        self.done = False
        self._count = count
        self._counts = counts
        self._results: list[int | PublishError | None] = []
        if not count:
            self._finish()

    def take(self, replies: list[Any], at: int) -> int:
        """Take the replies of this request, from position `at` on. Return how many these are."""
        mine = replies[at : at + self._count - len(self._results)]
        self._results += [reply if reply.__class__ is int else _fault_in(reply) for reply in mine]
        if len(self._results) == self._count:
            self._finish()
        return len(mine)

    def fail(self, url: str, reason: str) -> None:
        """End the request with an unknown outcome for the messages without a reply."""
        lost = PublishError(f"the answer of {url} was lost: {reason}", "unknown")
        self._results += [lost] * (self._count - len(self._results))
        self._finish()

    def _finish(self) -> None:
        self.done = True
        if not self._counts:
            self._results = [None if result.__class__ is int else result for result in self._results]
        if not self.future.done():  # its caller may have been cancelled
            self.future.set_result(self._results)


class CarriedRequest(PublishRequest):
    """Messages of which some are entries of streams; `entries` has a value for these and None for the others."""

    def __init__(self, entries: Sequence[object], counts: bool) -> None:
        self._entries = entries
        super().__init__(len(entries), counts)

    def take(self, replies: list[Any], at: int) -> int:
        mine = replies[at : at + self._count - len(self._results)]
        for reply in mine:
            if self._entries[len(self._results)] is None:
                self._results.append(reply if reply.__class__ is int else _fault_in(reply))
            else:
                self._results.append(None if reply.__class__ is bytes else _fault_in(reply, "XADD"))
        if len(self._results) == self._count:
            self._finish()
        return len(mine)


class CommandRequest:
    """A command other than PUBLISH, with one reply: a `ResponseError` if the server refuses it."""

    def __init__(self) -> None:
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.since = time.monotonic()
        self.done = False

    def take(self, replies: list[Any], at: int) -> int:
        """Take the reply at position `at`. Return 1."""
        self.done = True
        if not self.future.done():
            self.future.set_result(replies[at])
        return 1

    def fail(self, url: str, reason: str) -> None:
        """End the request with `BrokerUnavailable`."""
        self.done = True
        if not self.future.done():
            self.future.set_exception(BrokerUnavailable(url, reason))


def _fault_in(reply: Any, command: str = "PUBLISH") -> PublishError:
    """Return the error for a reply to one message that is no success. After an error reply, nothing was delivered."""
    if not isinstance(reply, ResponseError):
        return PublishError(f"{command} was answered with {repr(reply)[:60]}, which is no answer of Redis", "unknown")
    reason = error_text(reply) + acl_remedy(reply, command)
    return PublishError(f"Redis refused the message: {reason}", "not_sent", refused=True)
