"""messager tag"""

from __future__ import annotations

import click

from ...text import safe
from ..options import opened, run, store_option
from ..output import note


@click.command()
@click.argument("exp")
@click.argument("tags", nargs=-1, metavar="[TAG]...")
@click.option("--remove", "removed", multiple=True, metavar="TAG", help="Take this tag off.")
@store_option
def command(exp: str, tags: tuple[str, ...], removed: tuple[str, ...], store: str) -> None:
    """Put tags on an experiment, or take them off; prints those it has then."""
    run(_tag(exp, tags, removed, store))


async def _tag(exp: str, tags: tuple[str, ...], removed: tuple[str, ...], store: str) -> None:
    from ...experiments.registry import retag

    async with opened(store) as log:
        of = await log.experiment(exp)
        words = await retag(log.database, of, tags, removed)
    for word in removed:
        if word not in (*of.tags, *tags):
            note(f"{of.exp_id} had no tag {word!r}")
    click.echo(safe(f"{of.exp_id}: {' '.join(words) or 'no tags'}"))
