"""messager compact"""

from __future__ import annotations

import click

from ..options import confirmed, opened, run, store_option
from ..output import facts, note, size


@click.command()
@click.option("--force", is_flag=True, help="Also while a recorder runs: its commits wait meanwhile.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@store_option
def command(force: bool, yes: bool, store: str) -> None:
    """Give the room of what was removed back to the disk. Says first what that takes, and asks.

    What killed imports and removals left behind is cleared away too.
    """
    run(_compact(force, yes, store))


async def _compact(force: bool, yes: bool, store: str) -> None:
    from ...maintenance.compaction import compact, plan

    async with opened(store) as log:
        planned = await plan(log, while_recorded=force)

        def show() -> None:
            needs = [(f"takes {size(need.bytes)}", f"of {need.folder}, for a while") for need in planned.needs]
            facts(
                [
                    ("store", log.location),
                    ("on disk", size(planned.bytes)),
                    ("free inside", "unknown" if planned.slack is None else size(planned.slack)),
                    *needs,
                ]
            )

        confirmed("Compact it?", yes, "nothing was done", show)
        note(f"compacting {log.location} ...")
        after = await compact(log)
    click.echo(f"from {size(planned.bytes)} to {size(after)}: {size(max(planned.bytes - after, 0))} given back")
