"""Reports to open in a browser."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Awaitable, Callable, Iterator
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
    """Files of reports of `EXPERIMENTS`; each is made once for all test processes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def file(self, exp_id: str) -> Path:
        """Return the file of a report."""
        file = self._folder / f"{exp_id}.html"
        store = await self.store(EXPERIMENTS[exp_id])
        with self._locked(file.name):
            if not file.exists():
                async with EventLog.open(str(store)) as log:
                    await report(log, exp_id, file)
        return file

    async def store(self, name: str) -> Path:
        """Return the file of a store. No test changes it."""
        store = self._folder / f"{name}.db"
        with self._locked(store.name):
            if not store.exists():
                await STORES[name](str(store))
        return store

    @contextlib.contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        with (self._folder / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


@pytest.fixture(scope="session")
def reports(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Reports:
    shared = tmp_path_factory.getbasetemp()
    folder = (shared if worker_id == "master" else shared.parent) / "reports"
    folder.mkdir(exist_ok=True)
    return Reports(folder)


@pytest.fixture
def open_report(open_page: PageOpener, reports: Reports) -> OpenReport:
    """Opens the report of an experiment: `await open_report("town", "view=read", width=400)`."""

    async def opened(exp_id: str, fragment: str = "", **options: Any) -> Page:
        file = await reports.file(exp_id)
        return await ready(await open_page(f"{file.as_uri()}#{fragment}", **options))

    return opened
