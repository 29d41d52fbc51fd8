"""Sessions: the times in which the recorders of an experiment, imported ones too, were recording."""

from __future__ import annotations

from typing import Any

from ...experiments.records import SILENT_NS, RecorderRow

_MIN, _MAX = -(2**63), 2**63 - 1


def session_of(row: RecorderRow) -> tuple[int, int]:
    """Return the start and end of the original recording; an unknown one is the minimum or maximum of int64.

    Without an end of its own, which a repair does not know either, it ends with the last heartbeat.
    """
    end = _end_of(row)
    if row.role != "import":
        return row.started_at, row.heartbeat_at if end is None else end
    start = _time(row.meta.get("started_at"))
    return _MIN if start is None else start, _MAX if end is None else end


def recorded_by(row: RecorderRow) -> tuple[int, int]:
    """Return the start and end of the time in which no sending is missing: the session, and all events.

    A recorder that has not ended may be alive until its next heartbeat is overdue; in an import, its last event stands
    for the heartbeat. If all events are outside of the session, their clock was another one, and only they tell the
    time.
    """
    start, end = session_of(row)
    if _end_of(row) is None and not row.unclean and start != _MIN:
        if row.role == "import":
            end = start if row.last_ts is None else max(start, row.last_ts)
        end += SILENT_NS
    first, last = start if row.first_ts is None else row.first_ts, end if row.last_ts is None else row.last_ts
    return (first, last) if last < start or end < first else (min(start, first), max(end, last))


def _end_of(row: RecorderRow) -> int | None:
    """Return the end of the original recording, None if it is not known; a repair does not know it."""
    if row.role == "import":
        return _time(row.meta.get("ended_at"))
    return None if row.unclean else row.ended_at


def _time(value: Any) -> int | None:
    """Return a time of the meta of an import, None unless it is an integer of 64 bits."""
    return value if type(value) is int and _MIN <= value <= _MAX else None
