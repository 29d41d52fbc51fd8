"""Gate: holds back the messages of a live agent until their place in a recorded schedule.

A gate stands between the broker and the agent, at two points of a `Messager`:

    broker ──> listener ──> gate.arrived ··· messager.deliver ──> log hooks, queue ──> fetch_messages
    send_message ──> gate.sending ──> interceptor ──> gate.passed, publisher ──> broker

`fetch_messages` awaits `gate.fetching`, which delivers what the agent may have. Without a gate, a Messager delivers
each message when it arrives. `messager_store.replay` implements gates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from .brokers.base import Broker
from .errors import MessagerError
from .hooks import LogHook
from .record import MessageRecord

ENTRY_POINTS = "messager.gates"
"""Group of the entry points that make the gate of a `Messager` if `MESSAGER_REPLAY` is set."""


class Gated(Protocol):
    """A `Messager`, as far as its gate uses it."""

    broker: Broker
    exp_id: str

    def deliver(self, message: dict[str, Any], origin: tuple[str, int] | None = None) -> None:
        """Number, log and queue a received message."""

    def set_gate(self, gate: Gate | None) -> None:
        """Set the gate through which all messages pass, or remove it."""


class Gate(Protocol):
    """Gate of one Messager."""

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


async def offered_gate(messager: Gated) -> Gate:
    """Return the gate that an installed package makes for a Messager. Raises `MessagerError` if none does.

    Each entry point is an async function of the Messager that returns a gate or None. Its errors are raised, because a
    live agent that runs without its gate unnoticed would make a replay worthless; so is `MessagerError` if there is no
    entry point.
    """
    from importlib.metadata import entry_points  # slow to import, and rarely needed

    offers = entry_points(group=ENTRY_POINTS)
    if not offers:
        raise MessagerError(
            "MESSAGER_REPLAY is set, but no installed package reads schedules. Install this package again, or unset it."
        )
    for offer in offers:
        gate: Gate | None = await offer.load()(messager)
        if gate is not None:
            return gate
    raise MessagerError(
        f"MESSAGER_REPLAY is set, but no installed package has an entry point {ENTRY_POINTS}: install messager again, "
        "or unset MESSAGER_REPLAY"
    )
