"""Pages in a real browser that are watched: what a page must never do fails the test.

A test takes the fixture `open_page` or `page`, and runs in the event loop of the browser, which all tests of a worker
share. A fixture that opened something in the loop of a single test, such as `log`, cannot be used beside it: take
`store`, and open it in the test.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urldefrag, urlsplit

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Dialog, Error, Page, Request, async_playwright

from tests.support import programs

FLAGS = [
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
    # A request that leaves the machine is a failure, and must not get far.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
]

EXECUTED = """Object.defineProperty(window, "__executed", {
    set(value) { console.error("executed: " + value) }
})"""


class Watch:
    """Observes pages. `faults` lists what they did and must not do, in words.

    A fault is an error or a warning on the console (so is a violation of the content security policy), an uncaught
    error, a crash, a dialog, another page, and a request to anything but the files and origins that the test opened. So
    is an assignment to `__executed`, which the hostile texts make where they are executed.
    """

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.requests: list[str] = []
        """URLs of all requests, in order."""
        self._expected: dict[str, bool] = {}
        self._homes: set[str] = set()
        self._awaited = False
        self._pages: list[Page] = []
        self._watched: set[BrowserContext] = set()

    def expect(self, pattern: str) -> None:
        """Take no fault that contains this regular expression for one. It is a fault if there is none."""
        self._expected.setdefault(pattern, False)

    def allow(self, url: str) -> None:
        """Allow requests to another file, or to the origin of a URL."""
        self._homes.add(_home(url))

    async def page(self, context: BrowserContext) -> Page:
        """Return a new page of a context, watched."""
        if context not in self._watched:
            self._watched.add(context)
            await context.add_init_script(EXECUTED)
            context.on("page", self._another)
            context.on("console", self._console)
            context.on("weberror", lambda error: self._fault(f"uncaught: {error.error}"))
            context.on("dialog", self._dialog)
            context.on("request", self._request)
        self._awaited = True
        return await context.new_page()

    async def check(self) -> list[str]:
        """Return the faults until now, and forget them."""
        for page in self._pages:
            with contextlib.suppress(Error):  # closed, crashed or navigating
                await page.evaluate("0")  # its answer follows the events until now
        for pattern, met in self._expected.items():
            if not met:
                self.faults.append(f"did not happen: {pattern}")
        self._expected.clear()
        found, self.faults = self.faults, []
        return found

    def _fault(self, text: str) -> None:
        for pattern in self._expected:
            if re.search(pattern, text):
                self._expected[pattern] = True
                return
        self.faults.append(text)

    def _another(self, page: Page) -> None:
        if not self._awaited:
            self._fault(f"opened another page: {page.url}")
        self._awaited = False
        self._pages.append(page)
        page.on("crash", lambda _: self._fault("crashed"))
        page.on("websocket", lambda socket: self._left(socket.url))

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning", "assert"):
            self._fault(f"console.{message.type}: {message.text}")

    async def _dialog(self, dialog: Dialog) -> None:
        self._fault(f"dialog: {dialog.type} {dialog.message}")
        await dialog.dismiss()

    def _request(self, request: Request) -> None:
        self.requests.append(request.url)
        if not self._homes and request.is_navigation_request():
            self.allow(request.url)
        self._left(request.url)

    def _left(self, url: str) -> None:
        if urlsplit(url).scheme not in ("about", "blob", "data") and _home(url) not in self._homes:
            self._fault(f"request: {url[:200]}")


def _home(url: str) -> str:
    """Return the origin of a URL, or the file that it names."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}" if parts.scheme in ("http", "https") else urldefrag(url)[0]


class PageOpener:
    """Opens pages, each in a context of its own."""

    def __init__(self, browser: Browser, watch: Watch) -> None:
        self._browser = browser
        self.watch = watch
        self.contexts: list[BrowserContext] = []

    async def __call__(
        self,
        url: str | None = None,
        *,
        width: int = 1280,
        height: int = 800,
        scheme: Any = "light",
        beside: Page | None = None,
        **options: Any,
    ) -> Page:
        """Open a URL, if any. With `beside`, in the context of another page, so that both have the same cookies."""
        if beside is None:
            viewport: Any = {"width": width, "height": height}
            context = await self._browser.new_context(viewport=viewport, color_scheme=scheme, **options)
            self.contexts.append(context)
        else:
            context = beside.context
        page = await self.watch.page(context)
        if url is not None:
            self.watch.allow(url)
            await page.goto(url)
        return page


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """The browser of this worker."""
    flags = [*FLAGS, "--no-sandbox"] if os.geteuid() == 0 else FLAGS  # the sandbox does not start for root
    async with async_playwright() as driver:
        launched = await driver.chromium.launch(executable_path=programs.chromium(), args=flags)
        yield launched
        await launched.close()


@pytest_asyncio.fixture(loop_scope="session")
async def open_page(browser: Browser) -> AsyncIterator[PageOpener]:
    """Opens pages, and fails the test for what they must not do (see `Watch`)."""
    opener = PageOpener(browser, Watch())
    yield opener
    faults = await opener.watch.check()
    for context in opener.contexts:
        await context.close()
    if faults:
        pytest.fail("the page did what it must not do:\n" + "\n".join(faults), pytrace=False)


@pytest_asyncio.fixture(loop_scope="session")
async def page(open_page: PageOpener) -> Page:
    """An empty page of 1280 x 800, light."""
    return await open_page()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests that use the browser in its event loop."""
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)
