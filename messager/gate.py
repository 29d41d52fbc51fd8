"""Gate: holds back the messages of a live agent until their place in a recorded schedule.

A gate holds an endpoint. That of a `Messager` stands between the broker and the agent, at two points:

    broker ──> listener ──> gate.arrived ··· endpoint.deliver ──> log hooks, queue ──> fetch_messages
    send_message ──> gate.sending ──> interceptor ──> gate.passed, publisher ──> broker

`fetch_messages` awaits `gate.fetching`, which delivers what the agent may have. Without a gate, a Messager delivers
each message when it arrives. `messager_store.replay` implements gates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from .hooks import LogHook
from .record import MessageRecord


class Gate(Protocol):
    """Gate of one endpoint."""

    def check(self, hook: LogHook) -> None:
        """Refuse a log hook with an error, for example one that records into what is replayed."""

    async def subscribed(self, patterns: Sequence[str]) -> None:
        """Note that the subscriptions of the Messager to these patterns are active. All patterns are given."""

    def arrived(self, message: dict[str, Any]) -> None:
        """Take a message of the broker (a dict as `fetch_messages` returns it), to deliver it now or later."""

    async def fetching(self) -> None:
        """Wait until the next messages of the schedule have arrived, and deliver them."""

    async def sending(self, record: MessageRecord) -> None:
        """Wait until it is the turn of a message; set its `origin`. If this raises, the message is not sent."""

    def passed(self, record: MessageRecord, done: bool) -> None:
        """Note the end of the call for which `sending` returned: its message was written to the broker, or blocked.

        If `done` is False, it was neither, for example because the call was cancelled or the interceptor raised.
        """

    def marked(self, record: MessageRecord) -> None:
        """Set the `origin` of a mark, if it is one of the schedule."""

    async def close(self) -> None:
        """Release every wait, and stop at this place of the schedule. Called by `Messager.close`."""

    def connected(self) -> None:
        """Go on, after `close`. Called by `Messager.init`, also before the gate was ever closed."""
