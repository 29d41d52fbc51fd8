"""messager index"""

from __future__ import annotations

import click

from ...text import plural, safe
from ..options import asynchronous, open_log, store_option
from ..progress import Progress


@click.command()
@click.argument("exps", nargs=-1, metavar="[EXP...]")
@click.option("--all", "every", is_flag=True, help="Every experiment of the store.")
@store_option
@asynchronous
async def command(exps: tuple[str, ...], every: bool, store: str) -> None:
    """Bring the side tables of experiments up to date: text, deliveries, and activity by minute.

    SQL shows them in the views, and null for events that are not indexed. Closing an experiment indexes it too;
    importing does not. Only new events are read, also while recorders are running; it may be interrupted and repeated.
    """
    if bool(exps) == every:
        raise click.UsageError("name experiments, or give --all")
    from ...queries.index import index

    async with open_log(store) as log:
        chosen = await log.experiments() if every else [await log.experiment(word) for word in exps]
        for of in {of.id: of for of in chosen}.values():
            with Progress(f"indexing {safe(of.exp_id)}") as progress:
                done = await index(log, of, progress=progress)
            if done.events or done.deliveries:
                what = f"{plural(done.events, 'event')} indexed, {_deliveries(done.deliveries)} found or changed"
                click.echo(safe(f"{of.exp_id}: {what}"))
            elif not every:
                click.echo(safe(f"{of.exp_id}: nothing new"))
        if every and not chosen:
            click.echo("there are no experiments to index")


def _deliveries(number: int) -> str:
    return f"{number:,} {'delivery' if number == 1 else 'deliveries'}"
