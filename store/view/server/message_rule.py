"""The choice of messages (`log.messages`) of an experiment that is being recorded.

The choice depends on which recorders sent and received on which channels; and on the number of receptions, where a
channel has several listeners. The side table `activity` is behind while an experiment is recorded, and counting all
events takes seconds for a million of them. So they are summed once, from `activity` as far as it goes, and afterwards
only new ones are added. Numbers on channels with one listener are not read from it until there is another. The process
that examines whole experiments sums them (`examiner`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select

from ...db.codes import KINDS, SEQ_BITS
from ...db.schema import event, indexed_recorder, recorder
from ...experiments.records import Experiment
from ...log.activity_summary import Summary, summary
from ...log.event_log import EventLog
from ...log.event_query import EventQuery, parameter, recorders_now
from ...log.late_receptions import Interval
from ...log.messages import Sources, sources
from ..columns import ON_THE_PAGE

_RECEIVED, _FAILED = (KINDS.index(kind) + 1 for kind in ("received", "failed"))
_NEW = EventQuery(
    select(event.c.channel_id, event.c.kind, func.count(), func.min(event.c.ts), func.max(event.c.ts))
    .where(event.c.id > parameter("after"), event.c.id <= parameter("upto"))
    .group_by(event.c.channel_id, event.c.kind)
)


@dataclass(frozen=True, slots=True)
class Indexed:
    """What `activity` has of an experiment."""

    last_seqs: dict[int, int]
    """By id of the recorder."""
    summary: Summary | None
    """None if it has less than that, because something is redacted now."""

    def data(self) -> dict[str, Any]:
        """Return it for JSON."""
        known = self.summary
        rest = None if known is None else {"counts": known.counts, "failed": known.failed}
        return {"last_seqs": [*self.last_seqs.items()], "summary": rest}

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> Indexed:
        """Return what `data` returned."""
        known = data["summary"]
        if known is not None:
            failed = [(since, until) for since, until in known["failed"]]
            known = Summary([tuple(row) for row in known["counts"]], failed)
        return cls(dict(data["last_seqs"]), known)


async def indexed(log: EventLog, of: Experiment, counted: bool) -> Indexed:
    """Read what `activity` has; see `log.activity_summary.summary`."""
    query = (
        select(indexed_recorder.c.recorder_id, indexed_recorder.c.text_seq)
        .join(recorder, recorder.c.id == indexed_recorder.c.recorder_id)
        .where(recorder.c.experiment_id == of.id)
    )
    async with log.database.reading() as connection:
        reached = dict((await connection.execute(query)).all())
    return Indexed(reached, await summary(log.database, of, reached, counted=counted))


class CurrentRule:
    """The choice of the messages on the page, for one experiment."""

    def __init__(self, indexed: Callable[[bool], Awaitable[Indexed]]) -> None:
        self._indexed = indexed
        self._counts: Counter[tuple[int | None, int, int]] = Counter()
        """Events by id of the channel, code of the kind and id of the recorder."""
        self._uncounted: set[int | None] = set()
        """Channels with one listener, of which the number of receptions may be too small."""
        self._failed: list[Interval] = []
        self._seen: dict[int, int] = {}
        """Last seq that was counted, by id of the recorder."""
        self._sources: Sources | None = None
        self._counting = asyncio.Lock()

    async def sources(self, log: EventLog, of: Experiment) -> Sources:
        """Return the choice as of now."""
        async with self._counting:
            if self._sources is None:
                await self._begin(counted=False)
            new = await self._add(log, of)
            listeners = Counter(channel for channel, kind, _ in self._counts if kind == _RECEIVED)
            if any(listeners[channel] > 1 for channel in self._uncounted):
                await self._begin(counted=True)
                await self._add(log, of)
            if new or self._sources is None:
                counts = [(channel, kind, number, events) for (channel, kind, number), events in self._counts.items()]
                self._sources = await sources(log, of, set(ON_THE_PAGE), known=Summary(counts, self._failed))
            return self._sources

    async def _begin(self, *, counted: bool) -> None:
        """Sum what `activity` has."""
        found = await self._indexed(counted)
        known = found.summary
        self._counts.clear()
        self._failed, self._seen = [], {}
        self._uncounted = set()
        if known is None:
            return
        for channel, kind, number, events in known.counts:
            self._counts[channel, kind, number] += events
        if not counted:
            listeners = Counter(channel for channel, kind, _ in self._counts if kind == _RECEIVED)
            self._uncounted = {channel for channel, number in listeners.items() if number == 1}
        self._failed = list(known.failed)
        self._seen = dict(found.last_seqs)

    async def _add(self, log: EventLog, of: Experiment) -> bool:
        """Add the new events; return whether there are any."""
        now = await recorders_now(log.database, of)
        new = {number: last for number, last in now.last_seqs.items() if last > self._seen.get(number, 0)}
        for number, last in new.items():
            base, after = number << SEQ_BITS, self._seen.get(number, 0)
            rows = await _NEW.rows(log.database, after=base | after, upto=base | last)
            for channel, kind, events, first_ts, last_ts in rows:
                self._counts[channel, kind, number] += events
                if kind == _FAILED:
                    self._failed.append((first_ts, last_ts))
            self._seen[number] = last
        return bool(new)
