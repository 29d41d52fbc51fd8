"""messager ls"""

from __future__ import annotations

import click

from ...text import length, plural
from ..numbers import Whole
from ..options import asynchronous, json_option, open_log, store_option
from ..output import note, print_json, table
from ..tree import as_tree


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
@json_option
@asynchronous
async def command(
    name: str | None, tags: tuple[str, ...], since: str | None, limit: int | None, store: str, as_json: bool
) -> None:
    """List the experiments of a store, oldest first, and forks below their parent."""
    from ...log.event import iso
    from ...queries.overview import listing

    begun = None if since is None else moment(since)
    async with open_log(store) as log:
        rows = await listing(log, await log.experiments(name=name, tags=tags, since=begun, limit=limit))
        where = log.location
    if as_json:
        print_json(rows)
        return
    if rows:
        titles = ["EXP_ID", "NAME", "STATUS", "BEGUN", "LENGTH", "EVENTS", "TAGS"]
        shown = as_tree(rows)
        if any(elsewhere for _, _, elsewhere in shown):
            titles.append("FORK OF")
        table(
            [(title, "right" if title in ("LENGTH", "EVENTS") else "left") for title in titles],
            [
                (
                    f"{branch}{row['exp_id']}",
                    row["name"] or "-",
                    row["status"],
                    (row["created_at"] if row["first_ts"] is None else iso(row["first_ts"]))[:19].replace("T", " "),
                    length(row["duration_s"]),
                    f"{row['events']:,}",
                    " ".join(row["tags"]),
                    elsewhere or "-",
                )[: len(titles)]
                for branch, row, elsewhere in shown
            ],
            gives=("NAME", "TAGS", "FORK OF", "EXP_ID"),
        )
    note(f"{plural(len(rows), 'experiment')} in {where}")


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
