"""messager import"""

from __future__ import annotations

import click

from ...formats.input_formats import INPUT_FORMATS
from ...text import plural
from ..options import asynchronous, meta_values, open_log, store_option
from ..output import note
from ..place import PLACE
from ..progress import Progress


@click.command(epilog="Formats: " + "; ".join(f"{known.name}, {known.description}" for known in INPUT_FORMATS) + ".")
@click.argument("file", type=PLACE)
@click.option("--exp", required=True, metavar="ID", help="The exp_id of the new experiment.")
@click.option(
    "--split-by",
    metavar="FIELD",
    help="Make an experiment ID-VALUE for each value of channel[1] (a part of the channel, from 0), of a path into the "
    "payload such as $.game, or of a column of CSV.",
)
@click.option("--name", metavar="TEXT", help="Its name, instead of the name in the file.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="A tag, in addition to the tags in the file.")
@click.option("--meta", multiple=True, metavar="K=V", help="Meta, in addition to the meta in the file.")
@click.option(
    "--format",
    "form",
    type=click.Choice([known.name for known in INPUT_FORMATS]),
    help="The format, if neither the suffix nor the first bytes of FILE tell it.",
)
@click.option("--timezone", metavar="ZONE", help="Zone of times that name none: Europe/Berlin, +08:00; default UTC.")
@click.option("--channel", metavar="NAME", help="Channel of messages whose format names none.")
@store_option
@asynchronous
async def command(
    file: str,
    exp: str,
    split_by: str | None,
    name: str | None,
    tags: tuple[str, ...],
    meta: tuple[str, ...],
    form: str | None,
    timezone: str | None,
    channel: str | None,
    store: str,
) -> None:
    """Import a file (gzip or not; - is standard input) as a new, closed experiment.

    JSON Lines of `export` have one event per line: ts (integer, ns UTC), kind, channel, from_id, to_id, payload. The
    first line may be a header. Files of other programs are recognised by their suffix or their first bytes. What had to
    be assumed, and what was not imported, is printed and stored in the meta of the experiment.

    A file that holds several runs becomes several experiments with --split-by. Events without a value, such as marks,
    are left out and counted.

    If anything in FILE is wrong, nothing is imported.
    """
    from ...formats.import_file import import_file

    async with open_log(store, create=True) as log:
        with Progress("importing") as progress:
            done = await import_file(
                log,
                file,
                exp,
                form=form,
                timezone=timezone,
                channel=channel,
                name=name,
                tags=tags,
                meta=meta_values(meta),
                progress=progress,
                by=split_by,
            )
        count = sum([row.last_seq for of in done.experiments for row in await log.recorders(of)])
        names = done.experiments[0].exp_id
        if len(done.experiments) > 1:
            names = f"{plural(len(done.experiments), 'experiment')} ({names}, ...)"
        note(f"imported {plural(count, 'event')} as {names} into {log.location}")
    for line in done.notes:
        note(line)
