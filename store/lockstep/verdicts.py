"""Verdicts on what a live Messager says: counts and divergences of its report."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from messager import channels
from messager.record import MessageRecord

from .report import Divergence, PartReport
from .schedule import Part, Saying, Verdict

if TYPE_CHECKING:
    from ..matching.match import Match

HEARD_SHOWN = 3
"""Last messages that are kept for a divergence."""


class Verdicts:
    """Verdicts on one part. `diverged` is called with each divergence.

    Without `gated`, only what was on the wire is expected.
    """

    def __init__(self, part: Part, match: Match, diverged: Callable[[Divergence], None], *, gated: bool = True) -> None:
        expected = sum(1 for one in part.sayings if one.awaited or (gated and one.event.kind != "failed"))
        agents = list(part.agents)
        self.on_said: Callable[[Saying, MessageRecord], None] = lambda saying, record: None
        """Called with each message that was said in the place of a recorded one, the last one that was."""
        self.judging = 0
        """Judgements that are under way."""
        self.report = PartReport(part.key, part.label, agents, part.exact, expected=expected, gated=gated)
        self._part = part
        self._match = match
        self._diverged = diverged
        self._heard: deque[tuple[bytes, bytes]] = deque(maxlen=HEARD_SHOWN)
        self._missing: dict[int, Divergence] = {}
        self._replaced: dict[tuple[str | None, str], tuple[Saying, Divergence]] = {}
        """By channel and sender, the last saying in whose place something else was said."""

    def heard(self, channel: bytes, payload: bytes) -> None:
        """Note a message that was handed over."""
        self._heard.append((channel, payload))

    async def accepts(self, saying: Saying, payload: bytes) -> bool:
        """Return whether a payload may stand for a recorded one, also by the judge, who may take time."""
        self.judging += 1
        try:
            return await self._match.accepts(saying.event.payload, payload)
        finally:
            self.judging -= 1

    def said(self, saying: Saying, record: MessageRecord) -> None:
        """Count a message that was said in the place of a recorded one."""
        self.on_said(saying, record)
        if saying.event.kind == "failed":
            self.report.expected += 1
        if (given_up := self._missing.pop(saying.number, None)) is not None:
            given_up.kind, given_up.said = "late", record.payload
            self.report.missing -= 1
            self.report.late += 1
        changed = "blocked" in (saying.event.kind, record.kind) and saying.event.kind != record.kind
        if saying.verdict is Verdict.MATCHED and not changed:
            self.report.matched += 1
            return
        saying.verdict = Verdict.DIFFERENT
        self.report.different += 1
        divergence = self._divergence(Verdict.DIFFERENT.value, saying, record)
        self._replaced[record.channel, repr(record.from_id)] = saying, divergence
        self._diverged(divergence)

    def early(self, saying: Saying, record: MessageRecord) -> None:
        """Count a message that was said before the agent had fetched what it had heard in the recording."""
        self.report.early += 1
        self._diverged(self._divergence("early", saying, record))

    def missing(self, saying: Saying) -> None:
        """Count a message that was not said in time, once."""
        if saying.number in self._missing:
            return
        if not saying.said:  # else it may still be published
            saying.verdict = Verdict.MISSING
        self.report.missing += 1
        self._missing[saying.number] = self._divergence(Verdict.MISSING.value, saying, None)
        self._diverged(self._missing[saying.number])

    def unsaid(self) -> list[Divergence]:
        """Return what is missing if nothing more is said. It is not counted."""
        left = [one for one in self._part.sayings if not one.settled and one.event.kind != "failed"]
        return [self._divergence(Verdict.MISSING.value, saying, None) for saying in left]

    def unexpected(self, record: MessageRecord) -> None:
        """Count a message without a place in the recording."""
        if self._took_its_place(record):
            return
        self.report.unexpected += 1
        self._diverged(self._divergence("unexpected", None, record))

    def elsewhere(self, divergence: Divergence) -> None:
        """Count a divergence that was found in the process of the live agent."""
        if divergence.kind in ("different", "missing", "unexpected"):
            setattr(self.report, divergence.kind, getattr(self.report, divergence.kind) + 1)
        self._diverged(divergence)

    def is_replaced(self, record: MessageRecord) -> bool:
        """Return whether another message was said in the place of this one just before."""
        replaced = self._replaced.get((record.channel, repr(record.from_id)))
        return replaced is not None and replaced[0].fits(self._match, record.payload)

    def _took_its_place(self, record: MessageRecord) -> bool:
        """Match a message in whose place another one was said just before; that one was unexpected, then."""
        if not self.is_replaced(record):
            return False
        saying, divergence = self._replaced.pop((record.channel, repr(record.from_id)))
        saying.verdict = Verdict.MATCHED
        self.on_said(saying, record)
        self.report.different -= 1
        self.report.matched += 1
        self.report.unexpected += 1
        divergence.kind, divergence.index, divergence.expected, divergence.path = "unexpected", None, None, None
        return True

    def _divergence(self, kind: str, saying: Saying | None, record: MessageRecord | None) -> Divergence:
        expected = None if saying is None else saying.event
        path = None
        if expected is not None and record is not None:
            path = self._match.difference(expected.payload, record.payload)
        sender = record.from_id if record is not None else None if expected is None else expected.from_id
        channel = saying.channel if saying is not None else channels.encode((record and record.channel) or "")
        return Divergence(
            kind,
            self._part.label,
            sender,
            channels.decode(channel),
            None if saying is None else saying.number,
            len(self._part.sayings),
            expected,
            None if record is None else record.payload,
            path,
            [(channels.decode(on), payload) for on, payload in self._heard],
        )
