"""Reports: what the live agents of a replay or a fork said, compared with the recording."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

from ..log.event import Event

KEPT = 100
"""Divergences that are kept; the others are only counted."""
KINDS = ("different", "missing", "unexpected", "late", "early")


@dataclass(slots=True)
class Divergence:
    """One message that differs from the recording, is missing, or was not expected."""

    kind: str
    """One of `KINDS`. `late`: said after it had been given up; `early`: said without what had been heard before it."""
    part: str
    """The live Messager, named by its agents."""
    agent: Any
    """Sender, as far as it is known."""
    channel: str
    index: int | None
    """Place among the expected messages of its part, from 0; None for an unexpected one."""
    of: int
    """Number of expected messages of its part."""
    expected: Event | None
    said: bytes | None
    """Payload that was said; None for a missing message."""
    path: str | None = None
    """JSON path of the first difference, `$` for the whole payload."""
    heard: list[tuple[str, bytes]] = field(default_factory=list)
    """Channel and payload of the last messages that were fetched before, oldest first."""

    def to_dict(self) -> dict[str, Any]:
        """Return the divergence as JSON data."""
        return {
            "kind": self.kind,
            "part": self.part,
            "agent": self.agent,
            "channel": self.channel,
            "index": self.index,
            "of": self.of,
            "path": self.path,
            "cursor": None if self.expected is None else str(self.expected.cursor),
            "expected": None if self.expected is None else as_text(self.expected.payload),
            "said": None if self.said is None else as_text(self.said),
            "heard": [{"channel": channel, "payload": as_text(payload)} for channel, payload in self.heard],
        }


def first_of(divergences: Sequence[Divergence]) -> Divergence | None:
    """Return the first divergence, None if there is none.

    A message that is only late or early may be so because of another one: the first that differs comes before it.
    """
    if not divergences or divergences[0].kind not in ("late", "early"):
        return next(iter(divergences), None)
    return next((one for one in divergences if one.kind in ("different", "unexpected")), divergences[0])


def as_text(payload: bytes) -> str:
    """Return a payload as text."""
    return payload.decode("utf-8", "backslashreplace")


class Player(Enum):
    """Who plays a part.

    NOBODY ──> HERE | ELSEWHERE | OBSERVED | ABSENT
    """

    NOBODY = "nobody, and nobody is awaited"
    HERE = "a Messager of this process"
    ELSEWHERE = "a Messager of another process, which has its own report"
    OBSERVED = "a program that is only observed on the wire"
    ABSENT = "nobody, although a live program was to take it: what was said in its place is unexpected"


@dataclass(slots=True)
class PartReport:
    """Result of one live Messager."""

    key: str
    """Id of the recorded Messager, or `agent ID`."""
    label: str
    agents: list[Any]
    exact: bool
    """False if the recording does not tell what was heard: the order of the replay was used, which is weaker."""
    expected: int = 0
    """Messages that it said in the recording, without those that failed there and were not tried again now."""
    matched: int = 0
    different: int = 0
    missing: int = 0
    unexpected: int = 0
    """Messages that have no place in the recording."""
    withheld: int = 0
    """Messages that arrived and that the recorded Messager did not receive, or had not fetched when it was closed;
    delivered after its last act, or at the end."""
    lost: int = 0
    """Messages that the recorded Messager received and that did not arrive in time."""
    unsubscribed: int = 0
    """Messages that the recorded Messager received on channels to which the live one is not subscribed."""
    late: int = 0
    """Matched or different messages that were said after they had been given up."""
    early: int = 0
    """Matched or different messages that were said before the agent had fetched what it had heard in the recording."""
    reopened: int = 0
    """Times that the live Messager was opened again after it was closed. What was published meanwhile is lost."""
    order_known: bool = True
    """False if it may have heard messages of several senders in another order than recorded: one differed from the
    recording, and nothing tells whose it was."""
    calls: int = 0
    """Calls to models that it made in the recording, if they are served."""
    calls_repeated: int = 0
    """Calls among them that it made again, and whose recorded answer it got."""
    calls_masked: int = 0
    """Repeated calls whose request is the same only with times and ids masked."""
    calls_refused: int = 0
    """Calls that are not in the recording."""
    timed_out: bool = False
    player: Player = Player.HERE

    @property
    def played(self) -> bool:
        """Return whether a live program took this part."""
        return self.player not in (Player.NOBODY, Player.ABSENT)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON data."""
        return {**asdict(self), "player": self.player.name.lower()}

    @property
    def equal(self) -> bool:
        """Return whether a live agent said everything as in the recording, and nothing was given up before."""
        absent = self.player is Player.ABSENT
        calls = self.calls_refused or self.calls_repeated < self.calls
        return not (absent or calls or self.different or self.missing or self.unexpected or self.late or self.early)


