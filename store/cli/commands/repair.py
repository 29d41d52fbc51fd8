"""messager repair"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from ...text import plural, safe
from ..options import asynchronous, json_option, open_log, store_option
from ..output import note, print_json

if TYPE_CHECKING:
    from ...recording.repair import Repaired


@click.command()
@click.argument("exp", required=False)
@click.option("--force", is_flag=True, help="Also end recorders whose spool is not drained.")
@store_option
@json_option
@asynchronous
async def command(exp: str | None, force: bool, store: str, as_json: bool) -> None:
    """End the recorders that a crash left open, in EXP or in every experiment.

    For each, a `gap` event is appended, and printed: the period in which events may be missing. Exit code 1 if a
    recorder cannot be ended yet, because its spool has to be drained first.
    """
    found = await _repair(exp, force, store)
    if as_json:
        print_json([asdict(repaired) for repaired in found])
    else:
        for repaired in found:
            show(repaired)
        if not found:
            note("nothing to repair")
    if any(repaired.spool for repaired in found):
        raise click.exceptions.Exit(1)


async def _repair(exp: str | None, force: bool, store: str) -> list[Repaired]:
    from ...recording.repair import repair, unclean

    async with open_log(store) as log:
        chosen = await unclean(log) if exp is None else [await log.experiment(exp)]
        return [repaired for of in chosen for repaired in await repair(log, of, force=force)]


def show(repaired: Repaired) -> None:
    """Print the result for one recorder."""
    from ...log.event import iso

    who = safe(f"recorder {repaired.recorder} of {repaired.exp_id}")
    if repaired.spool is not None:
        left = f"its events are in {safe(repaired.spool)}, run `messager drain` first"
        click.echo(f"{click.style('waits', fg='yellow')}     {who}: {left}")
        return
    kept = f"{plural(repaired.events, 'event')} in the log, none incomplete"
    click.echo(f"{click.style('repaired', fg='green')}  {who}: {kept}")
    click.echo(f"          possibly missing: {repaired.missing}, until {iso(repaired.until)}; the number is not known")
