"""Which experiments are old enough to go, and what removing them frees."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ..experiments.registry import Experiment, RecorderRow, every, recorders_of
from ..log.event_log import EventLog
from ..recording.repair import left_spool

EVENT_BYTES = 90
"""What an event takes on disk beside its payload, roughly: its row, its place in the index, its check."""


@dataclass(frozen=True, slots=True)
class Usage:
    """An experiment, and what it holds. Times are ns UTC."""

    experiment: Experiment
    begun_at: int
    last_at: int
    """When it was closed; while it is open, when a recorder last showed that it was alive."""
    recording: bool
    events: int
    payload_bytes: int
    spool: str | None = None
    """A spool on this host with events that can still be put into it; None once it is closed."""

    @property
    def bytes(self) -> int:
        """What it takes on disk, roughly."""
        return self.payload_bytes + self.events * EVENT_BYTES


async def usage_of(log: EventLog, experiments: list[Experiment]) -> list[Usage]:
    """What each of these experiments holds, in the order given."""
    recorders: dict[int, list[RecorderRow]] = {}
    for row in await recorders_of(log.database):
        recorders.setdefault(row.experiment_id, []).append(row)
    return [_usage(of, recorders.get(of.id, [])) for of in experiments]


def _usage(of: Experiment, recorders: list[RecorderRow]) -> Usage:
    alive = [row.heartbeat_at if row.ended_at is None else row.ended_at for row in recorders]
    return Usage(
        of,
        min((row.first_ts for row in recorders if row.first_ts is not None), default=of.created_at),
        max(alive, default=of.created_at) if of.closed_at is None else of.closed_at,
        any(row.state == "alive" for row in recorders),
        sum(row.last_seq for row in recorders),
        sum(row.payload_bytes for row in recorders),
        next(filter(None, map(left_spool, recorders)), None) if of.status == "open" else None,
    )


async def outdated(
    log: EventLog, before: int, *, keep_tags: Collection[str] = (), with_open: bool = False
) -> tuple[list[Usage], int]:
    """The experiments that ended before a moment (ns UTC) and have none of the tags, oldest first.

    Only closed ones, or, `with_open`, also those that are open and that nobody records. Also how many
    open ones were left out that are as old.
    """
    old = [
        each
        for each in await usage_of(log, await every(log.database))
        if each.last_at < before and not each.recording and not set(keep_tags) & set(each.experiment.tags)
    ]
    chosen = [each for each in old if with_open or each.experiment.status == "closed"]
    return sorted(chosen, key=lambda each: each.last_at), len(old) - len(chosen)
