"""The sequence in a browser: lanes, arrows, what agents knew, and who told whom."""

from __future__ import annotations

from pathlib import Path

from playwright.async_api import Locator, Page

from messager_store import EventLog, NewEvent
from messager_store.view.report import report
from tests.store.view.pages import OpenReport, drawn, go, ready, show
from tests.support.browser import PageOpener
from tests.support.logs import filled, sent

RED = """canvas => {
  const copy = document.createElement("canvas");
  [copy.width, copy.height] = [canvas.width, canvas.height];
  const context = copy.getContext("2d", { willReadFrequently: true });
  context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--bad");
  context.fillRect(0, 0, 1, 1);
  const [red, green, blue] = context.getImageData(0, 0, 1, 1).data;
  context.drawImage(canvas, 0, 0);
  const { data } = context.getImageData(0, 0, copy.width, copy.height);
  let count = 0;
  for (let at = 0; at < data.length; at += 4) {
    if (data[at] === red && data[at + 1] === green && data[at + 2] === blue) count += 1;
  }
  return count;
}"""


def panel(page: Page) -> Locator:
    return page.get_by_role("region", name="what was known")


def lanes(page: Page) -> Locator:
    return page.get_by_role("group", name="lanes", exact=True)


async def counts(page: Page) -> str:
    await drawn(page)
    return await page.locator(".sequence-counts").inner_text()


async def linked(page: Page, part: str) -> None:
    """Return when the URL contains a part, and the page shows it."""
    await page.wait_for_function("part => decodeURIComponent(location.hash).includes(part)", arg=part)
    await drawn(page)


async def press(page: Page, *keys: str) -> None:
    for key in keys:
        await page.keyboard.press(key)
        await drawn(page)


async def test_the_lanes_are_the_agents_and_a_click_filters_by_one(open_report: OpenReport) -> None:
    page = await open_report("town", "view=sequence")
    assert await counts(page) == "106 messages, 10 lanes"
    names = await lanes(page).get_by_role("button").all_inner_texts()
    assert names[:3] == ["smith", "doctor", "baker"]
    assert await lanes(page).locator("span").all_inner_texts() == [
        "Messager driver",
        "Messager north",
        "Messager south",
    ]
    await lanes(page).get_by_role("button", name="mayor").click()
    await linked(page, 'agent="mayor"')
    assert (await counts(page)).startswith("17 messages")
    mayor = lanes(page).get_by_role("button", name="mayor")
    assert await mayor.get_attribute("aria-pressed") == "true"
    await mayor.click()
    assert await counts(page) == "106 messages, 10 lanes"
    await page.get_by_label("Lanes by").select_option("activity")
    await drawn(page)
    assert (await lanes(page).get_by_role("button").all_inner_texts())[:2] == ["doctor", "baker"]


async def test_a_selected_message_tells_what_its_sender_had_heard(open_report: OpenReport) -> None:
    page = await open_report("town", "view=sequence")
    await drawn(page)
    assert await panel(page).count() == 0
    await press(page, "Home", "ArrowDown", "ArrowDown")
    text = await panel(page).inner_text()
    assert "doctor → smith" in text
    assert "smith after 3.5 ms" in text
    assert "doctor had heard 2 messages when it first spoke" in text
    assert "1 more reception: copies, or not on this page" in text
    heard = panel(page).get_by_role("listitem").filter(has=page.get_by_role("button"))
    assert ["It is morning." in each for each in await heard.all_inner_texts()] == [True, False]
    assert "the last one" in (await heard.all_inner_texts())[1]
    await heard.nth(1).get_by_role("button").click()
    await drawn(page)
    assert "smith → doctor" in await panel(page).inner_text()
    assert "smith had heard 1 message when it first spoke" in await panel(page).inner_text()


async def test_a_key_goes_a_step_further_back_and_a_link_opens_the_same_step(open_report: OpenReport) -> None:
    page = await open_report("town", "view=sequence")
    await drawn(page)
    await press(page, "Home", "ArrowDown", "ArrowDown")
    further = "smith had heard 1 message when it first spoke and said “¿Qué tal?”"
    assert further not in await panel(page).inner_text()
    await press(page, "b")
    assert further in await panel(page).inner_text()
    await linked(page, "back=2")
    there = await page.evaluate("location.hash")
    await press(page, "B")
    assert further not in await panel(page).inner_text()
    await page.wait_for_function("() => !location.hash.includes('back')")
    await go(page, there)
    assert further in await panel(page).inner_text()
    await panel(page).get_by_role("button", name="Only these").click()
    assert (await counts(page)).startswith("3 messages")
    await press(page, "Escape")
    assert await panel(page).count() == 0
    assert (await counts(page)).startswith("106 messages")


