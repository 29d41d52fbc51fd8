"""messager gather"""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from ...text import length, plural, safe
from ..options import asynchronous, json_option, open_log, store_option
from ..output import Column, identifier, print_json, table
from ..place import PLACE
from ..progress import Progress

if TYPE_CHECKING:
    from ...formats.gather import GatheredExperiment, GatheredPart, GatheredRecorder


def _ahead(offset_ns: int | None) -> str:
    return "" if offset_ns is None else f"{'-' if offset_ns < 0 else '+'}{length(abs(offset_ns) / 1e9)}"


COLUMNS = (
    Column("PART", "part"),
    Column("RECORDER", "recorder", lambda uuid: uuid[:8]),
    Column("HOST", "host", lambda host: host or ""),
    Column("THERE", "ordinal", identifier),
    Column("HERE", "ordinal_here", lambda ordinal: "new" if ordinal is None else str(ordinal)),
    Column("COPIED", "events"),
    Column("BEFORE", "before"),
    Column("CLOCK", "clock_offset_ns", _ahead),
    Column("STATE", "state"),
)


@click.command()
@click.argument("parts", type=PLACE, nargs=-1, required=True, metavar="PART...")
@click.option("--exp", "exp_ids", multiple=True, metavar="EXP_ID", help="Gather only this experiment; may be repeated.")
@click.option(
    "--force",
    is_flag=True,
    help="Also merge parts whose times do not overlap, or whose name or meta differ: two unrelated experiments may "
    "have one exp_id.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be copied; write nothing and check no hashes.")
@store_option
@json_option
@asynchronous
async def command(
    parts: tuple[str, ...], exp_ids: tuple[str, ...], force: bool, dry_run: bool, store: str, as_json: bool
) -> None:
    """Merge experiments that several stores recorded into the store of --store, each batch once.

    A PART is a store: a file, or a URL. Each machine records into its own; afterwards the parts are gathered. Parts are
    not changed. Gathering can be interrupted and repeated, also while the parts are recorded. Recorders get new
    ordinals (THERE in the part, HERE in the store), and keep their uuids and heads. CLOCK is how far the clock of the
    broker was ahead; times are not changed.

    Exit code 1 if something of a part was not copied: it is damaged, differs from what was gathered before, or may be
    another experiment with the same exp_id. Events that the store has already are not compared again.
    """
    from ...formats.gather import GatheredExperiment, gather

    refused: list[GatheredPart] = []
    experiments: list[GatheredExperiment] = []
    target = ":memory:" if dry_run and not await _exists(store) else store
    async with open_log(target, create=not dry_run or target != store) as log:
        with Progress("gathering") as progress:
            async for done in gather(log, parts, exp_ids=exp_ids, force=force, dry_run=dry_run, progress=progress):
                progress.clear()
                if isinstance(done, GatheredExperiment):
                    experiments.append(done)
                    if not as_json:
                        _show(done, dry_run)
                else:
                    refused.append(done)
                    if not as_json:
                        _show_reason(done)
    if as_json:
        print_json(
            {"experiments": [asdict(each) for each in experiments], "not_read": [asdict(one) for one in refused]}
        )
    elif not experiments:
        click.echo("there are no experiments to gather")
    if any(part.failed for part in (*refused, *(part for each in experiments for part in each.parts))):
        raise click.exceptions.Exit(1)


async def _exists(store: str) -> bool:
    from ...errors import StoreNotFound

    try:
        async with open_log(store):
            return True
    except StoreNotFound:
        return False


def _show(done: GatheredExperiment, dry_run: bool) -> None:
    click.secho(safe(done.exp_id), bold=True)
    rows = [asdict(each) | _shown(part, each) for part in done.parts for each in part.recorders]
    if rows:
        columns = [each._replace(title="TO COPY") if dry_run and each.field == "events" else each for each in COLUMNS]
        table(columns, rows, gives=("PART", "HOST"), spares=("CLOCK", "HOST", "BEFORE"))
    for part in done.parts:
        for each in part.recorders:
            if each.damage is not None:
                what = (
                    f"{part.store}: recorder {each.ordinal} is damaged: {each.damage}. Nothing behind that was copied"
                )
                click.echo(f"{click.style('damaged', fg='red')}  {safe(what)}")
            if each.unclean:
                what = (
                    f"{part.store}: recorder {each.ordinal} ended uncleanly. Mark its end with `messager repair "
                    f"{done.exp_id} --store {part.store}`, and gather again"
                )
                click.echo(f"{click.style('unclean', fg='yellow')}  {safe(what)}")
        _show_reason(part)
    events = plural(sum(each.events for part in done.parts for each in part.recorders), "event")
    if dry_run:
        click.echo(f"would copy {events} of {safe(done.exp_id)}; their hashes were not checked")
    if dry_run or done.head is None:
        return
    click.echo(f"{safe(done.exp_id)} is {done.status}, {events} copied, and has the head {done.head}")
    if done.closed_before and done.head != done.head_before:
        click.echo(f"it had been closed, with the head {done.head_before}")


def _shown(part: GatheredPart, each: GatheredRecorder) -> dict[str, str]:
    return {
        "part": os.path.relpath(part.store) if os.path.isabs(part.store) else part.store,
        "state": "damaged" if each.damage else "ended" if each.ended else "unclean" if each.unclean else "not ended",
    }


def _show_reason(part: GatheredPart) -> None:
    if part.reason is not None:
        word, colour = ("skipped", "yellow") if part.skipped else ("refused", "red")
        click.echo(f"{click.style(word, fg=colour)}  {safe(part.store)}: {safe(part.reason)}")
