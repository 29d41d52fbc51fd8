"""Run the fault harness and print its table. Exit code 1 if a promise was broken."""

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
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from . import every_fault
from .process import kill_those_left
from .row import COUNTS, Fault, Row, Run

WIDTH = 140
"""Columns of the table if standard output is not a terminal."""


async def made(fault: Fault, run: Run) -> Row:
    """Return one row of the table. An error of the harness itself is a row with a problem."""
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
    """Return one row, made in this process."""
    fault = every_fault()[name]
    with tempfile.TemporaryDirectory(prefix="messager-faults-") as folder:
        tries = given.tries or (fault.long if given.long else fault.short)
        return asyncio.run(made(fault, Run(tries, Path(folder), random.Random(f"{given.seed} {name}"))))


def made_in_process(name: str, given: argparse.Namespace) -> Row:
    """Return one row, made in a process of its own, so that several run at once."""
    command = [sys.executable, "-m", "tests.faults", "--only", name, "--seed", str(given.seed), "--json"]
    command += ["--long"] if given.long else []
    command += ["--tries", str(given.tries)] if given.tries else []
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    return Row.from_dict(json.loads(done.stdout)["rows"][name])


def table(rows: dict[str, Row], title: str) -> Table:
    """Return the table: one line per fault, and its other counts in the line below."""
    drawn = Table(title=title, title_justify="left", show_lines=True)
    drawn.add_column("fault", ratio=1)
    for heading in (*(count.replace("_", " ") for count in COUNTS), "seconds"):
        drawn.add_column(heading, justify="right")
    drawn.add_column("promise")
    for name, row in rows.items():
        notes = "; ".join(f"{note} {number:,}" for note, number in row.notes.items())
        drawn.add_row(
            f"[bold]{name}[/]: {escape(row.fault)}" + (f"\n[dim]{escape(notes)}[/]" if notes else ""),
            *(f"{getattr(row, count):,}" for count in COUNTS),
            f"{row.seconds:.0f}",
            "[green]kept[/]" if row.kept else "[red]BROKEN[/]",
        )
    return drawn


def conclusion(rows: dict[str, Row], given: argparse.Namespace) -> Iterator[str]:
    """Yield the lines under the table: the result, then the problems of each broken row and how to repeat it."""
    broken = {name: row for name, row in rows.items() if not row.kept}
    tried, offered = (sum(getattr(row, count) for row in rows.values()) for count in ("tried", "offered"))
    yield (
        f"{len(rows) - len(broken)} of {len(rows)} promises kept: {tried:,} faults, {offered:,} events, messages or "
        f"values. Seed {given.seed}."
    )
    for name, row in broken.items():
        yield f"BROKEN {name}: {reason(row)}"
        long = " --long" if given.long else ""
        yield f"    to repeat it: python -m tests.faults{long} --only {name} --seed {given.seed}"


def reason(row: Row) -> str:
    """Return why the promise of a row is broken."""
    return "; ".join(row.problems) or "a count above is not zero, or nothing was tried"


def main() -> int:
    """Run the chosen faults. Return 1 if a promise was broken, else 0."""
    faults = every_fault()
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--long", action="store_true", help="try each fault many times, which takes long")
    parser.add_argument("--only", action="append", choices=list(faults), metavar="NAME", help=", ".join(faults))
    parser.add_argument("--tries", type=int, help="try each fault this many times instead")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 32), help="seed (default: a random one)")
    parser.add_argument("--jobs", type=int, default=2, help="number of faults at once (default: 2)")
    parser.add_argument("--json", action="store_true", help="print the table as JSON")
    given = parser.parse_args()
    names = given.only or [name for name, fault in faults.items() if fault.possible]
    for name in names:
        if not faults[name].possible:
            parser.error(f"{name} needs {faults[name].needs}, which is not on PATH")
    make = made_here if len(names) == 1 else made_in_process
    rows: dict[str, Row] = {}
    errors = Console(stderr=True)
    if len(names) > 1:
        errors.print(f"{len(names)} faults, seed {given.seed}")
        for name in sorted(set(faults) - set(names) if not given.only else ()):
            errors.print(f"skipped: {name}, {faults[name].needs} is not on PATH")
    with ThreadPoolExecutor(given.jobs) as pool:
        making = {pool.submit(make, name, given): name for name in names}
        for future in as_completed(making):
            row = rows[making[future]] = future.result()
            if len(names) > 1:
                result = "kept  " if row.kept else "BROKEN"
                errors.print(f"{len(rows):>3} of {len(names)}  {result}  {making[future]}  {row.seconds:.0f} s")
                if not row.kept:
                    errors.print(f"    {reason(row)}", markup=False)
    rows = {name: rows[name] for name in names}
    if given.json:
        print(json.dumps({"seed": given.seed, "rows": {name: row.as_dict() for name, row in rows.items()}}, indent=2))
    else:
        output = Console(width=None if sys.stdout.isatty() else WIDTH)
        output.print(table(rows, f"Faults, {'long' if given.long else 'short'} form, seed {given.seed}"))
        for line in conclusion(rows, given):
            output.print(line, markup=False)
    return 0 if all(row.kept for row in rows.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
