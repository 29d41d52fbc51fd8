"""messager rm"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ...text import plural, safe
from ..options import confirmed, opened, run, store_option
from ..output import Progress, note, size, table

if TYPE_CHECKING:
    from ...experiments.registry import Experiment
    from ...log.event_log import EventLog
    from ...maintenance.retention import Usage


@click.command()
@click.argument("exps", nargs=-1, required=True, metavar="EXP...")
@click.option("--force", is_flag=True, help="Also while a recorder runs, or events wait in a spool: they are refused.")
@click.option("--yes", is_flag=True, help="Do not ask. EXP is a whole exp_id or name then, no prefix.")
@store_option
def command(exps: tuple[str, ...], force: bool, yes: bool, store: str) -> None:
    """Remove experiments with all their events. Says first what goes, and asks.

    Nothing brings them back, but a pack that was made before (`messager pack`).
    """
    run(_rm(exps, force, yes, store))


async def _rm(words: tuple[str, ...], force: bool, yes: bool, store: str) -> None:
    from ...maintenance.retention import usage_of

    async with opened(store) as log:
        chosen: dict[int, Experiment] = {}
        for word in words:
            of = await log.experiment(word)
            if yes and word not in (of.exp_id, of.name, "@last"):
                raise click.UsageError(f"{word!r} is only the beginning of {of.exp_id!r}: with --yes, give all of it")
            chosen[of.id] = of
        found = await usage_of(log, list(chosen.values()))
        if not force:
            await _refuse_busy(log, found)
            _refuse_spooled(found)
        confirmed(
            f"Remove {'it' if len(found) == 1 else 'them'} from {log.location}?",
            yes,
            "nothing was removed",
            lambda: show(found),
        )
        await remove_all(log, found, force=force)


async def _refuse_busy(log: EventLog, found: list[Usage]) -> None:
    """Before anything is asked or removed."""
    from ...experiments.registry import refuse_while_recorded

    for each in found:
        if each.recording:
            await refuse_while_recorded(log.database, each.experiment, "remove it")


def _refuse_spooled(found: list[Usage]) -> None:
    from ...errors import StoreError

    for each in found:
        if each.spool:
            raise StoreError(
                f"events of {each.experiment.exp_id} wait in {each.spool}. Put them into the store with "
                "`messager drain`, or remove it without them with --force."
            )


def show(found: list[Usage]) -> None:
    """A table of what goes."""
    from ...log.event import iso

    titles = ("EXP_ID", "NAME", "STATUS", "BEGUN", "ENDED", "EVENTS", "PAYLOADS", "ON DISK")
    table(
        [(title, "right" if title in ("EVENTS", "PAYLOADS", "ON DISK") else "left") for title in titles],
        [
            (
                each.experiment.exp_id,
                each.experiment.name or "-",
                each.experiment.status,
                iso(each.begun_at)[:19].replace("T", " "),
                iso(each.last_at)[:19].replace("T", " "),
                f"{each.events:,}",
                size(each.payload_bytes),
                f"~ {size(each.bytes)}",
            )
            for each in found
        ],
        gives=("NAME",),  # what is to go is named in full
        spares=("ENDED", "PAYLOADS", "BEGUN"),
    )
    if len(found) > 1:
        events, freed = sum(each.events for each in found), sum(each.bytes for each in found)
        note(f"{plural(len(found), 'experiment')}, {plural(events, 'event')}, about {size(freed)} on disk")


async def remove_all(
    log: EventLog, found: list[Usage], *, force: bool, if_unchanged: bool = False, quiet: bool = False
) -> list[Usage]:
    """Remove them one after another; which ones there were to be removed."""
    from ...errors import ExperimentBusy, ExperimentChanged
    from ...maintenance.removal import remove

    gone = []
    for each in found:
        try:
            with Progress(f"removing {safe(each.experiment.exp_id)}:") as progress:
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
            note(f"left out: {error}")
            continue
        if removed:
            gone.append(each)
        if not quiet:
            was = f"removed {each.experiment.exp_id}: {plural(each.events, 'event')}"
            click.echo(safe(was if removed else f"{each.experiment.exp_id} had been removed already"))
    if gone:
        freed = size(sum(each.bytes for each in gone))
        note(f"about {freed} of {log.location} are free for new events; `messager compact` gives them back to the disk")
    return gone
