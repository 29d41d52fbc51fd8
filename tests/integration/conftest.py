"""What tests of several files need: a second store, and outages that need not be long."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from messager_store import EventLog
from messager_store.maintenance.removal import remove
from messager_store.recording import committer, recorder
from messager_store.testing import PostgresServer, postgres_server
from tests.integration.logs import filled, sent
from tests.support import Stores


@pytest.fixture
async def other(stores: Stores) -> AsyncIterator[EventLog]:
    async with EventLog.open(stores.fresh()) as opened:
        # ids differ from those in the first store
        await remove(opened, await filled(opened, [sent(1)], "gone"))
        yield opened


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short times, so that an outage need not be long."""
    monkeypatch.setattr("messager_store.db.sqlite.dialect.BUSY_TIMEOUT_MS", 50)
    monkeypatch.setattr("messager_store.db.postgres.dialect.LOCK_TIMEOUT_MS", 50)
    monkeypatch.setattr(committer, "SPOOL_SECONDS", 0.05)
    monkeypatch.setattr(committer, "HOLD_SECONDS", 0.2)
    monkeypatch.setattr(recorder, "STOP_SECONDS", 0.3)
    monkeypatch.setattr(committer, "STOP_SECONDS", 0.3)


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A server of the test's own, which it may stop and kill."""
    with postgres_server(durable=True) as started:
        yield started
