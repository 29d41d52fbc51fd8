"""The timeline of a report in a browser: the range, zoom, chapters, problems, the legend, and the playback."""

from __future__ import annotations

import re
from urllib.parse import parse_qs

from playwright.async_api import Locator, Page, expect

from tests.store.view.pages import OpenReport, drawn

S = 1_000_000_000


def picture(page: Page) -> Locator:
    """Return the part that has the keyboard focus."""
    return page.get_by_role("group", name="messages over time")


def described(page: Page) -> Locator:
    """Return the words on the range, or on the bars."""
    return page.locator(".timeline-info > span:first-child")


WRITTEN = """wanted => {
  const found = new URLSearchParams(location.hash.slice(1));
  return Object.entries(wanted).every(([key, there]) => found.has(key) === there) && (location.hash || "#");
}"""


async def state(page: Page, **wanted: bool) -> dict[str, list[str]]:
    """Return the state in the URL, once it has each of some keys, or has it no more."""
    found = await page.wait_for_function(WRITTEN, arg=wanted)
    return parse_qs(str(await found.json_value()).removeprefix("#"))


async def drag(page: Page, start: float, end: float) -> None:
    """Drag from one place of the bars to another, as parts of their width."""
    box = await page.locator(".timeline .u-over").bounding_box()
    assert box is not None
    y = box["y"] + box["height"] / 2
    await page.mouse.move(box["x"] + start * box["width"], y)
    await page.mouse.down()
    await page.mouse.move(box["x"] + (start + end) / 2 * box["width"], y)
    await page.mouse.move(box["x"] + end * box["width"], y)
    await page.mouse.up()
    await drawn(page)


CHOSEN = """before => {
  const found = new URLSearchParams(location.hash.slice(1));
  const range = [found.get("since"), found.get("until")];
  return range[0] !== null && range.join() !== before && range;
}"""


async def chosen_range(page: Page, before: tuple[int, int] = (0, 0)) -> tuple[int, int]:
    """Return begin and end of the range in the URL, once it is another one than before."""
    await drawn(page)
    await page.evaluate("dispatchEvent(new Event('pagehide'))")  # the URL is written at once, and not later
    since, until = await (await page.wait_for_function(CHOSEN, arg=f"{before[0]},{before[1]}")).json_value()
    return int(since), int(until)


async def test_a_drag_chooses_a_range_that_can_be_moved_resized_and_cleared(open_report: OpenReport) -> None:
    page = await open_report("town")
    await drag(page, 0.2, 0.5)
    since, until = await chosen_range(page)
    assert 60 * S < until - since < 70 * S
    await expect(described(page)).to_contain_text("messages")
    await expect(page.get_by_role("button", name="remove time")).to_be_visible()

    await drag(page, 0.35, 0.55)
    moved = await chosen_range(page, (since, until))
    assert moved[0] > since and abs((moved[1] - moved[0]) - (until - since)) < S
    await drag(page, 0.7, 0.6)
    resized = await chosen_range(page, moved)
    assert resized[0] == moved[0] and resized[1] < moved[1]

    await page.keyboard.press("Escape")
    await expect(described(page)).to_contain_text("messages per second")
    await state(page, since=False)
    await drag(page, 0.2, 0.5)
    await page.locator(".timeline .u-over").dblclick()
    await expect(described(page)).to_contain_text("messages per second")


async def test_the_wheel_zooms_to_microseconds_and_back(open_report: OpenReport) -> None:
    page = await open_report("town")
    box = await page.locator(".timeline .u-over").bounding_box()
    assert box is not None
    await page.keyboard.press(".")
    await expect(page.locator(".timeline-selected")).to_be_visible()
    line = await page.locator(".timeline-selected").bounding_box()
    assert line is not None
    await page.mouse.move(line["x"] + line["width"] / 2, box["y"] + 20)
    for _ in range(8):
        await page.mouse.wheel(0, -300)
    await expect(described(page)).to_contain_text(re.compile(r"messages per \d+ ms"))
    await expect(page.locator(".timeline-overview")).to_be_visible()
    for _ in range(20):
        await page.get_by_role("button", name="zoom in").click()
    await expect(described(page)).to_contain_text(re.compile(r"messages per \d+ ns"))
    await page.get_by_role("button", name="show the whole run").click()
    await expect(described(page)).to_contain_text("messages per second")
    await expect(page.locator(".timeline-overview")).to_be_hidden()


async def test_the_timeline_is_used_with_the_keyboard_alone(open_report: OpenReport) -> None:
    page = await open_report("town")
    await picture(page).focus()
    await page.keyboard.press("+")
    await page.keyboard.press("+")
    await page.keyboard.press("+")
    await expect(described(page)).to_contain_text(re.compile(r"messages per \d+ ms"))
    frame = page.locator(".timeline-frame")
    places = []
    for key in ("Home", "ArrowRight", "End", "ArrowLeft"):
        await page.keyboard.press(key)
        await drawn(page)
        box = await frame.bounding_box()
        assert box is not None
        places.append(box["x"])
    assert places[0] < places[1] < places[3] < places[2]
    for _ in range(3):
        await page.keyboard.press("-")
    await expect(page.locator(".timeline-overview")).to_be_hidden()

    await page.keyboard.press(".")
    await page.keyboard.press("[")
    for _ in range(3):
        await page.keyboard.press(".")
    await page.keyboard.press("]")
    await expect(described(page)).to_contain_text("4 messages")
    await page.keyboard.press("Escape")
    await expect(described(page)).to_contain_text("messages per second")


