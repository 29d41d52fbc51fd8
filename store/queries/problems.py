"""Problems of a recording: what never arrived, arrived twice or late, was blocked or failed, gaps and unclean ends."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Unpack

from sqlalchemy import select

from ..db.codes import KINDS, REDACTED, SEQ_BITS, SEQ_MASK
from ..db.schema import event
from ..errors import StoreError
from ..experiments.records import Experiment, RecorderRow
from ..html_table import html_table
from ..log.event import Cursor, Event, iso, utc
from ..log.event_log import EventLog
from ..log.gap import gap_of
from ..log.messages import causes, selected_pages
from ..log.names import agent_text
from ..log.redaction_records import redactions_of
from ..log.selection import Filters, Selection, selection_of
from ..text import plural
from .audit.arrivals import ArrivalAudit
from .audit.copies import Copies, Copy
from .audit.early_receptions import EarlyReceptions
from .audit.listeners import listeners_of
from .audit.problem import Kind, Problem
from .audit.receptions import Receptions
from .audit.sendings import events_by_id, sendings
from .index import index_or_warn
from .texts import Progress

LATE_NS = 1_000_000_000
"""Delivery time above which a message is late, by default."""
CRASHED = ("unclean", "repaired", "incomplete")
"""States of recorders whose end is unclean, or not in this store."""
_SENT, _FAILED = (KINDS.index(kind) + 1 for kind in ("sent", "failed"))
KEPT = 1000
"""Problems of each kind that a result holds."""


@dataclass(frozen=True, slots=True, repr=False)
class Problems:
    """Result of `problems`."""

    counts: dict[Kind, dict[str, int]]
    """Number by kind and reason; kinds without problems are missing."""
    details: tuple[Problem, ...]
    """The first `KEPT` of each kind."""
    notes: tuple[str, ...]
    """What cannot be told from this recording, in sentences."""
    late_ns: int
    complete: bool
    """False if the experiment could not be indexed, so that arrivals were not examined."""
    examined: bool
    """False if the kinds of `ARRIVALS` were not examined: their numbers are unknown, and a note says why."""

    def __bool__(self) -> bool:
        return bool(self.counts)

    def records(self) -> list[dict[str, Any]]:
        """Return the details as records for data frames: ids as text, as in `Run.table`."""
        return [
            {
                "problem": str(one.kind),
                "reason": one.reason,
                "time": None if one.cursor is None else utc(one.cursor.ts),
                "from": None if one.event is None else agent_text(one.event.from_id),
                "to": None if one.event is None else agent_text(one.event.to_id),
                "channel": None if one.event is None else one.event.channel,
                "text": one.text,
                "message": None if one.event is None else one.event.text,
            }
            for one in self.details
        ]

    def _repr_html_(self) -> str:
        return html_table(self.records(), "; ".join([self._numbers, *self.notes]))

    def __repr__(self) -> str:
        """Return one line with the numbers."""
        return f"<Problems: {self._numbers}{'' if self.examined else '; arrivals were not examined'}>"

    @property
    def _numbers(self) -> str:
        found = ", ".join(f"{self.number(kind):,} {kind}" for kind in self.counts)
        return found or ("no problems" if self.examined else "no other problems")

    def number(self, kind: Kind) -> int:
        """Return the number of problems of a kind."""
        return sum(self.counts.get(kind, {}).values())


async def problems(
    log: EventLog,
    of: Experiment,
    selection: Selection | None = None,
    *,
    late_ns: int = LATE_NS,
    each: Callable[[Problem], None] | None = None,
    progress: Progress | None = None,
    **filters: Unpack[Filters],
) -> Problems:
    """Report everything that went wrong in an experiment, and why. docs/analysis.md defines each kind.

    `selection`, or its filters as arguments, selects the messages and gaps; its kinds do not count. Unclean ends are
    reported unless it has conditions on channels, agents or content. A message is late if it arrived more than
    `late_ns` after it was sent. `each` is called with each problem, also with those that the result does not hold;
    `progress` while the experiment is indexed.

    Memory use does not depend on the number of messages and problems, except by 40 bytes for each failed one. Raises
    `StoreError` for a selection with a limit, context, or the last of each.
    """
    selection = selection_of(selection, filters)
    if selection.limit is not None or selection.context or selection.last_per:
        raise StoreError("problems are those of all messages that are selected: leave out limits and context")
    search = _Search(log, of, selection, late_ns)
    search.complete = await index_or_warn(log, of, progress=progress)
    counts: dict[Kind, dict[str, int]] = {}
    details: dict[Kind, list[Problem]] = {kind: [] for kind in Kind}
    async with aclosing(search.read()) as found:
        async for problem in found:
            reasons = counts.setdefault(problem.kind, {})
            reasons[problem.reason] = reasons.get(problem.reason, 0) + 1
            if len(details[problem.kind]) < KEPT:
                details[problem.kind].append(problem)
            if each is not None:
                each(problem)
    ordered = {kind: counts[kind] for kind in Kind if kind in counts}
    found_details = tuple(one for kind in Kind for one in details[kind])
    return Problems(ordered, found_details, tuple(search.notes), late_ns, search.complete, search.examined)


class _Search:
    """The problems of an experiment, and what cannot be told."""

    def __init__(self, log: EventLog, of: Experiment, selection: Selection, late_ns: int) -> None:
        self._log = log
        self._of = of
        self._selection = selection
        self._late_ns = late_ns
        self.complete = True
        """False if deliveries are not known completely."""
        self.examined = True
        """False if arrivals are not examined. Known when all is read."""
        self.notes: list[str] = []

    async def read(self) -> AsyncGenerator[Problem, None]:
        """Yield the problems. Read it once."""
        recorders = await self._log.recorders(self._of)
        parts = [self._events(), self._ends(recorders)]
        if not self.complete:
            self._leave_arrivals("arrivals are not examined: the experiment could not be indexed")
        elif any(row.kinds["sent"] for row in recorders):
            parts.insert(0, self._arrivals(recorders))
        elif any(row.kinds["received"] for row in recorders):
            self._leave_arrivals("no sending was recorded, so nothing is known about arrivals")
        for part in parts:
            async with aclosing(part):
                async for problem in part:
                    yield problem

    def _leave_arrivals(self, note: str) -> None:
        self.examined = False
        self.notes.append(note)

    async def _arrivals(self, recorders: list[RecorderRow]) -> AsyncGenerator[Problem, None]:
        """Yield what never arrived, arrived late, or more than once."""
        database, of = self._log.database, self._of
        redacted = bool(await redactions_of(database, of.id)) or any(row.role == "import" for row in recorders)
        listeners = await listeners_of(database, of, redacted=redacted)
        if not listeners.all:
            self._leave_arrivals("no listener was recorded, so nothing is known about arrivals")
            return
        audit = ArrivalAudit(listeners, self._late_ns, await self._not_sent(recorders))
        receptions = Receptions(self._log, of)
        early = EarlyReceptions(receptions, recorders)
        async with aclosing(sendings(self._log, of, self._selection.without_redacted(), early)) as found:
            async for page in found:
                for sending in page:
                    for problem in audit.judge(sending):
                        yield problem
        self.notes += audit.notes()
        copies = Copies(receptions)
        async with aclosing(self._twice(copies, audit, recorders)) as twice:
            async for problem in twice:
                yield problem
        others = copies.others - early.found
        if others > 0 and self._selection.everything:
            why = "not recorded"
            if redacted and await self._has_redacted_sendings():
                why += " or is redacted"
            what = f"{plural(others, 'reception')} of messages whose sending was {why}"
            self.notes.append(f"{what}, on channels with recorded sendings")

    async def _has_redacted_sendings(self) -> bool:
        """Return whether any sending is redacted: its receptions are then without one."""
        query = select(event.c.id).where(
            event.c.experiment_id == self._of.id, event.c.kind == _SENT, event.c.flags.op("&")(REDACTED) != 0
        )
        async with self._log.database.reading() as connection:
            return (await connection.execute(query.limit(1))).first() is not None

    async def _not_sent(self, recorders: list[RecorderRow]) -> set[int]:
        """Return the ids of sendings that failed."""
        if not any(row.kinds["failed"] for row in recorders):
            return set()
        number_of = {row.ordinal: row.id for row in recorders}
        failed = await causes(self._log, self._of, failed_only=True)
        return {number_of[ordinal] << SEQ_BITS | seq for ordinal, seq in failed if ordinal in number_of}

    async def _twice(
        self, copies: Copies, audit: ArrivalAudit, recorders: list[RecorderRow]
    ) -> AsyncGenerator[Problem, None]:
        """Yield the copies of selected sendings."""
        span = await self._selection.span(self._log.database, self._of)
        chosen = (await self._selection.as_recorded(self._log.database, self._of)).of_kinds({"sent"})
        ordinals = {row.id: row.ordinal for row in recorders}
        async with aclosing(copies.read()) as found:
            async for page in found:
                sent = await events_by_id(self._log, self._of, {copy.sending_id for copy in page})
                for copy in page:
                    entry = sent[copy.sending_id]
                    if entry.cursor in span and chosen.takes(entry):
                        yield self._copy(copy, entry, ordinals[copy.id >> SEQ_BITS], audit)

    @staticmethod
    def _copy(copy: Copy, entry: Event, ordinal: int, audit: ArrivalAudit) -> Problem:
        listener = audit.listeners.of(copy.listener)
        patterns = [] if listener is None else listener.patterns(entry.channel or "", copy.ts)
        reason, why = "unknown why", ""
        if len(patterns) > 1:
            reason = " and ".join(patterns)
            why = f": its patterns {reason} match the channel"
        text = f"recorder {ordinal} received it {copy.number} times{why}"
        at = Cursor(copy.ts, ordinal, copy.id & SEQ_MASK)
        return Problem(Kind.TWICE, reason, at, ordinal, text, entry)

    async def _events(self) -> AsyncGenerator[Problem, None]:
        """Yield what the log itself says: blocked and failed messages, and gaps."""
        chosen = self._selection.of_kinds({"blocked", "failed", "gap"})
        async with aclosing(selected_pages(self._log, self._of, chosen)) as found:
            async for page in found:
                for entry in page:
                    yield _logged(entry)

    async def _ends(self, recorders: list[RecorderRow]) -> AsyncGenerator[Problem, None]:
        """Yield the unclean ends. They have a time, and no channel, agents or content."""
        if not self._selection.everything:
            return
        span = await self._selection.span(self._log.database, self._of)
        for row in recorders:
            if row.state in CRASHED and Cursor(row.complete_until, row.ordinal, 0) in span:
                yield Problem(Kind.UNCLEAN, f"recorder {row.ordinal}", None, row.ordinal, _end(row))


def _logged(entry: Event) -> Problem:
    """Return the problem that an event logs."""
    meta = entry.meta or {}
    if entry.kind == "gap":
        gap = gap_of(meta)
        ordinal = entry.recorder if gap.recorder is None else gap.recorder
        since, until = gap.within(entry.ts)
        lost = "" if gap.count is None else f", {plural(gap.count, 'message')}"
        text = f"{gap.reason or 'unknown reason'}: {(until - since) / 1e9:.3f} s from {iso(since)}{lost}"
        return Problem(Kind.GAP, f"recorder {ordinal}", entry.cursor, ordinal, text)
    if entry.kind == "blocked":
        interceptor, reason = meta.get("interceptor", "an interceptor"), meta.get("reason")
        text = f"{interceptor} refused it" + (f": {reason}" if reason else "")
        return Problem(Kind.BLOCKED, str(interceptor), entry.cursor, entry.recorder, text, entry)
    outcome = str(meta.get("outcome", "unknown"))
    sent = "it was not sent" if outcome == "not_sent" else "it may have been sent or not"
    text = f"{sent}: {meta.get('error', 'no error is recorded')}"
    return Problem(Kind.FAILED, outcome, entry.cursor, entry.recorder, text, entry)


def _end(row: RecorderRow) -> str:
    """Return the explanation of an unclean end."""
    after = iso(row.complete_until)
    missing = "received" if row.durability == "strict" else "sent and received"
    text = f"messages {missing} after {after} may be missing"
    if row.state == "incomplete":
        return f"its end was not gathered: {text}"
    if row.ended_at is None:
        return f"{text}; `messager repair` ends it"
    return text
