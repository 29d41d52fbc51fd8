"""Counts over time: a row for each bucket, or a sparkline for each value of another dimension."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise, zip_longest
from typing import TYPE_CHECKING

import click

from ..text import length, plural
from .count_cells import TOP, Cells, time_text
from .count_table import show_bars
from .output import note
from .sparkline import sparkline

if TYPE_CHECKING:
    from ..queries.counting.timeline import Stretch

LEAST_CELLS = 10
"""Minimum width of a sparkline."""
EMPTY_ROWS = 3
"""Empty buckets in a row that are printed as such by default; more become one row."""
MOST_EMPTY_ROWS = 1000
"""The same, whatever the longest silence is that was asked for."""


def show_times(cells: Cells, top: int | None) -> None:
    """Print a time: a row for each bucket, and one for each silence."""
    from ..queries.counting.timeline import stretches

    counts, step = cells.counts, cells.counts.dimensions[0].bucket_ns
    numbers = {row.keys[0]: cells.number(row) for row in counts}
    starts = list(numbers)[: top or len(numbers)]
    gap = EMPTY_ROWS * step if counts.max_gap_ns is None else min(counts.max_gap_ns, MOST_EMPTY_ROWS * step)
    rows: list[tuple[str, int | None]] = []
    end = None
    for part in stretches(starts, step, gap):
        if end is not None:
            rows.append((_silence(cells, part.start - end), None))
        rows += [(time_text(at, step), numbers.get(at, 0)) for at in range(part.start, part.end, step)]
        end = part.end
    if rest := list(numbers)[len(starts) :]:
        rows.append((f"and {len(rest):,} more", sum(numbers[at] for at in rest)))
    show_bars(cells, rows, most=max(numbers[at] for at in starts))


def _silence(cells: Cells, ns: int) -> str:
    return f"┆ {_brief(ns)} ┆" if cells.blocks else f"| {_brief(ns)} |"


def _brief(ns: int) -> str:
    """Return a duration without a second unit of zero; from two days on, in days."""
    words = length(ns / 1e9).split()
    return " ".join(words[:2] if words[1] == "d" or words[2:3] == ["0"] else words)


class _Axis:
    """The characters of a sparkline: each is some buckets, or a part of the mark of a silence."""

    def __init__(self, cells: Cells, width: int, bucket_ns: int) -> None:
        self._cells = cells
        self._width = width
        self._step = bucket_ns
        self._parts = list(cells.counts.stretches)
        self._left_in = 0
        """Silences that are not cut, for lack of room."""
        silences = sorted((b.start - a.end for a, b in pairwise(self._parts)), reverse=True)
        if len(silences) > (most := width // 4):
            self._left_in = len(silences) - most
            self._parts = _joined(self._parts, silences[most])
        self._marks = [_silence(cells, b.start - a.end) for a, b in pairwise(self._parts)]
        if sum(map(len, self._marks)) > width // 3:
            self._marks = [mark[0] for mark in self._marks]
        room = max(width - sum(map(len, self._marks)), len(self._parts))
        self._buckets = 1
        """Buckets in a character."""
        while (total := sum(self._sizes())) > room:
            self._buckets = max(self._buckets + 1, self._buckets * total // room)
        self._begins = [part.start for part in self._parts]
        self._firsts = [0, *accumulate(self._sizes())]
        """The number of the first character of each part, marks left out, and the number of all."""

    def _sizes(self) -> list[int]:
        """Return the number of characters of each part."""
        return [-(-(part.end - part.start) // (self._step * self._buckets)) for part in self._parts]

    def add(self, heights: list[int], ts: int, number: int) -> None:
        """Add a bucket to the numbers by character."""
        part = bisect_right(self._begins, ts) - 1
        heights[self._firsts[part] + (ts - self._begins[part]) // (self._step * self._buckets)] += number

    def empty(self) -> list[int]:
        """Return a zero for each character."""
        return [0] * self._firsts[-1]

    def drawn(self, heights: Sequence[int], most: int) -> str:
        """Return a sparkline with the marks of its silences."""
        line = sparkline(heights, most, blocks=self._cells.blocks)
        parts = [click.style(line[a:b], fg="cyan") for a, b in pairwise(self._firsts)]
        marks = [click.style(mark, dim=True) for mark in self._marks]
        return "".join(part + mark for part, mark in zip_longest(parts, marks, fillvalue=""))

    @property
    def title(self) -> str:
        """The first and the last time; the first alone if both are too wide."""
        first, last = self._parts[0].start, self._parts[-1].end - self._step
        texts = [time_text(at, self._step) for at in (first, last)]
        between = " … " if self._cells.blocks else " - "
        if first == last or len(between.join(texts)) > self._width:
            return texts[0]
        room = self._firsts[-1] + sum(map(len, self._marks)) - sum(map(len, texts))
        return (" " * room if room > 2 else between).join(texts)

    def legend(self, most: int) -> str:
        """Return what the characters stand for."""
        lines = [f"1 character is {_brief(self._step * self._buckets)}", f"the highest {self._cells.text(most)}"]
        limit = self._cells.counts.max_gap_ns
        if limit is not None and self._marks:
            cut = f"{plural(len(self._marks), 'silence')} over {_brief(limit)} cut ({self._marks[0][0]})"
            lines.append(cut + (f", the {self._left_in:,} shortest left in" if self._left_in else ""))
        return "; ".join(lines)


def _joined(parts: Sequence[Stretch], longest_ns: int) -> list[Stretch]:
    """Return stretches joined over silences of at most this length."""
    found: list[Stretch] = []
    for part in parts:
        if found and part.start - found[-1].end <= longest_ns:
            found[-1] = replace(found[-1], end=part.end)
        else:
            found.append(part)
    return found


def show_sparklines(cells: Cells, time: int, top: int | None) -> None:
    """Print a row with a sparkline for each value of the dimension that is not number `time`, a time."""
    from rich.cells import cell_len

    from ..queries.counting.dimensions import identity

    counts, other = cells.counts, 1 - time
    lines = counts.totals(other)
    limit = top or (len(lines) if counts.dimensions[other].ordered else TOP)
    labels = cells.labels(other, [row.keys[0] for row in lines[:limit]])
    totals = [cells.number(row) for row in lines[:limit]]
    if rest := lines[limit:]:
        labels.append(f"and {len(rest):,} more")
        totals.append(sum(map(cells.number, rest)))
    title = cells.heading(other)
    widest = min(max(cell_len(title), *map(cell_len, labels)), cells.most_label)
    width = max(len(cells.title), *(len(cells.text(number)) for number in totals))
    axis = _Axis(cells, max(cells.width - widest - width - 4, LEAST_CELLS), counts.dimensions[time].bucket_ns)
    heights = [axis.empty() for _ in labels]
    row_of = {identity(row.keys[0]): at for at, row in enumerate(lines)}
    for row in counts:
        axis.add(heights[min(row_of[identity(row.keys[other])], limit)], row.keys[time], cells.number(row))
    most = max(map(max, heights))
    click.secho(f"{cells.cut(title, widest)}  {cells.title.rjust(width)}  {axis.title}".rstrip(), bold=True)
    for label, number, values in zip(labels, totals, heights, strict=True):
        click.echo(f"{cells.cut(label, widest)}  {cells.text(number).rjust(width)}  {axis.drawn(values, most)}")
    note(axis.legend(most))
