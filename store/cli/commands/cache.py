"""messager cache"""

from __future__ import annotations

from typing import Any

import click

from ...text import plural
from ..options import asynchronous, open_log, output_options, store_option
from ..output import Column, Form, note, print_data, size, table


@click.command()
@click.option("--clear", is_flag=True, help="Delete the projections; the next question makes them again.")
@store_option
@output_options
@asynchronous
async def command(clear: bool, store: str, form: Form) -> None:
    """Show the projections of the experiments of a store: files that answer questions, computed from the log.

    They lie beside an SQLite file, else in MESSAGER_CACHE (default: ~/.cache/messager), which keeps at most
    MESSAGER_CACHE_MB megabytes (10,000): the projections that were not used for the longest time go first.
    """
    from ...db import derived_files
    from ...projection.cache import size_of

    async with open_log(store) as log:
        rows: list[dict[str, Any]] = []
        for of in await log.experiments():
            for folder in derived_files.folders(log.database, of.id):
                if folder.is_dir():
                    found = {"exp_id": of.exp_id, "bytes": size_of(folder), "folder": str(folder)}
                    rows.append(found)
            if clear:
                derived_files.delete(log.database, of.id)
    if form is not Form.TABLE:
        print_data(form, rows, rows)
        return
    if rows:
        table([Column("EXP_ID", "exp_id"), Column("SIZE", "bytes", size), Column("FOLDER", "folder")], rows)
    total = size(sum(row["bytes"] for row in rows))
    done = ", deleted" if clear and rows else ""
    note(f"{plural(len(rows), 'projection')}, {total}{done}")
