"""The served page on an experiment of which it has only a window: limits are made small, messages are numbered."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from playwright.async_api import Page, Route, expect

from messager_store import EventLog
from messager_store.log.event import NewEvent
from tests.store.view.pages import drawn, leave, ready
from tests.store.view.server.client import viewing
from tests.support import until
from tests.support.browser import PageOpener
from tests.support.logs import filled, sent

S = 1_000_000_000
START = 1_700_000_000 * S
NUMBER = 440
LIMITS = {"WHOLE": 100, "WINDOW": 320, "PAGE": 80, "FIRST": 80}
"""Messages on the page, in place of those of `served.js`."""


def numbered(first: int, last: int) -> list[NewEvent]:
    """Return messages, one a second, with their numbers as text."""
    return [
        sent(
            START + at * S,
            f'"number {at}{" seven" if at % 7 == 0 else ""}"'.encode(),
            "even" if at % 2 == 0 else "odd",
            from_id=f"agent {at % 5}",
            to_id="all",
        )
        for at in range(first, last)
    ]


@pytest.fixture(scope="module")
def windowed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An experiment of `NUMBER` messages, for reading."""
    path = tmp_path_factory.mktemp("windows") / "log.db"

    async def fill() -> None:
        async with EventLog.open(str(path)) as log:
            await filled(log, numbered(0, NUMBER))

    asyncio.run(fill())
    return path


async def limited(open_page: PageOpener, url: str, fragment: str = "", page: Page | None = None) -> Page:
    """Open a page whose limits are small."""

    async def small(route: Route) -> None:
        answer = await route.fetch()
        before, module, text = (await answer.text()).partition("modules['served.js'] = ")
        for name, value in LIMITS.items():
            text, changed = re.subn(rf"const {name} = [\d_]+;", f"const {name} = {value};", text, count=1)
            assert changed == 1, name
        await route.fulfill(response=answer, body=before + module + text)

    page = page or await open_page()
    open_page.watch.allow(url)
    await page.route("**/page/main.js", small)
    await page.goto(url)
    await ready(page)
    if fragment:
        await page.evaluate("fragment => { location.hash = fragment }", fragment)
        await page.reload()
        await ready(page)
    await page.locator("article.message").first.wait_for()
    return page


async def visible(page: Page) -> list[int]:
    """Return the numbers of the messages that can be seen, which follow each other."""
    texts = await page.locator("article.message").evaluate_all(
        """items => {
            const { top, bottom } = document.querySelector(".list").getBoundingClientRect();
            const within = items.map(item => [item, item.getBoundingClientRect()]);
            return within.filter(([, box]) => box.bottom > top && box.top < bottom).map(([item]) => item.textContent);
        }"""
    )
    return [int(found[1]) for text in texts if (found := re.search(r"number (\d+)", text))]


async def sees(page: Page, numbers: set[int]) -> bool:
    """Return whether these messages can be seen."""
    return numbers <= set(await visible(page))


async def scroll(page: Page, distance: int) -> list[int]:
    """Scroll the list by px, and return what is seen when it is drawn there: a window may have to be fetched."""
    await page.locator(".list").evaluate("(list, distance) => list.scrollBy(0, distance)", distance)
    await drawn(page)
    seen: list[int] = []

    async def is_drawn() -> bool:
        seen[:] = await visible(page)  # the list is empty for a moment while a window is replaced
        return bool(seen)

    await until(is_drawn)
    return seen


async def walk(page: Page, distance: int, end: int) -> None:
    """Scroll by px until a message is seen; nothing is missed, repeated or jumped over on the way."""
    seen = await visible(page)
    while end not in seen:
        now = await scroll(page, distance)
        assert now == list(range(now[0], now[-1] + 1)), "neither holes nor repetitions"
        assert now[-1] >= seen[0] - 1 and now[0] <= seen[-1] + 1, "no jumps"
        seen = now
    assert int(await page.evaluate("document.querySelectorAll('article.message').length")) < LIMITS["WINDOW"]


