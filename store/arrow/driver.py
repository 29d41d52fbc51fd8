"""Record batches from a driver of ADBC: the query, and the process that runs it (`reader`).

The driver for SQLite must not be loaded here, because it contains an SQLite of its own: closing a file there would drop
the locks that this process has on it. No transaction of the process outlives a page.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import sys
from collections.abc import AsyncGenerator
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

from sqlalchemy import and_, case, func, literal_column, null, or_, select, tuple_

from ..child_process import ChildProcess
from ..db.codes import KINDS
from ..db.dialect import ArrowSource
from ..db.schema import event, place_at, replay_place
from ..errors import StoreUnavailable
from ..experiments.records import Experiment
from ..log.event_log import EventLog
from ..log.event_query import Recorders
from ..log.event_rows import MAX_FETCHED
from ..log.reading import bounds
from ..log.selection import Selection
from ..log.span import Span
from . import schema

PAGE = 20_000
"""Maximum of events in a page."""
PAGE_BYTES = 16 * 1024 * 1024
"""Payload bytes of a page, estimated from the experiment's average."""
PIPE_BYTES = 1 << 20
FLAGS = 256
"""The column `code` is a kind, and flags times this."""
_MARK = KINDS.index("mark") + 1
_READER = Path(__file__).with_name("reader.py")
_INTEGERS = (*("id", "ts", "code", "channel_id", "from_id", "to_id", "messager_id"),)
_OTHERS = (["attributes", "text"], ["payload", "binary"])
_SAID = {
    "name": "indexed",
    "query": "SELECT event_id, text FROM said",
    "key": "event_id",
    "tail": "",
    "columns": [["event_id", "integer"], ["text", "text"]],
}
_RECEIVED = {
    "name": "received",
    "query": "SELECT sending_id, min(received_at), count(*) FROM delivery",
    "key": "sending_id",
    "tail": "GROUP BY sending_id",
    "columns": [["sending_id", "integer"], ["received_at", "integer"], ["copies", "integer"]],
}


def driver_of(log: EventLog) -> ArrowSource | None:
    """Return how a driver reads this store; None if the driver is not installed."""
    source = log.database.dialect.arrow_source(PAGE)
    return source if sys.executable and find_spec(source.driver) is not None else None


async def job_of(
    log: EventLog,
    of: Experiment,
    source: ArrowSource,
    selection: Selection,
    span: Span,
    recorders: Recorders,
    *,
    delivered: bool,
    marks: bool,
) -> dict[str, Any]:
    """Return the job of a reader (see `reader`) for the events of a selection without conditions on content.

    With `marks`, all marks are read too; the column `wanted`, if there is one, tells those that are selected.
    """
    conditions = await selection.condition(log.database, of)
    row = event.c
    integers = [row.id, row.ts, row.kind + row.flags * FLAGS, row.channel_id, row.from_id, row.to_id, row.messager_id]
    names = list(_INTEGERS)
    if marks and not selection.everything:
        integers.append(case((and_(*conditions), 1), else_=0))
        names.append("wanted")
    payload = case((func.length(row.payload) <= MAX_FETCHED, row.payload), else_=null())
    words = {word: f"{word} {secrets.token_hex(8)}" for word in ("ts", "number")}
    behind = tuple_(*(literal_column(f"CAST('{word}' AS BIGINT)") for word in words.values()))
    where = [row.experiment_id == of.id, replay_place > behind]
    if conditions:
        where.append(or_(and_(*conditions), row.kind == _MARK) if marks else and_(*conditions))
    place, end = bounds(span, recorders.ids)
    if end is not None:
        where.append(replay_place < place_at(*end))
    size = _page_size(await log.recorders(of))
    query = select(*integers, row.attributes, payload).where(*where).order_by(row.ts, row.id).limit(size)
    async with log.database.reading() as connection:
        sql = query.compile(dialect=connection.dialect, compile_kwargs={"literal_binds": True})
    return {
        "driver": source.driver,
        "uri": source.uri,
        "setup": source.setup,
        "options": dict(source.options),
        "events": str(sql),
        **words,
        "place": place,
        "columns": [*([name, "integer"] for name in names), *_OTHERS],
        "size": size,
        "large": "SELECT payload FROM event WHERE id = {}",
        "lookups": [_SAID, _RECEIVED] if delivered else [_SAID],
    }


def _page_size(recorders: list[Any]) -> int:
    """Return the number of events whose payloads fit into `PAGE_BYTES`, on average."""
    payload_bytes, events = sum(row.payload_bytes for row in recorders), sum(row.last_seq for row in recorders)
    if not payload_bytes or not events:
        return PAGE
    return min(PAGE, max(50, PAGE_BYTES * int(events) // int(payload_bytes)))


async def read(job: dict[str, Any], location: str) -> AsyncGenerator[Any, None]:
    """Yield the record batches of a job. Raises `StoreUnavailable` with the reason of the driver."""
    with ChildProcess(_READER, "-P") as process:
        _enlarge(process.stdout)
        batches = _Batches(process, job)
        ahead = process.call(batches.next)
        while (batch := await ahead) is not None:
            ahead = process.call(batches.next)
            yield batch
        reasons = [] if batches.invalid is None else [f"its record batches cannot be read: {batches.invalid}"]
        if await process.call(process.code) != 0:
            reasons.append(process.reason())
        if reasons:
            raise StoreUnavailable(location, "; ".join(reasons).replace(job["uri"], location))


class _Batches:
    """The output of a reader. It is read in threads, one call at a time."""

    def __init__(self, process: ChildProcess, job: dict[str, Any]) -> None:
        self._process = process
        self._job: dict[str, Any] | None = job
        self._stream: Any = None
        self.invalid: str | None = None
        """Reason for which the output could not be read to its end."""

    def next(self) -> Any:
        """Return the next record batch; None at the end, also if the process failed or its output is invalid."""
        pa = schema.pyarrow()
        try:
            if self._job is not None:
                self._process.stdin.write(json.dumps(self._job).encode() + b"\n")
                self._process.stdin.close()
                self._job = None
                if not self._process.stdout.peek(1):  # no events, or the process failed
                    return None
                self._stream = pa.ipc.open_stream(self._process.stdout)
            return self._stream.read_next_batch()
        except (StopIteration, BrokenPipeError):
            return None
        except (pa.ArrowInvalid, OSError) as error:
            self.invalid = str(error)
            self._process.stdout.close()  # a process that still writes would never end
            return None


def _enlarge(pipe: IO[bytes]) -> None:
    """Let a pipe hold more, so that the two processes take turns less often."""
    with contextlib.suppress(ImportError, AttributeError, OSError):
        import fcntl

        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
