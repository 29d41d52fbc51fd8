"""messager import"""

from __future__ import annotations

import click

from ...text import plural
from ..options import meta_values, opened, run, store_option
from ..output import Progress, note


@click.command()
@click.argument("file")
@click.option("--exp", required=True, metavar="ID", help="The exp_id to import under.")
@click.option("--name", metavar="TEXT", help="Instead of the name in the file.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Beside the tags in the file.")
@click.option("--meta", multiple=True, metavar="K=V", help="Beside the meta in the file.")
@store_option
def command(file: str, exp: str, name: str | None, tags: tuple[str, ...], meta: tuple[str, ...], store: str) -> None:
    """Read a JSON Lines file (gzip or not, - is standard input) into a new, closed experiment.

    One event a line: ts (integer ns UTC), kind, channel, from_id, to_id, payload; the first
    line may be a header. All of it is imported or nothing.
    """
    run(_import(file, exp, name, tags, meta, store))


async def _import(
    file: str, exp: str, name: str | None, tags: tuple[str, ...], meta: tuple[str, ...], store: str
) -> None:
    from ...formats import input_format

    read = input_format(file).load().read
    async with opened(store, create=True) as log:
        with Progress("imported") as progress:
            of = await read(log, file, exp, name=name, tags=tags, meta=meta_values(meta), progress=progress)
        from ...experiments.registry import recorders_of

        count = sum(row.last_seq for row in await recorders_of(log.database, of.id))
        note(f"imported {plural(count, 'event')} as {of.exp_id} into {log.location}")
