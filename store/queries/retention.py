"""Retention: age and size of experiments, and the selection of old ones."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ..experiments.records import Experiment, RecorderRow
from ..log.event_log import EventLog
from ..recording.repair import left_spool

EVENT_BYTES = 90
"""Approximate size of an event on disk without its payload: its row, its index entry, its check."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Age and size of an experiment. Times are ns UTC."""

    experiment: Experiment
    begun_at: int
    last_at: int
    """Time of closing; for an open experiment, the last heartbeat of its recorders."""
    recording: bool
    events: int
    payload_bytes: int
    spool: str | None = None
    """A spool on this host with events for this experiment; None if the experiment is closed."""

    @property
    def bytes(self) -> int:
        """Approximate size on disk."""
        return self.payload_bytes + self.events * EVENT_BYTES


async def usage_of(log: EventLog, experiments: list[Experiment]) -> list[Usage]:
    """Return the usage of each of these experiments, in the order given."""
    recorders: dict[int, list[RecorderRow]] = {}
    for row in await log.recorders():
        recorders.setdefault(row.experiment_id, []).append(row)
    return [_usage(of, recorders.get(of.id, [])) for of in experiments]


def _usage(of: Experiment, recorders: list[RecorderRow]) -> Usage:
    alive = [row.heartbeat_at if row.ended_at is None else row.ended_at for row in recorders]
    return Usage(
        of,
        begun_at=min((row.first_ts for row in recorders if row.first_ts is not None), default=of.created_at),
        last_at=max(alive, default=of.created_at) if of.closed_at is None else of.closed_at,
        recording=any(row.state == "alive" for row in recorders),
        events=sum(row.last_seq for row in recorders),
        payload_bytes=sum(row.payload_bytes for row in recorders),
        spool=next(filter(None, map(left_spool, recorders)), None) if of.status == "open" else None,
    )


async def outdated(
    log: EventLog, before: int, *, keep_tags: Collection[str] = (), with_open: bool = False
) -> tuple[list[Usage], int]:
    """Return the closed experiments that ended before `before` (ns UTC) and have none of the tags, oldest first.

    With `with_open`, also open experiments without a live recorder. The second value is the number of open
    experiments of that age that were left out.
    """
    old = [
        each
        for each in await usage_of(log, await log.experiments())
        if each.last_at < before and not each.recording and not set(keep_tags) & set(each.experiment.tags)
    ]
    chosen = [each for each in old if with_open or each.experiment.status == "closed"]
    return sorted(chosen, key=lambda each: each.last_at), len(old) - len(chosen)
