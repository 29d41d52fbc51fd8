"""Connections to the server, of the user and of others: nobody can use up those that the user needs.

Any program of the machine can connect. Until a connection has shown that it is the user's, it counts among the others:
of these, the oldest one is closed if there are too many, and each after `REQUEST_S`. One of the user's is closed if a
request is incomplete for that time.
"""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS = 128
"""Maximum number of connections of the user, and of those of others."""
REQUEST_S = 10.0
"""Seconds for a request, up to the end of its body."""
_numbers = count()


class Connection(H11Protocol):
    """One connection. The requests that arrive on it have it in their state, as `connection`."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.app_state = {**self.app_state, "connection": self}
        self._number = next(_numbers)
        self._of_user = False
        self._deadline: asyncio.TimerHandle | None = None

    def admit(self) -> bool:
        """Count this connection as one of the user's. Return False if there are too many."""
        self._of_user = self._of_user or len(self._counted(of_user=True)) < MOST_CONNECTIONS
        self._watch()
        return self._of_user

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()
        others = self._counted(of_user=False)
        if len(others) > MOST_CONNECTIONS:
            min(others, key=lambda one: one._number)._abort()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_watching()

    def handle_events(self) -> None:
        super().handle_events()
        self._watch()

    def _watch(self) -> None:
        """Begin to wait for the end of a request, or end that."""
        if self._of_user and self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._stop_watching()
        elif self._deadline is None and not self.transport.is_closing():
            self._deadline = self.loop.call_later(REQUEST_S, self._abort)

    def _stop_watching(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _abort(self) -> None:
        self.connections.discard(self)  # at once: others are counted before the loss is told
        self.transport.abort()

    def _counted(self, *, of_user: bool) -> list[Connection]:
        return [one for one in self.connections if isinstance(one, Connection) and one._of_user is of_user]
