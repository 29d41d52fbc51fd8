"""Points in an experiment: cursors, times, offsets and marks, all resolved to a cursor.

A point is a `Cursor`, an int (ns UTC), a `datetime` (naive means UTC), or text:

- `1700000000000000000:1:42`, a cursor
- `2026-03-01T10:00:00` or `2026-03-01 10:00+02:00`, a time (without a zone, UTC)
- `10:30`, `10:30:05.25`, a time of day (UTC): the first within the experiment, else the nearest to it
- `1700000000000000000`, ns UTC
- `90`, `90s`, `1.5h`, `200ms`, an offset from the experiment's first event (units ns,
  us, ms, s, m, h, d; s if omitted); `-30s`, an offset from its last
- `mark:NAME`, the first mark of that name; `mark:NAME#3`, the third
"""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal

from sqlalchemy import func, select

from messager.record import is_own

from ..db.codes import KINDS, SEQ_BITS
from ..db.database import Database
from ..db.schema import RECORDER_ID, event, recorder
from ..errors import BadCursor
from ..experiments.records import Experiment
from .attributes import meta_of
from .event import _EPOCH, Cursor

Point = Cursor | int | datetime | str | None

_OFFSET = re.compile(r"([+-]?)(\d+(?:\.\d+)?)(ns|us|ms|s|m|h|d)?", re.A)
_FRACTION = re.compile(r"(.*:\d\d)[.,](\d+)(.*)", re.A)
_CLOCK = re.compile(r"[0-2]\d:[0-5]\d(:[0-5]\d([.,]\d+)?)?", re.A)
_COUNTED = re.compile(r"(.*)#([1-9][0-9]{0,8})", re.A | re.DOTALL)
_BARE_NS = re.compile(r"-?\d{16,19}", re.A)
_LAST = (1 << 40) - 1
_UNITS = {
    "ns": 1,
    "us": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
    "d": 86_400_000_000_000,
}
MOST_DURATION_NS = 10**18
"""31 years: no clock and no timer overflows."""


def duration_ns(text: str) -> int:
    """Return a duration such as `90`, `1.5h` or `200ms` in ns. Raises `ValueError`."""
    found = _OFFSET.fullmatch(text.strip())
    if not found or found[1] == "-":
        raise ValueError(f"{text!r:.200} is not a duration: give seconds, or a unit, such as 90, 1.5h or 200ms")
    duration = Decimal(found[2]) * _UNITS[found[3] or "s"]
    if duration > MOST_DURATION_NS:
        raise ValueError(f"{text!r:.50} is too long: give a duration of at most {MOST_DURATION_NS // 10**9:,} s")
    return int(duration)


