"""messager ls"""

from __future__ import annotations

from typing import Any

import click

from ...text import length, plural
from ..numbers import Whole
from ..options import asynchronous, open_log, output_options, store_option
from ..output import Column, Form, note, print_data, table, to_second
from ..tree import as_tree

COLUMNS = (
    Column("EXP_ID", "exp_id"),
    Column("NAME", "name"),
    Column("STATUS", "status"),
    Column("BEGUN", "begun"),
    Column("LENGTH", "duration_s", length),
    Column("EVENTS", "events"),
    Column("TAGS", "tags"),
)


@click.command()
@click.option("--name", metavar="TEXT", help="Only experiments with TEXT in their name or exp_id.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Only experiments with this tag. Repeatable.")
@click.option(
    "--since",
    metavar="TIME",
    help="Only those recorded or imported since this ISO time, or since 2d ago.",
)
@click.option("-n", "--limit", type=Whole(min=1), metavar="N", help="At most N experiments: the newest.")
@store_option
@output_options
@asynchronous
async def command(
    name: str | None, tags: tuple[str, ...], since: str | None, limit: int | None, store: str, form: Form
) -> None:
    """List the experiments of a store, oldest first, and forks below their parent."""
    from ...queries.overview import listing

    begun = None if since is None else moment(since)
    async with open_log(store) as log:
        rows = await listing(log, await log.experiments(name=name, tags=tags, since=begun, limit=limit))
        where = log.location
    if form is not Form.TABLE:
        print_data(form, rows)
        return
    if rows:
        shown = [
            row | {"exp_id": f"{branch}{row['exp_id']}", "begun": _begun(row), "fork_of": elsewhere}
            for branch, row, elsewhere in as_tree(rows)
        ]
        fork_of = [Column("FORK OF", "fork_of")] if any(row["fork_of"] for row in shown) else []
        table([*COLUMNS, *fork_of], shown, gives=("NAME", "TAGS", "FORK OF", "EXP_ID"))
    note(f"{plural(len(rows), 'experiment')} in {where}")


def _begun(row: dict[str, Any]) -> str:
    from ...log.event import iso

    return to_second(row["created_at"] if row["first_ts"] is None else iso(row["first_ts"]))


def moment(text: str) -> int:
    """Return an ISO time, or a duration before now, as ns UTC."""
    import time

    from ...log.cursor import clamped, duration_ns, iso_ns

    try:
        return clamped(time.time_ns() - duration_ns(text))
    except ValueError:
        pass
    try:
        return clamped(iso_ns(text))
    except ValueError:
        raise click.UsageError(f"--since takes an ISO time or a duration such as 2d, not {text!r}") from None
