"""Loading: read the recording of a lockstep replay from the log."""

from __future__ import annotations

from ..log.event_log import EventLog
from ..replay.plan import Plan
from .cut import closed_cut
from .recording import Recording, key, sender_rules


async def load_recording(log: EventLog, plan: Plan) -> Recording:
    """Return the experiment of a plan in memory, reduced to the channels and to the part that the plan selects.

    The part is closed under what was heard (see `cut`), at its start and at its end.
    """
    of, span = plan.of, plan.span
    chosen = await log.as_recorded(of, plan.selection)
    events = [
        entry
        for entry in await plan.experiment_events("sent", "received", "blocked", "failed", "mark")
        if entry.channel is None or chosen.takes_channel(entry.channel)
    ]
    messages = await plan.messages_among(events)
    uuids = {row.ordinal: row.uuid for row in plan.recorders}
    recording = Recording(of.exp_id, events, messages, uuids, log.location, sender_rules(plan.recorders))
    if span.end is not None:
        inside = closed_cut(recording, span.end).keys
        recording = recording.filtered(lambda entry: key(entry) in inside)
    if span.start is not None:
        begun = closed_cut(recording, span.start).keys
        recording = recording.filtered(lambda entry: key(entry) not in begun)
    return recording
