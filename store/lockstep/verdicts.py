"""Verdicts on what a live Messager says: counts and divergences."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from messager import channels
from messager.record import MessageRecord

from .report import Divergence, PartReport, Player
from .schedule import Act, ActKind, Part, Verdict

if TYPE_CHECKING:
    from ..matching.match import Match

HEARD_SHOWN = 3
"""Last messages that are kept for a divergence."""


class Verdicts:
    """Verdicts on one part. `diverged` is called with each divergence.

    `instead` is called with each message that was said in the place of a recorded one, the last one that was. Without
    `gated`, only what was on the wire is expected.
    """

    def __init__(
        self,
        part: Part,
        match: Match,
        diverged: Callable[[Divergence], None],
        instead: Callable[[Act, MessageRecord], None] | None = None,
        *,
        gated: bool = True,
    ) -> None:
        expected = sum(1 for one in part.sends if one.awaited or (gated and one.bounds))
        agents = list(part.agents)
        self.judging = 0
        """Judgements that are under way."""
        self.report = PartReport(part.key, part.label, agents, part.exact, expected=expected)
        if not gated:
            self.report.player = Player.OBSERVED
        self._part = part
        self._match = match
        self._diverged = diverged
        self._instead = instead
        self._heard: deque[tuple[bytes, bytes]] = deque(maxlen=HEARD_SHOWN)
        self._missing: dict[int, Divergence] = {}
        self._replaced: dict[tuple[str | None, str], tuple[Act, Divergence]] = {}
        """By channel and sender, the last act in whose place something else was said."""

    def heard(self, channel: bytes, payload: bytes) -> None:
        """Note a message that was handed over."""
        self._heard.append((channel, payload))

    async def accepts(self, act: Act, payload: bytes) -> bool:
        """Return whether a payload may stand for a recorded one, also by the judge, who may take time."""
        self.judging += 1
        try:
            return await self._match.accepts(act.event.payload, payload)
        finally:
            self.judging -= 1

    def sent(self, act: Act, record: MessageRecord) -> None:
        """Count a message that was said in the place of a recorded one."""
        if self._instead is not None:
            self._instead(act, record)
        if not act.bounds:
            self.report.expected += 1
        if (given_up := self._missing.pop(act.number, None)) is not None:
            given_up.kind, given_up.said = "late", record.payload
            self.report.missing -= 1
            self.report.late += 1
        changed = "blocked" in (act.event.kind, record.kind) and act.event.kind != record.kind
        if act.verdict is Verdict.MATCHED and not changed:
            self.report.matched += 1
            return
        act.verdict = Verdict.DIFFERENT
        self.report.different += 1
        divergence = self._divergence(Verdict.DIFFERENT.value, act, record)
        self._replaced[record.channel, repr(record.from_id)] = act, divergence
        self._diverged(divergence)

    def early(self, act: Act, record: MessageRecord) -> None:
        """Count a message that was said before the agent had fetched what it had heard in the recording."""
        self.report.early += 1
        self._diverged(self._divergence("early", act, record))

    def missing(self, act: Act) -> None:
        """Count a message that was not said in time, once. Calls to models are counted as they are made."""
        if act.kind is not ActKind.SEND:
            return
        if act.number in self._missing:
            return
        if not act.taken:  # else it may still be published
            act.verdict = Verdict.MISSING
        self.report.missing += 1
        self._missing[act.number] = self._divergence(Verdict.MISSING.value, act, None)
        self._diverged(self._missing[act.number])

    def unsaid(self) -> list[Divergence]:
        """Return what is missing if nothing more is said. It is not counted."""
        left = [one for one in self._part.sends if not one.settled and one.bounds]
        return [self._divergence(Verdict.MISSING.value, act, None) for act in left]

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
        act, divergence = self._replaced.pop((record.channel, repr(record.from_id)))
        act.verdict = Verdict.MATCHED
        if self._instead is not None:
            self._instead(act, record)
        self.report.different -= 1
        self.report.matched += 1
        self.report.unexpected += 1
        divergence.kind, divergence.index, divergence.expected, divergence.path = "unexpected", None, None, None
        return True

    def _divergence(self, kind: str, act: Act | None, record: MessageRecord | None) -> Divergence:
        expected = None if act is None else act.event
        path = None
        if expected is not None and record is not None:
            path = self._match.difference(expected.payload, record.payload)
        sender = record.from_id if record is not None else None if expected is None else expected.from_id
        channel = act.channel if act is not None else channels.encode((record and record.channel) or "")
        return Divergence(
            kind,
            self._part.label,
            sender,
            channels.decode(channel),
            None if act is None else act.index,
            len(self._part.sends),
            expected,
            None if record is None else record.payload,
            path,
            [(channels.decode(on), payload) for on, payload in self._heard],
        )
