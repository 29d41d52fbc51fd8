"""messager delays"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import click

from ...text import length
from ..filters import Filters, note_where, selection_options
from ..numbers import Whole
from ..options import asynchronous, open_log, output_options, store_option
from ..output import Column, Form, identifier, note, print_data, table
from ..progress import Progress

if TYPE_CHECKING:
    from ...queries.delays import Delays

SHOWN = 40
"""Rows of a table, unless -n is given."""


@click.command()
@click.argument("exp")
@click.option(
    "--by", type=click.Choice(["pair", "channel"]), default="pair", show_default=True, help="What is measured together."
)
@click.option("--replies", is_flag=True, help="Measure the times from a message to its reply.")
@click.option("-n", "--rows", type=Whole(min=1), metavar="N", help=f"At most N rows.  [default: {SHOWN} in a table]")
@selection_options
@store_option
@output_options
@asynchronous
async def command(exp: str, by: str, replies: bool, rows: int | None, store: str, form: Form, filters: Filters) -> None:
    """Show how long messages took to arrive, or with --replies, who answers whom how fast.

    A delivery time is that from a sending to a reception of it; each reception counts. Filters select sendings. If
    sender and listener are different recorders, the difference of their clocks is in the time.

    With --replies, X replies to Y by sending it a message when a message of Y is not answered yet; filters select both
    messages, but those on agents only the replies. BASIS says how it is known: heard, from the reception of the last
    message of Y that X had fetched; next, where that is not recorded, from the last message of Y before.
    docs/analysis.md describes both.

    Percentiles are exact, by nearest rank.
    """
    from ...queries.delays import delays

    filters.refuse("kinds", reason="delays are those of sendings: leave it out")
    filters.refuse("context", *(("last_per",) if replies else ()), reason="has no effect on delays: leave it out")
    selection = filters.selection()
    async with open_log(store) as log:
        of = await log.experiment(exp)
        with Progress("bringing the projection up to date") as progress:
            found = await delays(log, of, selection, by=by, replies=replies, progress=progress)
        if form is Form.TABLE:
            await filters.note_unknown(log, of)
    note_where(selection)
    if form is Form.TABLE:
        _show(found, rows or SHOWN)
        return
    found = replace(found, rows=found.rows[:rows])
    print_data(form, asdict(found), found.records())


def _show(found: Delays, most: int) -> None:
    if found.total is not None:
        columns = [
            *(Column(name.upper(), name, identifier) for name in found.names),
            *([Column("BASIS", "basis")] if found.replies else []),
            Column("NUMBER", "number"),
            *(Column(name.upper(), name, _signed) for name in ("p50", "p95", "p99", "max")),
            *([Column("NEGATIVE", "negative")] if found.total.negative else []),
        ]
        rows = [dict(zip(found.names, row.key, strict=True)) | asdict(row) for row in found.rows[:most]]
        total = dict.fromkeys(found.names, "") | {found.names[0]: "total"} | asdict(found.total)
        table(columns, [*rows, total], gives=[name.upper() for name in found.names])
        if len(found.rows) > most:
            note(f"{len(found.rows) - most:,} more rows: -n {len(found.rows)} prints all")
    for line in found.notes:
        note(line)


def _signed(ns: int) -> str:
    return f"-{length(-ns / 1e9)}" if ns < 0 else length(ns / 1e9)
