"""`messager view` as a process: the browser, waiting, the end, and wrong use."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from messager_store import EventLog
from tests.store.view.server.client import Client
from tests.support import MESSAGER, messager, until
from tests.support.command_line import one_line
from tests.support.logs import filled, sent

pytestmark = pytest.mark.sqlite

BROWSER = """#!/bin/sh
exec 2> /dev/null >&2
echo "$@" > args
cp "${1#file://}" page.new
mv page.new page
cat fifo
"""
"""Copies the page that it is to open, and stays until the fifo is opened."""


@contextlib.contextmanager
def view(folder: Path, *words: str, **env: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start the verb; return it with the printed URL."""
    process = subprocess.Popen(
        [*MESSAGER, "view", *words],
        cwd=folder,
        env=os.environ | env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None and process.stderr is not None
    with process.stdout, process.stderr:
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()
            process.wait(60)


def ended(process: subprocess.Popen[str], number: int) -> str:
    """Interrupt the verb; return what it wrote on standard error. It ends cleanly."""
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout) == (0, ""), stderr
    return stderr


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[str]:
    """The file of `BROWSER`, which runs in `tmp_path`."""
    os.mkfifo(tmp_path / "fifo")
    file = tmp_path / "browser"
    file.write_text(BROWSER)
    file.chmod(0o700)
    yield str(file)
    with contextlib.suppress(OSError):  # it was not started
        os.close(os.open(tmp_path / "fifo", os.O_WRONLY | os.O_NONBLOCK))


def secret_of(url: str) -> str:
    return parse_qs(urlsplit(url).query)["secret"][0]


def command_lines() -> list[bytes]:
    """Return the command lines of all processes, as every user can read them."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(path.read_bytes())
    return found


def can_read(path: Path, user: int) -> bool:
    """Return whether a user can read a file."""
    process = os.fork()
    if not process:
        code = 2
        with contextlib.suppress(BaseException):
            os.setgid(user)
            os.setuid(user)
            code = 1
            path.read_bytes()
            code = 0
        os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    assert code in (0, 1)
    return code == 0


async def test_the_browser_is_opened_without_the_secret_in_a_command_line(
    store: str, tmp_path: Path, browser: str
) -> None:
    async with EventLog.open(store) as log:
        await filled(log, [sent(1)])
    with view(tmp_path, "e1", "--store", store, BROWSER=browser) as (process, printed):
        await until((tmp_path / "page").exists)
        opened = (tmp_path / "args").read_text().strip()
        page = Path(urlsplit(opened).path)
        [url] = set(re.findall(r'http://[^"]+', (tmp_path / "page").read_text()))

        assert opened.startswith("file:///") and secret_of(url) != secret_of(printed)
        assert page.stat().st_mode & 0o777 == 0o600 and page.parent.stat().st_mode & 0o777 == 0o700
        assert {page.stat().st_uid, page.parent.stat().st_uid} == {os.getuid()}
        if os.geteuid() == 0:
            assert can_read(page, 0) and not can_read(page, 65534)
        lines = command_lines()
        assert any(opened.encode() in line for line in lines), "the browser runs"
        for secret in (secret_of(url), secret_of(printed)):
            assert not [line for line in lines if secret.encode() in line]

        client = Client(urlsplit(url).port or 0)
        entered = await client.enter(url)
        assert entered.status == 200 and b"/?exp=e1" in entered.body
        await until(lambda: not page.parent.exists())
        assert (await client.get("/?exp=e1")).status == 200
        assert (await Client(client.port).enter(printed)).status == 200, "the printed link works too"
        ended(process, signal.SIGINT)  # although the browser still runs


async def test_an_experiment_that_does_not_exist_yet_is_waited_for_and_the_end_does_not_wait_for_streams(
    unmade: str, tmp_path: Path, browser: str
) -> None:
    control = str(tmp_path / "control")
    with view(tmp_path, "e1", "--store", unmade, "--control", control, BROWSER=browser) as (process, url):
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/open\?secret=[\w-]+", url)
        client = Client(urlsplit(url).port or 0)
        await client.enter(url)
        assert (await client.get("/api/experiments")).json["experiments"] == []
        assert (await client.get("/api/run/e1/head")).json is None
        async with client.events("/api/run/e1/follow") as stream, client.events("/api/run/e2/follow") as other:
            assert await stream.next() == ("waiting", {"exp": "e1"})
            assert await other.next() == ("waiting", {"exp": "e2"})
            assert not Path(unmade).exists()
            async with EventLog.open(unmade) as log:
                await filled(log, [sent(1)])
            assert await stream.next() == ("found", {"exp_id": "e1"})
            assert await stream.next() is None
            assert (await client.get("/api/run/e1/head")).json["position"] == "1:1"
            async with client.events("/api/run/e1/follow?position=1:1"):
                await until((tmp_path / "page").exists)
                page = Path(urlsplit((tmp_path / "args").read_text().strip()).path)
                assert page.exists()
                stderr = ended(process, signal.SIGTERM)
        assert not page.parent.exists(), "no browser has used it"
    waiting, *others = stderr.splitlines()
    assert waiting.startswith("waiting for e1: ") and "does not exist. Record or import something first" in waiting
    assert others == [
        f"waiting for a replay at {control}",
        "the link works once; Ctrl-C ends the server",
    ]


def test_what_the_server_cannot_do_is_told_in_one_line(store: str, tmp_path: Path) -> None:
    async def two() -> None:
        async with EventLog.open(store) as log:
            await filled(log, [sent(1)], "same-1")
            await filled(log, [sent(1)], "same-2")

    asyncio.run(two())
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        for words, code, part in (
            (("--port", port), 3, f"cannot listen on 127.0.0.1:{port}"),
            (("--store", ":memory:"), 3, "it does not exist"),
            (("same",), 2, "matches 2 experiments"),
        ):
            done = messager("view", "--no-open", "--store", store, *words, cwd=tmp_path)
            one_line(done, code, part)


def test_a_missing_package_is_named_with_the_command_that_installs_it(store: str, tmp_path: Path) -> None:
    program = "import sys; sys.modules['uvicorn'] = None; from messager_store.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "view", "--store", store, "--no-open"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    one_line(done, 2, "needs uvicorn", "pip install 'starlette>=", "'uvicorn>=")
