"""Pages in a real browser that are watched: what a page must never do fails the test.

A test takes the fixture `open_page` or `page`, and runs in the event loop of the browser, which all tests of a worker
share. A fixture that opened something in the loop of a single test, such as `log`, cannot be used beside it: take
`store`, and open it in the test.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import urldefrag, urlsplit

import pytest
import pytest_asyncio
from playwright.async_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Error,
    Page,
    Request,
    async_playwright,
    expect,
)

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

PATIENCE_MS = 60_000
"""Timeout of waits, which end as soon as they succeed: the machine may be busy."""
expect.set_options(timeout=PATIENCE_MS)

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
        self._listening: list[tuple[Any, str, Callable[[Any], object]]] = []

    def expect(self, pattern: str) -> None:
        """Take no fault that contains this regular expression for one. It is a fault if there is none."""
        self._expected.setdefault(pattern, False)

    def allow(self, url: str) -> None:
        """Allow requests to another file, or to the origin of a URL."""
        self._homes.add(_home(url))

    async def page(self, context: BrowserContext) -> Page:
        """Return the page of a context that is not watched yet, if it has one, else a new one; it is watched."""
        if context not in self._watched:
            self._watched.add(context)
            self._on(context, "page", self._another)
            self._on(context, "console", self._console)
            self._on(context, "weberror", lambda error: self._fault(f"uncaught: {error.error}"))
            self._on(context, "dialog", self._dialog)
            self._on(context, "request", self._request)
            if context.pages:
                self._add(context.pages[0])
                return context.pages[0]
        self._awaited = True
        return await context.new_page()

    def end(self) -> None:
        """Watch no longer."""
        for emitter, event, listener in self._listening:
            emitter.remove_listener(event, listener)

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
        self._add(page)

    def _add(self, page: Page) -> None:
        self._pages.append(page)
        self._on(page, "crash", lambda _: self._fault("crashed"))
        self._on(page, "websocket", lambda socket: self._left(socket.url))

    def _on(self, emitter: Any, event: str, listener: Callable[[Any], object]) -> None:
        emitter.on(event, listener)
        self._listening.append((emitter, event, listener))

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


class Contexts:
    """Contexts of a browser. One that a test leaves is cleaned and used again: a new one costs as much as the page."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._idle: list[BrowserContext] = []

    async def take(self, **options: Any) -> BrowserContext:
        """Return a context like a new one. With options that stay, it is a new one."""
        if not self._idle or options.keys() - {"viewport", "color_scheme"}:
            context = await self._browser.new_context(**options)
            context.set_default_timeout(PATIENCE_MS)
            await context.add_init_script(EXECUTED)
            return context
        context = self._idle.pop()
        for page in context.pages:
            await page.set_viewport_size(options["viewport"])
            await page.emulate_media(color_scheme=options["color_scheme"])
        return context

    async def leave(self, context: BrowserContext, *, reusable: bool) -> None:
        """Keep a context for the next test, or close it."""
        try:
            for page in context.pages[1:]:
                await page.close()
            if reusable and context.pages:
                await _clean(context.pages[0])
                self._idle.append(context)
                return
        except Error:  # it crashed
            pass
        await context.close()


async def _clean(page: Page) -> None:
    """Remove what a test may have left in a page and in its context."""
    await page.unroute_all()
    await page.goto("about:blank")
    await page.mouse.move(-1, -1)
    await page.context.clear_cookies()


class PageOpener:
    """Opens pages, each in a context of its own."""

    def __init__(self, contexts: Contexts, watch: Watch) -> None:
        self._contexts = contexts
        self.watch = watch
        self._taken: dict[BrowserContext, bool] = {}

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
            context = await self._contexts.take(viewport=viewport, color_scheme=scheme, **options)
            self._taken[context] = not options
        else:
            context = beside.context
        page = await self.watch.page(context)
        if url is not None:
            self.watch.allow(url)
            await page.goto(url)
        return page

    async def close(self) -> None:
        """Leave the pages."""
        for context, reusable in self._taken.items():
            await self._contexts.leave(context, reusable=reusable)
        self.watch.end()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """The browser of this worker."""
    flags = [*FLAGS, "--no-sandbox"] if os.geteuid() == 0 else FLAGS  # the sandbox does not start for root
    program = programs.chromium()  # skips the test without it
    async with async_playwright() as driver:
        launched = await driver.chromium.launch(executable_path=program, args=flags)
        yield launched
        await launched.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def contexts(browser: Browser) -> Contexts:
    return Contexts(browser)


@pytest_asyncio.fixture(loop_scope="session")
async def open_page(contexts: Contexts) -> AsyncIterator[PageOpener]:
    """Opens pages, and fails the test for what they must not do (see `Watch`)."""
    opener = PageOpener(contexts, Watch())
    yield opener
    faults = await opener.watch.check()
    await opener.close()
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
