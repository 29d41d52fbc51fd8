"""The prefix of a fork, read from the log of its parent."""

from __future__ import annotations

from dataclasses import dataclass

from messager.brokers import Broker

from ..db.codes import REDACTED
from ..errors import ReplayRefused, StoreError
from ..experiments.records import Experiment
from ..log.channel_map import ChannelMap
from ..log.cursor import Point, resolve, span
from ..log.event import Cursor
from ..log.event_log import EventLog
from ..log.lineage import first_behind
from ..log.selection import Selection
from ..replay.guard import feedback
from ..replay.plan import Plan, make_plan
from .cut import Cut, closed_cut
from .recording import Recording, sender_rules
from .schedule import Key


@dataclass(slots=True)
class PrefixSource:
    """An experiment in memory, and the part of it that a fork repeats."""

    plan: Plan
    """The messages before the point."""
    parent: Experiment
    recording: Recording
    """The whole experiment; its messages are those before the point."""
    cut: Cut
    begun: frozenset[Key]
    """The part of the cut before `start`, which agents with checkpoints do not repeat."""


async def load_prefix(
    log: EventLog, parent: str, at: Point, start: Point, channel_map: ChannelMap, broker: Broker
) -> PrefixSource:
    """Read the part of an experiment before the point `at` (None: all of it).

    All events are read: what was caused from behind the point is known only then. Raises `ExperimentNotFound`,
    `BadCursor`, `ReplayRefused` if the fork would be recorded into its parent, and `StoreError` if there is nothing to
    repeat, if a point is behind the end, or if events of the prefix are redacted.
    """
    of = await log.experiment(parent)
    end = await _bound(log, of, at)
    if end is None:
        raise StoreError(f"{of.exp_id!r} has no events, so there is nothing to fork. Fork another experiment.")
    plan = await make_plan(
        log, of, Selection(until=end), channel_map=channel_map, broker_url=broker.url, keep_names=False
    )
    if (found := await feedback(plan, broker)) is not None:
        row, heard = found
        raise ReplayRefused(
            f"recorder {row.ordinal} of {of.exp_id!r} ({row.role}, {row.host}, pid {row.pid}) is recording {heard!r} "
            "and would append the fork to its parent. End it first, or fork onto other channels with --map"
        )
    events = await plan.experiment_events()
    messages = await plan.messages_among([entry for entry in events if entry.cursor < end])
    uuids = {row.ordinal: row.uuid for row in plan.recorders}
    recording = Recording(of.exp_id, events, messages, uuids, sender_rules=sender_rules(plan.recorders))
    cut = closed_cut(recording, end)
    redacted = [entry for entry in events if entry.flags & REDACTED and entry in cut]
    if redacted:
        raise StoreError(
            f"{len(redacted)} events of {of.exp_id} before the point are redacted (the first is {redacted[0].cursor}), "
            "so they cannot be repeated. Fork at an earlier point."
        )
    begun: frozenset[Key] = frozenset()
    if start is not None:
        bound = await _bound(log, of, start)
        if bound is None or bound > end:
            raise StoreError("the start of a fork is after its point: exchange them")
        begun = closed_cut(recording, bound).keys
    return PrefixSource(plan, of, recording, cut, begun)


async def _bound(log: EventLog, of: Experiment, point: Point) -> Cursor | None:
    """Return the first event at or behind a point, or the end; None if there are no events. Raises `StoreError`."""
    bound = await first_behind(log.database, of, point)
    given = await resolve(log.database, of, point)
    if bound is not None and given is not None and given > bound:
        first, last = await span(log.database, of)
        lasts = ((last or 0) - (first or 0)) / 1e9
        raise StoreError(
            f"the point {point} is after the end of {of.exp_id}, which lasts {lasts:.3f} s. Give an earlier point, or "
            "none for the end"
        )
    return bound
