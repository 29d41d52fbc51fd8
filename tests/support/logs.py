"""Experiments with events, for tests of the log."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from messager_store import Event, EventLog, Experiment, NewEvent


async def experiment(log: EventLog, exp_id: str = "e1") -> Experiment:
    return await log.create_experiment(exp_id)


async def filled(log: EventLog, events: list[NewEvent], exp_id: str = "e1") -> Experiment:
    of = await experiment(log, exp_id)
    await log.append(await log.register(of, role="tap"), events)
    return of


async def listed(events: AsyncIterator[Event]) -> list[Event]:
    return [entry async for entry in events]


def sent(ts: int, payload: bytes = b"x", channel: str = "c", **more: Any) -> NewEvent:
    return NewEvent("sent", ts, channel, payload, **more)