@dataclass
class CastReport:
    """Result of all live agents. The reports of a `LiveReplay` and of a `Fork` add what was done besides."""

    parts: list[PartReport] = field(default_factory=list)
    divergences: list[Divergence] = field(default_factory=list)
    """The first `KEPT`, in the order in which they were found."""
    notes: list[str] = field(default_factory=list)
    """Remarks for the reader, such as surplus Messagers."""
    crashed: dict[str, str] = field(default_factory=dict)
    """Live agents whose task raised, with the error."""

    def add(self, divergence: Divergence) -> None:
        """Keep a divergence, if there is room."""
        if len(self.divergences) < KEPT:
            self.divergences.append(divergence)

    def total(self, name: str) -> int:
        """Return the sum of a count over the parts."""
        return sum(getattr(part, name) for part in self.parts)

    @property
    def first(self) -> Divergence | None:
        """Return the first divergence; None if there is none."""
        return first_of(self.divergences)

    @property
    def equal(self) -> bool:
        """Return whether all live agents said what they said in the recording."""
        return not self.crashed and all(part.equal for part in self.parts)

    @property
    def timed_out(self) -> bool:
        """Return whether a wait was given up."""
        return any(part.timed_out for part in self.parts)

    @property
    def pace(self) -> str:
        """Return "lockstep", or what prevents it: "timed out", "observed" (programs without gates), "weaker" (no
        recorded schedule) or "order of reception not known"."""
        if self.timed_out:
            return "timed out"
        if any(part.player in (Player.OBSERVED, Player.ABSENT) for part in self.parts):
            return "observed"
        if not all(part.exact for part in self.parts):
            return "weaker"
        return "lockstep" if all(part.order_known for part in self.parts) else "order of reception not known"

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON data, with at most `KEPT` divergences."""
        counts = ("expected", "matched", "different", "missing", "unexpected", "withheld", "lost", "late", "early")
        return {
            "equal": self.equal,
            "pace": self.pace,
            **{name: self.total(name) for name in counts},
            "first": None if self.first is None else self.first.to_dict(),
            "divergences": [one.to_dict() for one in self.divergences],
            "parts": [part.to_dict() for part in self.parts],
            "notes": self.notes,
            "crashed": self.crashed,
        }


@dataclass(kw_only=True)
class ForkReport(CastReport):
    """Result of a fork, or what was done so far: what live agents repeated, and what was done besides."""

    exp_id: str
    parent: str
    cursor: str
    """End of the prefix, as a point of the parent: the first event that is not part of it."""
    events: int = 0
    """Events of the prefix."""
    excluded: int = 0
    """Events before the point that are not part of it, because they were caused from behind it."""
    published: int = 0
    """Recorded messages that were published."""
    repeated: int = 0
    """Events that live agents of this process repeated."""
    copied: int = 0
    """Events that were copied."""
    left_out: int = 0
    """Events among them that live agents were expected to repeat and did not, such as marks."""
    complete: bool = False
    """True once the whole prefix is in the fork and all gates are open."""
    stopped: str | None = None
    """Reason why the fork stopped."""

    @property
    def equal(self) -> bool:
        """Return whether the prefix is complete, and live agents said in it what they said in the recording."""
        return self.complete and super().equal

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON data."""
        counts = ("events", "excluded", "published", "repeated", "copied", "left_out")
        return {
            "exp_id": self.exp_id,
            "parent": self.parent,
            "cursor": self.cursor,
            "complete": self.complete,
            "stopped": self.stopped,
            **{name: getattr(self, name) for name in counts},
            "cast": super().to_dict(),
        }
