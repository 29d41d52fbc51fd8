"""messager report"""

from __future__ import annotations

from pathlib import Path

import click

from ...text import plural
from ..filters import Filters, note_where, selection_options
from ..options import asynchronous, open_log, store_option
from ..output import note
from ..progress import Progress


@click.command()
@click.argument("exp")
@click.option("-o", "--output", required=True, metavar="FILE", help="File to write, for example run.html.")
@selection_options
@click.option(
    "--redact", "paths", multiple=True, metavar="PATH", help="Erase this part of payloads: content, items.*.name."
)
@click.option("--pseudonymise", is_flag=True, help="Replace ids and names of agents; leave out facts about machines.")
@store_option
@asynchronous
async def command(
    exp: str, output: str, paths: tuple[str, ...], pseudonymise: bool, store: str, filters: Filters
) -> None:
    """Write an experiment as one HTML file, which a browser opens offline.

    The file has the messages with their payloads, a timeline, sequence, matrix and problems, and the result of
    `verify`. It loads nothing and sends nothing. The filters are those of `events`; --redact and --pseudonymise are
    those of `export`. At most 500,000 messages: select some of a longer experiment, or use `messager view`.
    """
    from ...formats.sharing import sharing
    from ...view.report import report

    selection = filters.selection()
    shared = sharing(paths, pseudonymise=pseudonymise)
    async with open_log(store) as log:
        await filters.note_unknown(log, await log.experiment(exp))
        with Progress("reading", "messages") as progress:
            count = await report(log, exp, output, selection, chosen=filters.typed(), shared=shared, progress=progress)
    note_where(selection)
    size = "" if output == "-" else f" ({_size(output) / 1e6:,.1f} MB)"
    note(f"wrote {plural(count, 'message')} to {output}{size}")


def _size(output: str) -> int:
    return Path(output).stat().st_size
