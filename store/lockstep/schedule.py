"""Schedule of a live agent: what it said, and what it had heard when it said it."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ..log.event import Event
from ..matching.match import Match

Key = tuple[int, int]
"""(recorder, seq) of an event."""


class SayingState(Enum):
    """State of an expected message.

        PENDING ──> CLAIMED ──> DONE
           │           ^
           v           │ said late
        MISSING ───────┘

    A call that is cancelled leads from CLAIMED back to PENDING.
    """

    PENDING = "not said yet"
    CLAIMED = "the agent waits for its turn"
    DONE = "published, blocked or failed"
    MISSING = "given up"


class Verdict(Enum):
    """Result of the comparison of an expected message with what was said in its place."""

    MATCHED = "matched"
    DIFFERENT = "different"
    MISSING = "missing"


@dataclass(slots=True, eq=False)
class Saying:
    """One message that a live agent is expected to say."""

    event: Event
    """The recorded message; for a recording by a tap, its reception."""
    channel: bytes
    """Channel on which it is published in this replay."""
    sender: Any
    """Sender as the recorded program gave it; None if it gave none."""
    heard: int
    """Number of the last message that had been fetched when it was said."""
    number: int = 0
    """Place among the sayings of its part, from 0."""
    needs: int = 0
    """Number of receptions of its part that come before it."""
    state: SayingState = SayingState.PENDING
    verdict: Verdict | None = None
    said: bool = False
    """True if the live agent has said a message in its place, also if that is still on its way."""
    payload: bytes | None = None
    """What a live agent of this process says in its place, if that differs from the recorded payload."""
    waiting: asyncio.Future[None] | None = None
    """Resolved when it is done or missing, for the one that releases recorded messages."""

    @property
    def awaited(self) -> bool:
        """True if others wait for it: it was on the wire."""
        return self.event.kind in ("sent", "received")

    @property
    def settled(self) -> bool:
        """True if nobody needs to wait for it."""
        return self.state is SayingState.DONE or self.state is SayingState.MISSING

    def fits(self, match: Match, payload: bytes) -> bool:
        """Return whether a payload is the expected one. Any payload fits a redacted message."""
        return payload == self.event.payload or self.event.redacted or match.same(self.event.payload, payload)

    def settle(self, state: SayingState) -> None:
        """Enter DONE or MISSING, and wake the one who waits."""
        self.state = state
        if self.waiting is not None and not self.waiting.done():
            self.waiting.set_result(None)


@dataclass(slots=True, eq=False)
class Reception:
    """One message that a recorded Messager received."""

    arrival: int
    channel: bytes
    payload: bytes
    origin: Key
    source: Key | None = None
    """The sending that it belongs to; None if that was not recorded."""
    speaker: Any = None
    """Who sent it, as far as the recording tells: an agent, else a Messager."""
    sender: Any = None
    """The sender that its payload names, once an arrival differs (see `Pairing`)."""
    message: dict[str, Any] | None = None
    """The message that arrived in its place."""
    came: int = 0
    """Number of that message among the arrivals of the live Messager."""
    awaited: bool = False
    """True while a fetch waits for it."""
    handed: bool = False
    lost: bool = False
    """True if it is not waited for: it did not come in time, was never said, or is `unheard`."""
    unheard: bool = False
    """True if the live Messager is not subscribed to its channel."""


@dataclass(slots=True, eq=False)
class Unreceived:
    """One message on a channel of a recorded Messager that it did not receive."""

    channel: bytes
    payload: bytes
    source: Key
    sender: Any = None
    """The sender that its payload names, once an arrival differs."""


@dataclass(slots=True, eq=False)
class Part:
    """Part of a live Messager: the sayings of some agents, and the receptions of their Messager."""

    key: str
    """Id of the recorded Messager; `agent ID` for a recording without Messagers."""
    agents: list[Any]
    """Senders of its messages, with their JSON type; empty if none is known."""
    exact: bool
    """True if the recording tells what was heard; else it is taken from the replay order, which is weaker."""
    patterns: list[str]
    """Subscriptions of the recorded Messager, as far as they are known."""
    covered: list[bytes] = field(default_factory=list)
    """The same patterns, on the channels of this replay."""
    sayings: list[Saying] = field(default_factory=list)
    receptions: list[Reception] = field(default_factory=list)
    """By arrival. Without `exact` they depend on the subscriptions of the live Messager."""
    unreceived: list[Unreceived] = field(default_factory=list)
    """Messages on its channels that the recorded Messager did not receive, in replay order."""
    marks: list[Event] = field(default_factory=list)
    fetched: int | None = None
    """Number of the last message that had been fetched when the recorded Messager was closed; None if unknown."""
    end: int = 0
    """Number of receptions that had been fetched by then; all of them if it is unknown."""
    joined: list[str] = field(default_factory=list)
    """Keys of other parts that were joined with this one."""

    @property
    def label(self) -> str:
        """Name for people."""
        if not self.agents:
            return f"the Messager {self.key[:8]}"
        several = "agents" if len(self.agents) > 1 else "agent"
        shown = ", ".join(str(agent) for agent in self.agents[:5]) + (", ..." if len(self.agents) > 5 else "")
        return f"{several} {shown}"

    def number(self) -> None:
        """Number the sayings, and count what comes before each and the end. Receptions must be in order of arrival."""
        arrivals = [reception.arrival for reception in self.receptions]
        for number, saying in enumerate(self.sayings):
            saying.number = number
            saying.needs = bisect_right(arrivals, saying.heard)
        self.end = len(arrivals) if self.fetched is None else bisect_right(arrivals, self.fetched)
