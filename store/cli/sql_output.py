"""Output of rows of any columns: a table for people, CSV, or lines of JSON."""

from __future__ import annotations

import csv
import json
import shutil
import sys
from collections.abc import Sequence
from typing import Any, Protocol

import click

from ..json_text import dump_strict
from ..text import plural, safe
from .output import LEAST, facts, fitted, note, table

Rows = Sequence[Sequence[Any]]


class Output(Protocol):
    """Prints rows, page by page."""

    def begin(self, columns: Sequence[str]) -> None: ...

    def add(self, rows: Rows) -> None: ...

    def end(self) -> None: ...


class Csv:
    """CSV with a line of titles; None is empty. On a terminal, control characters are escaped."""

    def begin(self, columns: Sequence[str]) -> None:
        self._writer = csv.writer(sys.stdout, lineterminator="\n")
        self.add([columns])

    def add(self, rows: Rows) -> None:
        cells = [["" if value is None else _text(value) for value in row] for row in rows]
        self._writer.writerows([[safe(cell) for cell in row] for row in cells] if sys.stdout.isatty() else cells)

    def end(self) -> None:
        pass


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
        lines = [dump_strict(dict(zip(self._keys, map(_json, row), strict=True))) for row in rows]
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

        cells = [["-" if value is None else safe(_text(value)) for value in row] for row in self._rows]
        sides = ["right" if self._is_numeric(at) else "left" for at in range(len(self._columns))]
        if sys.stdout.isatty():
            shown = [self._columns, *cells]
            widths = [max(cell_len(row[at]) for row in shown) for at in range(len(self._columns))]
            most = _most(widths, shutil.get_terminal_size().columns - 2 * (len(widths) - 1))
            if most < LEAST:
                self._print_blocks(cells)
                return
            cells = [[cell if cell_len(cell) <= most else fitted(cell, most) for cell in row] for row in cells]
        table(list(zip(self._columns, sides, strict=True)), cells, gives=())
        if not cells:
            note("no rows")

    def _is_numeric(self, at: int) -> bool:
        found = [row[at] for row in self._rows if row[at] is not None]
        return bool(found) and all(isinstance(value, int | float) for value in found)

    def _print_blocks(self, cells: list[list[str]]) -> None:
        for number, row in enumerate(cells, 1):
            click.secho(f"row {number}", bold=True)
            facts(list(zip(self._columns, row, strict=True)))
        if not cells:
            note(f"no rows, {plural(len(self._columns), 'column')}")


def _most(widths: Sequence[int], room: int) -> int:
    """Return the largest width to which columns may be cut so that all of them fit into the room."""
    most = max(widths, default=LEAST)
    while most >= LEAST and sum(min(width, most) for width in widths) > room:
        most -= 1
    return most


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return _decoded(value)
    return json.dumps(value, ensure_ascii=False, default=str)


def _json(value: Any) -> Any:
    return _decoded(value) if isinstance(value, bytes) else value


def _decoded(value: bytes) -> str:
    """Return bytes as text, or in hex if they are not UTF-8, as the views of a store show names."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"hex:{value.hex().upper()}"
