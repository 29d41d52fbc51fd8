"""A small experiment and its fork, for tests of lineage."""

from __future__ import annotations

from messager_store import EventLog, Experiment, NewEvent
from messager_store.log.event import Event
from tests.support.logs import listed, sent

AT = "mark:phase"
PARENT_EVENTS = [
    sent(1, b"one", from_id=1),
    NewEvent("received", 2, "c", b"one", from_id=1),
    sent(3, b"secret", from_id=2, channel="d"),
    NewEvent("mark", 4, None, b"", meta={"name": "phase", "fields": {}}),
    sent(5, b"later", from_id=1),
]


async def parent(log: EventLog, exp_id: str = "exp-1") -> Experiment:
    """Create a closed experiment of two recorders, with a mark behind its third event."""
    of = await log.create_experiment(exp_id)
    for events in (PARENT_EVENTS[:2], PARENT_EVENTS[2:]):
        writer = await log.register(of, role="messager")
        await log.append(writer, events)
        await log.touch(writer, ended_at=10)
    return of


async def fork(log: EventLog, of: str = "exp-1", into: str = "exp-2", at: str | None = AT) -> Experiment:
    """Create a fork with copies of the events before a point, and one event of its own."""
    made = await log.create_experiment(into, parent=of, at=at)
    uuids = {row.ordinal: row.uuid for row in await log.recorders(await log.experiment(of))}
    writer = await log.register(made, role="messager")
    copied = [_copy(entry, uuids[entry.recorder]) for entry in await listed(log.read(of, until=at))]
    await log.append(writer, [*copied, sent(100, b"its own", from_id=1)])
    await log.touch(writer, ended_at=101)
    return made


def _copy(entry: Event, uuid: str) -> NewEvent:
    return NewEvent(
        entry.kind,
        entry.ts + 50,
        entry.channel,
        entry.payload,
        entry.from_id,
        meta=entry.meta,
        origin=(uuid, entry.seq),
    )
