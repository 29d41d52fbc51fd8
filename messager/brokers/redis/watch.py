"""Watching over a connection: sentinels, or other nodes of a cluster, confirm that its server is the right one.

After a planned failover the old master answers as a master for seconds. A node that was removed from a cluster goes
on answering. In both cases the connection stands, and pings notice nothing.
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
"""Seconds between two questions."""


log = logging.getLogger("messager")


class Superseded(Exception):
    """The server is no longer the one to be connected to. The text says why."""


class Watch(Protocol):
    """Questions to sentinels, or to other nodes of a cluster, about one server."""

    async def confirm(self, connection: AbstractConnection) -> None:
        """Return if the connection leads there. Raises `Superseded`, and `BrokerUnavailable` if nobody answers."""

    async def serves(self, connection: AbstractConnection) -> bool:
        """Return False if messages on a superseded server are none of the successor's, or come from there as well.

        As long as it returns True, the server is listened to beside its successor. It returns True if it cannot tell.
        """

    async def aclose(self) -> None:
        """Close the connections used for questions."""


class Watcher:
    """Asks a `Watch` about one connection every `CONFIRM_SECONDS`, until the connection is superseded.

    `superseded` is called once, with the reason, and with what `Watch.serves` returned.
    """

    def __init__(self, watch: Watch, connection: AbstractConnection, superseded: Callable[[str, bool], None]) -> None:
        self.confirmed = time.monotonic_ns()
        """Time (monotonic ns) of the last question whose answer confirmed the connection."""
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
            self._superseded(str(error), await self.watch.serves(self._connection))
        except Exception:  # the connection counts as unconfirmed from now on, and the log will show that as a gap
            log.exception("a server cannot be confirmed any more")
        finally:
            await self.watch.aclose()
