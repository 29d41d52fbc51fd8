"""messager drain"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...text import plural, safe
from ..options import asynchronous, json_option, open_log, store_option
from ..output import note, print_json
from ..place import FOLDER
from ..progress import Progress

if TYPE_CHECKING:
    from ...recording.draining import DrainResult


@click.command()
@click.option(
    "--spool",
    type=FOLDER,
    metavar="DIR",
    help="Drain only the spools in this folder. [default: the folder beside the store, that of MESSAGER_SPOOL, and "
    "those that the recorders of the store use]",
)
@click.option(
    "--adopt",
    is_flag=True,
    help="Also import spools addressed to a store that was never created, for example because its URL was mistyped.",
)
@store_option
@json_option
@asynchronous
async def command(spool: str | None, adopt: bool, store: str, as_json: bool) -> None:
    """Copy the events of spools into the store.

    A recorder writes to a spool while its store is unavailable, and drains it afterwards. A recorder that was
    killed, or that ended before that, leaves its spool behind. If its store was never created, the store and the
    experiment are created now. Draining can be interrupted and repeated: each event is stored exactly once.

    Exit code 1 if a spool could not be drained; its file stays.
    """
    found = await _drain(spool, adopt, store, as_json)
    if as_json:
        print_json([asdict(done) for done in found])
    if any(done.reason and not done.held for done in found):
        raise click.exceptions.Exit(1)


async def _drain(spool: str | None, adopt: bool, store: str, quiet: bool) -> list[DrainResult]:
    from ...recording.draining import drain, folders_of

    found = []
    async with open_log(store, create=_has_unregistered_spools(store, spool, adopt=adopt)) as log:
        folders = [Path(spool)] if spool else await folders_of(log)
        with Progress("draining") as progress:
            for folder in folders:
                async for done in drain(log, folder, adopt=adopt, progress=progress):
                    found.append(done)
                    progress.clear()
                    if not quiet:
                        _show(done)
    if not found and not quiet:
        note(f"no spools in {' or '.join(map(str, folders))}")
    return found


def _show(done: DrainResult) -> None:
    if done.reason is not None:
        click.echo(f"{click.style('stays', fg='red')}    {safe(done.path)}: {safe(done.reason)}")
        return
    ended = "" if done.ended else "; its recorder did not end cleanly, `messager repair` reports what may be missing"
    words = f"{plural(done.events, 'event')} of {done.exp_id} into the store{ended}"
    click.echo(f"{click.style('drained', fg='green')}  {safe(words)}")


def _has_unregistered_spools(store: str, folder: str | None = None, *, adopt: bool = False) -> bool:
    """Return True if this folder, or a default one, has spools of unregistered recorders for a store.

    With `adopt`, the spools may be for any store.
    """
    from ...db.databases import for_store
    from ...recording.spools import default_folders, spools

    dialect = for_store(store)
    folders = {Path(folder)} if folder else default_folders(dialect)
    waiting = [info for each in folders for info in spools(each) if not info.registered]
    return any(adopt or info.store == dialect.location for info in waiting)
