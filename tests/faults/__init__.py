"""Fault harness: breaks real processes and real servers, and counts what each fault cost.

`python -m tests.faults` tries every fault a few times, `--long` many times, and prints one table. The offered events
are known from outside the broken process: from what it wrote to a pipe, and from a separate subscriber. The stored
events are read with plain SQL.
"""

from __future__ import annotations

from importlib import import_module

from .row import FAULTS, Fault

MODULES = (
    "killing",
    "spooling",
    "serving",
    "network",
    "streams",
    "moving",
    "mqtt",
    "migrating",
    "importing",
    "sharing",
    "projecting",
    "gathering",
    "clocks",
    "replaying",
    "lockstep",
    "forking",
    "tampering",
    "forging",
)
"""Modules with faults, in the order of the table."""


def every_fault() -> dict[str, Fault]:
    """Return every fault by its name."""
    for module in MODULES:
        import_module(f"{__name__}.{module}")
    return FAULTS
