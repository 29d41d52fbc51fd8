"""messager unpack"""

from __future__ import annotations

import click

from ...text import plural, safe
from ..options import asynchronous, open_log, store_option
from ..output import note
from ..place import PLACE
from ..progress import Progress
from .verify import checked_head


@click.command()
@click.argument("file", type=PLACE)
@click.option("--exp", metavar="ID", help="Its exp_id in this store, instead of the exp_id in the pack.")
@click.option("--head", metavar="HASH", help="Also check that its head is HASH.")
@store_option
@asynchronous
async def command(file: str, exp: str | None, head: str | None, store: str) -> None:
    """Restore an experiment from a pack (- is standard input), and verify it completely.

    Sequence numbers, counters, digests, chains and the head are computed again. If anything differs, the error names
    the line, and nothing is imported.
    """
    from ...formats.pack import unpack
    from ...log.chain import head_of

    checked_head(head)
    async with open_log(store, create=True) as log:
        with Progress("unpacking") as progress:
            of = await unpack(log, file, exp_id=exp, head=head, progress=progress)
        recorders = await log.recorders(of)
        events = sum(row.last_seq for row in recorders)
        note(f"unpacked {plural(events, 'event')} into {log.location}")
    click.echo(safe(f"{of.exp_id} has the head {head_of(recorders)}"))