async def test_a_reader_scrolls_over_the_edges_of_windows_without_holes_repetitions_or_jumps(
    open_page: PageOpener, windowed: Path
) -> None:
    async with viewing(windowed, "?exp=e1") as client:
        page = await limited(open_page, client.url)
        await expect(page.locator("output.count")).to_contain_text("of 440 messages")
        assert NUMBER - 1 in await visible(page)
        await walk(page, -420, 0)
        await walk(page, 420, NUMBER - 1)
        await leave(page)


async def test_a_link_to_a_message_a_search_and_a_time_are_loaded_from_the_server(
    open_page: PageOpener, windowed: Path
) -> None:
    async with viewing(windowed, "?exp=e1") as client:
        page = await limited(open_page, client.url, f"at={START + 200 * S}:1:201")
        await page.locator("article.message[aria-current=true]", has_text="number 200").wait_for()
        await until(lambda: sees(page, {199, 200}))  # it is in the list before it is scrolled to
        shown = page.locator("article.message")

        await page.evaluate(f"location.hash = '#since={START + 100 * S}&until={START + 110 * S}'")
        await expect(shown).to_have_count(10)
        await expect(page.locator("output.count")).to_have_text("10 messages")

        await page.evaluate("location.hash = '#q=seven'")
        await shown.filter(has_text="number 434 ").wait_for()
        await expect(page.locator("output.count")).to_have_text(re.compile("At least [0-9]+ messages|63 messages"))
        await page.locator(".list").focus()
        while not await shown.filter(has_text="number 0 ").count():  # it goes to the first one that is loaded
            await page.keyboard.press("Home")
            await drawn(page)
        await expect(page.locator("output.count")).to_have_text("63 messages")
        await leave(page)


async def test_the_timeline_has_sums_before_the_counts_by_name_and_the_matrix_counts_what_is_not_loaded(
    open_page: PageOpener, windowed: Path
) -> None:
    goes_on = asyncio.Event()

    async def later(route: Route) -> None:
        await goes_on.wait()
        await route.continue_()

    async with viewing(windowed, "?exp=e1") as client:
        page = await open_page()
        await page.route("**/activity?*by=from*", later)
        page = await limited(open_page, client.url, page=page)
        entries = page.locator(".timeline-entry")
        await expect(entries).to_have_text(["all"])
        await expect(page.get_by_text("messages per ")).to_be_visible()
        goes_on.set()
        await expect(entries).to_have_count(5)

        await page.evaluate("location.hash = '#view=matrix&across=channel'")
        total = page.locator(".matrix tr:last-child td:last-child")
        await expect(total).to_have_text(str(NUMBER))
        await expect(page.locator(".matrix .counted")).not_to_contain_text("loaded")
        await leave(page)


async def test_new_messages_do_not_move_a_reader_and_late_ones_come_in_their_order(
    open_page: PageOpener, tmp_path: Path
) -> None:
    store = tmp_path / "log.db"
    async with EventLog.open(str(store)) as log:
        of = await filled(log, numbered(0, 300))
        async with viewing(store, "?exp=e1") as client:
            page = await limited(open_page, client.url)
            assert 299 in await visible(page)
            late, early = await log.register(of, role="tap"), await log.register(of, role="tap")
            await log.append(early, numbered(301, 302))
            await page.locator("article.message", has_text="number 301").wait_for()
            await log.append(late, numbered(300, 301))
            await page.locator("article.message", has_text="number 300").wait_for()
            assert (await visible(page))[-3:] == [299, 300, 301]

            await walk(page, -420, 200)
            before = await visible(page)
            await log.append(early, numbered(302, 420))
            await expect(page.locator("output.count")).to_contain_text("of 420 messages")
            assert await visible(page) == before
            await page.get_by_role("button", name="Newest").click()
            await page.locator("article.message", has_text="number 419").wait_for()
            await walk(page, -420, 390)
            await leave(page)
