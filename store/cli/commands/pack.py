"""messager pack"""

from __future__ import annotations

import click

from ...formats import output_format
from ...text import plural, safe
from ..options import opened, run, store_option
from ..output import Progress, note


@click.command()
@click.argument("exp")
@click.option("-o", "--output", required=True, metavar="FILE", help="Where to: .pack, .pack.gz; - for standard output.")
@store_option
def command(exp: str, output: str, store: str) -> None:
    """Put an experiment into one file, with its recorders, its chain and its head.

    `messager unpack` makes the same experiment of it in another store, where `verify --head` holds.
    The same experiment gives the same file. One that is being recorded is packed as it is now.
    """
    output_format(output, "pack")
    run(_pack(exp, output, store))


async def _pack(exp: str, output: str, store: str) -> None:
    from ...formats.pack import pack

    async with opened(store) as log:
        with Progress("packed") as progress:
            packed = await pack(log, exp, output, progress=progress)
    if packed.recording:
        note(f"{plural(packed.recording, 'recorder')} of {packed.exp_id} still recording: the pack ends where it began")
    note(f"packed {plural(packed.events, 'event')} of {packed.exp_id} into {output}")
    click.echo(safe(f"{packed.exp_id} has the head {packed.head}"), err=output == "-")
