"""Reports of traffic of realistic size open in a browser.

Set MESSAGER_TEST_DATA to a folder of `.jsonl.gz` files to use those instead of generated ones (see `support.traffic`).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from messager_store import EventLog, import_jsonl
from messager_store.view.report import report
from tests.store.view.pages import VIEWS, drawn, ready, show
from tests.support.browser import PageOpener
from tests.support.traffic import FILES, made


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("source", FILES or [None], ids=lambda file: file.name if file else "made")
async def test_every_view_of_a_file_of_traffic_is_shown(
    source: Path | None, open_page: PageOpener, tmp_path: Path
) -> None:
    file = tmp_path / "run.html"
    async with EventLog.open(str(tmp_path / "log.db")) as log:
        await import_jsonl(log, source or made(tmp_path, 6_000), "e")
        await report(log, "e", file)
    page = await ready(await open_page(file.as_uri()))
    for view in VIEWS:
        panel = await show(page, view)
        assert (await panel.inner_text()).strip() or await panel.locator("canvas").count()
        await panel.hover()
        await page.mouse.wheel(0, 50_000)
        await drawn(page)
