"""The page as a reader uses it: by roles and names."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Locator, Page

VIEWS = ("Read", "Sequence", "Matrix", "Problems")

OpenReport = Callable[..., Awaitable[Page]]

FORBIDDEN = """() => {
  const page = document.getElementById("page");
  const found = [...page.querySelectorAll(
    "script, style, link, meta, base, title, iframe, object, embed, img, video, audio, template, math, noscript"
  )];
  for (const each of page.querySelectorAll("*")) {
    const bad = /^on|^(src|srcdoc|srcset|action|formaction|ping|background)$/;
    if ([...each.attributes].some(({ name }) => bad.test(name))) found.push(each);
    if (each.matches("[href], [*|href]") && !/^[#?]|^blob:/.test(each.getAttribute("href") ?? "")) found.push(each);
  }
  return found.map((each) => each.outerHTML.slice(0, 200));
}"""


async def ready(page: Page) -> Page:
    """Return the page once it is ready. Fails if it cannot show its data."""
    await page.wait_for_selector("body[data-ready]", state="attached")
    found = await page.locator("body").get_attribute("data-ready")
    assert found == "", await page.locator("#page").inner_text()
    return page


async def drawn(page: Page) -> None:
    """Return when what was changed until now is drawn."""
    await page.evaluate(
        "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))"
    )


GO = """fragment => new Promise((done) => {
  const before = location.href;
  addEventListener("hashchange", done, { once: true });
  location.hash = fragment;
  if (location.href === before) done();
})"""


async def go(page: Page, fragment: str) -> None:
    """Open another place of the page, as a link does."""
    await page.evaluate(GO, fragment)
    await drawn(page)


async def leave(page: Page) -> None:
    """Leave a served page, before its server ends."""
    await page.goto("about:blank")


async def show(page: Page, view: str) -> Locator:
    """Choose a view; return its panel."""
    await page.get_by_role("tab", name=view).click()
    panel = page.get_by_role("tabpanel", name=view)
    await panel.wait_for()
    await drawn(page)
    return panel


async def findings(page: Page, within: str | None = None) -> list[str]:
    """Return what axe finds serious or critical, in the page or in the elements of a selector."""
    options: Any = {"resultTypes": ["violations"]}
    found = (await Axe().run(page, context=within, options=options)).response["violations"]
    return [
        f"{each['id']}: {each['help']}: {node['html'][:160]} {node['any'][0]['message'] if node['any'] else ''}"
        for each in found
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"][:3]
    ]


async def elements_from_texts(page: Page) -> list[str]:
    """Return the elements of the page that no module makes, as HTML: they come from a text that was read as HTML."""
    found: list[str] = await page.evaluate(FORBIDDEN)
    return found
