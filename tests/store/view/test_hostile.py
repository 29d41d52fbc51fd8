"""Texts and names from anybody: the page shows them, and interprets nothing."""

from __future__ import annotations

import re

from messager_store.log.text import storable
from tests.store.view.hostile import TEXTS, places
from tests.store.view.pages import VIEWS, OpenReport, drawn, elements_from_texts, go, show

READ_AT = """async (cursors) => {
  const found = [];
  for (const cursor of cursors) {
    const changed = new Promise((done) => addEventListener("hashchange", done, { once: true }));
    location.hash = `view=read&at=${cursor}`;
    await changed;
    await new Promise(requestAnimationFrame);
    await new Promise((done) => setTimeout(done));
    found.push(document.getElementById("view-read").textContent);
  }
  return found;
}"""
NOT_SEEN = re.compile(
    r"\\u[0-9a-f]{4}|[\x00-\x20\x7f-\xa0\u2400-\u2426\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]"
)


async def test_no_text_becomes_an_element(open_report: OpenReport) -> None:
    page = await open_report("hostile")
    for view in VIEWS:
        panel = await show(page, view)
        assert await elements_from_texts(page) == [], view
        await panel.hover()
        for _ in range(3):  # through a virtual list
            await page.mouse.wheel(0, 6000)
            await drawn(page)
            assert await elements_from_texts(page) == [], view
        await go(page, f"view={view.lower()}&agent=%22__proto__%22")
        assert await elements_from_texts(page) == [], view


async def test_each_text_is_shown_as_it_is(open_report: OpenReport) -> None:
    page = await open_report("hostile", height=2000)
    texts = dict(places())
    assert set(texts) == set(TEXTS)
    shown = "".join(map(seen, await page.evaluate(READ_AT, list(texts.values())[::3])))
    for text in texts:
        assert seen(text)[:200] in shown, text[:200]


def seen(text: str) -> str:
    """Return the visible characters of a text; the page may write the others as escapes or symbols, or as they are."""
    return NOT_SEEN.sub("", storable(text))


async def test_the_title_is_the_name_of_the_run_and_keeps_its_direction(open_report: OpenReport) -> None:
    page = await open_report("hostile")
    title = await page.title()
    assert "</title><script>" in title and "\u202e" not in title
