"""Program that runs one user's statement on an SQLite store.

It runs in a process of its own, because no other way ends a statement at once in all cases: SQLite looks for an
interrupt between two steps only, and one call of a function, such as LIKE with a long pattern, may take hours. Locks
and the read transaction end with the process, which ends

    at the time limit, by a timer of the operating system (SIGALRM), also while the parent is blocked;
    when standard input is closed, because the parent has exited;
    when the parent kills it.

Requests and answers are a length in eight bytes and a value in the format of `marshal`. The requests are the deadline
and the arguments of `Query.begin`, those of `Query.execute`, and then numbers of rows. An answer is (tag, value):

    ready   the result of `begin` or `execute`
    rows    some of the rows
    end     no more rows on this request
    failed  message and error code of SQLite

This file uses no other module of the package, so that it starts fast.
"""

from __future__ import annotations

import marshal
import os
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

CACHE_KIB = 65536
"""Page cache of the connection. A scan in replay order visits pages several times."""
PART = 25
"""Maximum of rows in an answer."""
PAGE_BYTES = 8 * 1024 * 1024
"""Size of the answers to one request after which no more rows follow."""

_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
_REFUSED_FUNCTIONS = {"load_extension", "fts3_tokenizer", "sqlite_log", "readfile", "writefile", "edit"}


class Query:
    """A statement on a connection that can only read."""

    def begin(self, uri: str, setup: list[str], counts: str | None) -> Any:
        """Begin the transaction, and return the row of the query `counts`."""
        self._connection = connection = sqlite3.connect(uri, uri=True, isolation_level=None)
        connection.text_factory = lambda value: value.decode(errors="backslashreplace")
        for statement in (*setup, f"PRAGMA cache_size=-{CACHE_KIB}", "BEGIN"):
            connection.execute(statement)
        return None if counts is None else connection.execute(counts).fetchone()

    def execute(self, views: list[str], statement: bytes, parameters: dict[str, str]) -> list[str] | None:
        """Create the views, execute the statement up to its first row, and return its columns, if it has some."""
        connection = self._connection
        for view in views:
            connection.execute(view)
        connection.execute("PRAGMA query_only=ON")
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        connection.set_authorizer(_authorize)
        self._cursor = connection.cursor()
        self._cursor.execute(statement.decode(), parameters)
        return None if self._cursor.description is None else [name for name, *_ in self._cursor.description]

    def parts(self, most: int) -> Iterator[list[Any]]:
        """Yield the next rows, at most so many."""
        while most > 0 and (part := self._cursor.fetchmany(min(PART, most))):
            most -= len(part)
            yield part


def _authorize(action: int, first: str | None, second: str | None, database: str | None, source: str | None) -> int:
    if action not in _ALLOWED or (action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in _REFUSED_FUNCTIONS):
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK


def _receive(requests: SimpleQueue[Any]) -> None:
    """Read requests; end the process with standard input, whatever it does then."""
    try:
        while size := sys.stdin.buffer.read(8):
            requests.put(marshal.loads(sys.stdin.buffer.read(int.from_bytes(size, "big"))))
    finally:
        os._exit(0)


def _send(tag: str, value: Any) -> int:
    answer = marshal.dumps((tag, value))
    sys.stdout.buffer.write(len(answer).to_bytes(8, "big") + answer)
    sys.stdout.buffer.flush()
    return len(answer)


def _limit(deadline: float) -> None:
    """Let the operating system end this process at a time of the monotonic clock, which all processes share."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    signal.setitimer(signal.ITIMER_REAL, max(deadline - time.monotonic(), 1e-6))  # 0 would be no limit


def main() -> None:
    requests: SimpleQueue[Any] = SimpleQueue()
    threading.Thread(target=_receive, args=(requests,), daemon=True).start()
    query = Query()
    deadline, *job = requests.get()
    _limit(deadline)
    try:
        _send("ready", query.begin(*job))
        _send("ready", query.execute(*requests.get()))
        while True:
            sent = 0
            for part in query.parts(requests.get()):
                sent += _send("rows", part)
                if sent > PAGE_BYTES:
                    break
            _send("end", None)
    except (sqlite3.Error, sqlite3.Warning) as error:
        _send("failed", (str(error), getattr(error, "sqlite_errorcode", 0)))


if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        print(str(error) or type(error).__name__, file=sys.stderr, flush=True)
    finally:
        os._exit(1)  # not the end of the interpreter, which waits for the thread that reads
