"""Row about a page that follows a recording: messages that it shows, beside messages that a query finds."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from messager_store import EventLog, NewEvent

from .large_page import viewing
from .measure import Stage, Values
from .pages import chromium

EXP_ID = "followed"
BEFORE = 320_000
"""Messages that were recorded before: a page keeps all of a shorter experiment."""
RATE = 2_000
"""Messages a second, each sent once and received once."""
SECONDS, PLAIN_SECONDS = 600.0, 60.0
"""Time that the page, and the query, follow for."""
LAST_S = 60.0
"""Time at the end of it, of which the figures are."""
PAUSE_S = 1.0
AGENTS = 50
NEWEST = """() => Math.max(-1, ...[...document.querySelectorAll("article.message")]
  .map(message => Number(message.textContent.match(/message (\\d+) of/)?.[1] ?? -1)))"""
"""The number of the newest message on the page."""
LAST = "SELECT payload FROM event WHERE kind = 1 ORDER BY id DESC LIMIT 1"


class FollowedPage:
    """The page, and a query for the newest message, while two recorders append.

    Figures: `rate` (messages a second that are new on the page, or found), `lag` (s, the largest) by which the newest
    one is older than the newest recorded one.
    """

    def __init__(self, stage: Stage) -> None:
        with chromium():
            pass
        self._stage = stage

    def ours(self) -> Values:
        with _recording(self._stage.new_path()) as store, chromium() as page, viewing(store, EXP_ID) as url:
            page.goto(url)
            page.locator("article.message").first.wait_for()
            return _figures(store, SECONDS, lambda: int(page.evaluate(NEWEST)))

    def theirs(self) -> Values:
        with _recording(self._stage.new_path()) as store:
            return _figures(store, PLAIN_SECONDS, lambda: _newest(store))


def _figures(store: Path, seconds: float, newest: Callable[[], int]) -> Values:
    began = time.perf_counter()
    seen: list[tuple[float, int]] = []
    lag = 0.0
    while (now := time.perf_counter() - began) < seconds:
        if now > seconds - LAST_S:
            recorded = _newest(store)
            seen.append((now, newest()))
            lag = max(lag, (recorded - seen[-1][1]) / RATE)
        time.sleep(PAUSE_S)
    (first_at, first), (last_at, last) = seen[0], seen[-1]
    return {"rate": (last - first) / (last_at - first_at), "lag": lag}


def _newest(store: Path) -> int:
    """Return the number of the newest recorded message."""
    with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as database:
        (payload,) = database.execute(LAST).fetchone()
    return int(json.loads(payload)["content"].split()[1])


@contextmanager
def _recording(store: Path) -> Iterator[Path]:
    """Append to a store from another process, once the first messages are there."""
    command = [sys.executable, "-m", "bench.followed_page", str(store)]
    recorder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert recorder.stdin is not None and recorder.stdout is not None
    try:
        assert recorder.stdout.readline() == "begun\n"
        yield store
    finally:
        recorder.stdin.close()
        recorder.wait()


async def _append(store: Path) -> None:
    """Append until the input is closed."""
    stop = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    async with EventLog.open(str(store)) as log:
        of = await log.create_experiment(EXP_ID)
        sender, listener = [await log.register(of, role="messager") for _ in range(2)]
        number, began = -BEFORE, time.monotonic()
        while not stop.done():
            due = int((time.monotonic() - began) * RATE) if number >= 0 else 0
            end = min(due, number + RATE)
            if end > number:
                await log.append(sender, [_event("sent", each) for each in range(number, end)])
                await log.append(listener, [_event("received", each) for each in range(number, end)])
                number = end
            if number == 0:
                began = time.monotonic()
                print("begun", flush=True)
            for recorder in (sender, listener):
                await log.touch(recorder, heartbeat_at=time.time_ns())
            await asyncio.sleep(0.05 if number >= 0 else 0)


def _event(kind: str, number: int) -> NewEvent:
    agent = number % AGENTS
    payload = json.dumps({"content": f"message {number} of {EXP_ID}"}).encode()
    return NewEvent(kind, time.time_ns(), f"exps:{EXP_ID}:agents:{agent}:chat", payload, (number - 7) % AGENTS, agent)


if __name__ == "__main__":
    asyncio.run(_append(Path(sys.argv[1])))
