"""messager pack"""

from __future__ import annotations

import click

from ...formats import output_format
from ...text import plural, safe
from ..options import asynchronous, open_log, store_option
from ..output import note
from ..place import PLACE
from ..progress import Progress


@click.command()
@click.argument("exp")
@click.option(
    "-o",
    "--output",
    type=PLACE,
    required=True,
    metavar="FILE",
    help="File to write: .pack, .pack.gz; - for standard output.",
)
@store_option
@asynchronous
async def command(exp: str, output: str, store: str) -> None:
    """Write an experiment to one file, with its recorders, its hash chain and its head.

    `messager unpack` restores the same experiment in another store, with the same head. The same experiment gives
    the same file. An experiment that is being recorded is packed as it is now.
    """
    from ...formats.pack import pack

    output_format(output, "pack")
    async with open_log(store) as log:
        with Progress("packing") as progress:
            packed = await pack(log, exp, output, progress=progress)
    if packed.recording:
        count = plural(packed.recording, "recorder")
        note(f"{count} of {packed.exp_id} still recording: the pack has the events committed before it was started")
    note(f"packed {plural(packed.events, 'event')} of {packed.exp_id} into {output}")
    click.echo(safe(f"{packed.exp_id} has the head {packed.head}"), err=output == "-")
