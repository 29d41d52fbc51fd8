"""A link opens the same place for somebody else, and the keyboard is enough to get there."""

from __future__ import annotations

from playwright.async_api import Page, expect

from tests.store.view.pages import VIEWS, OpenReport, drawn, go, show

SHOWN = """() => [...document.querySelectorAll("[role=tabpanel]:not([hidden]), .count, .chips, .summary")]
  .map((each) => each.innerText).join("\\n")"""


async def written(page: Page, *parts: str) -> str:
    """Return the fragment of the URL once it has these parts; the page writes it a moment after a change."""
    await page.wait_for_function("parts => parts.every(part => location.hash.includes(part))", arg=list(parts))
    found: str = await page.evaluate("location.hash.slice(1)")
    return found


async def test_a_link_opens_what_the_sender_sees_in_every_view(open_report: OpenReport) -> None:
    page = await open_report("town")
    await page.get_by_role("searchbox").fill("mill")
    await page.keyboard.press("Enter")
    for view in VIEWS:
        await show(page, view)
        fragment = await written(page, "q=mill", "at=", f"view={view.lower()}")
        other = await open_report("town", fragment)
        await drawn(other)
        assert await other.get_by_role("searchbox").input_value() == "mill"
        assert await other.evaluate(SHOWN) == await page.evaluate(SHOWN), view


async def test_a_word_is_found_and_read_with_the_keyboard_alone(open_report: OpenReport) -> None:
    page = await open_report("town")
    await page.keyboard.press("/")
    assert await page.get_by_role("searchbox").evaluate("box => box === document.activeElement")
    await page.keyboard.type("火事")
    await drawn(page)
    panel = page.get_by_role("tabpanel", name="Read")
    found = await panel.locator("mark").all_inner_texts()
    assert found and set(found) == {"火事"}
    await page.keyboard.press("Enter")
    selected = panel.locator("[aria-current=true]")
    assert "火事だ!" in await selected.inner_text()
    await page.keyboard.press("Escape")
    await drawn(page)
    assert not await panel.locator("mark").count()
    assert "火事だ!" in await selected.inner_text(), "it stays selected among the others"


async def test_the_back_button_leads_to_the_place_before(open_report: OpenReport) -> None:
    page = await open_report("town", "view=matrix")
    await go(page, "view=problems&q=fire")
    await page.go_back()
    await expect(page.get_by_role("tab", selected=True)).to_have_text(["Matrix"])
    await expect(page.get_by_role("searchbox")).to_have_value("")


async def test_two_tabs_and_a_reload_keep_their_own_place(open_report: OpenReport) -> None:
    page = await open_report("town", "q=mill")
    other = await open_report("town", "q=fire", beside=page)
    for each, word in ((page, "mill"), (other, "fire")):
        await each.reload()
        await each.wait_for_selector("body[data-ready]", state="attached")
        await drawn(each)
        assert await each.get_by_role("searchbox").input_value() == word
