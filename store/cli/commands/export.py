"""messager export"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import click

from ...formats import PARTITIONS, output_format
from ...text import plural
from ..filters import Filters, note_where, selection_options
from ..options import asynchronous, open_log, store_option
from ..output import note
from ..place import PLACE
from ..progress import Progress
from ..sharing_notes import note_sharing


@click.command()
@click.argument("exp")
@click.option(
    "-o",
    "--output",
    type=PLACE,
    required=True,
    metavar="FILE",
    help="File to write: .jsonl, .jsonl.gz, .parquet, .csv, .mcap; - for standard output.",
)
@click.option(
    "--partition-by",
    "by",
    type=click.Choice(PARTITIONS),
    help="Write a folder of Parquet files, one or more for each mark or hour.",
)
@click.option("--messages", is_flag=True, help="Each message once instead of all events (Parquet and CSV).")
@selection_options
@click.option(
    "--redact", "paths", multiple=True, metavar="PATH", help="Erase this part of payloads: content, items.*.name."
)
@click.option("--pseudonymise", is_flag=True, help="Replace ids and names of agents; leave out facts about machines.")
@store_option
@asynchronous
async def command(
    exp: str,
    output: str,
    by: str | None,
    messages: bool,
    paths: tuple[str, ...],
    pseudonymise: bool,
    store: str,
    filters: Filters,
) -> None:
    """Export an experiment to a JSON Lines file (a header, then one event per line), to Parquet, CSV or MCAP.

    The same events give the same file, whichever store they are in. The filters are those of `events`.

    The suffix of FILE selects the format: .jsonl, .ndjson or no suffix mean JSON Lines; .gz after it compresses. Any
    other suffix is refused. docs/analysis.md describes the columns of .parquet and .csv, and the folder that
    --partition-by makes; docs/formats.md describes the messages of .mcap, which Foxglove opens.

    --redact and --pseudonymise change the file only, not the store. --redact erases a payload that is not JSON
    completely. Pseudonyms are new in every export and are not stored. They replace agents in ids, channels, the usual
    keys of payloads (from, name, agent_id ...), and names of three letters or more in texts, as the log spells
    them. Numbers in texts, nicknames, misspellings, times and other hints remain: read the file before you share it.
    """
    from ...formats.sharing import sharing

    write = _writer(output, by, messages=messages)
    shared = sharing(paths, pseudonymise=pseudonymise)
    selection = filters.selection()
    async with open_log(store) as log:
        await filters.note_unknown(log, await log.experiment(exp))
        with Progress("exporting") as progress:
            count = await write(log, exp, output, progress=progress, shared=shared, selection=selection)
    note_where(selection)
    note(f"exported {plural(count, 'event')} to {output}")
    note_sharing(shared)


def _writer(output: str, by: str | None, *, messages: bool) -> Callable[..., Awaitable[int]]:
    """Return the function that writes the output."""
    found = output_format(output if by is None else "part.parquet", "export")
    write: Callable[..., Awaitable[int]] = found.load().write
    if by is not None:
        if Path(output).suffix not in ("", ".parquet"):
            raise click.UsageError(f"--partition-by writes a folder of Parquet files: {output} has another suffix")
        write = partial(write, by=by)
    if messages and found.module != "tables":
        raise click.UsageError(f"--messages is for .parquet and .csv: {found.name} has all events")
    return partial(write, messages=True) if messages else write
