"""Monitor of a connection: sentinels, or other nodes of a cluster, confirm that its server is the right one.

After a planned failover the old master answers as a master for seconds, and a node that was removed from a cluster
continues to answer. The connection stays open and pings are answered, so only other servers can reveal it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Protocol

from redis.asyncio.connection import AbstractConnection

from ...errors import BrokerUnavailable

CONFIRM_SECONDS = 1.0
"""Seconds between two checks."""

log = logging.getLogger("messager")


class Superseded(Exception):
    """The server is no longer the right one. The text says why."""


class ServerCheck(Protocol):
    """Check of a server, by asking sentinels or other nodes of a cluster."""

    async def confirm(self, connection: AbstractConnection) -> None:
        """Return if the connection leads to the right server.

        Raises `Superseded` if it does not, and `BrokerUnavailable` if nobody answers.
        """

    async def serves(self, connection: AbstractConnection) -> bool:
        """Return True if a superseded server may still deliver messages that its successor does not.

        While it returns True, a subscriber listens to both servers. If nobody answers, it returns True.
        """

    async def aclose(self) -> None:
        """Close the connections of the check."""


class ServerMonitor:
    """Runs a `ServerCheck` for one connection every `CONFIRM_SECONDS`, until the server is superseded.

    `superseded` is then called once, with the reason and the result of `ServerCheck.serves`.
    """

    def __init__(
        self, check: ServerCheck, connection: AbstractConnection, superseded: Callable[[str, bool], None]
    ) -> None:
        self.confirmed = time.monotonic_ns()
        """Start (monotonic ns) of the last check that confirmed the connection."""
        self.check = check
        self._connection = connection
        self._superseded = superseded
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Stop the checks. May be called twice."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            # `asyncio.wait_for` of Python 3.11, which redis-py uses, sometimes loses a cancellation.
            while not task.cancelling():
                asked = time.monotonic_ns()
                try:
                    await self.check.confirm(self._connection)
                    self.confirmed = asked
                except BrokerUnavailable:
                    pass  # a later gap begins with the last confirmation
                await asyncio.sleep(CONFIRM_SECONDS)
        except Superseded as error:
            self._superseded(str(error), await self.check.serves(self._connection))
        except Exception:  # the connection counts as unconfirmed from now on, which the log shows as a gap
            log.exception("a server cannot be confirmed any more")
        finally:
            await self.check.aclose()
