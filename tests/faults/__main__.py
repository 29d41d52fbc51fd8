"""`python -m tests.faults [--long] [--only NAME] [--seed N] [--json]`: break things, print one table.

Exit code 1 where a promise was broken.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import secrets
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from . import every_fault
from .row import COUNTS, Fault, Row, Run


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
    row.seconds = time.monotonic() - started
    return row


def table(rows: dict[str, Row], long: bool, seed: int) -> Table:
    """What was tried, and what it cost."""
    drawn = Table(title=f"Faults, {'long' if long else 'short'} form, seed {seed}", title_justify="left")
    for heading in ("fault", *(count.replace("_", " ") for count in COUNTS), "s", "", "note"):
        drawn.add_column(heading, justify="left" if heading in ("fault", "", "note") else "right", overflow="fold")
    for row in rows.values():
        numbers = [f"{getattr(row, count):,}" for count in COUNTS]
        notes = [
            f"{note}: {number:,}" if not isinstance(number, str) else f"{note}: {number}"
            for note, number in row.notes.items()
        ]
        mark = "[green]kept[/]" if row.kept else "[red]BROKEN[/]"
        drawn.add_row(row.fault, *numbers, f"{row.seconds:.0f}", mark, "; ".join([*notes, *row.problems]))
    return drawn


def main() -> int:
    """Run the faults that are asked for; 1 where a promise was broken."""
    faults = every_fault()
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--long", action="store_true", help="many tries of each, for about twenty minutes")
    parser.add_argument("--only", action="append", choices=list(faults), metavar="NAME", help=", ".join(faults))
    parser.add_argument("--tries", type=int, help="so many of each instead")
    parser.add_argument("--seed", type=int, help="the dice of an earlier run")
    parser.add_argument("--json", action="store_true", help="the table as JSON on standard output")
    given = parser.parse_args()
    seed = secrets.randbelow(1 << 32) if given.seed is None else given.seed
    told = Console(stderr=True)
    told.print(f"seed {seed}")
    rows: dict[str, Row] = {}
    with told.status("") as status:
        for name in given.only or faults:
            fault = faults[name]
            tries = given.tries or (fault.long if given.long else fault.short)

            def progress(row: Row, name: str = name, tries: int = tries) -> None:
                status.update(f"{name}: {row.tried} of {tries}")

            with tempfile.TemporaryDirectory(prefix="messager-faults-") as folder:
                run = Run(tries, Path(folder), random.Random(f"{seed} {name}"), progress)
                status.update(name)
                rows[name] = asyncio.run(made(fault, run))
            if not given.json:
                told.print(f"{'kept  ' if rows[name].kept else 'BROKEN'} {name}  {rows[name].seconds:.0f} s")
    if given.json:
        print(json.dumps({"seed": seed, "rows": {name: row.as_dict() for name, row in rows.items()}}, indent=2))
    else:
        Console(width=None if sys.stdout.isatty() else 200).print(table(rows, given.long, seed))
    return 0 if all(row.kept for row in rows.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
