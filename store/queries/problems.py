"""Problems of a recording: what never arrived, arrived twice or late, was blocked or failed, gaps and unclean ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, closing
from dataclasses import dataclass
from typing import Any, Unpack

from ..db.codes import CHANNEL
from ..errors import StoreError
from ..experiments.records import Experiment, RecorderRow
from ..html_table import html_table
from ..log.event import Cursor, Event, iso, utc
from ..log.event_log import EventLog
from ..log.event_query import TOGETHER
from ..log.gap import gap_of
from ..log.message_rule import EARLY_NS
from ..log.names import NameReader, agent_text, all_names, name_text
from ..log.selection import Filters, Selection, selection_of
from ..projection.event_lookup import events_at
from ..projection.query import Progress, Projection, projected
from ..projection.reading import Reading
from ..projection.schema import pyarrow
from ..projection.selecting import Rows
from ..text import length, plural
from .audit.arrivals import ArrivalAudit, Delivery
from .audit.clocks import clock_difference
from .audit.listeners import Listener, Listeners, listeners_of
from .audit.problem import Kind, Problem

LATE_NS = 1_000_000_000
"""Delivery time above which a message is late, by default."""
CRASHED = ("unclean", "repaired", "incomplete")
"""States of recorders whose end is unclean, or not in this store."""
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
    `progress` while the projection is brought up to date.

    Raises `StoreError` for a selection with a limit, context, or the last of each, and if DuckDB or pyarrow is not
    installed.
    """
    selection = selection_of(selection, filters)
    if selection.limit is not None or selection.context or selection.last_per:
        raise StoreError("problems are those of all messages that are selected: leave out limits and context")
    counts: dict[Kind, dict[str, int]] = {}
    details: dict[Kind, list[Problem]] = {kind: [] for kind in Kind}
    async with projected(log, of, progress) as here:
        search = _Search(log, of, here, selection, late_ns)
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
    return Problems(ordered, found_details, tuple(search.notes), late_ns, search.examined)


class _Search:
    """The problems of an experiment, and what cannot be told."""

    def __init__(self, log: EventLog, of: Experiment, here: Projection, selection: Selection, late_ns: int) -> None:
        self._log = log
        self._of = of
        self._here = here
        self._selection = selection
        self._late_ns = late_ns
        self.examined = True
        """False if arrivals are not examined. Known when all is read."""
        self.notes: list[str] = []

    async def read(self) -> AsyncGenerator[Problem, None]:
        """Yield the problems. Read it once."""
        recorders = await self._log.recorders(self._of)
        parts = [self._events(), self._ends(recorders)]
        if any(row.kinds["sent"] for row in recorders):
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
        listeners = await listeners_of(self._log, self._of, self._here)
        if not listeners.all:
            self._leave_arrivals("no listener was recorded, so nothing is known about arrivals")
            return
        difference = clock_difference(recorders)
        if difference is not None and difference > EARLY_NS:
            what = f"the clocks of the recorders differ by up to {length(difference / 1e9)}"
            self.notes.append(f"{what}: what arrived more than {EARLY_NS // 10**9} s before it was sent is not matched")
        if hurried := self._here.files.hurried:
            what = f"{plural(hurried, 'message')} of senders that were not recorded"
            self.notes.append(f"{what} may be receptions of others: too many came at once to wait for their sendings")
        sent = Reading(self._log, self._of, self._here, self._selection.of_kinds({"sent"}))
        condition = await sent.condition()
        await self._note_expected(listeners)
        unobserved = {row.ordinal for row in recorders if not row.observes("received")}
        audit = ArrivalAudit(listeners, self._late_ns, unobserved)
        values = {**condition.values, "late": self._late_ns}
        async with aclosing(self._rows(_NOT_ALL.format(condition.where), values)) as found:
            async for rows in found:
                for entry, ordinals, messagers, times in rows:
                    deliveries = [Delivery((n, who), ts) for n, who, ts in zip(ordinals, messagers, times, strict=True)]
                    for problem in audit.judge(entry, deliveries):
                        yield problem
        self.notes += audit.notes()
        async with aclosing(self._rows(_TWICE.format(condition.where), condition.values)) as found:
            async for rows in found:
                for entry, ts, ordinal, seq, messager, number in rows:
                    yield _copy(entry, Cursor(ts, ordinal, seq), number, audit.listeners.of((ordinal, messager)))
        if self._selection.everything:
            await self._note_others()

    async def _note_expected(self, listeners: Listeners) -> None:
        """Make the table of who should have received what was sent on each channel, and when."""
        names = (await all_names(self._log.database, self._of.id, CHANNEL)).values()
        rows = [(name_text(name), *one.key, *times) for name in names for one, times in listeners.expected(name)]
        pa = pyarrow()
        types = pa.string(), pa.int64(), pa.string(), pa.int64(), pa.int64()
        columns = zip(*rows, strict=True) if rows else [()] * len(types)
        arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
        table = pa.Table.from_arrays(arrays, ["channel", "recorder", "messager", "since", "until"])
        self._here.connection.register("expected", table)

    async def _rows(self, statement: str, values: Mapping[str, Any]) -> AsyncGenerator[list[tuple[Any, ...]], None]:
        """Yield the rows of a statement with the event in place of its first three columns, its position."""
        names = NameReader(self._log.database)
        with closing(self._here.batches(statement, values)) as batches:
            while (batch := await asyncio.to_thread(next, batches, None)) is not None:
                rows = list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
                for at in range(0, len(rows), TOGETHER):
                    some = [(Cursor(*row[:3]), row[3:]) for row in rows[at : at + TOGETHER]]
                    events = await events_at(self._log.database, self._of, [place for place, _ in some], names)
                    yield [(events[place], *rest) for place, rest in some if place in events]

    async def _note_others(self) -> None:
        [(others, redacted)] = await asyncio.to_thread(self._here.rows, _OTHERS)
        if others:
            why = "not recorded or is redacted" if redacted else "not recorded"
            what = f"{plural(others, 'reception')} of messages whose sending was {why}"
            self.notes.append(f"{what}, on channels with recorded sendings")

    async def _events(self) -> AsyncGenerator[Problem, None]:
        """Yield what the log itself says: blocked and failed messages, and gaps."""
        chosen = self._selection.of_kinds({"blocked", "failed", "gap"})
        reading = Reading(self._log, self._of, self._here, chosen, Rows.EVENTS)
        async with aclosing(reading.events()) as found:
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


