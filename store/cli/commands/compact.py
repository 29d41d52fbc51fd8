"""messager compact"""

from __future__ import annotations

import click

from ..options import asynchronous, confirm, open_log, store_option
from ..output import facts, note, size


@click.command()
@click.option("--force", is_flag=True, help="Compact even if a recorder is running: its commits wait meanwhile.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@store_option
@asynchronous
async def command(force: bool, yes: bool, store: str) -> None:
    """Return the space of removed experiments to the disk. Shows the space that this needs, and asks.

    Remains of killed imports and removals are deleted too.
    """
    from ...maintenance.compaction import compact, plan

    async with open_log(store) as log:
        planned = await plan(log, while_recorded=force)

        def show() -> None:
            needs = [(f"needs {size(need.bytes)}", f"in {need.folder}, temporarily") for need in planned.needs]
            facts(
                [
                    ("store", log.location),
                    ("on disk", size(planned.bytes)),
                    ("free inside", "unknown" if planned.slack is None else size(planned.slack)),
                    *needs,
                ]
            )

        confirm("Compact it?", yes, "nothing was done", show)
        note(f"compacting {log.location} ...")
        after = await compact(log)
    click.echo(
        f"from {size(planned.bytes)} to {size(after)}: {size(max(planned.bytes - after, 0))} given back to the disk"
    )
