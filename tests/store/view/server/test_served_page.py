"""The served page in a browser: texts and names from anybody, and messages that arrive."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from examples import town
from messager_store import EventLog, Recorder
from messager_store.view.server import following
from tests.store.view.conftest import Reports
from tests.store.view.hostile import in_json
from tests.store.view.pages import VIEWS, drawn, elements_from_texts, leave, ready, show
from tests.store.view.server.client import viewing
from tests.support.browser import PageOpener
from tests.support.logs import sent


async def test_no_text_becomes_an_element_of_a_served_page(open_page: PageOpener, reports: Reports) -> None:
    async with viewing(await reports.store("hostile"), "?exp=hostile") as client:
        page = await ready(await open_page(client.url))
        for view in VIEWS:
            panel = await show(page, view)
            assert (await panel.inner_text()).strip() or await panel.locator("canvas").count()
            assert await elements_from_texts(page) == [], view
        await leave(page)


async def test_no_name_of_an_experiment_becomes_an_element_of_the_list(open_page: PageOpener, reports: Reports) -> None:
    async with viewing(await reports.store("hostile")) as client:
        page = await ready(await open_page(client.url))
        await page.get_by_text("hostile-span").first.wait_for()
        assert "</title><script>" in await page.locator("#page").inner_text()
        assert await elements_from_texts(page) == []
        await leave(page)


async def test_a_message_that_is_recorded_is_shown_soon(open_page: PageOpener, tmp_path: Path) -> None:
    store = tmp_path / "town.db"
    await town.main(str(store))
    async with viewing(store, "?exp=town") as client, EventLog.open(str(store)) as log:
        writer = await log.register(await log.experiment("town"), role="tap")
        page = await ready(await open_page(client.url))
        await drawn(page)
        end = town.START + 300 * town.S
        await log.append(writer, [sent(end, in_json("the bell rings"), "square", from_id="bell", to_id="mayor")])
        await page.get_by_role("tabpanel", name="Read").get_by_text("the bell rings").wait_for()
        await leave(page)


async def test_a_page_tells_that_a_recorder_begins_and_ends(
    open_page: PageOpener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "STATES_S", 0.05)
    store = tmp_path / "log.db"
    async with EventLog.open(str(store)) as log:
        of = await log.create_experiment("e1")
        writer = await log.register(of, role="messager")
        await log.append(writer, [sent(number, b"number %d" % number) for number in range(1, 501)])
        await log.touch(writer, ended_at=time.time_ns())
        async with viewing(store, "?exp=e1") as client:
            page = await ready(await open_page(client.url))
            footer = page.get_by_role("contentinfo")
            title = page.locator(".summary .title")
            await footer.get_by_text("chain intact").wait_for()
            head = await footer.locator("code").inner_text()
            await page.get_by_text("number 1", exact=True).wait_for()  # the first, since nothing is recorded
            async with Recorder(log, "e1") as recorder:
                await title.get_by_text("live", exact=True).wait_for()
                await title.get_by_text("problems: not searched").wait_for()
                await footer.get_by_text("head: none while it is recorded").wait_for()
                recorder.mark("dawn")
            await title.get_by_text("open", exact=True).wait_for()
            await title.get_by_text("arrivals not examined").wait_for()  # nobody listened
            await footer.get_by_text("chain intact").wait_for()
            assert await footer.locator("code").inner_text() != head
            await leave(page)


async def test_a_page_waits_for_an_experiment_and_leads_to_the_others(open_page: PageOpener, tmp_path: Path) -> None:
    store = tmp_path / "town.db"
    await town.main(str(store))
    async with viewing(store, "?exp=village") as client:
        page = await open_page(client.url)
        await page.get_by_text("Waiting for village, which does not exist yet").wait_for()
        await page.get_by_role("link", name="All experiments").click()
        await ready(page)
        rows = await page.locator(".experiments-table tbody tr").all_inner_texts()
        assert len(rows) == 2 and all("2026-03-01 08:00:" in row and "\topen\t" in row for row in rows), rows
        await leave(page)
