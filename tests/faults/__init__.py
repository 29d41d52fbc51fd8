"""The fault harness: real processes and real servers, broken on purpose, and a table of what that cost.

`python -m tests.faults` makes every fault a few times, `--long` many times. What was offered
is known from outside the broken process: from what it said on a pipe while it lived, and
from a subscriber of the harness' own. What became of it is read from the store with plain SQL.
"""

from __future__ import annotations

from importlib import import_module

from .row import FAULTS, Fault

ROOMS = (
    "killing",
    "spooling",
    "serving",
    "network",
    "moving",
    "mqtt",
    "migrating",
    "importing",
    "sharing",
    "clocks",
    "replaying",
    "tampering",
)
"""The modules with faults, in the order of the table."""


def every_fault() -> dict[str, Fault]:
    """Every fault by its name."""
    for room in ROOMS:
        import_module(f"{__name__}.{room}")
    return FAULTS
