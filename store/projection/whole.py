"""All events of a projection, or all messages, as one table: read as they lie there, without SQL."""

from __future__ import annotations

from typing import Any

from ..db.codes import FROM_DERIVED, TO_DERIVED
from .query import COLUMNS, Files
from .schema import pyarrow, schema

_MADE = {"time", "derived", "received_at", "copies"}
_READ = [*(name for name in COLUMNS if name not in _MADE), "flags", "id", "message_id", "is_copy"]


def whole(here: Files, columns: Any, *, messages: bool) -> Any:
    """Return all events, or the messages that are not redacted, as a `pyarrow.Table` with columns of `COLUMNS`."""
    pa = pyarrow()
    compute = pa.compute
    names = [name for name in schema().names if name in _READ]
    tables = [pa.parquet.ParquetFile(path).read(names).cast(_of(names)) for path in here.paths]
    found = pa.concat_tables(_in_order([*tables, here.tail.select(names)]))
    sums = found.select(["message_id", "ts"]).filter(
        compute.and_(compute.not_equal(found["message_id"], found["id"]), compute.invert(found["is_copy"]))
    )
    sums = sums.group_by("message_id").aggregate([("ts", "min"), ("ts", "count")])
    if messages:
        found = found.filter(
            compute.and_(compute.equal(found["message_id"], found["id"]), compute.invert(found["redacted"]))
        )
    at = compute.index_in(found["id"], sums["message_id"])
    first, number = (sums[name].combine_chunks().take(at) for name in ("ts_min", "ts_count"))
    kind, nothing = found["kind"].cast(pa.string()), pa.scalar(None, pa.int64())
    sent, received = compute.equal(kind, "sent"), compute.equal(kind, "received")
    made = {
        "time": _time(found["ts"]),
        "derived": compute.bit_wise_and(found["flags"], pa.scalar(FROM_DERIVED | TO_DERIVED, pa.uint8())),
        "received_at": _time(compute.if_else(received, found["ts"], compute.if_else(sent, first, nothing))),
        "copies": compute.if_else(sent, compute.fill_null(number, 0), nothing),
    }
    arrays = [made[one.name] if one.name in made else found[one.name] for one in columns]
    return pa.Table.from_arrays(
        [column.cast(one.type) for column, one in zip(arrays, columns, strict=True)], schema=columns
    )


def _of(names: list[str]) -> Any:
    return pyarrow().schema([schema().field(name) for name in names])


def _time(ns: Any) -> Any:
    """Return times in ns UTC as microseconds, rounded down."""
    pa = pyarrow()
    compute = pa.compute
    us = compute.divide(ns, 1000)  # rounds to 0
    above = compute.greater(compute.multiply(us, 1000), ns)
    return compute.subtract(us, above.cast(pa.int64())).cast(pa.timestamp("us", "UTC"))


def _in_order(tables: list[Any]) -> list[Any]:
    """Return tables, each of which is in replay order, so that all are; one may begin before the end of others."""
    pa = pyarrow()
    found: list[Any] = []
    for table in tables:
        late: list[Any] = []
        while table.num_rows and found and (begin := _before(found[-1], table, 0)) < found[-1].num_rows:
            last = found.pop()
            late.insert(0, last.slice(begin))
            if begin:
                found.append(last.slice(0, begin))
        if late:
            early = _before(table, late[-1], late[-1].num_rows - 1)
            mixed = pa.concat_tables([*late, table.slice(0, early)])
            found.append(mixed.sort_by([("ts", "ascending"), ("id", "ascending")]))
            table = table.slice(early)
        if table.num_rows:
            found.append(table)
    return found or tables


def _before(table: Any, other: Any, row: int) -> int:
    """Return the number of rows that are before a row of another table."""
    compute = pyarrow().compute
    ts, number = other["ts"][row], other["id"][row]
    same = compute.and_(compute.equal(table["ts"], ts), compute.less(table["id"], number))
    return int(compute.sum(compute.or_(compute.less(table["ts"], ts), same)).as_py() or 0)
