"""Stores that hold the parts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from messager_store import EventLog
from messager_store.testing import Databases
from tests.support import Stores


@pytest.fixture
def elsewhere(request: pytest.FixtureRequest, stores: Stores, tmp_path: Path) -> Iterator[Stores]:
    """Factory of parts: SQLite files for a target in PostgreSQL, and the reverse."""
    folder = tmp_path / "parts"
    folder.mkdir()
    if request.node.callspec.params["stores"] == "postgres":
        made = Stores(folder, None, request.getfixturevalue("migrated_file"))
    else:
        databases: Databases = request.getfixturevalue("databases")
        made = Stores(folder, databases, request.getfixturevalue("migrated"))
    yield made
    made.remove()


@pytest.fixture
def urls(elsewhere: Stores) -> list[str]:
    """Three stores on other machines."""
    return [elsewhere.fresh() for _ in range(3)]


@pytest.fixture
async def parts(urls: list[str]) -> AsyncIterator[list[EventLog]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(EventLog.open(url)) for url in urls]
