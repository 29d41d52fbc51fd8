"""messager close"""

from __future__ import annotations

import click

from ...text import safe
from ..options import opened, run, store_option


@click.command()
@click.argument("exp")
@click.option("--force", is_flag=True, help="Also while a recorder runs: what it records afterwards is refused.")
@store_option
def command(exp: str, force: bool, store: str) -> None:
    """Close an experiment: it takes no more events, and its head stays what it is.

    Recorders that ended uncleanly are repaired first, as `messager repair` does it.
    """
    run(_close(exp, force, store))


async def _close(exp: str, force: bool, store: str) -> None:
    from ...experiments import registry
    from ...log.chain import head_of
    from ...recording.closing import close
    from .repair import show

    async with opened(store) as log:
        of = await log.experiment(exp)
        if of.status == "closed":
            click.echo(safe(f"{of.exp_id} was closed already"))
            return
        for known in await close(log, of, force=force):
            show(known)
        head = head_of(await registry.recorders_of(log.database, of.id))
    click.echo(safe(f"{of.exp_id} is closed; its head is {head}"))
