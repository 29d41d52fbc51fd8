"""Stores that hold the parts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from messager_store import EventLog
from tests.support import Stores


@pytest.fixture
def urls(request: pytest.FixtureRequest, stores: Stores, tmp_path: Path) -> Iterator[list[str]]:
    """Three stores on other machines: SQLite files; for a target in PostgreSQL, one of them is in PostgreSQL too."""
    folder = tmp_path / "parts"
    folder.mkdir()
    files = Stores(folder, None, request.getfixturevalue("migrated_file"))
    on_server = request.node.callspec.params["stores"] == "postgres"
    yield [files.fresh(), stores.fresh() if on_server else files.fresh(), files.fresh()]
    files.remove()


@pytest.fixture
async def parts(urls: list[str]) -> AsyncIterator[list[EventLog]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(EventLog.open(url)) for url in urls]
