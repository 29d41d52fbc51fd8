"""The table of results, printed line by line."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from .measure import Result
from .rows import Row

_TITLES = ("ROW", "RATIO", "SPREAD", "TARGET", "MET", "OURS", "THEIRS", "UNIT", "WHAT / AGAINST")


class Table:
    """Prints its header, and then a line per result."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._console = Console(highlight=False)
        name = max([3, *(len(row.name) for row in rows)])
        aim = max([6, *(len(row.target_text) for row in rows)])
        unit = max([4, *(len(row.unit) for row in rows)])
        self._widths = (name, 7, 16, aim, 3, 9, 9, unit, 0)
        self._print(_TITLES, ["bold"] * len(_TITLES))

    def add(self, result: Result) -> None:
        """Print one result."""
        row = result.row
        if result.failed or result.skipped:
            word = "failed" if result.failed else "skipped"
            line = Text(f"{row.name:<{self._widths[0]}}  ")
            line.append(f"{word}: {result.failed or result.skipped}", "red" if result.failed else "yellow")
            self._write(line)
            return
        met = result.met
        style = "" if met is None else "green" if met else "red"
        low, high = result.spread
        self._print(
            (
                row.name,
                figure(result.ratio),
                f"{figure(low)} to {figure(high)}",
                row.target_text,
                "-" if met is None else "yes" if met else "no",
                figure(result.ours),
                figure(result.theirs),
                row.unit,
                f"{row.what} / {row.against}",
            ),
            ["", style, "dim", "", style, "", "", "dim", "dim"],
        )

    def _print(self, cells: Sequence[str], styles: Sequence[str]) -> None:
        line = Text()
        for at, (cell, width, style) in enumerate(zip(cells, self._widths, styles, strict=True)):
            right = at in (1, 5, 6)
            line.append(cell.rjust(width) if right else cell.ljust(width), style)
            line.append("  " if at < len(cells) - 1 else "")
        self._write(line)

    def _write(self, line: Text) -> None:
        if self._console.is_terminal:  # one line per row, cut at the width of the terminal
            self._console.print(line, no_wrap=True, overflow="ellipsis")
        else:
            self._console.print(line, soft_wrap=True)


def figure(value: float) -> str:
    """Format a number with three significant digits, or as an integer with commas."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if abs(value) >= 0.1 or value == 0 else f"{value:.2g}"
