"""Rows about the page: a report of a public chat in headless Chromium, beside plain pages of the same messages."""

from __future__ import annotations

import asyncio
import html
import itertools
import json
import os
import re
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import chat
from .measure import Stage, Unavailable, Values

if TYPE_CHECKING:
    from playwright.sync_api import Page

FLAGS = ["--disable-gpu", "--disable-dev-shm-usage", "--enable-precise-memory-info", "--no-first-run"]
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
WIDTH, HEIGHT = 1280, 800
TIMEOUT = 120_000
"""Time after which a page that is not there is an error, ms."""
SECONDS = 3.0
"""Time of a gesture."""
TYPED = 6
"""Letters of the word that is typed."""

AFTER_PAINT = "requestAnimationFrame(() => setTimeout(() => done(performance.now() - began)))"
SEARCH = f"""word => new Promise(done => {{
  const box = document.querySelector("[role=searchbox], input[type=search]");
  const watch = new MutationObserver(() => {{ watch.disconnect(); {AFTER_PAINT}; }});
  watch.observe(document.getElementById("view-read"), {{ childList: true, characterData: true, subtree: true }});
  const began = performance.now();
  box.value = word;
  box.dispatchEvent(new InputEvent("input", {{ bubbles: true }}));
}})"""
"""Time from the input of a letter until the painted result, ms."""
LOOP = f"""word => new Promise(done => {{
  const began = performance.now();
  const found = texts.filter(text => text.includes(word));
  document.body.replaceChildren(...found.slice(0, 40).map(text => {{
    const line = document.createElement("p");
    line.textContent = text;
    return line;
  }}));
  {AFTER_PAINT};
}})"""
"""The same for a loop over an array of lower-case texts, which shows the first 40."""
FRAMES = """() => {
  const begun = window.frames_ !== undefined;
  window.frames_ = [];
  const next = now => { window.frames_.push(now); requestAnimationFrame(next); };
  if (!begun) requestAnimationFrame(next);
}"""


