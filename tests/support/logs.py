"""Experiments with events, for tests of the log."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from sqlalchemy import true, update

from messager_store import Event, EventLog, Experiment, NewEvent
from messager_store.db.schema import recorder
from messager_store.experiments.seal import seal_ended


async def experiment(log: EventLog, exp_id: str = "e1") -> Experiment:
    return await log.create_experiment(exp_id)


async def filled(log: EventLog, events: list[NewEvent], exp_id: str = "e1") -> Experiment:
    of = await experiment(log, exp_id)
    await log.append(await log.register(of, role="tap"), events)
    return of


async def end_all(log: EventLog) -> None:
    """End all recorders of a store with their last heartbeat, also those that have ended."""
    async with log.database.writing() as connection:
        await connection.execute(update(recorder).values(ended_at=recorder.c.heartbeat_at))
        await seal_ended(connection, true())


async def listed(events: AsyncIterator[Event]) -> list[Event]:
    return [entry async for entry in events]


def sent(ts: int, payload: bytes = b"x", channel: str = "c", **more: Any) -> NewEvent:
    return NewEvent("sent", ts, channel, payload, **more)
