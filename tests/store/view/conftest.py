"""Reports to open in a browser."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page

from examples import town
from messager_store import EventLog
from messager_store.view.report import report
from tests.store.view import hostile
from tests.store.view.pages import OpenReport, ready
from tests.support.browser import PageOpener

STORES: dict[str, Callable[[str], Awaitable[None]]] = {"town": town.main, "hostile": hostile.main}
EXPERIMENTS = {
    "town": "town",
    "town-again": "town",
    "hostile": "hostile",
    "hostile-times": "hostile",
    "hostile-span": "hostile",
}
"""Store of each experiment."""


class Reports:
    """Files of reports of `EXPERIMENTS`; each is made once a worker."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def file(self, exp_id: str) -> Path:
        """Return the file of a report."""
        file = self._folder / f"{exp_id}.html"
        if not file.exists():
            store = self._folder / f"{EXPERIMENTS[exp_id]}.db"
            if not store.exists():
                await STORES[EXPERIMENTS[exp_id]](str(store))
            async with EventLog.open(str(store)) as log:
                await report(log, exp_id, file)
        return file


@pytest.fixture(scope="session")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Reports:
    return Reports(tmp_path_factory.mktemp("reports"))


@pytest.fixture
def open_report(open_page: PageOpener, reports: Reports) -> OpenReport:
    """Opens the report of an experiment: `await open_report("town", "view=read", width=400)`."""

    async def opened(exp_id: str, fragment: str = "", **options: Any) -> Page:
        file = await reports.file(exp_id)
        return await ready(await open_page(f"{file.as_uri()}#{fragment}", **options))

    return opened
