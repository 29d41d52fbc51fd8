"""messager repair"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from ...text import plural, safe
from ..options import json_option, opened, run, store_option
from ..output import note, print_json

if TYPE_CHECKING:
    from ...recording.repair import Repaired


@click.command()
@click.argument("exp", required=False)
@click.option("--force", is_flag=True, help="Also recorders that left a spool that is not drained.")
@store_option
@json_option
def command(exp: str | None, force: bool, store: str, as_json: bool) -> None:
    """Close what a crash left open: recorders that ended without saying so.

    Of EXP, or of every experiment. Says, and writes into the log as a `gap`, from when to when events
    may be missing. Exit code 1 where something is left to do.
    """
    found = run(_repair(exp, force, store))
    if as_json:
        print_json([asdict(known) for known in found])
    else:
        for known in found:
            show(known)
        if not found:
            note("nothing to repair")
    if any(known.spool for known in found):
        raise click.exceptions.Exit(1)


async def _repair(exp: str | None, force: bool, store: str) -> list[Repaired]:
    from ...recording.repair import repair, unclean

    async with opened(store) as log:
        chosen = await unclean(log) if exp is None else [await log.experiment(exp)]
        return [known for of in chosen for known in await repair(log, of, force=force)]


def show(known: Repaired) -> None:
    """What is known of one recorder."""
    from ...log.event import iso

    who = safe(f"recorder {known.recorder} of {known.exp_id}")
    if known.spool is not None:
        click.echo(
            f"{click.style('waits', fg='yellow')}     {who}: `messager drain` first; it left {safe(known.spool)}"
        )
        return
    kept = f"{plural(known.events, 'event')} of it are in the log, whole"
    click.echo(f"{click.style('repaired', fg='green')}  {who}: {kept}")
    click.echo(f"          missing: {known.missing}, until {iso(known.until)} at the latest; how much is not known")
