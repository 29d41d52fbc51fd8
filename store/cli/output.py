"""Output for people: tables, facts, sizes and durations.

Every text is passed through `safe`, so that recorded data cannot send control sequences to the terminal.
"""

from __future__ import annotations

import csv
import json
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import date, time, timedelta
from enum import Enum
from itertools import pairwise
from operator import attrgetter
from typing import Any, NamedTuple

import click

from ..json_text import dump_strict
from ..text import safe
from .short_names import short_names

LEAST = 8
"""Minimum width of a cell on a narrow terminal."""
OF_NAMES = ("CHANNEL", "FROM", "TO", "WHO")
"""Titles of the columns of channels and agents, which are cut to what tells them apart."""
KIND_COLOURS = {
    "sent": "green",
    "received": "cyan",
    "blocked": "yellow",
    "failed": "red",
    "gap": "magenta",
    "mark": "blue",
}
STATE_COLOURS = {"open": "green", "alive": "green", "idle": "yellow", "dead": "red", "unclean": "red", "damaged": "red"}
"""Colours of the states of experiments and recorders, in tables."""


class Form(Enum):
    """Forms in which a verb prints its answer."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


def print_data(form: Form, data: Any, records: Sequence[dict[str, Any]] | None = None) -> None:
    """Print `data` as JSON, or as CSV the records with equal keys, by default `data` itself."""
    if form is Form.JSON:
        print_json(data)
        return
    rows = data if records is None else records
    output = Csv()
    if rows:
        output.begin(list(rows[0]))
        output.add([list(row.values()) for row in rows])


class Csv:
    """CSV with a line of titles; None is empty. On a terminal, control characters are escaped."""

    def begin(self, columns: Sequence[str]) -> None:
        self._writer = csv.writer(sys.stdout, lineterminator="\n")
        self.add([columns])

    def add(self, rows: Sequence[Sequence[Any]]) -> None:
        cells = [["" if value is None else as_text(value) for value in row] for row in rows]
        self._writer.writerows([[safe(cell) for cell in row] for row in cells] if sys.stdout.isatty() else cells)

    def end(self) -> None:
        pass


def as_text(value: Any) -> str:
    """Return a value as text: lists and objects as JSON, bytes that are not UTF-8 in hex, times as ISO 8601."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return decoded(value)
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return str(value)
    return json.dumps(value, ensure_ascii=False, default=str)


