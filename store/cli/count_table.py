"""Tables of counts by one dimension, with bars, and by two, as a matrix."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import click

from ..text import plural
from .count_cells import TOP, Cells
from .output import note
from .sparkline import bar

if TYPE_CHECKING:
    from ..queries.counting.count import Count

MOST_TITLE = 12
"""Maximum width of the title of a column."""
MOST_BAR = 50


def show_rows(cells: Cells, top: int | None) -> None:
    """Print one dimension: a row with a bar for each value."""
    counts = cells.counts
    limit = top or (len(counts) if counts.dimensions[0].ordered else TOP)
    shown, rest = counts.rows[:limit], counts.rows[limit:]
    rows: list[tuple[str, int | None]] = [
        (label, cells.number(row))
        for label, row in zip(cells.labels(0, [row.keys[0] for row in shown]), shown, strict=True)
    ]
    if rest:
        rows.append((f"and {len(rest):,} more", sum(map(cells.number, rest))))
    show_bars(cells, rows, most=max(map(cells.number, shown)))


def show_bars(cells: Cells, rows: Sequence[tuple[str, int | None]], *, most: int) -> None:
    """Print labels with numbers, and with bars up to `most`; a label without a number is a silence."""
    from rich.cells import cell_len

    title = cells.heading(0)
    widest = min(max(cell_len(title), *(cell_len(label) for label, _ in rows)), cells.most_label)
    width = max(len(cells.title), *(len(cells.text(number or 0)) for _, number in rows))
    room = max(min(cells.width - widest - width - 4, MOST_BAR), 1)
    click.secho(f"{cells.cut(title, widest)}  {cells.title.rjust(width)}", bold=True)
    for label, number in rows:
        if number is None:
            click.secho(cells.cut(label, widest).rstrip(), dim=True)
            continue
        drawn = click.style(bar(number, most, room, blocks=cells.blocks), fg="cyan") if number <= most else ""
        click.echo(f"{cells.cut(label, widest)}  {cells.cell(number, width)}  {drawn}".rstrip())


def show_matrix(cells: Cells, top: int | None) -> None:
    """Print two dimensions: a row for each value of the first, a column for each of the second, and totals."""
    counts = cells.counts
    lines, columns = counts.totals(0), counts.totals(1)
    limit = top or (len(lines) if counts.dimensions[0].ordered else TOP)
    row_of, column_of = _places(lines), _places(columns)
    matrix: dict[tuple[int, int], int] = {}
    for row in counts:
        place = row_of[_key(row.keys[0])], column_of[_key(row.keys[1])]
        matrix[min(place[0], limit), place[1]] = matrix.get((min(place[0], limit), place[1]), 0) + cells.number(row)
    table = _Matrix(cells, lines[:limit], columns, matrix)
    if len(lines) > limit:
        table.add_rest(lines[limit:])
    table.print()


def _places(rows: Sequence[Count]) -> dict[Any, int]:
    return {_key(row.keys[0]): at for at, row in enumerate(rows)}


def _key(value: Any) -> Any:
    from ..queries.counting.dimensions import identity

    return identity(value)


class _Matrix:
    """A matrix that is cut to the width of the terminal."""

    def __init__(
        self, cells: Cells, lines: Sequence[Count], columns: Sequence[Count], matrix: dict[tuple[int, int], int]
    ) -> None:
        self._cells = cells
        self._columns = columns
        self._matrix = matrix
        self._labels = cells.labels(0, [row.keys[0] for row in lines])
        self._totals = [cells.number(row) for row in lines]

    def add_rest(self, lines: Sequence[Count]) -> None:
        """Add a row for the values that are left out."""
        self._labels.append(f"and {len(lines):,} more")
        self._totals.append(sum(map(self._cells.number, lines)))

    def print(self) -> None:
        from rich.cells import cell_len

        cells = self._cells
        corner = f"{cells.heading(0)} \\ {cells.heading(1)}"
        widest = min(max(cell_len(corner), *map(cell_len, self._labels)), cells.most_label)
        numbers = [cells.number(row) for row in self._columns]
        titles = cells.labels(1, [row.keys[0] for row in self._columns], MOST_TITLE)
        total = sum(numbers)
        width = max(len("TOTAL"), len(cells.text(total)))
        widths = [
            max(min(cell_len(title), MOST_TITLE), len(cells.text(number)))
            for title, number in zip(titles, numbers, strict=True)
        ]
        shown = self._fitting(widths, cells.width - widest - 2 - width)
        rest = f"and {len(titles) - shown:,} more" if shown < len(titles) else ""
        heads = [
            " " * (w - cell_len(t)) + cells.cut(t, min(w, cell_len(t))) for t, w in zip(titles, widths, strict=True)
        ]
        heads = [cells.cut(corner, widest), *heads[:shown], *([rest] if rest else []), "TOTAL".rjust(width)]
        click.secho("  ".join(heads), bold=True)
        for at, (label, number) in enumerate(zip(self._labels, self._totals, strict=True)):
            values = [self._matrix.get((at, column), 0) for column in range(len(titles))]
            line = self._line(cells.cut(label, widest), values, widths[:shown], len(rest))
            click.echo(line + click.style("  " + cells.text(number).rjust(width), bold=True))
        line = self._line(cells.cut("TOTAL", widest), numbers, widths[:shown], len(rest))
        click.secho(f"{line}  {cells.text(total).rjust(width)}", bold=True)
        if rest:
            note(f"{plural(len(titles) - shown, 'column')} left out at this width; --json has all")

    def _fitting(self, widths: Sequence[int], room: int) -> int:
        """Return the number of columns that fit, at least one; the others become one column."""
        ends = list(accumulate(width + 2 for width in widths))
        if ends[-1] <= room:
            return len(widths)
        rest = len(f"  and {len(widths):,} more")
        return max(1, sum(end <= room - rest for end in ends))

    def _line(self, label: str, values: Sequence[int], widths: Sequence[int], rest: int) -> str:
        """Return a row without its total; the values that have no column are added up in one of the width `rest`."""
        shown = [self._cells.cell(value, width) for value, width in zip(values, widths, strict=False)]
        if rest:
            shown.append(self._cells.cell(sum(values[len(widths) :]), rest))
        return "  ".join([label, *shown])
