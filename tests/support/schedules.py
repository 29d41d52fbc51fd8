"""Comparison of two runs by their logs, independent of the code that replays."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from messager import MessageRecord
from messager_store import Event, EventLog

Said = dict[tuple[Any, str], list[bytes]]


def said(events: Sequence[Event | MessageRecord], exp_id: str) -> Said:
    """Return the payloads of each sender and channel, in order; the exp_id in channels is left out."""
    found: Said = defaultdict(list)
    for event in _in_order(events):
        if event.kind == "sent":
            found[event.from_id, _without(event.channel, exp_id)].append(event.payload)
    return dict(found)


def schedule(events: list[Event], exp_id: str) -> list[Any]:
    """Return what each Messager said and had heard then, and what it received up to its last saying, in order.

    Messagers are sorted by their senders. Receptions after the last saying are delivered as they arrive.
    """
    messagers: dict[str, list[Event]] = defaultdict(list)
    for event in _in_order(events):
        if event.messager is not None and event.kind in ("sent", "received"):
            messagers[event.messager].append(event)
    found = []
    for listed in messagers.values():
        sayings = [event for event in listed if event.kind == "sent"]
        last = max((event.arrival or 0 for event in sayings), default=0)
        received = sorted((event for event in listed if event.kind == "received"), key=lambda one: one.arrival or 0)
        assert [event.arrival for event in received] == list(range(1, len(received) + 1))
        found.append(
            (
                sorted({event.from_id for event in sayings}),
                [(_without(event.channel, exp_id), event.payload, event.arrival) for event in sayings],
                [(_without(event.channel, exp_id), event.payload) for event in received[:last]],
            )
        )
    return sorted(found, key=lambda one: one[0])


def marks(events: list[Event]) -> list[tuple[str, Any]]:
    """Return the names and fields of the marks of agents."""
    listed = [event.meta or {} for event in _in_order(events) if event.kind == "mark"]
    return [(meta["name"], meta["fields"]) for meta in listed if not meta["name"].startswith("messager.")]


async def read(log: EventLog, exp_id: str) -> list[Event]:
    """Return all events of an experiment."""
    return [event async for event in log.read(await log.experiment(exp_id))]


def _in_order(events: Sequence[Any]) -> list[Any]:
    """Return events in the order in which they were recorded; records are in that order."""
    return sorted(events, key=lambda event: (event.recorder, event.seq) if isinstance(event, Event) else ())


def _without(channel: str | None, exp_id: str) -> str:
    return (channel or "").replace(f":{exp_id}:", ":EXP:")
