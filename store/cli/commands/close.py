"""messager close"""

from __future__ import annotations

import click

from ...text import safe
from ..options import asynchronous, open_log, store_option


@click.command()
@click.argument("exp")
@click.option("--force", is_flag=True, help="Close it even if a recorder is running: its later events are refused.")
@store_option
@asynchronous
async def command(exp: str, force: bool, store: str) -> None:
    """Close an experiment: it accepts no more events, and its head does not change any more.

    Recorders that ended uncleanly are repaired first, as by `messager repair`.
    """
    from ...log.chain import head_of
    from ...recording.closing import close
    from .repair import show

    async with open_log(store) as log:
        of = await log.experiment(exp)
        if of.status == "closed":
            click.echo(safe(f"{of.exp_id} was closed already"))
            return
        for repaired in await close(log, of, force=force):
            show(repaired)
        head = head_of(await log.recorders(of))
    click.echo(safe(f"{of.exp_id} is closed; its head is {head}"))
