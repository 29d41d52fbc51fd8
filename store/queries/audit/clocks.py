"""Differences between the clocks of recorders."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median_low

from ...experiments.records import RecorderRow

MEASURED_NS = 1_000_000
"""Smallest difference of clocks that counts: smaller ones are within the error of their measurement."""


def clock_difference(recorders: Iterable[RecorderRow]) -> int | None:
    """Return the largest known difference between the clocks of recorders in ns; None below `MEASURED_NS`.

    On one machine, until it restarts, all clocks advance with one monotonic clock, so their anchors give the
    difference. Those of two machines were each compared with the clock of their broker; the error of that is up to half
    a round trip, so the median of the recorders of a machine counts.
    """
    machines: dict[str, list[RecorderRow]] = {}
    for row in recorders:
        machines.setdefault(row.boot_id or row.uuid, []).append(row)
    found = []
    offsets = []
    for rows in machines.values():
        anchors = [
            row.anchor_wall - row.anchor_monotonic
            for row in rows
            if row.anchor_wall is not None and row.anchor_monotonic is not None
        ]
        found.append(_range(anchors))
        if measured := [row.broker_offset for row in rows if row.broker_offset is not None]:
            offsets.append(median_low(measured))
    difference = max([*found, _range(offsets)])
    return difference if difference >= MEASURED_NS else None


def _range(values: Sequence[int]) -> int:
    return max(values) - min(values) if values else 0
