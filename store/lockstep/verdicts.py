"""What a live Messager is still expected to say, and the verdicts on what it says: counts and divergences."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, dropwhile, islice, takewhile
from typing import TYPE_CHECKING, Any

from messager import channels
from messager.record import MessageRecord

from .report import Divergence, PartReport, Player
from .schedule import Act, ActState, Part, Verdict

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
        """Count a message that was not said in time, once."""
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


LOOKAHEAD = 20
"""Concurrent acts with which a message is compared by rules; equal bytes are found at any distance."""


class Unclaimed:
    """Sayings that no call has claimed. In order for each sender and channel; those with the same `heard` are a set."""

    def __init__(self, acts: Iterable[Act]) -> None:
        self._by_channel: dict[bytes, deque[Act]] = {}
        self._by_payload: defaultdict[tuple[bytes, int, bytes], deque[Act]] | None = None  # made when it is needed
        for act in sorted(acts, key=_order):
            self._by_channel.setdefault(act.channel, deque()).append(act)

    def find(self, channel: bytes, sender: Any, payload: bytes, match: Match) -> tuple[Act | None, bool]:
        """Return the act in whose place a message is said, and whether it is the same; None if it is unexpected.

        It is the next one of the sender on the channel, or one of the same set that matches. One that was given up is
        said late if it matches, or if nothing else is expected.
        """
        first = self._next(channel, sender)
        if first is None:
            given_up = list(self._of(channel, sender))
            late = next((one for one in given_up if one.fits(match, payload)), None)
            return late or next(iter(given_up), None), late is not None
        if first.fits(match, payload):
            return first, True
        for act in chain(self._equal(first, payload), islice(self._set_of(first), LOOKAHEAD)):
            if act is not first and _is_sender(act.sender, sender) and act.fits(match, payload):
                return act, True
        if not first.awaited:  # it was blocked, and may be left out
            awaited = next((one for one in self._of(channel, sender) if one.awaited), None)
            if awaited is not None and awaited.fits(match, payload):
                return awaited, True
        for act in takewhile(lambda one: one is not first, self._of(channel, sender)):
            if act.state is ActState.MISSING and act.fits(match, payload):
                return act, True
        return first, False

    def on(self, channel: bytes) -> Iterable[Act]:
        """Return the acts on a channel, in order."""
        return self._by_channel.get(channel, ())

    def remove(self, act: Act) -> None:
        """Remove an act that was claimed."""
        for listed in self._lists(act):
            if listed[0] is act:
                listed.popleft()
            else:
                listed.remove(act)

    def put_back(self, act: Act) -> None:
        """Add an act again, in its place."""
        for listed in self._lists(act):
            at = next((place for place, one in enumerate(listed) if _order(one) > _order(act)), len(listed))
            listed.insert(at, act)

    def _lists(self, act: Act) -> list[deque[Act]]:
        """Return the lists in which an act belongs."""
        on_channel = self._by_channel[act.channel]
        if self._by_payload is None:
            return [on_channel]
        return [on_channel, self._by_payload[act.channel, act.heard, act.event.payload]]

    def _next(self, channel: bytes, sender: Any) -> Act | None:
        """Return the first act of a sender that was not given up; one that failed in the recording only if there is
        no other."""
        failed = None
        for act in self._by_channel.get(channel, ()):
            if act.state is not ActState.MISSING and _is_sender(act.sender, sender):
                if act.bounds:
                    return act
                failed = failed or act
        return failed

    def _of(self, channel: bytes, sender: Any) -> Iterator[Act]:
        return (one for one in self._by_channel.get(channel, ()) if _is_sender(one.sender, sender))

    def _set_of(self, first: Act) -> Iterable[Act]:
        later = dropwhile(lambda one: one.heard < first.heard, self._by_channel[first.channel])
        return takewhile(lambda one: one.heard == first.heard, later)

    def _equal(self, first: Act, payload: bytes) -> Iterable[Act]:
        """Return the acts of the set of `first` with this payload."""
        if self._by_payload is None:
            self._by_payload = defaultdict(deque)
            for act in chain.from_iterable(self._by_channel.values()):
                self._by_payload[act.channel, act.heard, act.event.payload].append(act)
        return self._by_payload.get((first.channel, first.heard, payload), ())


def _order(act: Act) -> tuple[int, int]:
    """Order of the calls: `heard` does not decrease from one call of a Messager to the next."""
    return act.heard, act.number


def _is_sender(recorded: Any, given: Any) -> bool:
    """Return whether a recorded and a given sender may be the same; a missing one may be any."""
    return recorded is None or given is None or (type(recorded) is type(given) and recorded == given)
