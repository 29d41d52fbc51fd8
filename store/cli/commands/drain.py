"""messager drain"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...text import plural, safe
from ..options import json_option, opened, run, store_option
from ..output import Progress, note, print_json

if TYPE_CHECKING:
    from ...recording.draining import Drained


@click.command()
@click.option(
    "--spool",
    type=click.Path(file_okay=False),
    metavar="DIR",
    help="Only the spools of this folder. [default: those beside the store, of MESSAGER_SPOOL, and wherever its "
    "recorders spool]",
)
@click.option(
    "--adopt",
    is_flag=True,
    help="Take in what another store was to have that never came, as where its URL was mistyped.",
)
@store_option
@json_option
def command(spool: str | None, adopt: bool, store: str, as_json: bool) -> None:
    """Put what recorders left in their spools into the store.

    A recorder spools while the store is away, and drains its spool when it is back. One that was killed, or
    ended before that, leaves it behind; where its store never came, that and its experiment are made now. May
    be interrupted and run again: nothing is lost and
    nothing doubled. Exit code 1 where a spool could not be drained; its file stays.
    """
    found = run(_drain(spool, adopt, store, as_json))
    if as_json:
        print_json([asdict(done) for done in found])
    if any(done.reason and not done.held for done in found):
        raise click.exceptions.Exit(1)


async def _drain(spool: str | None, adopt: bool, store: str, quiet: bool) -> list[Drained]:
    from ...recording.draining import drain, folders_of, waited_for

    found = []
    async with opened(store, create=waited_for(store, spool, adopt=adopt)) as log:
        folders = [Path(spool)] if spool else await folders_of(log)
        with Progress("drained") as progress:
            for folder in folders:
                async for done in drain(log, folder, adopt=adopt, progress=progress):
                    found.append(done)
                    progress.clear()
                    if not quiet:
                        _show(done)
    if not found and not quiet:
        note(f"no spools in {' or '.join(map(str, folders))}")
    return found


def _show(done: Drained) -> None:
    if done.reason is not None:
        click.echo(f"{click.style('stays', fg='red')}    {safe(done.path)}: {safe(done.reason)}")
        return
    ended = "" if done.ended else "; its recorder did not end cleanly, `messager repair` says what may be missing"
    words = f"{plural(done.events, 'event')} of {done.exp_id} into the store{ended}"
    click.echo(f"{click.style('drained', fg='green')}  {safe(words)}")
