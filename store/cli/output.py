"""Output for people: tables, facts, sizes and durations.

Every text is passed through `safe`, so that recorded data cannot send control sequences to the terminal.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

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


def print_json(data: Any) -> None:
    """Print JSON on standard output, indented if that is a terminal."""
    click.echo(dump_strict(data, indent=2 if sys.stdout.isatty() else None))


def table(
    columns: Sequence[tuple[str, str]],
    rows: Sequence[Sequence[str]],
    *,
    gives: Sequence[str] = ("NAME", "TAGS", "HOST", "EXP_ID"),
    spares: Sequence[str] = (),
) -> None:
    """Print an aligned table. A column is (title, "left" or "right"); the cells of STATE and STATUS are coloured.

    If the terminal is too narrow, the columns `gives` are shortened, in this order: exp_ids to prefixes that are
    still distinct, the others to `LEAST`, of channels and agents the parts that differ. If that is not enough, columns
    of `spares` are left out, in this order.
    (rich shortens the widest columns first, exp_ids to equal prefixes, and crops numbers without a mark.)
    """
    from rich.cells import cell_len

    shown = [[safe(cell) for cell in row] for row in rows]
    widths = [max(cell_len(title), *(cell_len(row[at]) for row in shown), 0) for at, (title, _) in enumerate(columns)]
    over = sum(widths) + 2 * (len(widths) - 1) - shutil.get_terminal_size().columns
    if over > 0 and sys.stdout.isatty():
        titles = [title for title, _ in columns]
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
        columns, widths = [columns[at] for at in kept], [widths[at] for at in kept]
        shown = [[row[at] for at in kept] for row in shown]

    def line(cells: Sequence[str]) -> str:
        padded = []
        for cell, width, (title, side) in zip(cells, widths, columns, strict=True):
            space = " " * (width - cell_len(cell))
            text = space + cell if side == "right" else fitted(cell, width)
            colour = STATE_COLOURS.get(cell) if title in ("STATE", "STATUS") else None
            padded.append(text.replace(cell, click.style(cell, fg=colour), 1) if colour else text)
        return "  ".join(padded).rstrip()

    click.secho(line([title for title, _ in columns]), bold=True)
    for row in shown:
        click.echo(line(row))


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
