"""messager unpack"""

from __future__ import annotations

import click

from ...text import plural, safe
from ..options import opened, run, store_option
from ..output import Progress, note
from .verify import checked_head


@click.command()
@click.argument("file")
@click.option("--exp", metavar="ID", help="What to call it here, instead of what the pack says.")
@click.option("--head", metavar="HASH", help="Also check that this is its head.")
@store_option
def command(file: str, exp: str | None, head: str | None, store: str) -> None:
    """Make the same experiment of a pack (- is standard input), and check all of it on the way.

    Seqs, counters, digests, chains and head are worked out anew. Where anything differs, the line
    is named and nothing of it stays.
    """
    run(_unpack(file, exp, checked_head(head), store))


async def _unpack(file: str, exp: str | None, head: str | None, store: str) -> None:
    from ...experiments.registry import recorders_of
    from ...formats.unpack import unpack
    from ...log.chain import head_of

    async with opened(store, create=True) as log:
        with Progress("unpacked") as progress:
            of = await unpack(log, file, exp_id=exp, head=head, progress=progress)
        recorders = await recorders_of(log.database, of.id)
        events = sum(row.last_seq for row in recorders)
        note(f"unpacked {plural(events, 'event')} into {log.location}")
    click.echo(safe(f"{of.exp_id} has the head {head_of(recorders)}"))
