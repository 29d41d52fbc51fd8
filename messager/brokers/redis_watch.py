"""Watching over a connection: is its server still the one that others publish on?

After a planned failover the old master answers as a master for seconds, and a node that was removed from a cluster
answers for ever. The connection stands, so pings do not notice. The sentinels, and the other nodes, know.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from redis.asyncio.connection import AbstractConnection

from ..errors import BrokerUnavailable

CONFIRM_SECONDS = 1.0
"""Seconds between two questions."""


class Superseded(Exception):
    """The server is no longer the one to be connected to. The text says why."""


class Watch(Protocol):
    """Those who know which server is the one to be connected to."""

    async def confirm(self, connection: AbstractConnection) -> None:
        """Return if the connection leads there. Raises `Superseded`, and `BrokerUnavailable` if nobody answers."""

    async def serves(self, connection: AbstractConnection) -> bool:
        """Return whether a superseded server still passes on what is published there, and nothing from its successor.

        Such a server is listened to beside its successor until this changes. On others each message would come twice.
        """

    async def aclose(self) -> None:
        """Close the connections used for questions."""


class Watcher:
    """Asks a `Watch` about one connection every `CONFIRM_SECONDS`, until the connection is superseded.

    `superseded` is called once, with the reason.
    """

    def __init__(self, watch: Watch, connection: AbstractConnection, superseded: Callable[[str], None]) -> None:
        self.confirmed = time.monotonic_ns()
        """When (monotonic ns) the last question was asked whose answer confirmed the connection."""
        self.watch = watch
        self._connection = connection
        self._superseded = superseded
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Stop asking. May be called twice."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            # `asyncio.wait_for` of Python 3.11, which redis-py uses, loses a cancellation now and then.
            while not task.cancelling():
                asked = time.monotonic_ns()
                try:
                    await self.watch.confirm(self._connection)
                    self.confirmed = asked
                except BrokerUnavailable:
                    pass  # a later gap begins when the connection was confirmed last
                await asyncio.sleep(CONFIRM_SECONDS)
        except Superseded as error:
            self._superseded(str(error))
        finally:
            await self.watch.aclose()
