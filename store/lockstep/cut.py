"""Loading from the log, and the cut: the part of a recording before a point that is closed under what was heard.

The clocks of recorders differ, so an event before a point in replay order may have been caused by one behind it: its
reception is stamped earlier than its sending, or an agent spoke after it had heard such a message. A fork cannot
repeat that. The cut is the largest set of events before the point in which nothing depends on an event outside:

- a reception depends on the sending it belongs to, and on the earlier receptions of its Messager;
- what a Messager said or marked depends on what it had heard, and on what it said and marked before;
- the outcome of a sending belongs to it, on whichever side of the point it was logged.

Events without a schedule (of taps, and of older recordings) are taken by their place in replay order.
"""

from __future__ import annotations

from dataclasses import dataclass

from messager.brokers import Broker

from ..db.codes import REDACTED
from ..errors import ReplayRefused, StoreError
from ..experiments.records import Experiment
from ..log.channel_map import ChannelMap
from ..log.cursor import Point, resolve, span
from ..log.event import Cursor, Event
from ..log.event_log import EventLog
from ..log.lineage import first_behind
from ..log.selection import Selection
from ..replay.guard import feedback
from ..replay.plan import Plan, make_plan
from .recording import Recording
from .schedule import Key, key

_NEVER = 1 << 62


@dataclass(slots=True)
class Cut:
    """A closed part of a recording."""

    cursor: Cursor
    """The point: no event at or behind it is part of the cut, except outcomes of sendings before it."""
    keys: frozenset[Key]
    """(recorder, seq) of the events of the cut."""
    excluded: int
    """Number of events before the point that were caused from behind it, and so are not part of the cut."""

    def __contains__(self, entry: Event) -> bool:
        return key(entry) in self.keys


@dataclass(slots=True)
class _Bounds:
    """First event of each kind of a Messager that is outside."""

    arrival: int = _NEVER
    """Number of a reception."""
    act: int = _NEVER
    """Place among what it said and marked."""


def closed_cut(recording: Recording, cursor: Cursor) -> Cut:
    """Return the largest closed part of a complete recording before a point."""
    before = {key(entry) for entry in recording.events if entry.cursor < cursor}
    messagers = {entry.messager for entry in recording.events if entry.messager is not None}
    sources = recording.sources
    bounds = {messager: _Bounds() for messager in messagers}
    inside = set(before)
    changed = True
    while changed:
        changed = False
        acts = dict.fromkeys(messagers, 0)
        for entry in recording.events:
            place, messager = key(entry), entry.messager
            if messager is None or _is_outcome(entry):
                continue
            bound = bounds[messager]
            if entry.kind == "received":
                number = _NEVER - 1 if entry.arrival is None else entry.arrival
                source = sources.get(place)
                out = place not in before or number >= bound.arrival or (source is not None and source not in inside)
                if out and entry.arrival is not None and number < bound.arrival:
                    bound.arrival = number
                    changed = True
            else:
                act = acts[messager]
                acts[messager] += 1
                heard = entry.arrival or 0
                out = place not in before or act >= bound.act or heard >= bound.arrival
                if out and act < bound.act:
                    bound.act = act
                    changed = True
            if out and place in inside:
                inside.discard(place)
                changed = True
    outcomes = {key(entry): entry.cause for entry in recording.events if _is_outcome(entry)}
    excluded = sum(1 for place in before if place not in inside and place not in outcomes)
    inside -= outcomes.keys()
    inside |= {place for place, cause in outcomes.items() if cause in inside}
    return Cut(cursor, frozenset(inside), excluded)


def _is_outcome(entry: Event) -> bool:
    """Return True for the outcome of a sending that was logged before it was sent."""
    return entry.kind == "failed" and entry.cause is not None


@dataclass(slots=True)
class PrefixSource:
    """An experiment in memory, and the part of it that a fork repeats."""

    plan: Plan
    """The messages before the point."""
    parent: Experiment
    recording: Recording
    """The whole experiment."""
    cut: Cut
    begun: frozenset[Key]
    """The part of the cut before `start`, which agents with checkpoints do not repeat."""


async def load_prefix(
    log: EventLog, parent: str, at: Point, start: Point, channel_map: ChannelMap, broker: Broker
) -> PrefixSource:
    """Read the part of an experiment before the point `at` (None: all of it).

    All events are read: what was caused from behind the point is known only then. Raises `ExperimentNotFound`,
    `BadCursor`, `ReplayRefused` if the fork would be recorded into its parent or has streams from outside, and
    `StoreError` if there is nothing to repeat, if a point is behind the end, or if events of the prefix are redacted.
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
    recording = Recording.of_events(of.exp_id, events, recorders=plan.recorders, internal=plan.internal)
    _refuse_streams(recording)
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


async def load_recording(log: EventLog, plan: Plan, *, calls: bool = False) -> Recording:
    """Return the experiment of a plan in memory, reduced to the channels and to the part that the plan selects.

    `calls` adds the calls to models, which bound the schedule if they are served from the recording.
    The part is closed under what was heard (see `cut`), at its start and at its end. Raises
    `ReplayRefused` if it has streams that were recorded from outside.
    """
    of, span = plan.of, plan.span
    chosen = await log.as_recorded(of, plan.selection)
    kinds = ("sent", "received", "blocked", "failed", "mark", "gap", *(("asked", "answered") if calls else ()))
    events = [
        entry
        for entry in await plan.experiment_events(*kinds)
        if entry.channel is None or chosen.takes_channel(entry.channel)
    ]
    recording = Recording.of_events(of.exp_id, events, recorders=plan.recorders, store=log.location)
    _refuse_streams(recording)
    if span.end is not None:
        inside = closed_cut(recording, span.end).keys
        recording = recording.filtered(lambda entry: key(entry) in inside)
    if span.start is not None:
        begun = closed_cut(recording, span.start).keys
        recording = recording.filtered(lambda entry: key(entry) not in begun)
    return recording


def _refuse_streams(recording: Recording) -> None:
    """Refuse entries of streams that a tap recorded: a live agent reads them where no gate can hold it."""
    entries = [
        entry
        for entry in recording.messages
        if entry.carrier == "stream" and entry.kind == "received" and entry.messager is None
    ]
    if entries:
        raise ReplayRefused(
            f"{recording.exp_id} has {len(entries)} entries of streams that were recorded from outside (the first is "
            f"{entries[0].cursor}), where no live agent can be held. Replay it without live agents, or record it in "
            "its programs, with the adapter of their framework (docs/transports.md)"
        )
