"""Program that runs one user's statement on a projection, in DuckDB.

It runs in a process of its own, because no other way ends a statement at once and bounds its memory in all cases:
an interrupt of DuckDB took seconds, and `repeat('x', 4000000000)` passed its memory limit. The process ends

    at the time limit, by a timer of the operating system (SIGALRM), also while the parent is blocked;
    when standard input is closed, because the parent has exited;
    when the parent kills it.

A statement sees tables that this program opened and registered; DuckDB may open nothing itself
(`enable_external_access`), and its configuration is locked.

Requests and answers are a length in eight bytes and a value in the format of `marshal`. The requests are a `Job`, and
then numbers of rows. An answer is (tag, value):

    ready   the columns of the result
    rows    an Arrow stream with some of the rows
    end     no more rows on this request
    failed  message, and the index of the byte of the statement where it is wrong or None
"""

from __future__ import annotations

import json
import marshal
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset

PART = 1000
"""Maximum of rows in an answer."""
PAGE_BYTES = 8 * 1024 * 1024
"""Size of the answers to one request after which no more rows follow."""
ONLY_READS = "it may only read: SELECT, WITH, FROM, VALUES, DESCRIBE or EXPLAIN, and nothing that opens files"
ONE = "it is more than one statement"
_EXPLAIN = "EXPLAIN "
_READING = {duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN}


class Refused(Exception):
    """The statement is not run."""


class Query:
    """A statement on a connection that sees the tables of a projection only."""

    offset = 0
    """Bytes before the statement in what is executed."""
    _left: Any = None
    """Rows of the reader that were not asked for yet."""

    def __init__(self, paths: list[str], tables: dict[str, bytes], views: list[str], memory: int) -> None:
        """`paths` are the files of the table `event`, `tables` other tables as Arrow streams, `views` statements."""
        self._connection = connection = duckdb.connect(
            config={
                "autoinstall_known_extensions": "false",
                "autoload_known_extensions": "false",
                "errors_as_json": "true",
                "memory_limit": f"{memory // 2 >> 20}MiB",
                "python_enable_replacements": "false",
                "temp_directory": "",
            }
        )
        connection.execute("SET TimeZone = 'UTC'")
        if paths:
            connection.register("parts", pyarrow.dataset.dataset(paths, format="parquet"))
        for name, stream in tables.items():
            connection.register(name, pa.ipc.open_stream(stream).read_all())
        for view in views:
            connection.execute(view)
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")

    def execute(self, statement: str) -> list[str]:
        """Execute the statement, and return its columns."""
        statements = self._connection.extract_statements(statement)
        if len(statements) != 1:
            raise Refused(ONE if statements else "it holds no statement")
        if statements[0].type not in _READING:
            raise Refused(ONLY_READS)
        if statements[0].type == duckdb.StatementType.SELECT:  # the errors of `execute` name a place
            self.offset = len(_EXPLAIN)
            self._connection.execute(_EXPLAIN + statement)
            self.offset = 0
        self._reader = self._connection.sql(statement).to_arrow_reader(PART)
        return list(self._reader.schema.names)

    def parts(self, most: int) -> Iterator[bytes]:
        """Yield the next rows, at most so many."""
        while most > 0:
            part = self._rest(most)
            if part is None:
                return
            most -= part.num_rows
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, part.schema) as writer:
                writer.write_batch(part)
            yield sink.getvalue().to_pybytes()

    def _rest(self, most: int) -> Any:
        """Return the next rows as a record batch, at most so many; None at the end."""
        while self._left is None or not self._left.num_rows:
            try:
                self._left = self._reader.read_next_batch()
            except StopIteration:
                return None
        part, self._left = self._left.slice(0, most), self._left.slice(most)
        return part


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


def _limit(deadline: float, memory: int) -> None:
    """Let the operating system end this process at a time of the monotonic clock, and bound its memory."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    signal.setitimer(signal.ITIMER_REAL, max(deadline - time.monotonic(), 1e-6))  # 0 would be no limit
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))


def _failure(error: Exception, offset: int) -> tuple[str, int | None]:
    """Return the message of an error, and the place that it names."""
    text = str(error).partition(": ")[2] or str(error)
    try:
        known = json.loads(text)
        text, at = str(known["exception_message"]), int(known["position"]) - offset
    except (ValueError, KeyError, TypeError):
        at = None
    return " ".join(text.partition("\n\nLINE ")[0].split("\n")), at


def main() -> None:
    requests: SimpleQueue[Any] = SimpleQueue()
    threading.Thread(target=_receive, args=(requests,), daemon=True).start()
    deadline, memory, statement, paths, tables, views = requests.get()
    _limit(deadline, memory)
    query = Query(paths, tables, views, memory)
    try:
        _send("ready", query.execute(statement))
        while True:
            sent = 0
            for part in query.parts(requests.get()):
                sent += _send("rows", part)
                if sent > PAGE_BYTES:
                    break
            _send("end", None)
    except Refused as error:
        _send("failed", (str(error), None))
    except duckdb.PermissionException:
        _send("failed", (ONLY_READS, None))
    except (duckdb.OutOfMemoryException, MemoryError, pa.ArrowMemoryError):
        _send("failed", (f"it needs more memory than the {memory >> 20:,} MiB that it may use", None))
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        _send("failed", _failure(error, query.offset))


if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        print(str(error) or type(error).__name__, file=sys.stderr, flush=True)
    finally:
        os._exit(1)  # not the end of the interpreter, which waits for the thread that reads
