"""The matrix: who talks to whom, as a table and as a graph."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import parse_qs, urldefrag

from playwright.async_api import Locator, Page, expect

from messager_store import EventLog, NewEvent
from messager_store.view.report import report
from tests.store.view.pages import OpenReport, drawn, go, ready
from tests.support import until
from tests.support.browser import PageOpener
from tests.support.logs import filled, sent

TABLE = """table => [...table.rows].map(({ cells }) => [...cells].map(({ textContent }) => textContent))"""

PICTURE = "canvas => canvas.toDataURL()"
POINTED = """canvas => {
  const { left, top, width, height } = canvas.getBoundingClientRect();
  const found = {};
  for (let x = left; x < left + width; x += 4) {
    for (let y = top; y < top + height; y += 4) {
      canvas.dispatchEvent(new PointerEvent("pointermove", { clientX: x, clientY: y }));
      const text = document.querySelector(".matrix .hint").textContent;
      if (text) found[text] ??= [x, y];
    }
  }
  canvas.dispatchEvent(new PointerEvent("pointerleave"));
  return found;
}"""


async def opens(page: Page, state: dict[str, list[str]]) -> None:
    """Return when the URL has this state and no more."""
    await until(lambda: parse_qs(urldefrag(page.url)[1]) == state)


def cell(page: Page, sender: str, recipient: str) -> Locator:
    return page.get_by_role("gridcell").and_(page.locator(f'[title^="{sender} → {recipient}: "]'))


async def table(page: Page) -> list[list[str]]:
    """Return the texts of the cells, row by row, once it is filled."""
    grid = page.get_by_role("grid")
    await grid.locator("tbody").wait_for()
    await drawn(page)
    found: list[list[str]] = await grid.evaluate(TABLE)
    return found


async def group_chat(folder: Path, channels: list[str]) -> str:
    """Return the URL of a report of 60 messages without recipients: three agents speak in turn, on each channel."""
    talk: list[NewEvent] = [
        sent(ts, b"hello", f"room.{channels[ts % len(channels)]}", from_id="abc"[ts // len(channels) % 3])
        for ts in range(60)
    ]
    file = folder / "group.html"
    async with EventLog.open(str(folder / "group.db")) as log:
        await filled(log, talk, "group")
        await report(log, "group", file)
    return file.as_uri()


async def test_the_table_counts_every_message_once(open_report: OpenReport) -> None:
    page = await open_report("town", "view=matrix")
    found = await table(page)
    total = found[-1][-1]
    assert total == "100"
    for row in found[1:]:
        assert sum(int(text or 0) for text in row[1:-1]) == int(row[-1])
    for column in zip(*found[1:], strict=True):
        if column[-1].isdigit():
            assert sum(int(text or 0) for text in column[:-1]) == int(column[-1])
    await expect(cell(page, "doctor", "teacher")).to_have_text("14")
    await expect(cell(page, "teacher", "mayor")).to_have_count(0)


async def test_the_table_follows_the_filter(open_report: OpenReport) -> None:
    page = await open_report("town", "view=matrix")
    corner = page.get_by_role("grid").locator("tbody tr:last-child > :last-child")
    await expect(corner).to_have_text("100")
    await go(page, "view=matrix&q=fire&agent=%22doctor%22")
    await expect(corner).not_to_have_text("100")
    rows = await table(page)
    assert all("doctor" in row[0] or not row[2] for row in rows[1:-1])
    await go(page, "view=matrix&q=nobody+said+this")
    await expect(page.get_by_text("No messages fit the filter.")).to_be_visible()


async def test_a_cell_opens_its_dialogue_and_is_marked_when_one_returns_and_a_heading_its_agent(
    open_report: OpenReport,
) -> None:
    page = await open_report("town", "view=matrix")
    await cell(page, "doctor", "teacher").click()
    await opens(page, {"view": ["read"], "between": ['"doctor"', '"teacher"']})
    await page.get_by_role("tab", name="Matrix").click()
    await expect(page.locator(".chosen")).to_have_text(["14", "8"])
    await expect(page.get_by_role("grid").locator("tbody tr:last-child > :last-child")).to_have_text("100")
    await go(page, "view=matrix")
    await expect(page.locator(".chosen")).to_have_count(0)  # drawn anew, without the dialogue
    await page.get_by_role("rowheader", name="smith: ").click()
    await opens(page, {"view": ["read"], "agent": ['"smith"']})


async def test_cells_are_reached_by_arrow_keys_and_opened_by_enter(open_report: OpenReport) -> None:
    page = await open_report("town", "view=matrix")
    rows = await table(page)
    column = rows[0].index("teacher")
    await page.get_by_label("columns of the matrix").focus()
    await page.keyboard.press("Tab")
    focused = page.locator("*:focus")
    await expect(focused).to_have_text(rows[0][0])
    for key in ["ArrowDown"] + ["ArrowRight"] * column:
        await page.keyboard.press(key)
    await expect(focused).to_have_text(rows[1][column])
    assert await page.get_by_role("grid").locator('[tabindex="0"]').count() == 1
    await page.keyboard.press("Control+End")
    await expect(focused).to_have_text("100")
    await page.keyboard.press("Control+Home")
    for key in ["ArrowLeft", "ArrowUp", "ArrowDown"] + ["ArrowRight"] * column + ["Enter"]:
        await page.keyboard.press(key)
    await opens(page, {"view": ["read"], "between": ['"doctor"', '"teacher"']})


async def test_messages_without_recipients_are_counted_by_channel(open_page: PageOpener, tmp_path: Path) -> None:
    page = await ready(await open_page(f"{await group_chat(tmp_path, ['red', 'blue'])}#view=matrix"))
    await expect(page.get_by_text("No message names its recipient.")).to_be_visible()
    assert await table(page) == [
        ["from ＼ channel", "red", "blue", "total"],
        ["a", "10", "10", "20"],
        ["b", "10", "10", "20"],
        ["c", "10", "10", "20"],
        ["total", "30", "30", "60"],
    ]
    await cell(page, "b", "room.blue").click()
    await opens(page, {"view": ["read"], "agent": ['"b"'], "channel": ["room.blue"]})


async def test_messages_of_one_channel_are_counted_by_the_speaker_before(open_page: PageOpener, tmp_path: Path) -> None:
    page = await ready(await open_page(f"{await group_chat(tmp_path, ['red'])}#view=matrix"))
    await expect(page.get_by_text("directly after")).to_be_visible()
    assert (await table(page))[1:] == [
        ["a", "", "", "19", "1", "20"],
        ["b", "20", "", "", "", "20"],
        ["c", "", "20", "", "", "20"],
        ["total", "20", "20", "19", "1", "60"],
    ]
    await page.get_by_label("columns of the matrix").select_option("by channel")
    await expect(page.get_by_role("columnheader", name="room.red: 60 messages")).to_be_visible()
    await opens(page, {"view": ["matrix"], "across": ["channel"]})


async def test_the_numbers_of_many_agents_are_a_table_of_limited_size(open_page: PageOpener, tmp_path: Path) -> None:
    talk = [
        sent(number, b"hello", "c", from_id=number % 300, to_id=number % 7 if number % 300 else "the only one")
        for number in range(3000)
    ]
    async with EventLog.open(str(tmp_path / "many.db")) as log:
        await filled(log, talk, "many")
        await report(log, "many", tmp_path / "many.html")
    page = await ready(await open_page(f"{(tmp_path / 'many.html').as_uri()}#view=matrix"))
    found = await table(page)
    assert len(found) == 1 + 40 + 1 + 1
    assert found[-2][0] == "260 others"
    assert sum(int(row[-1].replace(",", "")) for row in found[1:-1]) == 3000
    await expect(page.get_by_text("Of 300 senders, the most active are shown.")).to_be_visible()
    await go(page, f"view=matrix&between={json.dumps('the only one')}&between=0")
    await expect(page.get_by_role("columnheader", name="the only one")).to_be_visible()
    await expect(cell(page, "0", "the only one")).to_have_text("10")


async def test_circles_and_lines_of_the_graph_tell_their_numbers_and_open(open_report: OpenReport) -> None:
    page = await open_report("town", "view=matrix")
    await table(page)
    canvas = page.get_by_role("img", name="graph of")
    before = await canvas.evaluate(PICTURE)
    found: dict[str, tuple[float, float]] = await canvas.evaluate(POINTED)
    assert "doctor: 44 messages, with 2 of these" in found
    assert "doctor → teacher: 14" in found
    assert len(found) == 7 + 10
    await page.mouse.move(*found["doctor: 44 messages, with 2 of these"])
    await drawn(page)
    assert await canvas.evaluate(PICTURE) != before, "the neighbours are highlighted"
    await page.mouse.click(*found["doctor → teacher: 14"])
    await opens(page, {"view": ["read"], "between": ['"doctor"', '"teacher"']})
    await go(page, "view=matrix")
    await page.mouse.click(*found["doctor: 44 messages, with 2 of these"])
    await opens(page, {"view": ["read"], "agent": ['"doctor"']})


async def test_a_narrow_page_has_the_numbers_or_the_graph(open_report: OpenReport) -> None:
    page = await open_report("town", "view=matrix", width=400)
    grid, canvas = page.get_by_role("grid"), page.get_by_role("img", name="graph of")
    await expect(grid).to_be_visible()
    await expect(canvas).to_be_hidden()
    await page.get_by_role("button", name="Graph").click()
    await expect(canvas).to_be_visible()
    await expect(grid).to_be_hidden()
    await opens(page, {"view": ["matrix"], "matrix": ["graph"]})
    await page.set_viewport_size({"width": 1280, "height": 800})
    await expect(grid).to_be_visible()
    await expect(canvas).to_be_visible()
