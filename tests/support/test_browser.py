"""The fixture `open_page`: what a page must never do does not go unseen."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.support import until
from tests.support.browser import PageOpener

POLICY = "default-src 'none'; script-src 'unsafe-inline'"


def page_of(folder: Path, script: str, policy: str = "") -> str:
    """Return the URL of a page that runs a script, then sets `data-ready`."""
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}">' if policy else ""
    file = folder / "page.html"
    file.write_text(
        f"<!doctype html><title>t</title>{head}<body><script>{script};document.body.dataset.ready = ''</script>"
    )
    return file.as_uri()


FRAME = """const frame = document.createElement('iframe')
frame.srcdoc = '<script>window.__executed = 1</' + 'script>'
document.body.append(frame)"""
FAULTS = [
    ("console.error('a')", "", "console.error: a"),
    ("console.warn('a')", "", "console.warning: a"),
    ("setTimeout(() => { throw new Error('a') })", "", "uncaught: a"),
    ("Promise.reject(new Error('a'))", "", "uncaught: a"),
    ("alert('a')", "", "dialog: alert a"),
    ("window.__executed = 'a'", "", "executed: a"),
    (FRAME, "", "executed: 1"),
    ("open('about:blank')", "", "opened another page: about:blank"),
    ("new Image().src = 'http://example.com/a'", "", "request: http://example.com/a"),
    ("new Image().src = 'other.png'", "", "other.png"),
    ("new Image().src = 'http://example.com/a'", POLICY, "Content Security Policy"),
    ("fetch('https://example.com/a').catch(() => 0)", "", "request: https://example.com/a"),
    ("navigator.sendBeacon('http://example.com/a')", "", "request: http://example.com/a"),
    ("new WebSocket('ws://example.com/a')", "", "request: ws://example.com/a"),
    ("location = 'http://example.com/a'", "", "request: http://example.com/a"),
]


async def test_it_sees_what_a_page_must_not_do(open_page: PageOpener, tmp_path: Path) -> None:
    page = await open_page()
    for script, policy, fault in FAULTS:
        await page.goto(page_of(tmp_path, script, policy))
        seen: list[str] = []

        async def is_seen(fault: str = fault, seen: list[str] = seen) -> bool:
            seen += await open_page.watch.check()
            return any(fault in text for text in seen)

        await until(is_seen)


async def test_it_accepts_a_page_that_does_nothing_wrong(open_page: PageOpener, tmp_path: Path) -> None:
    script = "new Image().src = 'data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAA='; console.log('a')"
    page = await open_page(page_of(tmp_path, script), width=400, scheme="dark")
    await page.wait_for_selector("body[data-ready]", state="attached")
    assert await page.evaluate("[innerWidth, matchMedia('(prefers-color-scheme: dark)').matches]") == [400, True]
    assert await open_page.watch.check() == []


async def test_it_accepts_what_the_test_expects_and_reports_if_it_did_not_happen(
    open_page: PageOpener, tmp_path: Path
) -> None:
    open_page.watch.expect("console.error: a+$")
    open_page.watch.expect("console.error: b")
    await open_page(page_of(tmp_path, "console.error('aa')"))
    assert await open_page.watch.check() == ["did not happen: console.error: b"]


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    page = b"<!doctype html><title>t</title>"
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):  # a connection that the browser does not use
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(page)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + page)
        await writer.drain()
    writer.close()


@pytest_asyncio.fixture(loop_scope="session")
async def origins() -> AsyncIterator[list[str]]:
    """Two servers of pages on this machine."""
    servers = [await asyncio.start_server(_answer, "127.0.0.1", 0) for _ in range(2)]
    yield [f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}" for server in servers]
    for server in servers:
        server.close()


async def test_a_served_page_may_ask_its_own_origin_only(open_page: PageOpener, origins: list[str]) -> None:
    own, other = origins
    page = await open_page(f"{own}/a")
    await page.evaluate("url => fetch(url).then(answer => answer.text())", f"{own}/b")
    assert await open_page.watch.check() == []
    await page.evaluate("url => fetch(url, {mode: 'no-cors'}).then(() => 0)", f"{other}/b")
    assert await open_page.watch.check() == [f"request: {other}/b"]
    open_page.watch.allow(other)
    await open_page(f"{other}/c", beside=page)
    assert await open_page.watch.check() == []
