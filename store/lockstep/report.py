"""Report of a lockstep replay: what the live agents said, compared with the recording."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
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
    delivered after its last saying, or at the end."""
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
    timed_out: bool = False
    gated: bool = True
    """False for a program that was only observed on the wire."""
    elsewhere: bool = False
    """True for a program whose gate is in another process."""
    attached: bool = True
    """False if no live Messager took this part."""
    absent: bool = False
    """True if one was to take it, and none did. What was said in its place is unexpected."""

    @property
    def equal(self) -> bool:
        """Return whether a live agent said everything as in the recording, and nothing was given up before."""
        return not (self.absent or self.different or self.missing or self.unexpected or self.late or self.early)


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
        """Return "lockstep", "timed out", "weaker" (no recorded schedule) or "observed" (programs without gates)."""
        if self.timed_out:
            return "timed out"
        if any(not part.gated for part in self.parts):
            return "observed"
        return "lockstep" if all(part.exact for part in self.parts) else "weaker"

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON data, with at most `KEPT` divergences."""
        counts = ("expected", "matched", "different", "missing", "unexpected", "withheld", "lost", "late", "early")
        return {
            "equal": self.equal,
            "pace": self.pace,
            **{name: self.total(name) for name in counts},
            "first": None if self.first is None else self.first.to_dict(),
            "divergences": [one.to_dict() for one in self.divergences],
            "parts": [asdict(part) for part in self.parts],
            "notes": self.notes,
            "crashed": self.crashed,
        }
