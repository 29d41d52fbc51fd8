"""Row about the page of a large experiment: a server that was just started, in headless Chromium."""

from __future__ import annotations

import html
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from .measure import Stage, Values
from .pages import chromium
from .society import EXP_ID, society

COUNTS = "SELECT ts / 60000000000, count(*) FROM event WHERE kind = 1 GROUP BY 1"
MESSAGES = """
SELECT e.ts, a.value, e.payload FROM event e LEFT JOIN name a ON a.id = e.from_id
WHERE e.experiment_id = 1 AND e.kind = 1 ORDER BY e.ts, e.id LIMIT ?
"""


class LargePage:
    """The page of a society, until its first messages and its timeline are drawn, and a plain page of the same.

    Figure: `ready` (s) from the begin of the navigation, with the server just started; of the plain page from its first
    query.
    """

    MESSAGES = 1000
    """Messages of the plain page."""

    def __init__(self, stage: Stage) -> None:
        with chromium():
            pass
        self._store = society(stage, self._events(stage))
        self._plain = stage.new_path(".html")

    def _events(self, stage: Stage) -> int:
        """Return the number of events of the society: of a smaller one, the page has all messages."""
        return max(stage.society, 1_000_000)

    def ours(self) -> Values:
        with chromium() as page, viewing(self._store, EXP_ID) as url:
            began = time.perf_counter()
            page.goto(url)
            page.locator("article.message").first.wait_for()
            page.get_by_text("messages per ").first.wait_for()
            return {"ready": time.perf_counter() - began}

    def theirs(self) -> Values:
        with chromium() as page:
            began = time.perf_counter()
            with closing(sqlite3.connect(self._store)) as database:
                counts = database.execute(COUNTS).fetchall()
                messages = database.execute(MESSAGES, (self.MESSAGES,)).fetchall()
            rows = [f"<tr><td>{bucket}<td>{number}\n" for bucket, number in counts]
            rows += [f"<tr><td>{ts}<td>{name}<td>{html.escape(said.decode())}\n" for ts, name, said in messages]
            self._plain.write_text(f"<!doctype html><title>society</title><table>{''.join(rows)}</table>")
            page.goto(self._plain.as_uri())
            page.locator("tr").last.wait_for()
            return {"ready": time.perf_counter() - began}


class WholePage(LargePage):
    """The same of a society of which the page has all messages, before it draws any."""

    MESSAGES = 200_000

    def _events(self, stage: Stage) -> int:
        return 2 * self.MESSAGES


@contextmanager
def viewing(store: Path, exp_id: str) -> Iterator[str]:
    """Serve the page of an experiment; yield its URL."""
    code = "from messager_store.cli import main; main()"
    verb = ["view", exp_id, "--store", str(store), "--no-open"]
    command = [sys.executable, "-c", code, *verb]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
    finally:
        server.send_signal(signal.SIGINT)
        server.communicate()
