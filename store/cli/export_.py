"""messager export"""

from __future__ import annotations

import sys
from typing import Any

import click

from .options import chosen, filter_options, opened, run, store_option
from .output import note


@click.command()
@click.argument("exp")
@click.option("-o", "--output", required=True, metavar="FILE", help="Where to; .gz packs it, - is standard output.")
@filter_options
@store_option
def command(exp: str, output: str, store: str, **filters: Any) -> None:
    """Write an experiment to a JSON Lines file: a header, then one event a line.

    The same events give the same file, whichever store they are in. Filters as for `events`.
    """
    run(_export(exp, output, store, chosen(**filters)))


async def _export(exp: str, output: str, store: str, filters: dict[str, Any]) -> None:
    from ..exchange.jsonl import export_jsonl

    async with opened(store) as log:
        count = await export_jsonl(log, exp, output, progress=counter("exported"), **filters)
    note(f"exported {count:,} events to {output}")


def counter(did: str) -> Any:
    """A counter that rewrites its line on a terminal."""
    if not sys.stderr.isatty():
        return None
    return lambda count: click.echo(f"\r{did} {count:,} events\r", nl=False, err=True)
