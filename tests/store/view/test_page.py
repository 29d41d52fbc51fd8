"""The page of a report in a browser: its views, by mouse and by keyboard, wide and narrow, dark and light."""

from __future__ import annotations

import pytest

from tests.store.view.pages import VIEWS, OpenReport, drawn, findings, go, show


@pytest.mark.parametrize("exp_id", ["hostile-times", "hostile-span"])
async def test_every_view_of_the_most_extreme_times_is_shown(exp_id: str, open_report: OpenReport) -> None:
    page = await open_report(exp_id)
    for view in VIEWS:
        panel = await show(page, view)
        assert (await panel.inner_text()).strip() or await panel.locator("canvas").count()
        assert await page.get_by_role("tab", selected=True).all_inner_texts() == [view]


@pytest.mark.parametrize(("width", "scheme"), [(400, "dark"), pytest.param(2000, "light", marks=pytest.mark.nightly)])
async def test_axe_finds_nothing_serious(width: int, scheme: str, open_report: OpenReport) -> None:
    page = await open_report("town", width=width, scheme=scheme)
    assert await findings(page) == []
    for view in VIEWS[1:]:
        await show(page, view)
        assert await findings(page, "[role=tabpanel]:not([hidden])") == [], view


async def test_nothing_is_wider_than_the_window(open_report: OpenReport) -> None:
    page = await open_report("hostile")
    for width in (400, 2000):
        await page.set_viewport_size({"width": width, "height": 800})
        for view in VIEWS:
            await show(page, view)
            assert await page.evaluate("document.documentElement.scrollWidth") <= width, view


TABBABLE = """within => [...document.querySelectorAll(`${within} *`)].filter((each) =>
  each.tabIndex >= 0 && !each.disabled && each.checkVisibility({ visibilityProperty: true })
  && !each.closest("[inert]") && each.localName !== "details"
  && !(each.type === "radio" && !each.checked))
  .map((each) => each.outerHTML.slice(0, 100))"""
FOCUSED = """() => {
  const { activeElement: each } = document;
  const { outlineStyle, boxShadow } = getComputedStyle(each);
  return [each.outerHTML.slice(0, 100), each === document.body || outlineStyle !== "none" || boxShadow !== "none"];
}"""


async def test_every_control_is_reached_with_the_tab_key_and_is_visibly_focused(open_report: OpenReport) -> None:
    page = await open_report("town")
    for view in VIEWS:
        await show(page, view)
        if view == VIEWS[0]:
            within = "body"
            await page.evaluate("document.activeElement.blur()")
        else:  # the rest is as before
            within = "[role=tabpanel]:not([hidden])"
            await page.get_by_role("tab", name=view).focus()
        wanted = set(await page.evaluate(TABBABLE, within))
        reached: set[str] = set()
        for _ in range(len(await page.evaluate(TABBABLE, "body")) + 3):
            await page.keyboard.press("Tab")
            element, visible = await page.evaluate(FOCUSED)
            assert visible, f"{view}: {element} is not visibly focused"
            reached.add(element)
            if wanted <= reached:
                break
        assert wanted - reached == set(), f"{view}: not reached"


async def test_the_views_are_chosen_with_the_keyboard(open_report: OpenReport) -> None:
    page = await open_report("town")
    await drawn(page)
    selected = page.get_by_role("tab", selected=True)
    await selected.focus()
    for view in (*VIEWS[1:], VIEWS[0]):
        await page.keyboard.press("ArrowRight")
        await drawn(page)
        assert await selected.all_inner_texts() == [view]
        assert await selected.evaluate("tab => tab === document.activeElement")
    await page.keyboard.press("ArrowLeft")
    await drawn(page)
    assert await selected.all_inner_texts() == [VIEWS[-1]]
    for number, view in enumerate(VIEWS, 1):
        await page.keyboard.press(str(number))
        await drawn(page)
        assert await selected.all_inner_texts() == [view]


async def test_a_link_that_names_nothing_opens_the_page(open_report: OpenReport) -> None:
    page = await open_report("town", "view=nonsense&at=nonsense&__proto__=1&q=%ff")
    for fragment in (
        "at=1:1:1",
        "agent=nonsense&channel=nonsense",
        "between=a&between=b",
        "since=5&until=1",
        "since=-9999999999999999999&until=9999999999999999999",
        "q=%00%ff%F0%9F",
        "q=" + "%2e%2a%28%5b" * 500,
        "%%%",
    ):
        for view in ("read", "matrix"):
            await go(page, f"view={view}&{fragment}")
