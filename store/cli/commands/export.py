"""messager export"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from ...formats import output_format
from ...text import plural
from ..options import chosen, filter_options, opened, run, store_option
from ..output import Progress, note


@click.command()
@click.argument("exp")
@click.option(
    "-o", "--output", required=True, metavar="FILE", help="Where to: .jsonl, .jsonl.gz; - for standard output."
)
@filter_options
@click.option(
    "--redact", "paths", multiple=True, metavar="PATH", help="Blank this part of payloads: content, items.*.name."
)
@click.option("--pseudonymise", is_flag=True, help="Other ids and names for agents; nothing of machines.")
@store_option
def command(exp: str, output: str, paths: tuple[str, ...], pseudonymise: bool, store: str, **filters: Any) -> None:
    """Write an experiment to a JSON Lines file: a header, then one event a line.

    The same events give the same file, whichever store they are in. Filters as for `events`.

    The suffix of FILE decides: .jsonl and .ndjson are JSON Lines, and so is a name without a suffix; .gz after it
    compresses. Any other suffix is refused.

    --redact and --pseudonymise change the file alone, not the store. A payload that is no JSON is blanked
    whole by --redact. Pseudonyms are drawn anew each time and kept nowhere. They stand in ids, channels, the
    usual keys of payloads (from, name, agent_id ...), and for names of three letters or more that
    stand in texts as the log knows them. Numbers in texts, nicknames, misspellings and what a text gives away
    otherwise stay, and so do times: read the file before you share it.
    """
    write = output_format(output, "export").load().write
    run(_export(write, exp, output, paths, pseudonymise, store, chosen(**filters)))


async def _export(
    write: Callable[..., Any],
    exp: str,
    output: str,
    paths: tuple[str, ...],
    pseudonymise: bool,
    store: str,
    filters: dict[str, Any],
) -> None:
    from ...formats.sharing import sharing

    shared = sharing(paths, pseudonymise=pseudonymise)
    async with opened(store) as log:
        with Progress("exported") as progress:
            count = await write(log, exp, output, progress=progress, shared=shared, **filters)
    note(f"exported {plural(count, 'event')} to {output}")
    if shared is not None and shared.clean is not None:
        whole = f", {shared.clean.unreadable:,} of them whole: they are no JSON" if shared.clean.unreadable else ""
        note(f"{plural(shared.clean.changed, 'payload')} redacted{whole}")
    if shared is not None and shared.no_text:
        are = "are" if shared.no_text != 1 else "is"
        note(f"{plural(shared.no_text, 'payload')} {are} no text: no name was looked for in them")
