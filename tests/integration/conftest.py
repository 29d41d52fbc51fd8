"""A second store, for what is carried from one to another."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from messager_store import EventLog
from messager_store.removal import remove
from tests.integration.test_log import filled, sent


@pytest.fixture
async def other(tmp_path: Path) -> AsyncIterator[EventLog]:
    async with EventLog.open(str(tmp_path / "other.db")) as opened:
        # ids differ from those in the first store
        await remove(opened.database, await filled(opened, [sent(1)], "gone"))
        yield opened
