"""messager tag"""

from __future__ import annotations

import click

from ...text import safe
from ..options import asynchronous, open_log, store_option
from ..output import note


@click.command()
@click.argument("exp")
@click.argument("tags", nargs=-1, metavar="[TAG]...")
@click.option("--remove", "removed", multiple=True, metavar="TAG", help="Remove this tag.")
@store_option
@asynchronous
async def command(exp: str, tags: tuple[str, ...], removed: tuple[str, ...], store: str) -> None:
    """Add tags to an experiment, or remove them, and print the tags that it has afterwards."""

    async with open_log(store) as log:
        of = await log.experiment(exp)
        words = await log.tag(of, tags, removed)
    for word in removed:
        if word not in (*of.tags, *tags):
            note(f"{of.exp_id} had no tag {word!r}")
    click.echo(safe(f"{of.exp_id}: {' '.join(words) or 'no tags'}"))
