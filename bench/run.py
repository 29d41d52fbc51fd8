"""make bench: what the log costs and what it reaches, each beside what it is held against.

The two sides of a row run in turn, several rounds; printed are the median of their ratios, its
spread, and whether the target is met. Absolute figures on a shared machine mean little and are
shown only for orientation.

    python bench/run.py [ROW ...] [--rounds N] [--json]

The bench runs in an environment of its own, build/bench/venv, which it makes on first use.
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
from bench.measure import Result, measured, stage, teller
from bench.rows import LARGE, NAMES, ROWS, Row


def main() -> None:
    """Measure the rows that were asked for. Exit code 1 where one failed, whatever the ratios are."""
    options = _options()
    chosen = [_sized(row, options.events) for row in _chosen(options.rows)]
    if options.list:
        _list(chosen)
        return
    if not options.here:
        _move(chosen)
    try:
        sys.exit(_measure(chosen, options))
    except KeyboardInterrupt:
        print("\nbench: interrupted", file=sys.stderr)
        sys.exit(130)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("rows", nargs="*", metavar="ROW", help="which rows (default: all); --list names them")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="how often each side runs (default: 5)")
    parser.add_argument("--json", action="store_true", help="one JSON object a row")
    parser.add_argument("--list", action="store_true", help="say which rows there are")
    parser.add_argument(
        "--events", type=int, default=LARGE, metavar="N", help="of the large store (default: 10 million)"
    )
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the large store there, or use the one there")
    parser.add_argument("--here", action="store_true", help="measure in this Python, without making an environment")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error(f"--rounds {options.rounds}: give 1 or more")
    if options.events < 200_000:
        parser.error(f"--events {options.events}: give 200000 or more; it is held against 100 thousand")
    return options


def _chosen(names: list[str]) -> list[Row]:
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        print(f"bench: there is no row {', '.join(unknown)}; rows are {', '.join(NAMES)}", file=sys.stderr)
        sys.exit(2)
    return [row for row in ROWS if not names or row.name in names]


def _sized(row: Row, events: int) -> Row:
    """The row with the size that the large store has in this run."""
    if events == LARGE:
        return row
    return replace(row, what=row.what.replace("10 million", f"{events:,}"))


def _list(rows: list[Row]) -> None:
    wide = max(len(row.name) for row in rows)
    aims = max(len(row.aim) for row in rows)
    for row in rows:
        print(f"{row.name:<{wide}}  {row.aim:<{aims}}  {row.what} / {row.against}")


def _move(rows: list[Row]) -> None:
    """Go on in the bench's own environment."""
    say = teller()
    try:
        peers.prepare(sorted({row.needs for row in rows if row.needs}), say)
    except peers.NoEnvironment as error:
        print(f"bench: measuring in {sys.executable}, as build/bench/venv cannot be made: {error}", file=sys.stderr)
        return
    os.chdir(peers.ROOT)
    os.execv(peers.python(), [str(peers.python()), "-m", "bench.run", "--here", *sys.argv[1:]])


def _measure(rows: list[Row], options: argparse.Namespace) -> int:
    from bench.table import Table

    say = teller()
    table = None if options.json else Table(rows)
    keep = options.keep and options.keep.absolute()
    failed = False
    with stage(options.events, keep, say) as on:
        for together in _by_pair(rows):
            for result in measured(together, on, options.rounds):
                failed = failed or result.failed is not None
                say("")
                _print(result, table)
    return 1 if failed else 0


def _by_pair(rows: list[Row]) -> list[list[Row]]:
    """The rows in their order, those that share a pair together."""
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
