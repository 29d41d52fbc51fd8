"""messager count"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from ...text import plural
from ..filters import Filters, note_where, selection_options
from ..numbers import Whole
from ..options import asynchronous, open_log, output_options, store_option
from ..output import Form, note, print_data
from ..output import size as sized
from ..progress import Progress

if TYPE_CHECKING:
    from ...queries.counting.count import Count, Counts


@click.command()
@click.argument("exp")
@click.option("--by", default="from,to", show_default=True, metavar="DIM[,DIM]", help="One or two dimensions.")
@selection_options
@click.option("--events", is_flag=True, help="Count events of every kind, not messages.")
@click.option("--bytes", "size", is_flag=True, help="Show payload bytes instead of numbers.")
@click.option(
    "--sort",
    type=click.Choice(["size", "name"]),
    help="Order of rows.  [default: size; times, marks, and a field that only has numbers in their own order]",
)
@click.option("--max-gap", metavar="LENGTH", help="Cut silences that are longer, such as 10m or 1h.")
@click.option(
    "-n",
    "--rows",
    type=Whole(min=1),
    metavar="N",
    help="At most N rows; a table adds up the others.  [default: 20 in a table, all in order of time]",
)
@store_option
@output_options
@asynchronous
async def command(
    exp: str,
    by: str,
    events: bool,
    size: bool,
    sort: str | None,
    max_gap: str | None,
    rows: int | None,
    store: str,
    form: Form,
    filters: Filters,
) -> None:
    """Count the messages of an experiment: who talks to whom, on which channel, when.

    DIM is channel, channel[1] (a part of it, from 0), from, to, kind, agent (sender or recipient), pair (whoever of the
    two sent), mark (since the last mark), minute, hour, day, a length of time such as 10s or 5m, or a path into the
    payload such as $.price. Two dimensions give a matrix; a time beside another one gives a sparkline for each row.
    """
    from ...log.cursor import duration_ns
    from ...queries.counting.count import NO_TIMELINE, count
    from ...queries.counting.dimensions import Of, dimensions

    selection = filters.selection()
    names = _names(by)
    if max_gap is not None:
        try:
            duration_ns(max_gap)
        except ValueError as error:
            raise click.UsageError(f"--max-gap: {error}") from None
        if not any(each.of is Of.TIME for each in dimensions(names)):
            raise click.UsageError(f"--max-gap: {NO_TIMELINE}")
    async with open_log(store) as log:
        of = await log.experiment(exp)
        if form is Form.TABLE:
            await filters.note_unknown(log, of)
        with Progress("bringing the projection up to date") as progress:
            found = await count(
                log,
                of,
                names,
                selection,
                max_gap=max_gap,
                events=events,
                order="name" if sort == "name" else "payload_bytes" if size else "messages",
                own_order=sort is None,
                progress=progress,
            )
    if form is not Form.TABLE:
        shown = replace(found, rows=found.rows[:rows])
        print_data(form, _as_json(shown), shown.records())
        return
    note_where(selection)
    _show(found, as_bytes=size, top=rows)
    for line in found.notes:
        note(line)
    left_out = f", {plural(found.skipped, 'payload')} not JSON left out" if found.skipped else ""
    note(f"{plural(found.messages, found.unit[:-1])} ({sized(found.payload_bytes)}) of {of.exp_id}{left_out}")


def _names(by: str) -> list[str]:
    """Return the names of the dimensions. A comma inside brackets belongs to a path."""
    names, depth = [""], 0
    for char in by:
        depth += (char == "[") - (char == "]")
        if char == "," and not depth:
            names.append("")
        else:
            names[-1] += char
    return [name.strip() for name in names]


def _as_json(counts: Counts) -> dict[str, Any]:
    """Return counts as a JSON object; a time is `ts` in ns UTC and `time` as ISO text."""
    rows = [_keys(counts, row) | {counts.unit: row.messages, "payload_bytes": row.payload_bytes} for row in counts]
    totals = {counts.unit: counts.messages, "payload_bytes": counts.payload_bytes, "skipped": counts.skipped}
    return {"by": list(counts.by), **totals, "rows": rows}


def _keys(counts: Counts, row: Count) -> dict[str, Any]:
    from ...log.event import iso
    from ...queries.counting.dimensions import Of

    named: dict[str, Any] = {}
    for each, value in zip(counts.dimensions, row.keys, strict=True):
        named |= {"ts": value, "time": iso(value)} if each.of is Of.TIME else {each.name: value}
    return named


def _show(counts: Counts, *, as_bytes: bool, top: int | None) -> None:
    """Print one dimension as rows with bars, a time and another one as sparklines, any other two as a matrix."""
    from ...queries.counting.dimensions import Of
    from ..count_cells import Cells
    from ..count_table import show_matrix, show_rows
    from ..count_timeline import show_sparklines, show_times

    if not counts.rows:
        return
    cells = Cells(counts, as_bytes=as_bytes)
    times = [at for at, each in enumerate(counts.dimensions) if each.of is Of.TIME]
    match len(counts.by), times:
        case 1, _ if not times or not counts.dimensions[0].ordered:
            show_rows(cells, top)
        case 1, _:
            show_times(cells, top)
        case _, [time]:
            show_sparklines(cells, time, top)
        case _:
            show_matrix(cells, top)