@contextmanager
def chromium() -> Iterator[Page]:
    """Start Chromium with a page. Raises `Unavailable` without it."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        raise Unavailable(f"playwright is not installed: {error}") from None
    found = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if found is None:
        raise Unavailable("Chromium is not installed")
    with sync_playwright() as driver:
        root = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = driver.chromium.launch(executable_path=found, args=[*FLAGS, *root])
        try:
            page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
            page.set_default_timeout(TIMEOUT)
            yield page
        finally:
            browser.close()


class Report:
    """A report of 225,671 messages, and the same as plain pages.

    Figures: `ready` (s) until the page is drawn, `search` (ms) from a letter to the painted result, the slowest of a
    word, `scroll` and `brush` (ms per frame), and `memory` (MB) of the page's process at the end.
    """

    def __init__(self, stage: Stage) -> None:
        with chromium():
            pass
        self._report, self._table, self._texts, self._empty = (stage.new_path(".html") for _ in range(4))
        asyncio.run(_write_report(stage.new_path(), self._report))
        said = list(chat.said())
        rows = "".join(f"<tr><td>{one.ts}<td>{one.sender}<td>{html.escape(one.text)}\n" for one in said)
        self._table.write_text(f"<!doctype html><title>chat</title><table>{rows}</table>")
        texts = json.dumps([one.text.lower() for one in said])
        self._texts.write_text(f"<!doctype html><title>chat</title><body><script>const texts = {texts}</script>")
        self._empty.write_text("<!doctype html><title>empty</title><body style='height: 10000000px'>")
        self._word = next(word for word in re.findall(r"\w+", said[5000].text) if len(word) >= TYPED)[:TYPED]

    def ours(self) -> Values:
        with chromium() as page:
            began = time.perf_counter()
            page.goto(self._report.as_uri())
            page.wait_for_selector("body[data-ready]", state="attached")
            page.wait_for_function("document.querySelector('#view-read').innerText.length > 500")
            ready = time.perf_counter() - began
            heap = _heap(page)
            page.wait_for_timeout(1000)  # texts are prepared for the search when the page is idle
            search = self._typed(page, SEARCH)
            page.evaluate("location.hash = ''")
            scroll = _frames(page, lambda at: page.mouse.wheel(0, 200), (WIDTH / 3, HEIGHT - 150))
            picture = page.get_by_label("messages over time").bounding_box()
            assert picture is not None
            brush = _frames(page, _drag(page, picture), (picture["x"] + 80, picture["y"] + picture["height"] / 2))
            page.mouse.up()
            memory = _memory(page)
        return {"ready": ready, "search": search, **scroll("scroll"), **brush("brush"), **memory, "heap": heap}

    def theirs(self) -> Values:
        with chromium() as page:
            began = time.perf_counter()
            page.goto(self._table.as_uri())
            page.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
            ready = time.perf_counter() - began
            memory = _memory(page)
        with chromium() as page:
            page.goto(self._texts.as_uri())
            search = self._typed(page, LOOP)
            page.goto(self._empty.as_uri())
            scroll = _frames(page, lambda at: page.mouse.wheel(0, 200), (WIDTH / 2, HEIGHT / 2))
            drag = _drag(page, {"x": 0, "y": 0, "width": WIDTH, "height": HEIGHT})
            brush = _frames(page, drag, (80, HEIGHT / 2))
        return {"ready": ready, "search": search, **scroll("scroll"), **brush("brush"), **memory}

    def _typed(self, page: Page, script: str) -> float:
        """Return the longest time, ms, of a word that is typed letter by letter."""
        times: list[float] = [page.evaluate(script, self._word[:letters]) for letters in range(1, TYPED + 1)]
        return max(times)


async def _write_report(store: Path, file: Path) -> None:
    from messager_store import EventLog
    from messager_store.view.report import report

    await chat.make(store)
    async with EventLog.open(str(store)) as log:
        await report(log, chat.EXP_ID, file)


def _drag(page: Page, box: Any) -> Callable[[int], None]:
    """Return the steps of a drag to and fro over a box."""

    def step(at: int) -> None:
        if at == 0:
            page.mouse.down()
        width = box["width"] - 160
        place = at * 12 % (2 * width)
        page.mouse.move(box["x"] + 80 + min(place, 2 * width - place), box["y"] + box["height"] / 2)

    return step


def _frames(page: Page, step: Callable[[int], None], begin: tuple[float, float]) -> Callable[[str], dict[str, float]]:
    """Make a gesture; return its figures by name: the mean interval of frames and the 95th percentile, ms."""
    page.mouse.move(*begin)
    page.evaluate(FRAMES)
    end = time.perf_counter() + SECONDS
    at = 0
    while time.perf_counter() < end:
        step(at)
        at += 1
        page.wait_for_timeout(8)
    times = page.evaluate("window.frames_")
    intervals = [late - early for early, late in itertools.pairwise(times)]
    return lambda name: {
        name: statistics.mean(intervals),
        f"{name}_p95": statistics.quantiles(intervals, n=20)[-1],
        f"{name}_gestures": float(at),
    }


def _heap(page: Page) -> float:
    """Return the memory of JavaScript objects, MB."""
    used: float = page.evaluate("performance.memory.usedJSHeapSize")
    return used / 1e6


def _memory(page: Page) -> dict[str, float]:
    """Return the resident memory of the largest page's process, and its maximum until now, MB."""
    assert page.context.browser is not None
    session = page.context.browser.new_browser_cdp_session()
    processes = session.send("SystemInfo.getProcessInfo")["processInfo"]
    found = [_status(each["id"]) for each in processes if each["type"] == "renderer"]
    return {"memory": max(each["VmRSS"] for each in found), "peak": max(each["VmHWM"] for each in found)}


def _status(pid: int) -> dict[str, float]:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        raise Unavailable("the memory of a process can be read on Linux only") from None
    fields = (line.split() for line in lines if line.startswith(("VmRSS", "VmHWM")))
    return {name.rstrip(":"): float(kilobytes) / 1e3 for name, kilobytes, _ in fields}
