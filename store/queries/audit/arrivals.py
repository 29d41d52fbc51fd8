"""Audit of arrivals: which listeners should have received a sending, and why one did not."""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import NamedTuple

from ...log.event import Event
from ...text import plural
from .listeners import Key, Listener, Listeners
from .problem import Kind, Problem, Reason

_NAMED = 3
"""Recorders that an explanation names."""


class Delivery(NamedTuple):
    """A reception of a sending."""

    listener: Key
    received_at: int
    """ns UTC"""


class ArrivalAudit:
    """Compares the deliveries of sendings with the listeners that were subscribed at that time."""

    def __init__(self, listeners: Listeners, late_ns: int, unobserved: Set[int]) -> None:
        """`unobserved` are the recorders of sendings whose receptions nobody observes, by ordinal."""
        self.listeners = listeners
        self._late_ns = late_ns
        self._unobserved = unobserved
        self.not_observed = 0
        """Sendings of those recorders without a reception."""
        self.elsewhere = 0
        """Sendings that reached only listeners that were not recorded."""
        self.unknown = 0
        """Sendings whose receptions may have been redacted, or may still come."""

    def judge(self, entry: Event, deliveries: list[Delivery]) -> Iterator[Problem]:
        """Yield the problems of a sending."""
        subscribed = self.listeners.at(entry.channel or "", entry.ts)
        if not deliveries and entry.recorder in self._unobserved:
            self.not_observed += 1
            return
        if not deliveries:
            yield from self._never(entry, subscribed)
            return
        last = max(deliveries, key=lambda one: one.received_at)
        if (delay := last.received_at - entry.ts) > self._late_ns and entry.carrier != "queue":  # it waits to be taken
            one = self.listeners.of(last.listener)
            ordinal = None if one is None else one.recorder.ordinal
            text = f"it reached recorder {ordinal} after {delay / 1e9:.3f} s"
            yield Problem(Kind.LATE, f"recorder {ordinal}", entry.cursor, ordinal, text, entry, delay)
        keys = {one.listener for one in deliveries}
        for one in () if entry.carrier is not None else subscribed:  # it went to one, or to some, not to all who listen
            if not one.got(keys) and (reason := self._reason(one, entry)) not in (None, Reason.STOPPED):
                yield self._problem(Kind.MISSED, reason, entry, [one])

    def _never(self, entry: Event, subscribed: list[Listener]) -> Iterator[Problem]:
        if not subscribed:
            if entry.receivers:
                self.elsewhere += 1
            elif entry.carrier != "stream" and not (entry.meta or {}).get("signal"):  # these wait for nobody
                yield self._problem(Kind.NEVER, Reason.NOBODY, entry, [])
            return
        reasons: dict[Reason, list[Listener]] = {}
        for one in subscribed:
            if (reason := self._reason(one, entry)) is not None:
                reasons.setdefault(reason, []).append(one)
        for reason in (Reason.DROPPED, Reason.GAP, Reason.CRASH, Reason.STOPPED):
            if reason in reasons:
                yield self._problem(Kind.NEVER, reason, entry, reasons[reason])
                return
        self.unknown += 1

    def _reason(self, one: Listener, entry: Event) -> Reason | None:
        """Return why a sending has no delivery to a listener that was subscribed; None if that cannot be told."""
        if self.listeners.is_redacted(one, entry.channel or ""):
            return None
        if self.listeners.had_gap(one, entry.ts):
            return Reason.GAP
        if one.reached_until is not None and one.reached_until > entry.ts:
            return Reason.DROPPED
        if one.crashed:
            return Reason.CRASH
        return None if one.recorder.state == "alive" else Reason.STOPPED

    @staticmethod
    def _problem(kind: Kind, reason: Reason, entry: Event, listeners: list[Listener]) -> Problem:
        ordinals = sorted({one.recorder.ordinal for one in listeners})
        text = _EXPLAINED[reason].format(who=_recorders(ordinals))
        return Problem(kind, reason, entry.cursor, ordinals[0] if ordinals else None, text, entry)

    def notes(self) -> Iterator[str]:
        """Yield what could not be told."""
        if self.elsewhere:
            what = plural(self.elsewhere, "message")
            yield f"{what} reached only listeners that were not recorded, as the broker reported"
        if self.not_observed:
            yield f"receptions of {plural(self.not_observed, 'message')} were not observed by their transport"
        if self.unknown:
            why = "receptions on the channel are redacted, or a listener is still recording"
            yield f"nothing is known about {plural(self.unknown, 'message')}: {why}"


_EXPLAINED = {
    Reason.NOBODY: "nobody was subscribed to the channel",
    Reason.STOPPED: "{who} had subscribed, but nothing that was sent later arrived there",
    Reason.GAP: "it was sent in a gap of {who}",
    Reason.CRASH: "{who} ended uncleanly, so its reception may not be in the log",
    Reason.DROPPED: "{who} was subscribed, and later messages arrived there",
}


def _recorders(ordinals: list[int]) -> str:
    named = ", ".join(map(str, ordinals[:_NAMED]))
    more = f" and {len(ordinals) - _NAMED} more" if len(ordinals) > _NAMED else ""
    return f"recorder {named}{more}"
