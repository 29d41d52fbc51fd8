"""A row of the table: what was tried, what it cost, and whether that breaks a promise."""

from __future__ import annotations

import random
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

COUNTS = ("tried", "offered", "lost", "doubled", "out_of_order", "unnoticed")
"""The columns of the table that hold numbers."""
MOST_PROBLEMS = 5


@dataclass(slots=True)
class Row:
    """What one kind of fault did."""

    fault: str
    tried: int = 0
    """How often the fault was made."""
    offered: int = 0
    """Events (or messages, or values) that the promise was about."""
    lost: int = 0
    """Those that by the promise should be in the log, or should have arrived, and are not there."""
    doubled: int = 0
    """Those that are there twice."""
    out_of_order: int = 0
    """Those whose place contradicts the order in which they were offered."""
    unnoticed: int = 0
    """What went wrong, or missing as the promise allows, without the log saying so."""
    notes: dict[str, int | float] = field(default_factory=dict)
    """What else was counted; no promise."""
    problems: list[str] = field(default_factory=list)
    """What should not have happened at all, in words."""
    seconds: float = 0.0

    @property
    def kept(self) -> bool:
        """Whether every promise was kept, and something was tried at all."""
        wrong = self.lost or self.doubled or self.out_of_order or self.unnoticed or self.problems
        return not wrong and self.tried > 0 and self.offered > 0

    def problem(self, text: str) -> None:
        """Something that should not have happened; the first few are kept."""
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(text)

    def add(self, note: str, number: int) -> None:
        """Count something for the note."""
        self.notes[note] = int(self.notes.get(note, 0)) + number

    def most(self, note: str, number: float) -> None:
        """Keep the largest of something for the note."""
        self.notes[note] = max(self.notes.get(note, 0), round(number, 3))

    def as_dict(self) -> dict[str, Any]:
        """The row as JSON has it."""
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
        """What `as_dict` gave."""
        return cls(**{field: value for field, value in data.items() if field != "kept"})


@dataclass(frozen=True, slots=True)
class Run:
    """How often to try, where to work, and the dice, whose seed is printed."""

    tries: int
    folder: Path
    dice: random.Random

    @property
    def short(self) -> bool:
        """Whether this is one try, as in `make test`: each fault is made, but fewer times and with less traffic."""
        return self.tries == 1

    def place(self, name: str) -> Path:
        """A new folder inside the run's."""
        made = self.folder / name
        made.mkdir()
        return made


Act = Callable[[Run, Row], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault: how it is called, what it is, and how often it is tried."""

    name: str
    title: str
    act: Act
    short: int
    long: int
    seconds: float
    """How long a long run may take before it counts as hung."""
    needs: str | None
    """A program without which it cannot be made."""

    @property
    def possible(self) -> bool:
        """Whether what it needs is on PATH."""
        return self.needs is None or shutil.which(self.needs) is not None


FAULTS: dict[str, Fault] = {}
"""Every fault by its name, in the order of the table."""


def fault(
    name: str, title: str, *, short: int, long: int, seconds: float = 300, needs: str | None = None
) -> Callable[[Act], Act]:
    """Make a function a fault: it breaks something `run.tries` times and counts in the row."""

    def register(act: Act) -> Act:
        FAULTS[name] = Fault(name, title, act, short, long, seconds, needs)
        return act

    return register
