"""Rows of the table, and the registry of faults."""

from __future__ import annotations

import random
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

COUNTS = ("tried", "offered", "lost", "doubled", "out_of_order", "unnoticed")
"""Columns of the table that hold numbers."""
MOST_PROBLEMS = 5


@dataclass(slots=True)
class Row:
    """Result of one kind of fault."""

    fault: str
    tried: int = 0
    """Number of faults made."""
    offered: int = 0
    """Events, messages or values that the promise covers."""
    lost: int = 0
    """Number of them that are missing from the log, or were not delivered, against the promise."""
    doubled: int = 0
    """Number of them that exist twice."""
    out_of_order: int = 0
    """Number of them that are out of order."""
    unnoticed: int = 0
    """Number of losses and errors without a trace in the log."""
    notes: dict[str, int | float] = field(default_factory=dict)
    """Other counts, not covered by a promise."""
    problems: list[str] = field(default_factory=list)
    """Unexpected errors, as text."""
    seconds: float = 0.0

    @property
    def kept(self) -> bool:
        """True if the promise was kept and at least one fault was made."""
        wrong = self.lost or self.doubled or self.out_of_order or self.unnoticed or self.problems
        return not wrong and self.tried > 0 and self.offered > 0

    def problem(self, text: str) -> None:
        """Add an unexpected error. The first few are kept."""
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(text)

    def add(self, note: str, number: int) -> None:
        """Add to a count of the notes."""
        self.notes[note] = int(self.notes.get(note, 0)) + number

    def most(self, note: str, number: float) -> None:
        """Keep the maximum of a value of the notes."""
        self.notes[note] = max(self.notes.get(note, 0), round(number, 3))

    def as_dict(self) -> dict[str, Any]:
        """Return the row for JSON."""
        return {
            "fault": self.fault,
            **{count: getattr(self, count) for count in COUNTS},
            "kept": self.kept,
            "notes": self.notes,
            "problems": self.problems,
            "seconds": round(self.seconds, 1),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Row:
        """Return the row from the result of `as_dict`."""
        return cls(**{field: value for field, value in data.items() if field != "kept"})


@dataclass(frozen=True, slots=True)
class Run:
    """Number of tries, a working folder, and the random numbers of the printed seed."""

    tries: int
    folder: Path
    dice: random.Random

    @property
    def short(self) -> bool:
        """True for one try, as in `make test`: faults are made less often and with less traffic."""
        return self.tries == 1

    def place(self, name: str) -> Path:
        """Create a folder inside that of the run."""
        made = self.folder / name
        made.mkdir()
        return made


Act = Callable[[Run, Row], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault: name, title, function, and numbers of tries."""

    name: str
    title: str
    act: Act
    short: int
    long: int
    seconds: float
    """Timeout of a run."""
    needs: str | None
    """Program that the fault needs, or None."""

    @property
    def possible(self) -> bool:
        """True if the needed program is on PATH."""
        return self.needs is None or shutil.which(self.needs) is not None


FAULTS: dict[str, Fault] = {}
"""Faults by name, in the order of the table."""


def fault(
    name: str, title: str, *, short: int, long: int, seconds: float = 900, needs: str | None = None
) -> Callable[[Act], Act]:
    """Register a function as a fault: it makes the fault `run.tries` times and counts in the row."""

    def register(act: Act) -> Act:
        FAULTS[name] = Fault(name, title, act, short, long, seconds, needs)
        return act

    return register
