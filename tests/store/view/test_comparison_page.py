"""Two runs side by side, in a browser."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from messager_store import EventLog, Match, NewEvent, Selection
from messager_store.view.comparing import report_two
from tests.store.view import hostile
from tests.store.view.pages import drawn, elements_from_texts, findings, ready
from tests.support.browser import PageOpener
from tests.support.logs import filled, sent

SECOND = 1_000_000_000


def run(changes: dict[int, str | None]) -> list[NewEvent]:
    """Return a hundred messages; some have another text, or are left out (None)."""
    events = []
    for at in range(100):
        text = changes.get(at, f"message number {at} of the run")
        if text is not None:
            number = "1e400" if at in changes else "9007199254740993"
            payload = f'{{"content": {json.dumps(text)}, "number": {number}}}'.encode()
            channel = f"exps:e:agents:{at % 3}:chat"
            events.append(sent(at * SECOND, payload, channel, from_id=(at + 1) % 3, to_id=at % 3))
    return events


B = {40: "message number 40 of another run", 60: None, 80: "something else entirely"}


class Pairs:
    """Files with two runs, made once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def file(self, *exp_ids: str) -> Path:
        path = self._folder / f"{'-'.join(exp_ids)}.html"
        if not path.exists():
            async with EventLog.open(str(self._folder / "log.db")) as log:
                if not await log.has_experiment("a"):
                    await filled(log, run({}), "a")
                    await filled(log, run(B), "b")
                    await hostile.hostile(log)
                    await hostile.hostile_times(log)
                await report_two(log, *exp_ids, path, Selection())  # type: ignore[arg-type]
        return path


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Pairs:
    return Pairs(tmp_path_factory.mktemp("pairs"))


async def selected(page: Page) -> str:
    """Return the text of the selected row, its white space as single spaces."""
    await drawn(page)
    return " ".join((await page.locator("[aria-current=true]").inner_text()).split())


async def test_the_page_opens_at_the_first_difference_and_goes_to_the_next_and_back(
    open_page: PageOpener, pairs: Pairs
) -> None:
    page = await ready(await open_page((await pairs.file("a", "b")).as_uri()))
    await expect(page.locator(".counts")).to_have_text(re.compile(r"97 equal\s*2 changed\s*1 only in A"))
    assert "message number 40 of the run" in await selected(page)
    await expect(page.locator("[aria-current=true] mark")).to_have_text(["the", "another"])
    table = page.locator("[aria-current=true] table")
    await table.wait_for()
    rows = [(await row.inner_text()).split("\t") for row in await table.locator("tbody tr").all()]
    assert [[cell.strip() for cell in row] for row in rows] == [
        ["$.content", '"message number 40 of the run"', '"message number 40 of another run"'],
        ["$.number", "9007199254740993", "1e400"],
    ]
    await page.keyboard.press("n")
    assert "message number 60" in await selected(page) and "not in B" in await selected(page)
    await page.keyboard.press("n")
    assert "something else entirely" in await selected(page)
    await page.keyboard.press("n")  # there is none
    assert "something else entirely" in await selected(page)
    await page.keyboard.press("p")
    await page.get_by_role("button", name="Previous").click()
    assert "message number 40 of another run" in await selected(page)
    await page.get_by_role("button", name="1 only in A").click()
    assert "message number 60" in await selected(page)


async def test_the_page_tells_by_which_rules_values_differ_and_what_is_not_compared(
    open_page: PageOpener, tmp_path: Path
) -> None:
    blocked = sent(200 * SECOND, b"{}", "exps:e:agents:1:chat")._replace(kind="blocked", meta={"reason": "full"})
    async with EventLog.open(str(tmp_path / "log.db")) as log:
        await filled(log, [*run({}), blocked], "a")
        await filled(log, run(B), "b")
        await report_two(log, "a", "b", tmp_path / "two.html", Selection(), match=Match(ignore="number", tolerance=2))
    page = await ready(await open_page((tmp_path / "two.html").as_uri()))
    notes = await page.locator(".comparison-head .notes").all_inner_texts()
    assert notes[:2] == [
        "Compared without number; numbers that differ by 2 or less are equal.",
        "Not compared: 1 blocked in A.",
    ]
    table = page.locator("[aria-current=true] table")
    await table.wait_for()
    assert await table.locator("th[scope=row]").all_inner_texts() == ["$.content"]


async def test_equal_stretches_are_folded_and_unfolded(open_page: PageOpener, pairs: Pairs) -> None:
    page = await ready(await open_page((await pairs.file("a", "b")).as_uri()))
    await drawn(page)
    await page.get_by_role("button", name="38 equal messages").click()
    await drawn(page)
    assert await page.get_by_text("message number 3 of the run", exact=True).count() == 2
    assert await page.get_by_role("button", name="38 equal messages").count() == 0
    await page.keyboard.press("e")
    await drawn(page)
    assert await page.get_by_role("button", name="equal messages", exact=False).count() == 1, "only the switch"
    await page.keyboard.press("e")
    await drawn(page)
    assert await page.get_by_role("button", name="15 equal messages").count() == 2


async def test_a_link_opens_the_row_that_was_selected_and_each_run_is_a_page_of_its_own(
    open_page: PageOpener, pairs: Pairs
) -> None:
    page = await ready(await open_page((await pairs.file("a", "b")).as_uri()))
    await page.keyboard.press("ArrowUp")
    row = await selected(page)
    assert "message number 39" in row
    await page.wait_for_url(f"**#at=a%3A{39 * SECOND}*")
    other = await ready(await open_page(page.url, beside=page))
    assert await selected(other) == row
    await page.keyboard.press("Home")
    assert "message number 0 " in await selected(page)
    await page.get_by_role("link", name="open").nth(1).click()
    await page.get_by_role("tab", name="Read").wait_for()
    await expect(page.locator("#page")).to_contain_text("99 messages")
    await page.go_back()
    await page.get_by_role("heading", name="Two runs").wait_for()


@pytest.mark.parametrize(("width", "scheme"), [(400, "dark"), pytest.param(1280, "light", marks=pytest.mark.nightly)])
async def test_axe_finds_nothing_serious_in_two_runs(
    open_page: PageOpener, pairs: Pairs, width: int, scheme: str
) -> None:
    file = await pairs.file("a", "b")
    page = await ready(await open_page(file.as_uri(), width=width, scheme=scheme))
    await page.locator("[aria-current=true] table").wait_for()
    await page.get_by_text("3 of 3 channels with differences").click()
    assert await findings(page) == []
    assert await page.evaluate("document.documentElement.scrollWidth") <= width


async def test_no_text_of_two_runs_becomes_an_element(open_page: PageOpener, pairs: Pairs) -> None:
    page = await ready(await open_page((await pairs.file("hostile", "hostile-times")).as_uri()))
    await expect(page.locator(".comparison-summary tbody tr").first).to_be_visible()
    await page.locator(".comparison-channels summary").click()
    assert await elements_from_texts(page) == []
    for _ in range(6):
        await page.keyboard.press("n")
        await drawn(page)
    assert await elements_from_texts(page) == []
