"""messager import"""

from __future__ import annotations

import click

from ...formats import input_format
from ...text import plural
from ..options import asynchronous, meta_values, open_log, store_option
from ..output import note
from ..progress import Progress


@click.command()
@click.argument("file")
@click.option("--exp", required=True, metavar="ID", help="The exp_id of the new experiment.")
@click.option("--name", metavar="TEXT", help="Its name, instead of the name in the file.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="A tag, in addition to the tags in the file.")
@click.option("--meta", multiple=True, metavar="K=V", help="Meta, in addition to the meta in the file.")
@store_option
@asynchronous
async def command(
    file: str, exp: str, name: str | None, tags: tuple[str, ...], meta: tuple[str, ...], store: str
) -> None:
    """Import a JSON Lines file (gzip or not; - is standard input) as a new, closed experiment.

    One event per line: ts (integer, ns UTC), kind, channel, from_id, to_id, payload. The first line may be a header.
    If any line is wrong, nothing is imported.
    """

    read = input_format(file).load().read
    async with open_log(store, create=True) as log:
        with Progress("importing") as progress:
            of = await read(log, file, exp, name=name, tags=tags, meta=meta_values(meta), progress=progress)
        count = sum(row.last_seq for row in await log.recorders(of))
        note(f"imported {plural(count, 'event')} as {of.exp_id} into {log.location}")
