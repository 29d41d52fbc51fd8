"""Schedule of a live agent: its acts, such as messages, and what it had heard at each.

    receptions   1   2   3   4   5   6
    acts           ^           ^         ^
                 needs 1     needs 4    the rest, up to `end`

A live agent is to hear exactly the receptions before its next act, and may act when it has heard these and when its
earlier acts are settled. So the order of all that one agent does is fixed by two numbers: how many receptions were
handed over, and how many acts are settled.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ..log.event import Event
from ..matching.match import Match

Key = tuple[int, int]
"""(recorder, seq) of an event."""


def key(entry: Event) -> Key:
    """Return (recorder, seq) of an event."""
    return entry.recorder, entry.seq


class ActKind(Enum):
    """Kind of an act of an agent.

    Everything else follows from the recorded event: what fails bounds no fetch, and nobody waits for what was blocked.
    """

    SEND = "message"
    ASK = "question to a model"
    ANSWER = "answer of a model"


class ActState(Enum):
    """State of a recorded act.

        PENDING ──> CLAIMED ──> DONE
           │           ^
           v           │ too late
        MISSING ───────┘

    A call that is cancelled leads from CLAIMED back to PENDING.
    """

    PENDING = "the live agent has not done it yet"
    CLAIMED = "the agent waits for its turn"
    DONE = "published, blocked or failed"
    MISSING = "given up"


class Verdict(Enum):
    """Result of the comparison of an expected message with what was said in its place."""

    MATCHED = "matched"
    DIFFERENT = "different"
    MISSING = "missing"


@dataclass(slots=True, eq=False)
class Act:
    """One act that is expected of a live agent."""

    kind: ActKind
    event: Event
    """The recorded event; of a message that only a tap recorded, its reception."""
    channel: bytes
    """Channel on which it is published in this replay."""
    sender: Any
    """Sender as the recorded program gave it; None if it gave none."""
    heard: int
    """Number of the last message that had been fetched by then."""
    number: int = 0
    """Place among the acts of its part, from 0."""
    index: int = 0
    """Place among those of its kind, from 0."""
    needs: int = 0
    """Number of receptions of its part that come before it."""
    state: ActState = ActState.PENDING
    verdict: Verdict | None = None
    taken: bool = False
    """True if the live agent has done something in its place, also if that is not settled yet."""
    payload: bytes | None = None
    """What a live agent of this process says in its place, if that differs from the recorded payload."""
    waiting: asyncio.Future[None] | None = None
    """Resolved when it is done or missing, for the one that releases recorded messages."""

    @property
    def awaited(self) -> bool:
        """True if others wait for it: it had an effect."""
        return self.event.kind not in ("blocked", "failed")

    @property
    def bounds(self) -> bool:
        """True if no more may be fetched before it than in the recording."""
        return self.event.kind != "failed"

    @property
    def settled(self) -> bool:
        """True if nobody needs to wait for it."""
        return self.state is ActState.DONE or self.state is ActState.MISSING

    def fits(self, match: Match, payload: bytes) -> bool:
        """Return whether a payload is the expected one. Any payload fits a redacted message."""
        return payload == self.event.payload or self.event.redacted or match.same(self.event.payload, payload)

    def settle(self, state: ActState) -> None:
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
    source: Key
    """The message that it belongs to: a sending, or if none was recorded, the first reception of it."""
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
    """Part of a live Messager: the acts of some agents, and the receptions of their Messager."""

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
    acts: list[Act] = field(default_factory=list)
    """In the order in which they happened."""
    receptions: list[Reception] = field(default_factory=list)
    """By arrival. Without `exact` they depend on the subscriptions of the live Messager."""
    unreceived: list[Unreceived] = field(default_factory=list)
    """Messages on its channels that the recorded Messager did not receive, in replay order."""
    marks: list[Event] = field(default_factory=list)
    """No acts: they bound nothing, and nobody waits for them."""
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

    @property
    def sends(self) -> list[Act]:
        """Recorded messages among the acts."""
        return [act for act in self.acts if act.kind is ActKind.SEND]

    def number(self) -> None:
        """Number the acts, and count what comes before each and the end. Receptions must be in order of arrival."""
        arrivals = [reception.arrival for reception in self.receptions]
        of_kind: Counter[ActKind] = Counter()
        for number, act in enumerate(self.acts):
            act.number, act.index = number, of_kind[act.kind]
            of_kind[act.kind] += 1
            act.needs = bisect_right(arrivals, act.heard)
        self.end = len(arrivals) if self.fetched is None else bisect_right(arrivals, self.fetched)


class Place:
    """Place in a part. With `continues`, all receptions come before the end, as the agent goes on after it."""

    def __init__(self, part: Part, *, continues: bool) -> None:
        self.part = part
        self.handed = 0
        """Receptions before this one were handed over, or are lost."""
        self.furthest = -1
        """Highest number of an act that was claimed."""
        self._continues = continues
        self._next = 0  # number of the first act that is awaited and not settled
        self._boundary = 0  # acts before this one do not limit what is fetched
        self.advance()

    @property
    def awaited(self) -> Act | None:
        """The first act that others wait for and that is not settled; None after the last one."""
        return self.part.acts[self._next] if self._next < len(self.part.acts) else None

    @property
    def number(self) -> int:
        """Number of that act."""
        return self._next

    @property
    def end(self) -> int:
        """Number of receptions before the end."""
        return len(self.part.receptions) if self._continues else self.part.end

    def limit(self) -> int:
        """Return the number of receptions before the next act, or before the end."""
        following = self.following()
        return self.end if following is None else following.needs

    def following(self) -> Act | None:
        """Return the next act that bounds what is fetched; a blocked one does so only until a later one is claimed."""
        acts = self.part.acts
        while self._boundary < len(acts):
            act = acts[self._boundary]
            if act.state is ActState.CLAIMED:
                return act
            left_out = act.number < self.furthest and not act.awaited
            if act.state is ActState.PENDING and act.bounds and not left_out:
                return act
            self._boundary += 1
        return None

    def advance(self) -> None:
        """Find the next act that is awaited, after one was settled."""
        acts = self.part.acts
        while self._next < len(acts) and (acts[self._next].settled or not acts[self._next].awaited):
            self._next += 1

    def has_turn(self, act: Act, *, unbound: bool = False) -> bool:
        """Return whether an act may happen: what was heard before it is handed over (or `unbound`), and what comes
        before it is settled."""
        return act.number <= self._next and (unbound or self.handed >= act.needs)
