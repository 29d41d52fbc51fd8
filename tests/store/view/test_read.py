"""Reading in a browser: the list of messages, the details of one, search, conditions, and keys."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, expect

from messager_store import EventLog, NewEvent
from messager_store.view.report import report
from tests.store.view.pages import OpenReport, drawn, leave, ready
from tests.store.view.server.client import viewing
from tests.support.browser import PageOpener
from tests.support.logs import sent

START = 1_772_352_000_000_000_000
"""2026-03-01 08:00 UTC."""
SECOND = 1_000_000_000
COUNT = 2000
AGENTS = ("amy", "bob", "cy", "dan", "eve")
DEEP = b'{"a":' * 10_000 + b"12345678901234567890" + b"}" * 10_000
INNER = json.dumps({"plan": json.dumps({"steps": ["walk", "talk"]}), "day": 1})
TEXTS = {
    400: "a needle",
    900: "a ＮＥＥＤＬＥ of full width",
    1000: "\n".join(f"line {line}" for line in range(40)) + " needle",
    1500: "Needles",
}
PAYLOADS = {600: DEEP, 601: bytes(range(256)), 602: INNER.encode()}


def events() -> list[NewEvent]:
    """Return messages of different heights, one a second."""
    found = []
    for number in range(COUNT):
        text = TEXTS.get(number, f"message {number}" + "\nand more" * (number % 7))
        payload = PAYLOADS.get(number, json.dumps({"content": text}).encode())
        agent, other = AGENTS[number % 5], AGENTS[number * 3 % 5 - 1]
        ids: dict[str, Any] = {"from_id": agent, "to_id": other}
        found.append(sent(START + number * SECOND, payload, f"exps:long:agents:{other}:chat", **ids))
    return found


async def recorded(log: EventLog, exp_id: str, events: list[NewEvent]) -> int:
    """Record events; return the number of the recorder."""
    of = await log.create_experiment(exp_id)
    recorder = await log.register(of, role="tap")
    await log.append(recorder, events)
    return recorder.ordinal


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("read")


@pytest.fixture
def open_long(open_page: PageOpener, folder: Path) -> OpenReport:
    """Opens the report of `events`."""

    async def opened(fragment: str = "", **options: Any) -> Page:
        file = folder / "long.html"
        if not file.exists():
            async with EventLog.open(str(folder / "long.db")) as log:
                await recorded(log, "long", events())
                await report(log, "long", file)
        page = await ready(await open_page(f"{file.as_uri()}#{fragment}", **options))
        await drawn(page)
        return page

    return opened


def at(number: int) -> str:
    return f"{START + number * SECOND}:1:{number + 1}"


PLACES = """() => {
  const list = document.querySelector('[role="feed"]').getBoundingClientRect();
  return [...document.querySelectorAll('[role="feed"] [data-row]')].map((item) => {
    const { top, bottom } = item.getBoundingClientRect();
    return { row: Number(item.dataset.row), top: top - list.top, bottom: bottom - list.top, height: list.height };
  });
}"""


async def visible_rows(page: Page) -> list[int]:
    """Return the messages that are visible. Fails if there is a hole between them, or if they are not all."""
    items = await page.evaluate(PLACES)
    assert len(items) < 200, "only those near the visible part are elements"
    for one, next_one in itertools.pairwise(items):
        assert next_one["row"] == one["row"] + 1
        assert abs(next_one["top"] - one["bottom"]) < 1
    assert items[0]["top"] <= 1
    assert items[-1]["row"] == COUNT - 1 or items[-1]["bottom"] >= items[-1]["height"]
    return [item["row"] for item in items if item["bottom"] > 1 and item["top"] < item["height"] - 1]


async def scrolled(page: Page, by: str) -> None:
    """Scroll by an expression of `list`, and wait for what it draws."""
    await page.evaluate(f"""() => {{ const list = document.querySelector('[role="feed"]'); {by} }}""")
    await drawn(page)


async def selected(page: Page) -> str:
    """Return the text of the selected message."""
    await drawn(page)
    return await page.locator('[role="feed"] [aria-current="true"]').inner_text()


async def test_each_message_is_seen_as_one_scrolls(open_long: OpenReport) -> None:
    page = await open_long()
    seen = set(await visible_rows(page))
    for _ in range(10):
        await scrolled(page, "list.scrollTop += list.clientHeight * 0.9")
        seen.update(await visible_rows(page))
    assert seen == set(range(len(seen))) and len(seen) > 20
    for place in (0.3, 0.9, 0.05, 0.5):
        await scrolled(page, f"list.scrollTop = list.scrollHeight * {place}")
        first, *_ = await visible_rows(page)
        assert abs(first / COUNT - place) < 0.05, "the scroll bar shows where it is"
    await scrolled(page, "list.scrollTop = 0")
    assert (await visible_rows(page))[0] == 0
    await scrolled(page, "list.scrollTop = list.scrollHeight")
    seen = set(await visible_rows(page))
    for _ in range(10):
        await scrolled(page, "list.scrollTop -= list.clientHeight * 0.9")
        seen.update(await visible_rows(page))
    assert seen == set(range(COUNT - len(seen), COUNT)) and len(seen) > 20


async def test_messages_move_by_as_many_pixels_as_one_scrolls(open_long: OpenReport) -> None:
    page = await open_long()
    await scrolled(page, "list.scrollTop = list.scrollHeight / 2")
    for step in (-150, -150, -150, 90, -150, -150, -150, -150, -150, -150):
        before = {item["row"]: item["top"] for item in await page.evaluate(PLACES)}
        await scrolled(page, f"list.scrollTop += {step}")
        after = {item["row"]: item["top"] for item in await page.evaluate(PLACES)}
        moved = {round(after[row] - before[row]) for row in before.keys() & after.keys()}
        assert moved == {-step}


async def test_a_link_opens_its_message_in_the_middle_with_its_details(open_long: OpenReport) -> None:
    page = await open_long(f"at={at(1234)}")
    assert "message 1234\n" in await selected(page)
    (place,) = [item for item in await page.evaluate(PLACES) if item["row"] == 1234]
    assert 0.3 < (place["top"] + place["bottom"]) / 2 / place["height"] < 0.7
    details = page.get_by_role("region", name="details of the message")
    await expect(details).to_contain_text(at(1234))
    await expect(details).to_contain_text("2026-03-01 08:20:34.000000000 UTC")
    await expect(details).to_contain_text('"eve"')


async def test_a_search_marks_its_hits_and_goes_from_one_to_the_next(open_long: OpenReport) -> None:
    page = await open_long()
    await page.keyboard.press("/")
    await page.keyboard.type("needle")
    await drawn(page)
    box = page.get_by_role("searchbox")
    await expect(page.get_by_role("search")).to_contain_text("4 of 2,000 messages")
    assert await page.locator("mark").all_inner_texts() == ["needle", "ＮＥＥＤＬＥ", "needle", "Needle"]
    for key, text in [
        ("Enter", "a needle"),
        ("Enter", "ＮＥＥＤＬＥ"),
        ("Shift+Enter", "a needle"),
        ("Enter", "ＮＥＥＤＬＥ"),
    ]:
        await box.press(key)
        assert text in await selected(page)
    await page.get_by_role("feed").focus()
    for key, text in [("n", "line 0"), ("n", "Needles"), ("n", "a needle"), ("N", "Needles")]:
        await page.keyboard.press(key)
        assert text in await selected(page)
    await box.press("Escape")
    assert "Needles" in await selected(page), "the selected message stays in view without the search"
    await expect(page.get_by_role("search")).to_contain_text("2,000 messages")


async def test_conditions_are_chosen_and_removed_with_the_keyboard(open_long: OpenReport) -> None:
    page = await open_long()
    search = page.get_by_role("search")
    await search.get_by_role("button", name="Two agents").press("Enter")
    await page.keyboard.type("am")
    await page.keyboard.press("Enter")
    await page.keyboard.type("EVE")
    await page.keyboard.press("Enter")
    chip = search.get_by_role("button", name="remove between: amy and eve")
    await expect(chip).to_be_visible()
    await expect(search).to_contain_text("400 of 2,000 messages")
    await search.get_by_role("button", name="Around a moment").press("Enter")
    await page.keyboard.type("at noon")
    await page.keyboard.press("Enter")
    await expect(search.get_by_role("alert")).to_contain_text("no range of time")
    await page.get_by_role("textbox", name="Time").fill("08:10 - 08:20")
    await page.keyboard.press("Enter")
    await expect(search).to_contain_text("120 of 2,000 messages")
    await page.wait_for_url("**since=**")
    await page.reload()
    await ready(page)
    await expect(search).to_contain_text("120 of 2,000 messages")
    await chip.press("Delete")
    await expect(search).to_contain_text("600 of 2,000 messages")
    await search.get_by_role("button", name="Channel").press("Enter")
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("Enter")
    await expect(search.get_by_role("button", name="remove channel: exps:long:agents:")).to_be_visible()
    await search.get_by_role("button", name="Clear all").press("Enter")
    await expect(search).to_contain_text("2,000 messages")


async def test_a_name_that_is_searched_is_offered_as_a_condition(open_long: OpenReport) -> None:
    page = await open_long()
    await page.get_by_role("searchbox").fill("bob")
    await page.get_by_role("button", name="agent bob").click()
    await expect(page.get_by_role("search")).to_contain_text("800 of 2,000 messages")


async def test_a_page_without_a_message_says_what_to_do(open_long: OpenReport) -> None:
    page = await open_long("q=nowhere&agent=%22amy%22")
    feed = page.get_by_role("feed")
    await expect(feed).to_contain_text("No message fits. Remove a condition.")
    await feed.get_by_role("button", name="Remove all conditions").click()
    await expect(feed).to_contain_text("message 1\n")


async def test_keys_go_through_the_messages(open_long: OpenReport) -> None:
    page = await open_long()
    dialog = page.get_by_role("dialog", name="keys")
    await page.keyboard.press("?")
    await expect(dialog).to_be_visible()
    await page.keyboard.press("j")
    await page.keyboard.press("Escape")
    await expect(dialog).to_be_hidden()
    await drawn(page)  # the focus has left it
    for key, text in [("j", "message 0"), ("j", "message 1\n"), ("ArrowDown", "message 2\n"), ("k", "message 1\n")]:
        await page.keyboard.press(key)
        assert text in await selected(page)
    details = page.get_by_role("region", name="details of the message")
    await page.keyboard.press("Enter")
    assert await details.evaluate("each => each.contains(document.activeElement)")
    await page.keyboard.press("Escape")
    await expect(details).to_be_hidden()
    await page.keyboard.press("Shift+G")
    await drawn(page)
    assert COUNT - 1 in await visible_rows(page)
    await page.keyboard.press("g")
    await drawn(page)
    assert (await visible_rows(page))[0] == 0


async def test_a_long_text_is_folded_until_one_asks_for_more(open_long: OpenReport) -> None:
    page = await open_long(f"at={at(1000)}")
    message = page.locator('[data-row="1000"]')
    await expect(message).to_contain_text("line 11")
    await expect(message).not_to_contain_text("line 39")
    await message.get_by_role("button", name="more").click()
    await expect(message).to_contain_text("line 39")
    await message.get_by_role("button", name="less").click()
    await expect(message).not_to_contain_text("line 39")


async def test_the_payload_is_unfolded_level_by_level(open_long: OpenReport) -> None:
    page = await open_long(f"at={at(600)}")
    payload = page.get_by_role("region", name="payload")
    await payload.locator("summary").first.wait_for()
    await expect(payload.locator("details")).to_have_count(2)  # of 10,000
    for level in range(1, 4):
        await payload.locator("summary").nth(level).click()
        await expect(payload.locator("details")).to_have_count(level + 2)
    await page.evaluate("at => { location.hash = `at=${at}` }", at(602))
    await payload.get_by_role("button", name="unfold the JSON in this string").click()
    await expect(payload).to_contain_text("steps")
    await expect(payload).to_contain_text("talk")


async def test_the_exact_bytes_are_shown_and_saved(open_long: OpenReport) -> None:
    page = await open_long(f"at={at(601)}")
    payload = page.get_by_role("region", name="payload")
    await expect(payload).to_contain_text("000010  10 11 12 13")
    async with page.expect_download() as download:
        await payload.get_by_role("button", name="Save").click()
    assert Path(await (await download.value).path()).read_bytes() == bytes(range(256))


async def test_a_narrower_conversation_is_chosen_from_a_message(open_long: OpenReport) -> None:
    page = await open_long(f"at={at(1234)}")
    search = page.get_by_role("search")
    details = page.get_by_role("region", name="details of the message")
    for name, count in [("Only eve and bob", 400), ("Only eve", 800), ("Only this channel", 400), ("Around", 61)]:
        await details.get_by_role("button", name=name, exact=name == "Only eve").click()
        await expect(search).to_contain_text(f"{count} of 2,000 messages")
        assert "message 1234\n" in await selected(page)


async def test_what_stands_between_and_beside_messages_is_shown(open_report: OpenReport) -> None:
    page = await open_report("town", "q=mill&kind=blocked")
    await expect(page.locator(".message .badge").first).to_have_text("blocked: Quarrel")
    page = await open_report("town", f"at={START + 123 * SECOND}:1:1&since={START + 110 * SECOND}")
    feed = page.get_by_role("feed")
    await expect(feed.get_by_role("separator", name="Gap of 5 s")).to_contain_text("(connection lost)")
    await expect(feed.get_by_role("separator", name="mark evening")).to_be_visible()
    await expect(feed).to_contain_text("Sunday 2026-03-01")
    await expect(feed).to_contain_text("never arrived: nobody listened")


async def test_new_messages_are_followed_until_one_scrolls_back(open_page: PageOpener, tmp_path: Path) -> None:
    store = str(tmp_path / "live.db")
    found = events()
    async with EventLog.open(store) as log, viewing(store, "?exp=live") as client:
        of = await log.create_experiment("live")
        recorder = await log.register(of, role="tap")
        await log.append(recorder, found[:300])
        page = await ready(await open_page(client.url))
        feed = page.get_by_role("feed")
        newest = page.get_by_role("button", name="↓").last
        await expect(feed).to_contain_text("message 299")
        await log.append(recorder, found[300:350])
        await expect(feed).to_contain_text("message 349")
        await expect(newest).to_be_hidden()
        await scrolled(page, "list.scrollTop -= 500")
        before = {item["row"]: item["top"] for item in await page.evaluate(PLACES)}
        await log.append(recorder, found[350:360])
        await expect(page.get_by_role("button", name="10 new ↓")).to_be_visible()
        after = {item["row"]: item["top"] for item in await page.evaluate(PLACES)}
        assert {row: after[row] for row in before if row in after} == before, "what one reads stays where it is"
        await page.get_by_role("button", name="10 new ↓").click()
        await expect(feed).to_contain_text("message 359")
        await log.append(recorder, found[360:361])
        await expect(feed).to_contain_text("message 360")
        await leave(page)


async def test_names_are_always_in_sight_in_a_long_row_of_messages(open_page: PageOpener, tmp_path: Path) -> None:
    ids: dict[str, Any] = {"from_id": "amy", "to_id": "bob"}
    async with EventLog.open(str(tmp_path / "log.db")) as log:
        await recorded(log, "row", [sent(START + number, b'{"content": "so"}', "c", **ids) for number in range(40)])
        await report(log, "row", tmp_path / "row.html")
    page = await ready(await open_page((tmp_path / "row.html").as_uri()))
    await drawn(page)
    lines = await page.locator('[role="feed"] [data-row]').all_inner_texts()
    named = [number for number, line in enumerate(lines) if "amy" in line and "bob" in line]
    assert len(lines) > 8 and named == list(range(0, len(lines), 8))