async def test_a_chapter_is_a_button_that_chooses_its_time(open_report: OpenReport) -> None:
    page = await open_report("town")
    chapters = page.get_by_role("toolbar", name="chapters, from mark to mark").get_by_role("button")
    assert await chapters.all_inner_texts() == ["morning", "fire", "evening"]
    await chapters.nth(1).click()
    since, until = await chosen_range(page)
    assert until - since == 90 * S
    await expect(chapters.nth(1)).to_have_attribute("aria-pressed", "true")
    await chapters.nth(1).press("ArrowLeft")
    await expect(chapters.nth(0)).to_be_focused()
    await chapters.nth(1).click()
    await state(page, since=False)


async def test_a_problem_is_a_tick_that_selects_its_message(open_report: OpenReport) -> None:
    page = await open_report("town")
    ticks = page.get_by_role("toolbar", name="problems").get_by_role("button")
    assert ":" in (await ticks.first.get_attribute("aria-label") or "")
    await ticks.first.click()
    await expect(page.locator(".timeline-selected")).to_be_visible()
    assert (await state(page, at=True))["at"]


async def test_the_legend_filters_by_sender_or_channel(open_report: OpenReport) -> None:
    page = await open_report("town")
    legend = page.get_by_role("toolbar", name="legend; a button shows only its messages")
    await legend.get_by_role("button", name="baker").click()
    assert (await state(page, agent=True))["agent"] == ['"baker"']
    await expect(legend.get_by_role("button", name="baker")).to_have_attribute("aria-pressed", "true")
    await expect(legend.get_by_role("button", name="smith")).to_be_visible()
    await legend.get_by_role("button", name="baker").click()
    await page.get_by_role("combobox", name="colours by").select_option("channel")
    await expect(legend.get_by_role("button", name="news")).to_be_visible()
    assert (await state(page, by=True, agent=False))["by"] == ["channel"]


PLAYED = """() => {
  const head = document.querySelector(".timeline-playhead");
  const look = () => {
    const place = head.hidden ? null : new DOMMatrix(head.style.transform).e;
    if (place !== null && place !== window.played.at(-1)) window.played.push(place);
  };
  window.played = [];
  new MutationObserver(look).observe(head, { attributes: true });
}"""
"""Keeps the places of the playhead from now on."""


async def test_playback_selects_one_message_after_the_other_and_stops_at_the_end_of_the_range(
    open_report: OpenReport,
) -> None:
    page = await open_report("town")
    await drag(page, 0.8, 0.83)
    since, until = await chosen_range(page)
    await page.get_by_role("combobox", name="speed").select_option("10")
    await page.evaluate(PLAYED)
    await picture(page).focus()
    await page.keyboard.press("Space")
    await expect(page.locator("p.status[role=status]")).to_have_text("The playback is at the end.")
    await expect(page.get_by_role("button", name="play", exact=True)).to_be_visible()
    places = await page.evaluate("played")
    assert len(places) > 1 and places == sorted(places), "the playhead moves forwards"
    selected = int((await state(page, at=True))["at"][0].split(":")[0])
    assert since <= selected < until
    await page.keyboard.press(".")
    await expect(page.locator("p.status[role=status]")).to_have_text("This is the last message.")


async def test_empty_times_are_skipped_or_shown(open_report: OpenReport) -> None:
    page = await open_report("hostile-times")
    button = page.get_by_role("button", name="Skip empty times")
    for wanted, pressed in (("skip", "true"), ("show", "false")):
        if await button.get_attribute("aria-pressed") != pressed:
            await button.click()
            assert (await state(page, empty=True))["empty"] == [wanted]
        await expect(button).to_have_attribute("aria-pressed", pressed)
    await drag(page, 0.1, 0.9)
    since, until = await chosen_range(page)
    assert until - since > 2**62


async def test_the_timeline_is_folded_and_the_link_keeps_that(open_report: OpenReport) -> None:
    page = await open_report("town")
    button = page.get_by_role("button", name="Timeline")
    picture = page.get_by_role("group", name="messages over time")
    await expect(picture).to_be_visible()
    await button.press("Enter")
    await expect(picture).to_be_hidden()
    await expect(button).to_have_attribute("aria-expanded", "false")
    assert (await state(page, fold=True))["fold"] == ["timeline"]
    await page.reload()
    await expect(button).to_have_attribute("aria-expanded", "false")
    await button.press("Enter")
    await expect(picture).to_be_visible()
    await expect(page.get_by_role("toolbar", name="legend").get_by_role("button")).not_to_have_count(0)


async def test_a_mark_and_the_minute_before_a_message_are_chosen_as_a_time(open_report: OpenReport) -> None:
    page = await open_report("town", "q=bridge")
    moment = page.get_by_role("search").get_by_role("button", name="Around a moment")
    time = page.get_by_role("textbox", name="Time")
    chosen = []
    for label in ("fire", "mark:fire"):
        await moment.press("Enter")
        await time.fill(label)
        await time.press("Enter")
        await expect(time).to_be_hidden()
        chosen.append(await chosen_range(page))
        await page.get_by_role("button", name="remove time").click()
        await state(page, since=False)
    assert chosen[0] == chosen[1] and chosen[0][1] - chosen[0][0] == 60_000_000_001
    await page.locator("article").first.click()
    at = (await state(page, at=True))["at"][0]
    await moment.press("Enter")
    await page.get_by_role("button", name="The minute before it").click()
    ts = int(at.split(":")[0])
    assert await chosen_range(page) == (ts - 60_000_000_000, ts + 1)