async def test_who_told_whom_about_a_word_is_traced_to_the_first_mention(open_report: OpenReport) -> None:
    page = await open_report("town", "view=sequence&q=bridge")
    await drawn(page)
    assert "First mention" in await panel(page).inner_text()
    await panel(page).get_by_role("combobox", name="Agent").fill("smi")
    await page.keyboard.press("Enter")
    await drawn(page)
    steps = await panel(page).get_by_role("listitem").all_inner_texts()
    assert [each.split(" 08:")[0] for each in steps] == ["1doctor told smith", "2teacher told doctor"]
    assert "received, after 1.03 ms" in steps[0]
    assert "heard before it spoke of it, after 2.91 ms" in steps[1]
    assert "teacher said “bridge” first" in await panel(page).inner_text()
    await linked(page, 'who="smith"')
    await panel(page).get_by_role("button", name="Only these").click()
    assert (await counts(page)).startswith("2 messages")
    await panel(page).get_by_role("button", name="teacher told doctor").click()
    await drawn(page)
    assert "teacher → doctor" in await panel(page).inner_text()
    assert "teacher said “bridge” first" in await panel(page).inner_text(), "the trace stays"
    await panel(page).get_by_role("button", name="End the trace").click()
    await drawn(page)
    assert "told whom" not in await panel(page).inner_text()


async def test_messages_outside_of_the_filter_are_shown_if_they_explain_the_selected_one(
    open_report: OpenReport,
) -> None:
    page = await open_report("town", "view=sequence&q=the+mill+runs&agent=%22doctor%22")
    before = await counts(page)
    assert before.startswith("1 message,")
    await press(page, "Home")
    assert "doctor had heard 2 messages" in await panel(page).inner_text()
    assert (await counts(page)).startswith("3 messages,")


async def test_gaps_and_lost_messages_are_red_where_they_happened(open_report: OpenReport) -> None:
    page = await open_report("town", "view=sequence")
    await drawn(page)
    canvas, scroll = page.get_by_role("img", name="Sequence of 106 messages"), page.locator(".sequence-scroll")
    found = []
    for place in range(8):  # pages
        await scroll.evaluate("(each, at) => { each.scrollTop = at * each.clientHeight }", place)
        await drawn(page)
        found.append(await canvas.evaluate(RED))
    assert found[0] == 0 and max(found) > 100


DRAWN = """() => {
  const prototype = CanvasRenderingContext2D.prototype;
  const { fillText } = prototype;
  window.drawn = [];
  prototype.fillText = function (text, ...rest) {
    window.drawn.push(text);
    fillText.call(this, text, ...rest);
  };
}"""


async def test_the_length_of_a_gap_is_exact(open_page: PageOpener, tmp_path: Path) -> None:
    gap = {"reason": "away", "since": 10**18 + 400, "until": 10**18 + 900}
    async with EventLog.open(str(tmp_path / "log.db")) as log:
        await filled(log, [sent(10**18), NewEvent("gap", 10**18 + 900, None, b"", meta=gap), sent(10**18 + 999)])
        await report(log, "e1", tmp_path / "run.html")
    page = await ready(await open_page((tmp_path / "run.html").as_uri()))
    await page.evaluate(DRAWN)
    await show(page, "Sequence")
    assert "gap of 500 ns: away" in await page.evaluate("window.drawn")


async def test_the_pointer_shows_delays_and_a_click_selects(open_report: OpenReport) -> None:
    page = await open_report("town", "view=sequence")
    await drawn(page)
    box = await page.locator(".sequence-scroll").bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + 14 + 2 * 28 + 32 + 20
    await page.mouse.move(x, y)
    await drawn(page)
    hint = page.locator(".sequence-hint")
    assert "doctor after 2.65 ms" in await hint.inner_text()
    await page.mouse.click(x, y)
    await drawn(page)
    assert "smith → doctor" in await panel(page).inner_text()


async def test_true_times_make_the_distances_and_are_kept_in_the_link(open_report: OpenReport) -> None:
    page = await open_report("town", "view=sequence")
    await drawn(page)
    height = "document.querySelector('.sequence-scroll').scrollHeight"
    even = await page.evaluate(height)
    await page.get_by_role("button", name="True times").click()
    await linked(page, "scale=1")
    once = await page.evaluate(height)
    await page.get_by_role("button", name="more height for time").click()
    await linked(page, "scale=2")
    assert 1.5 < await page.evaluate(height) / once < 2.5
    await page.get_by_role("button", name="Even rows").click()
    await drawn(page)
    assert await page.evaluate(height) == even


async def test_a_selected_message_is_scrolled_into_view_from_another_view(open_report: OpenReport) -> None:
    page = await open_report("town", "view=sequence")
    await drawn(page)
    await press(page, "End")
    await page.get_by_role("tab", name="Read").click()
    await linked(page, "at=")
    await linked(page, "view=read")
    await page.reload()
    await show(await ready(page), "Sequence")
    top, shown, height = await page.locator(".sequence-scroll").evaluate(
        "each => [each.scrollTop, each.clientHeight, each.scrollHeight]"
    )
    assert top + shown > height - 100
