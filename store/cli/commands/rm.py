"""messager rm"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ...text import plural, safe
from ..options import asynchronous, confirm, open_log, store_option
from ..output import Column, note, size, table, to_second
from ..progress import Progress

if TYPE_CHECKING:
    from ...experiments.records import Experiment
    from ...log.event_log import EventLog
    from ...queries.retention import Usage


def _moment(ts: int) -> str:
    from ...log.event import iso

    return to_second(iso(ts))


COLUMNS = (
    Column("EXP_ID", "experiment.exp_id"),
    Column("NAME", "experiment.name"),
    Column("STATUS", "experiment.status"),
    Column("BEGUN", "begun_at", _moment, right=False),
    Column("ENDED", "last_at", _moment, right=False),
    Column("EVENTS", "events"),
    Column("PAYLOADS", "payload_bytes", size),
    Column("ON DISK", "bytes", lambda number: f"~ {size(number)}"),
)


@click.command()
@click.argument("exps", nargs=-1, required=True, metavar="EXP...")
@click.option(
    "--force",
    is_flag=True,
    help="Also if a recorder is running or a spool holds events: both are refused then.",
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation. EXP must be a complete exp_id or name then.")
@store_option
@asynchronous
async def command(exps: tuple[str, ...], force: bool, yes: bool, store: str) -> None:
    """Remove experiments with all their events. Lists them first, and asks.

    This cannot be undone, unless the experiment was packed before with `messager pack`.
    """
    from ...queries.retention import usage_of

    async with open_log(store) as log:
        chosen: dict[int, Experiment] = {}
        for word in exps:
            of = await log.experiment(word)
            if yes and word not in (of.exp_id, of.name, "@last"):
                raise click.UsageError(
                    f"{word!r} is only a prefix of {of.exp_id!r}: with --yes, give the complete exp_id"
                )
            chosen[of.id] = of
        found = await usage_of(log, list(chosen.values()))
        if not force:
            await _refuse_busy(log, found)
            _refuse_spooled(found)
        await note_forks(log, found)
        confirm(
            f"Remove {'it' if len(found) == 1 else 'them'} from {log.location}?",
            yes,
            "nothing was removed",
            lambda: show(found),
        )
        await remove_all(log, found, force=force)


async def _refuse_busy(log: EventLog, found: list[Usage]) -> None:
    """Raise `ExperimentBusy` if a recorder is running, before anything is asked or removed."""
    from ...experiments.lifecycle import check_idle

    for each in found:
        if each.recording:
            check_idle(each.experiment, await log.recorders(each.experiment), "remove it")


def _refuse_spooled(found: list[Usage]) -> None:
    from ...errors import StoreError

    for each in found:
        if each.spool:
            raise StoreError(
                f"{each.experiment.exp_id} has events in {each.spool}. Copy them into the store with "
                "`messager drain`, or remove the experiment without them with --force."
            )


async def note_forks(log: EventLog, found: list[Usage]) -> None:
    """Say which experiments remain that were forked from one to be removed."""
    from ...queries.overview import forks_of

    going = {each.experiment.exp_id for each in found}
    for fork in await forks_of(log.database, going):
        if fork.exp_id not in going:
            note(f"{fork.exp_id} was forked from {fork.parent_exp_id} and remains: it is complete by itself")


def show(found: list[Usage]) -> None:
    """Print a table of the experiments to be removed."""
    table(COLUMNS, found, gives=("NAME",), spares=("ENDED", "PAYLOADS", "BEGUN"))  # exp_ids are printed in full
    if len(found) > 1:
        events, freed = sum(each.events for each in found), sum(each.bytes for each in found)
        note(f"{plural(len(found), 'experiment')}, {plural(events, 'event')}, about {size(freed)} on disk")


async def remove_all(
    log: EventLog, found: list[Usage], *, force: bool, if_unchanged: bool = False, quiet: bool = False
) -> list[Usage]:
    """Remove experiments one after another; return those that still existed."""
    from ...errors import ExperimentBusy, ExperimentChanged
    from ...maintenance.removal import remove

    gone = []
    for each in found:
        try:
            with Progress(f"removing {safe(each.experiment.exp_id)}") as progress:
                removed = await remove(
                    log,
                    each.experiment,
                    if_idle=not force,
                    if_unchanged=if_unchanged,
                    progress=progress,
                )
        except (ExperimentBusy, ExperimentChanged) as error:
            if len(found) == 1:
                raise
            note(f"not removed: {error}")
            continue
        if removed:
            gone.append(each)
        if not quiet:
            was = f"removed {each.experiment.exp_id}: {plural(each.events, 'event')}"
            click.echo(safe(was if removed else f"{each.experiment.exp_id} had been removed already"))
    if gone:
        freed = size(sum(each.bytes for each in gone))
        note(f"about {freed} of {log.location} are free for new events; `messager compact` returns them to the disk")
    return gone
