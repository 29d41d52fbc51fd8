"""Progress of long work, on standard error."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress as Bar


def can_redraw() -> bool:
    """Return whether standard error is a terminal that can erase a line."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


class Progress:
    """A progress bar that is erased at the end. It prints nothing where a line cannot be erased."""

    def __init__(self, description: str, noun: str = "events") -> None:
        self._description, self._noun = description, noun
        self._bar: Bar | None = None

    def __enter__(self) -> Progress:
        return self

    def __call__(self, done: int, total: int | None = None, description: str | None = None) -> None:
        """Show how much is done, out of `total` if that is known."""
        if not can_redraw():
            return
        shown: dict[str, Any] = {"completed": done, "total": total, "description": description or self._description}
        shown["count"] = f"{done:,} {self._noun}" if total is None else f"{done:,} of {total:,} {self._noun}"
        if self._bar is None:
            self._bar = _bar()
            self._bar.add_task(**shown)
            self._bar.start()
        else:
            self._bar.update(self._bar.task_ids[0], **shown)

    def clear(self) -> None:
        """Erase the bar before something else is printed. The next call shows it again."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def __exit__(self, *ignored: object) -> None:
        self.clear()


def _bar() -> Bar:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    return Bar(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[count]}", markup=False),
        TimeElapsedColumn(),
        console=Console(stderr=True, highlight=False, emoji=False, markup=False),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