def decoded(value: bytes) -> str:
    """Return bytes as text, or in hex if they are not UTF-8, as the views of a store show names."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"hex:{value.hex().upper()}"


def to_second(time: str) -> str:
    """Return an ISO time to the second, as tables show it."""
    return time[:19].replace("T", " ")


def print_json(data: Any) -> None:
    """Print JSON on standard output, indented if that is a terminal."""
    click.echo(dump_strict(data, indent=2 if sys.stdout.isatty() else None))


def cell(value: Any) -> str:
    """Return a value as the text of a cell: a dash for None, numbers with separators, lists with spaces between."""
    if value is None:
        return "-"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return " ".join(map(str, value))
    return str(value)


def identifier(value: Any) -> str:
    """Return a value that names something, such as an agent or a process: numbers without separators."""
    return "-" if value is None else str(value)


class Column(NamedTuple):
    """A column of a table."""

    title: str
    field: str | int
    """A key or an index of the records; if they are objects, an attribute, with dots for those of attributes."""
    text: Callable[[Any], str] = cell
    right: bool | None = None
    """True for a column on the right; None if its values decide: numbers are."""

    def of(self, record: Any) -> Any:
        """Return the value of a record."""
        if isinstance(self.field, int) or isinstance(record, dict):
            return record[self.field]
        return attrgetter(self.field)(record)


def table(
    columns: Sequence[Column],
    records: Iterable[Any],
    *,
    gives: Sequence[str] = ("NAME", "TAGS", "HOST", "EXP_ID"),
    spares: Sequence[str] = (),
) -> None:
    """Print records as an aligned table: columns of numbers on the right; the cells of STATE and STATUS are coloured.

    If the terminal is too narrow, the columns `gives` are shortened, in this order: exp_ids to prefixes that are
    still distinct, the others to `LEAST`, of channels and agents the parts that differ. If that is not enough, columns
    of `spares` are left out, in this order.
    (rich shortens the widest columns first, exp_ids to equal prefixes, and crops numbers without a mark.)
    """
    from rich.cells import cell_len

    values = [[column.of(record) for column in columns] for record in records]
    shown = [[safe(column.text(value)) for column, value in zip(columns, row, strict=True)] for row in values]
    titles = [column.title for column in columns]
    right = [
        _is_numeric(row[at] for row in values) if column.right is None else column.right
        for at, column in enumerate(columns)
    ]
    widths = [max(cell_len(title), *(cell_len(row[at]) for row in shown), 0) for at, title in enumerate(titles)]
    over = sum(widths) + 2 * (len(widths) - 1) - shutil.get_terminal_size().columns
    if over > 0 and sys.stdout.isatty():
        gaining = {
            at: max(widths[at] - (_least({row[at] for row in shown}) if titles[at] == "EXP_ID" else LEAST), 0)
            for at in (titles.index(title) for title in gives if title in titles)
        }
        left_out = set()
        for title in spares:
            if over <= sum(gaining.values()):
                break
            left_out.add(at := titles.index(title))
            over -= widths[at] + 2
        for at, gain in gaining.items():
            cut = max(min(over, gain), 0)
            widths[at] -= cut
            over -= cut
            if titles[at] in OF_NAMES:
                names = short_names((row[at] for row in shown), widths[at])
                for row in shown:
                    row[at] = names[row[at]]
                widths[at] = max(cell_len(titles[at]), *map(cell_len, names.values()), 0)
        kept = [at for at in range(len(columns)) if at not in left_out]
        titles = [titles[at] for at in kept]
        right = [right[at] for at in kept]
        widths = [widths[at] for at in kept]
        shown = [[row[at] for at in kept] for row in shown]

    def line(cells: Sequence[str]) -> str:
        padded = []
        for text, width, title, numeric in zip(cells, widths, titles, right, strict=True):
            filled = " " * (width - cell_len(text)) + text if numeric else fitted(text, width)
            colour = STATE_COLOURS.get(text) if title in ("STATE", "STATUS") else None
            padded.append(filled.replace(text, click.style(text, fg=colour), 1) if colour else filled)
        return "  ".join(padded).rstrip()

    click.secho(line(titles), bold=True)
    for row in shown:
        click.echo(line(row))


def _is_numeric(values: Iterable[Any]) -> bool:
    known = [value for value in values if value is not None]
    return bool(known) and all(isinstance(value, int | float) and not isinstance(value, bool) for value in known)


def _least(names: set[str]) -> int:
    """Return the width at which names that are cut, and end with an ellipsis, are still distinct."""
    from rich.cells import cell_len

    most = LEAST
    for one, other in pairwise(sorted(names)):
        same = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))
        most = max(most, cell_len(one[:same]) + 3)  # two cells for the first different character, one for …
    return most


def fitted(text: str, width: int) -> str:
    """Return text of exactly this width, padded, or cut at its end."""
    from rich.cells import cell_len, set_cell_size

    return set_cell_size(text, width) if cell_len(text) <= width else set_cell_size(text, width - 1) + "…"


def facts(pairs: Sequence[tuple[str, str]]) -> None:
    """Print aligned `name  value` lines."""
    width = max(len(safe(name)) for name, _ in pairs)
    for name, value in pairs:
        click.echo(f"{click.style(safe(name).ljust(width), fg='cyan')}  {safe(value)}")


def size(number: int) -> str:
    """Return a number of bytes with a unit."""
    value = float(number)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            return f"{number} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    raise AssertionError("unreachable")


def note(text: str) -> None:
    """Print a line on standard error, dim."""
    click.secho(safe(text), err=True, dim=True)