_NOT_ALL = """
    WITH sent AS (SELECT e.id, e.ts, e.recorder, e.seq, e.channel FROM event e WHERE {}),
    delivery AS (
        SELECT r.message_id AS id, r.recorder, r.messager, r.ts FROM event r
        WHERE r.message_id <> r.id AND NOT r.is_copy),
    missing AS (
        SELECT DISTINCT s.id FROM sent s
        JOIN expected x ON x.channel = s.channel AND s.ts BETWEEN x.since AND x.until
        ANTI JOIN delivery d ON d.id = s.id AND d.recorder = x.recorder
            AND (x.messager IS NULL OR d.messager IS NOT DISTINCT FROM x.messager)),
    found AS MATERIALIZED (
        SELECT s.* FROM sent s LEFT JOIN (SELECT id, max(ts) AS last FROM delivery GROUP BY id) d ON d.id = s.id
        WHERE d.id IS NULL OR d.last - s.ts > $late OR s.id IN (FROM missing)),
    received AS (
        SELECT id, list(recorder ORDER BY ts) AS recorders, list(messager ORDER BY ts) AS messagers,
            list(ts ORDER BY ts) AS times FROM delivery WHERE id IN (SELECT id FROM found) GROUP BY id)
    SELECT f.ts, f.recorder, f.seq, coalesce(r.recorders, []), coalesce(r.messagers, []), coalesce(r.times, [])
    FROM found f LEFT JOIN received r ON r.id = f.id ORDER BY f.ts, f.id"""
"""Sendings that a listener did not receive, or received late, with their deliveries."""
_TWICE = """
    WITH sent AS (SELECT e.id, e.ts, e.recorder, e.seq FROM event e WHERE {}),
    heard AS MATERIALIZED (SELECT id FROM event WHERE kind = 'received' AND message_id = id),
    unsent AS MATERIALIZED (
        SELECT id, ts, recorder, seq, messager, channel, payload FROM event
        WHERE kind = 'received' AND message_id IN (FROM heard)),
    again AS MATERIALIZED (
        SELECT id, ts, recorder, seq, messager, message_id AS original FROM event
        WHERE is_copy AND NOT coalesce(meta LIKE '%"retained":true%', false)
        UNION ALL
        SELECT u.id, u.ts, u.recorder, u.seq, u.messager, max_by(r.message_id, r.ts)
        FROM unsent u JOIN (SELECT * FROM event WHERE channel IN (SELECT channel FROM unsent)) r
            ON r.channel = u.channel AND r.recorder = u.recorder AND r.messager IS NOT DISTINCT FROM u.messager
            AND r.payload = u.payload AND r.ts <= u.ts AND u.ts - r.ts <= 60000000000
            AND r.message_id <> r.id AND NOT r.is_copy
        SEMI JOIN sent s ON s.id = r.message_id
        GROUP BY ALL)
    SELECT s.ts, s.recorder, s.seq, a.ts, a.recorder, a.seq, a.messager,
        1 + row_number() OVER (PARTITION BY s.id, a.recorder, a.messager ORDER BY a.ts, a.id)
    FROM again a JOIN sent s ON s.id = a.original ORDER BY a.ts, a.id"""
"""Sendings that a listener received more than once, with the other receptions: copies by patterns, and those of equal
content that belong to no recorded sending, within a minute."""
_OTHERS = """
    WITH heard AS MATERIALIZED (SELECT id FROM event WHERE kind = 'received' AND message_id = id)
    SELECT count(*), (SELECT count(*) FROM event WHERE kind = 'sent' AND redacted) FROM event
    WHERE kind = 'received' AND NOT redacted AND NOT is_copy AND (message_id IS NULL OR message_id IN (FROM heard))
        AND channel IN (SELECT channel FROM event WHERE kind = 'sent')"""


def _copy(entry: Event, at: Cursor, number: int, listener: Listener | None) -> Problem:
    patterns = [] if listener is None else listener.patterns(entry.channel or "", at.ts)
    reason, why = "unknown why", ""
    if len(patterns) > 1:
        reason = " and ".join(patterns)
        why = f": its patterns {reason} match the channel"
    text = f"recorder {at.recorder} received it {number} times{why}"
    return Problem(Kind.TWICE, reason, at, at.recorder, text, entry)


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
