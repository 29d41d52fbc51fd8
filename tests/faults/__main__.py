"""`python -m tests.faults [--long] [--only NAME] [--seed N] [--json]`: break things, print one table.

Exit code 1 where a promise was broken.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import secrets
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from rich.console import Console
from rich.table import Table

from . import every_fault
from .process import kill_those_left
from .row import COUNTS, Fault, Row, Run

WIDTH = 180
"""Columns of the table where nobody looks at a terminal."""


async def made(fault: Fault, run: Run) -> Row:
    """One row of the table. A harness that fails makes a row that is not kept."""
    row = Row(fault.title)
    started = time.monotonic()
    try:
        async with asyncio.timeout(fault.seconds):
            await fault.act(run, row)
    except TimeoutError:
        row.problem(f"it did not end within {fault.seconds:g} s")
    except Exception as error:
        row.problem(f"{type(error).__name__}: {error}")
    finally:
        await kill_those_left()
    row.seconds = time.monotonic() - started
    return row


def made_here(name: str, given: argparse.Namespace) -> Row:
    """One row, with the dice of the seed."""
    fault = every_fault()[name]
    with tempfile.TemporaryDirectory(prefix="messager-faults-") as folder:
        tries = given.tries or (fault.long if given.long else fault.short)
        return asyncio.run(made(fault, Run(tries, Path(folder), random.Random(f"{given.seed} {name}"))))


def made_aside(name: str, given: argparse.Namespace) -> Row:
    """The same in a process of its own, so that several can be made at once."""
    command = [sys.executable, "-m", "tests.faults", "--only", name, "--seed", str(given.seed), "--json"]
    command += ["--long"] if given.long else []
    command += ["--tries", str(given.tries)] if given.tries else []
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    return Row.from_dict(json.loads(done.stdout)["rows"][name])


def table(rows: dict[str, Row], given: argparse.Namespace) -> Table:
    """What was tried, and what it cost."""
    drawn = Table(title=f"Faults, {'long' if given.long else 'short'} form, seed {given.seed}", title_justify="left")
    for heading in ("fault", *(count.replace("_", " ") for count in COUNTS), "s", "", "note"):
        drawn.add_column(heading, justify="left" if heading in ("fault", "", "note") else "right", overflow="fold")
    for name, row in rows.items():
        numbers = [f"{getattr(row, count):,}" for count in COUNTS]
        notes = [
            f"{note}: {number:,}" if not isinstance(number, str) else f"{note}: {number}"
            for note, number in row.notes.items()
        ]
        mark = "[green]kept[/]" if row.kept else "[red]BROKEN[/]"
        drawn.add_row(
            f"{row.fault}\n[dim]{name}[/]", *numbers, f"{row.seconds:.0f}", mark, "; ".join([*notes, *row.problems])
        )
    return drawn


def main() -> int:
    """Run the faults that are asked for; 1 where a promise was broken."""
    faults = every_fault()
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--long", action="store_true", help="many tries of each, which takes long")
    parser.add_argument("--only", action="append", choices=list(faults), metavar="NAME", help=", ".join(faults))
    parser.add_argument("--tries", type=int, help="so many of each instead")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 32), help="the dice of an earlier run")
    parser.add_argument("--jobs", type=int, default=2, help="how many faults are made at once (default: 2)")
    parser.add_argument("--json", action="store_true", help="the table as JSON on standard output")
    given = parser.parse_args()
    names = given.only or [name for name, fault in faults.items() if fault.possible]
    make = made_here if len(names) == 1 else made_aside
    rows: dict[str, Row] = {}
    told = Console(stderr=True)
    if len(names) > 1:
        told.print(f"seed {given.seed}, {len(names)} faults")
        for name in sorted(set(faults) - set(names) if not given.only else ()):
            told.print(f"left out: {name}, as there is no {faults[name].needs} on PATH")
    with ThreadPoolExecutor(given.jobs) as pool:
        making = {pool.submit(make, name, given): name for name in names}
        for future in as_completed(making):
            row = rows[making[future]] = future.result()
            if len(names) > 1:
                told.print(
                    f"{len(rows):>3}  {'kept  ' if row.kept else 'BROKEN'}  {making[future]}  {row.seconds:.0f} s"
                )
    rows = {name: rows[name] for name in names}
    if given.json:
        print(json.dumps({"seed": given.seed, "rows": {name: row.as_dict() for name, row in rows.items()}}, indent=2))
    else:
        Console(width=None if sys.stdout.isatty() else WIDTH).print(table(rows, given))
    return 0 if all(row.kept for row in rows.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
