"""Program that reads a store with a driver of ADBC and writes record batches, as an Arrow stream, to standard output.

It runs in a process of its own, because the driver for SQLite contains another SQLite than Python's: closing a file
there would drop all locks that this process has on it. The job is a JSON object on standard input:

    driver, uri   package of the driver, and the URI of the database
    setup         statements for every connection
    options       options of each query, for the driver
    events        query of a page; the words `ts`, `number` of the job stand for the place that was read last
    columns       name and type ("integer", "text" or "binary") of each of its columns; `ts` and `id` are among them
    size          number of events in a page
    large         template of the query of one payload that the query of a page leaves out, with {} for the id
    lookups       tables that are read by ids of events: name, query, key, tail, columns; the first column is the id

Each page, and each lookup, is a transaction of its own. This file uses no other module of the package, so that it
starts fast and runs wherever the package is.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import adbc_driver_manager
import pyarrow as pa
import pyarrow.compute as pc

TYPES = {"integer": pa.int64(), "text": pa.string(), "binary": pa.binary()}
GAP = 16
"""Ids that lie closer together are read as a range."""
RANGES = 100
"""Maximum of ranges in a query; SQLite takes 500 parts. More ids than that are read one by one."""
HELD = 8 * 1024 * 1024
"""Maximum bytes of large payloads in a batch."""


class Reader:
    """Connection of the driver."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._job = job
        # the dbapi module of a driver would import pandas and polars, which takes longer than all the rest
        self._connection = adbc_driver_manager.AdbcConnection(
            importlib.import_module(job["driver"]).connect(job["uri"])
        )
        for statement in job["setup"]:
            self._execute(statement)

    def _execute(self, query: str) -> Any:
        with adbc_driver_manager.AdbcStatement(self._connection) as statement:
            if self._job["options"]:
                statement.set_options(**self._job["options"])
            statement.set_sql_query(query)
            stream, _ = statement.execute_query()
            return pa.RecordBatchReader.from_stream(stream).read_all()

    def fetch(self, query: str, columns: list[list[str]]) -> pa.RecordBatch:
        """Return all rows of a query, with columns of these names and types."""
        table = self._execute(query)
        made = {}
        for (name, kind), column in zip(columns, table.columns, strict=True):
            # a driver for SQLite gives a column of nulls the type of a number
            values = pa.nulls(len(column), TYPES[kind]) if column.null_count == len(column) else column.combine_chunks()
            made[name] = pc.cast(values.chunk(0) if isinstance(values, pa.ChunkedArray) else values, TYPES[kind])
        return pa.RecordBatch.from_pydict(made)

    def page(self, ts: int, number: int) -> pa.RecordBatch:
        """Return the page of events behind a place."""
        job = self._job
        return self.fetch(job["events"].replace(job["ts"], str(ts)).replace(job["number"], str(number)), job["columns"])

    def completed(self, page: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield a page, with large payloads and lookups, in batches."""
        for part, payloads in self._with_payloads(page):
            arrays = dict(zip(part.schema.names, part.columns, strict=True))
            arrays["payload"] = payloads
            for lookup in self._job["lookups"]:
                found = self._looked_up(lookup, part["id"])
                at = pc.index_in(part["id"], value_set=found.column(0))
                arrays[lookup["name"]] = at.is_valid()
                for name, _ in lookup["columns"][1:]:
                    arrays[name] = found.column(name).take(at)
            yield pa.RecordBatch.from_pydict(arrays)

    def _with_payloads(self, page: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
        """Yield parts of a page, each with all of its payloads."""
        payloads = page["payload"]
        if not payloads.null_count:
            yield page, payloads
            return
        begin = held = 0
        large: dict[int, bytes] = {}
        for at in pc.indices_nonzero(payloads.is_null()).to_pylist():
            number = page["id"][at].as_py()
            [[payload]] = self.fetch(self._job["large"].format(number), [["payload", "binary"]]).to_pydict().values()
            large[at] = payload
            held += len(payload)
            if held > HELD:
                yield _with_large(page.slice(begin, at + 1 - begin), begin, large)
                begin, held, large = at + 1, 0, {}
        if begin < page.num_rows:
            yield _with_large(page.slice(begin), begin, large)

    def _looked_up(self, lookup: dict[str, Any], ids: pa.Array) -> pa.RecordBatch:
        """Return the rows of a lookup that have one of these ids, and possibly more rows."""
        key = lookup["key"]
        ranges = _ranges(ids)
        if len(ranges) <= RANGES:
            where = [f"{key} BETWEEN {low} AND {high}" for low, high in ranges]
        else:
            where = [f"{key} IN ({', '.join(map(str, ids.to_pylist()))})"]
        query = " UNION ALL ".join(f"{lookup['query']} WHERE {each} {lookup['tail']}" for each in where)
        return self.fetch(query, lookup["columns"])


def _with_large(part: pa.RecordBatch, begin: int, large: dict[int, bytes]) -> tuple[pa.RecordBatch, pa.Array]:
    payloads = part["payload"].to_pylist()
    for at, payload in large.items():
        payloads[at - begin] = payload
    return part, pa.array(payloads, pa.binary())


def _ranges(ids: pa.Array) -> list[tuple[int, int]]:
    """Return ranges that contain all ids, and few others."""
    ordered = ids.take(pc.sort_indices(ids))
    steps = pc.pairwise_diff(ordered)
    starts = [0, *pc.indices_nonzero(pc.fill_null(pc.greater(steps, GAP), False)).to_pylist()]
    ends = [*(start - 1 for start in starts[1:]), len(ordered) - 1]
    return list(zip(ordered.take(pa.array(starts)).to_pylist(), ordered.take(pa.array(ends)).to_pylist(), strict=True))


def main() -> None:
    job = json.loads(sys.stdin.readline())
    pages, lookups = Reader(job), Reader(job)
    place = job["place"]
    with ThreadPoolExecutor(1) as pool, pa.PythonFile(sys.stdout.buffer, "w") as out:
        writer = None
        page = pages.page(*place)
        while page.num_rows:
            last = page.slice(page.num_rows - 1)
            place = last["ts"][0].as_py(), last["id"][0].as_py()
            following = pool.submit(pages.page, *place)
            for batch in lookups.completed(page):
                writer = writer or pa.ipc.new_stream(out, batch.schema)
                writer.write_batch(batch)
            if page.num_rows < job["size"]:
                break
            page = following.result()
        if writer is not None:
            writer.close()


if __name__ == "__main__":
    main()
