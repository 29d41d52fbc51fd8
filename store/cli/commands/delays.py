"""messager delays"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from ...text import length
from ..filters import Filters, note_where, selection_options
from ..numbers import Whole
from ..options import asynchronous, json_option, open_log, store_option
from ..output import note, print_json, table
from ..progress import Progress

if TYPE_CHECKING:
    from ...queries.delays import Delay, Delays


@click.command()
@click.argument("exp")
@click.option(
    "--by", type=click.Choice(["pair", "channel"]), default="pair", show_default=True, help="What is measured together."
)
@click.option("--replies", is_flag=True, help="Measure the times from a message to its reply.")
@click.option("-n", "rows", type=Whole(min=1), default=40, show_default=True, help="Print at most N rows.")
@selection_options
@store_option
@json_option
@asynchronous
async def command(exp: str, by: str, replies: bool, rows: int, store: str, as_json: bool, filters: Filters) -> None:
    """Show how long messages took to arrive, or with --replies, who answers whom how fast.

    A delivery time is that from a sending to a reception of it; each reception counts. Filters select sendings. If
    sender and listener are different recorders, the difference of their clocks is in the time.

    With --replies, X replies to Y by sending it a message when a message of Y is not answered yet; filters select both
    messages, but those on agents only the replies. BASIS says how it is known: heard, from the reception of the last
    message of Y that X had fetched; next, where that is not recorded, from the last message of Y before.
    docs/analysis.md describes both.

    Percentiles are exact, by nearest rank. The experiment is indexed first, if it has new events.
    """
    from ...queries.delays import delays

    filters.refuse("kinds", reason="delays are those of sendings: leave it out")
    filters.refuse("context", *(("last_per",) if replies else ()), reason="has no effect on delays: leave it out")
    selection = filters.selection()
    async with open_log(store) as log:
        of = await log.experiment(exp)
        with Progress("indexing") as progress:
            found = await delays(log, of, selection, by=by, replies=replies, progress=progress)
        if not as_json:
            await filters.note_unknown(log, of)
    note_where(selection)
    if as_json:
        print_json(asdict(found))
        return
    _show(found, rows)


def _show(found: Delays, most: int) -> None:
    pair = ("WHO", "TO") if found.replies else ("FROM", "TO")
    titles = pair if found.by == "pair" else ("CHANNEL",)
    if found.total is not None:
        negative = bool(found.total.negative)
        numbers = ("NUMBER", "P50", "P95", "P99", "MAX", *(("NEGATIVE",) if negative else ()))
        lines = [[*map(_name, row.key), *_cells(row, found.replies, negative)] for row in found.rows[:most]]
        total = ["total", *[""] * (len(titles) - 1), *_cells(found.total, found.replies, negative)]
        basis = ["BASIS"] if found.replies else []
        table(
            [*((title, "left") for title in (*titles, *basis)), *((title, "right") for title in numbers)],
            [*lines, total],
            gives=titles,
        )
        if len(found.rows) > most:
            note(f"{len(found.rows) - most:,} more rows: -n {len(found.rows)} prints all")
    for line in found.notes:
        note(line)


def _cells(row: Delay, basis: bool, negative: bool) -> list[str]:
    times = [_signed(ns) for ns in (row.p50, row.p95, row.p99, row.max)]
    return [*([row.basis] if basis else []), f"{row.number:,}", *times, *([f"{row.negative:,}"] if negative else [])]


def _signed(ns: int) -> str:
    return f"-{length(-ns / 1e9)}" if ns < 0 else length(ns / 1e9)


def _name(value: Any) -> str:
    return "-" if value is None else str(value)
