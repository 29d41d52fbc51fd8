"""messager delays"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from ...text import length
from ..filters import Filters, note_where, selection_options
from ..numbers import Whole
from ..options import asynchronous, open_log, output_options, store_option
from ..output import Column, Form, identifier, note, print_data, table, to_second
from ..progress import Progress

if TYPE_CHECKING:
    from ...queries.delays import Delays
    from ...queries.silences import Silences

SHOWN = 40
"""Rows of a table, unless -n is given."""


@click.command()
@click.argument("exp")
@click.option(
    "--by",
    type=click.Choice(["agent", "pair", "channel"]),
    help="What is measured together; agent, the sender, only with --silence.  [default: pair; with --silence agent]",
)
@click.option("--replies", is_flag=True, help="Measure the times from a message to its reply.")
@click.option("--silence", is_flag=True, help="Show the longest silence of each, and who stopped.")
@click.option("-n", "--rows", type=Whole(min=1), metavar="N", help=f"At most N rows.  [default: {SHOWN} in a table]")
@selection_options
@store_option
@output_options
@asynchronous
async def command(
    exp: str,
    by: str | None,
    replies: bool,
    silence: bool,
    rows: int | None,
    store: str,
    form: Form,
    filters: Filters,
) -> None:
    """Show how long messages took to arrive; with --replies, who answers whom how fast; with --silence, who was silent.

    A delivery time is that from a sending to a reception of it; each reception counts. Filters select sendings. If
    sender and listener are different recorders, the difference of their clocks is in the time.

    With --replies, X replies to Y by sending it a message when a message of Y is not answered yet; filters select both
    messages, but those on agents only the replies. BASIS says how it is known: heard, from the reception of the last
    message of Y that X had fetched; next, where that is not recorded, from the last message of Y before.
    docs/analysis.md describes both.

    Percentiles are exact, by nearest rank.

    --silence shows the longest time without a selected message of each sender, pair or channel, the longest first:
    until its next message, or, if it stopped, to the last event of the experiment or before --until.
    """
    from ...queries.delays import delays
    from ...queries.silences import Silences, silences

    if silence and replies:
        raise click.UsageError("--silence and --replies cannot be combined: give one of them")
    if by == "agent" and not silence:
        raise click.UsageError("--by agent is one of --silence: give pair or channel, or add --silence")
    filters.refuse("kinds", reason="delays are those of sendings: leave it out")
    ignored = ("last_per", "limit") if silence else ("last_per",) if replies else ()
    filters.refuse("context", *ignored, reason="has no effect on delays: leave it out")
    selection = filters.selection()
    async with open_log(store) as log:
        of = await log.experiment(exp)
        with Progress("bringing the projection up to date") as progress:
            found: Delays | Silences
            if silence:
                found = await silences(log, of, selection, by=by or "agent", progress=progress)
            else:
                found = await delays(log, of, selection, by=by or "pair", replies=replies, progress=progress)
        if form is Form.TABLE:
            await filters.note_unknown(log, of)
    note_where(selection)
    if form is not Form.TABLE:
        data = asdict(found)
        data["rows"] = data["rows"][:rows]
        print_data(form, data, found.records()[:rows])
    elif isinstance(found, Silences):
        _show_silences(found, rows or SHOWN)
    else:
        _show(found, rows or SHOWN)


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
        _note_more(found, most)
    for line in found.notes:
        note(line)


def _show_silences(found: Silences, most: int) -> None:
    from ...log.event import iso

    columns = [
        *(Column(name.upper(), name, identifier) for name in found.names),
        Column("MESSAGES", "messages"),
        Column("LONGEST", "longest", lambda ns: length(ns / 1e9), right=True),
        Column("SINCE", "since", lambda ts: to_second(iso(ts))),
        Column("UNTIL", "until", lambda ts: "stopped" if ts is None else to_second(iso(ts)), right=False),
    ]
    rows = [dict(zip(found.names, row.key, strict=True)) | asdict(row) for row in found.rows[:most]]
    table(columns, rows, gives=[name.upper() for name in found.names])
    _note_more(found, most)


def _note_more(found: Delays | Silences, most: int) -> None:
    if len(found.rows) > most:
        note(f"{len(found.rows) - most:,} more rows: -n {len(found.rows)} prints all")


def _signed(ns: int) -> str:
    return f"-{length(-ns / 1e9)}" if ns < 0 else length(ns / 1e9)
