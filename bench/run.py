"""Compare the costs and rates of messager with those of other libraries.

    python bench/run.py [ROW ...] [--rounds N] [--json]

The two sides of a row run alternately, for several rounds. The table shows the median of their ratios, its spread, and
whether the target is met. Absolute figures are only for orientation. The bench runs in a separate environment,
build/bench/venv, which it creates on first use.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import replace
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench import peers
from bench.measure import Result, measure, progress_printer, stage
from bench.rows import LARGE, NAMES, ROWS, SOCIETY, Row


def main() -> None:
    """Measure the selected rows. Exit code 1 if a row failed; missed targets are not failures."""
    options = _options()
    chosen = [_with_size(row, options.events) for row in _select(options.rows)]
    if options.list:
        _list(chosen)
        return
    if not options.here:
        _run_in_environment(chosen)
    try:
        sys.exit(_measure(chosen, options))
    except KeyboardInterrupt:
        print("\nbench: interrupted", file=sys.stderr)
        sys.exit(130)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("rows", nargs="*", metavar="ROW", help="rows to measure (default: all); --list shows them")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="runs of each side (default: 5)")
    parser.add_argument("--json", action="store_true", help="print one JSON object per row")
    parser.add_argument("--list", action="store_true", help="list the rows and their targets")
    parser.add_argument(
        "--events",
        type=int,
        metavar="N",
        help=f"size of the large stores (default: 10 million; {SOCIETY:,} for the rows about analysis)",
    )
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where the large store is kept for the next run")
    parser.add_argument("--here", action="store_true", help="measure in this Python, without a separate environment")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error(f"--rounds {options.rounds}: give 1 or more")
    if options.events is not None and options.events < 200_000:
        parser.error(f"--events {options.events}: give 200000 or more, because it is compared with 100 thousand")
    return options


def _select(names: list[str]) -> list[Row]:
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        print(f"bench: unknown row {', '.join(unknown)}. Rows are {', '.join(NAMES)}.", file=sys.stderr)
        sys.exit(2)
    return [row for row in ROWS if not names or row.name in names]


def _with_size(row: Row, events: int | None) -> Row:
    """Return the row with the size of the large store in this run."""
    if events is None:
        return row
    return replace(row, what=row.what.replace("10 million", f"{events:,}"))


def _list(rows: list[Row]) -> None:
    wide = max(len(row.name) for row in rows)
    aims = max(len(row.target_text) for row in rows)
    for row in rows:
        print(f"{row.name:<{wide}}  {row.target_text:<{aims}}  {row.what} / {row.against}")


def _run_in_environment(rows: list[Row]) -> None:
    """Replace this process by one in the bench's environment."""
    say = progress_printer()
    try:
        peers.prepare(sorted({row.needs for row in rows if row.needs}), say)
    except peers.NoEnvironment as error:
        print(
            f"bench: measuring in {sys.executable}, as build/bench/venv cannot be created: {error}",
            file=sys.stderr,
        )
        return
    os.chdir(peers.ROOT)
    os.execv(peers.python(), [str(peers.python()), "-m", "bench.run", "--here", *sys.argv[1:]])


def _measure(rows: list[Row], options: argparse.Namespace) -> int:
    from bench.table import Table

    say = progress_printer()
    table = None if options.json else Table(rows)
    keep = options.keep and options.keep.absolute()
    failed = False
    with stage(options.events or LARGE, keep, say, options.events or SOCIETY) as on:
        for together in _group_by_pair(rows):
            for result in measure(together, on, options.rounds):
                failed = failed or result.failed is not None
                say("")
                _print(result, table)
    return 1 if failed else 0


def _group_by_pair(rows: list[Row]) -> list[list[Row]]:
    """Return the rows in order, grouped by pair."""
    pairs: dict[str, list[Row]] = {}
    for row in rows:
        pairs.setdefault(row.pair, []).append(row)
    return list(pairs.values())


def _print(result: Result, table: object) -> None:
    from bench.table import Table

    if isinstance(table, Table):
        table.add(result)
    else:
        print(json.dumps(result.to_dict()), flush=True)


if __name__ == "__main__":
    main()
