"""Locks, numbered events and drains, for tests of outages."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from messager import MessageRecord
from messager_store import EventLog, Recorder
from messager_store.recording.draining import DrainResult, drain
from messager_store.testing import transaction


@contextlib.contextmanager
def locked(store: str) -> Iterator[None]:
    """Context in which another connection locks the store against writers."""
    if "://" in store:
        with transaction(store, "LOCK TABLE experiment, recorder, name, event IN EXCLUSIVE MODE"):
            yield
        return
    other = sqlite3.connect(store, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


def take(taker: Recorder, first: int, number: int) -> None:
    for at in range(first, first + number):
        taker.after(MessageRecord("sent", at, f"c{at % 3}", b"%d" % at, from_id=at % 5))


async def payloads(log: EventLog, exp_id: str = "e1") -> list[bytes]:
    return [entry.payload async for entry in log.read(exp_id, kinds=["sent"])]


def numbers(first: int, number: int) -> list[bytes]:
    return [b"%d" % at for at in range(first, first + number)]


async def everything_drained(log: EventLog, folder: Path) -> list[DrainResult]:
    return [done async for done in drain(log, folder)]