def time_ns(moment: datetime) -> int:
    """Return a time as ns UTC, exact to the microsecond. A naive time is UTC."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    passed = aware - _EPOCH
    return (passed.days * 86_400 + passed.seconds) * 1_000_000_000 + passed.microseconds * 1_000


def iso_ns(text: str) -> int:
    """Return an ISO 8601 time as ns UTC, exact to nine digits of its fraction. Raises `ValueError`."""
    found = _FRACTION.fullmatch(text)
    if not found:
        return time_ns(datetime.fromisoformat(text))
    return time_ns(datetime.fromisoformat(found[1] + found[3])) + int(found[2].ljust(9, "0")[:9])


async def resolve(database: Database, of: Experiment, point: Point, *, behind: bool = False) -> Cursor | None:
    """Return the cursor of a point; None for None. A time is the first point of its nanosecond, with `behind` the last.

    A time outside the years 1677 to 2262, the range of int64 ns, is before or after all events. Raises `BadCursor`.
    """
    if point is None:
        return None
    found = await _resolve(database, of, point)
    if behind and found.recorder == 0:
        found = found._replace(recorder=_LAST, seq=_LAST)
    return found._replace(ts=clamped(found.ts))


def clamped(ts: int) -> int:
    """Return the nearest time that a store can hold, ns UTC."""
    return max(-(2**63), min(ts, 2**63 - 1))


async def _resolve(database: Database, of: Experiment, point: Cursor | int | datetime | str) -> Cursor:
    if isinstance(point, Cursor):
        return point
    if isinstance(point, datetime):
        return Cursor(time_ns(point), 0, 0)
    if isinstance(point, int):
        return Cursor(point, 0, 0)
    if not isinstance(point, str):
        raise BadCursor(repr(point))
    text = point.strip()
    if text.startswith("mark:"):
        return await _mark(database, of, text[5:])
    if _CLOCK.fullmatch(text):
        return await _clock(database, of, text)
    if _BARE_NS.fullmatch(text):
        return Cursor(int(text), 0, 0)
    if text.count(":") == 2 and "-" not in text[1:] and "T" not in text and " " not in text:
        return Cursor.parse(text)
    found = _OFFSET.fullmatch(text)
    if found:
        first, last = await span(database, of)
        if first is None or last is None:
            return Cursor(0, 0, 0)
        length = int(Decimal(found[2]) * _UNITS[found[3] or "s"])
        return Cursor(last - length if found[1] == "-" else first + length, 0, 0)
    try:
        return Cursor(iso_ns(text), 0, 0)
    except ValueError:
        raise BadCursor(point) from None


async def span(database: Database, of: Experiment) -> tuple[int | None, int | None]:
    """Return the first and last ts of an experiment, from its recorders' counters."""
    query = select(func.min(recorder.c.first_ts), func.max(recorder.c.last_ts)).where(recorder.c.experiment_id == of.id)
    async with database.reading() as connection:
        first, last = (await connection.execute(query)).one()
    return first, last


async def _clock(database: Database, of: Experiment, text: str) -> Cursor:
    """Return a time of day as a cursor: the first within the experiment, else the nearest to it.

    The minute, or the second, in which the experiment begins counts as within.
    """
    first, last = await span(database, of)
    if first is None or last is None:
        return Cursor(0, 0, 0)
    day = first - first % _UNITS["d"]
    try:
        at = day + iso_ns(f"1970-01-01T{text}")
    except ValueError:
        raise BadCursor(text) from None
    within = first - first % _UNITS["s" if text.count(":") == 2 else "m"]
    if at < within and at + _UNITS["d"] - last < first - at:
        at += _UNITS["d"]
    elif at > last and first - (at - _UNITS["d"]) < at - last:
        at -= _UNITS["d"]
    return Cursor(at, 0, 0)


async def _mark(database: Database, of: Experiment, name: str) -> Cursor:
    marks = (
        select(event.c.id, event.c.ts, event.c.attributes, recorder.c.ordinal)
        .select_from(event)
        .join(recorder, recorder.c.id == RECORDER_ID)
        .where(event.c.experiment_id == of.id, event.c.kind == KINDS.index("mark") + 1)
        .order_by(event.c.ts, event.c.id)
    )
    counted = _COUNTED.fullmatch(name)
    wanted, nth = (counted[1], int(counted[2])) if counted else (name, 1)
    seen: Counter[str] = Counter()
    counted_at: Cursor | None = None
    async with database.reading() as connection:
        for number, ts, attributes, ordinal in await connection.execute(marks):
            found = str(meta_of(attributes).get("name"))
            seen[found] += 1
            at = Cursor(ts, ordinal, number & ((1 << SEQ_BITS) - 1))
            if found == name:  # also if the name itself ends in #N
                return at
            if found == wanted and seen[found] == nth:
                counted_at = at
    if counted_at is not None:
        return counted_at
    users = [(each, count) for each, count in seen.items() if not is_own(each)]
    known = ", ".join(f"{each} ({count} times)" if count > 1 else each for each, count in users[:8])
    raise BadCursor(f"mark:{name}", f"{of.exp_id} has no such mark; its marks are: {known or 'none'}")
