"""Output of rows of any columns, page by page: a table for people, or lines of JSON; `output.Csv` is the third."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from typing import Any, Protocol

import click

from ..json_text import dump_strict
from ..text import plural, safe
from .output import LEAST, Column, as_text, facts, fitted, note, table

Rows = Sequence[Sequence[Any]]


class Output(Protocol):
    """Prints rows, page by page."""

    def begin(self, columns: Sequence[str]) -> None: ...

    def add(self, rows: Rows) -> None: ...

    def end(self) -> None: ...


class JsonLines:
    """One JSON object per row. A column that has the name of an earlier one gets a number: `name_2`."""

    def begin(self, columns: Sequence[str]) -> None:
        self._keys: list[str] = []
        for column in columns:
            key, number = column, 2
            while key in self._keys:
                key, number = f"{column}_{number}", number + 1
            self._keys.append(key)

    def add(self, rows: Rows) -> None:
        lines = [dump_strict(dict(zip(self._keys, map(_readable, row), strict=True))) for row in rows]
        sys.stdout.write("".join(f"{line}\n" for line in lines))

    def end(self) -> None:
        pass


class Table:
    """An aligned table; on a terminal that is too narrow for one, a block of lines per row."""

    def begin(self, columns: Sequence[str]) -> None:
        self._columns = [safe(column) for column in columns]
        self._rows: list[Sequence[Any]] = []

    def add(self, rows: Rows) -> None:
        self._rows += rows

    @property
    def count(self) -> int:
        return len(self._rows)

    def end(self) -> None:
        from rich.cells import cell_len

        cells = [["-" if value is None else safe(as_text(value)) for value in row] for row in self._rows]
        widths = [max(cell_len(row[at]) for row in [self._columns, *cells]) for at in range(len(self._columns))]
        most = max(widths, default=LEAST)
        if sys.stdout.isatty():
            most = _most(widths, shutil.get_terminal_size().columns - 2 * (len(widths) - 1))
            if most < LEAST:
                self._print_blocks(cells)
                return

        def text(value: Any) -> str:
            shown = "-" if value is None else safe(as_text(value))
            return shown if cell_len(shown) <= most else fitted(shown, most)

        table([Column(title, at, text) for at, title in enumerate(self._columns)], self._rows, gives=())
        if not cells:
            note("no rows")

    def _print_blocks(self, cells: list[list[str]]) -> None:
        for number, row in enumerate(cells, 1):
            click.secho(f"row {number}", bold=True)
            facts(list(zip(self._columns, row, strict=True)))
        if not cells:
            note(f"no rows, {plural(len(self._columns), 'column')}")


def _readable(value: Any) -> Any:
    """Return a value that JSON has, or else as text."""
    if isinstance(value, list):
        return [_readable(one) for one in value]
    if isinstance(value, dict):
        return {key: _readable(one) for key, one in value.items()}
    return value if value is None or isinstance(value, str | int | float) else as_text(value)


def _most(widths: Sequence[int], room: int) -> int:
    """Return the largest width to which columns may be cut so that all of them fit into the room."""
    most = max(widths, default=LEAST)
    while most >= LEAST and sum(min(width, most) for width in widths) > room:
        most -= 1
    return most
